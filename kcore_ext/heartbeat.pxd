"""Heartbeat of a member that is where it believes to be, for other compiled modules."""

from libc.stdint cimport int64_t

from kcore_ext.message_shape cimport Shape
from kcore_ext.slots cimport Slots


cdef class HeartbeatCore:
    cdef public object _shards
    cdef public object _authorizer
    cdef readonly int64_t quick
    cdef dict _by_partition         # partition: shard
    cdef int _partitions
    cdef object _dead               # the state of a group that is gone
    cdef Shape _request
    cdef Slots _of_machine
    cdef Slots _of_group
    cdef Slots _of_member

    cdef object _answer(self, object context, object request)
    cdef object _renewed(self, object machine, object request)
