"""The look-up of topics by name and by id, for other compiled modules."""


cdef class TopicsCore:
    cdef object _image
    cdef dict _names
    cdef dict _ids

    # `by_name` and `by_id`
    cdef object named(self, object name)
    cdef object with_id(self, object topic_id)
