"""The fast path of StreamsGroupHeartbeat, for other compiled modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.group.heartbeat cimport EpochFastPath, TupleMetadata
from kcore_ext.util.slots cimport SlotLayout


cdef class StreamsHeartbeatFastPath(EpochFastPath):
    cdef TupleMetadata _metadata
    cdef FieldLayout _response
    cdef SlotLayout _of_machine
    cdef SlotLayout _of_group
    cdef SlotLayout _of_member

    cdef bint _changes_nothing(self, PyObject* request) noexcept
    cdef bint _rests(self, PyObject* member, PyObject* group, PyObject* request) noexcept
    cdef object _response_of(self, object member, int64_t interval_ms, int64_t endpoint_epoch)
