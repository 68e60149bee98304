"""What is remembered of commits, for the APIs that take them."""

from kcore_ext.message_shape cimport Shape
from kcore_ext.offset_block cimport CommitShape, OffsetBlock

cdef enum:                              # of the request's shape: the first one
    TOPICS = 0

cdef enum:                              # of its topics' shape, all of them; some have no id
    NAME = 0
    PARTITIONS = 1
    TOPIC_ID = 2


cdef class CommitShapes:
    cdef public object _shards
    cdef public object _topics
    cdef public object _authorizer
    cdef dict _table                    # the shards by partition
    cdef int _partitions
    cdef object _find_name
    cdef object _find_id
    cdef Shape _request
    cdef Shape _topic
    cdef Shape _partition
    cdef bint _has_ids
    cdef type _record_type
    cdef dict _shapes                   # by what `_key` says of a request

    cdef bytes _key(self, object topics, bint by_id)
    cdef CommitShape _shape(self, object context, object request, bint by_id)
    cdef CommitShape _new_shape(self, object context, object request, object topics, bint by_id)
    cdef OffsetBlock _block(self, object machine, object group_id, object topics, CommitShape shape, bint with_ids)
