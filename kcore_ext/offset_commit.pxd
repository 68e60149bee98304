"""OffsetCommit as it mostly comes, for other compiled modules."""

from cpython.object cimport PyObject, PyTypeObject

from kcore_ext.offset_block cimport CommitShape


cdef struct Fields:                     # where those of a request and of its topics lie
    Py_ssize_t group_id
    Py_ssize_t generation_id
    Py_ssize_t member_id
    Py_ssize_t instance_id
    Py_ssize_t retention_time_ms
    Py_ssize_t topics
    Py_ssize_t name
    Py_ssize_t topic_id
    Py_ssize_t partitions


cdef class OffsetCommitCore:
    cdef public object _shards
    cdef public object _topics
    cdef public object _authorizer
    cdef dict _table                    # the shards by partition
    cdef int _partitions
    cdef object _find_name
    cdef object _find_id
    cdef object _request_class          # these keep the types alive
    cdef object _topic_class
    cdef type _record_type
    cdef object _classic_group          # its class ...
    cdef object _empty                  # ... and two of its states
    cdef object _stable
    cdef PyTypeObject* _request_type
    cdef PyTypeObject* _topic_type
    cdef Fields _at
    cdef dict _shapes                   # by what `_key` says of a request

    cdef bytes _key(self, object topics, bint by_id)
    cdef CommitShape _shape(self, object context, object request, bint by_id)
    cdef CommitShape _new_shape(self, object context, object request, object topics, bint by_id)
    cdef bint _taken_by(self, object group, object machine, object member_id, object instance_id,
                        object generation_id) except -1
