"""The look-up of topics by name and by id, for other compiled modules."""


cdef class TopicsCore:
    cdef object _image
    cdef dict _names
    cdef dict _ids

    # `by_name` and `by_id`
    cdef object named(self, object name)
    cdef object with_id(self, object topic_id)


cdef inline object topic_by_name(object topics, object name):
    """Calls `by_name` of a `TopicImage`."""
    return (<TopicsCore>topics).named(name) if isinstance(topics, TopicsCore) else topics.by_name(name)


cdef inline object topic_by_id(object topics, object topic_id):
    """Calls `by_id` of a `TopicImage`."""
    return (<TopicsCore>topics).with_id(topic_id) if isinstance(topics, TopicsCore) else topics.by_id(topic_id)
