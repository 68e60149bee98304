"""What heartbeats of both protocols have in common, for the APIs that take them."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.message_shape cimport Shape

cdef enum:                          # of the request's shape: the first field
    GROUP_ID = 0


cdef class QuickHeartbeat:
    cdef public object _shards
    cdef public object _authorizer
    cdef readonly int64_t quick
    cdef dict _by_partition         # partition: shard
    cdef int _partitions
    cdef Shape _request

    cdef object _answer(self, object context, object request)
    cdef bint _is_usual(self, PyObject* request) except -1
    cdef object _renewed(self, object machine, object context, object request)
