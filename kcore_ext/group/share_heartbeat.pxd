"""The fast path of ShareGroupHeartbeat, for other compiled modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.group.heartbeat cimport EpochFastPath, TupleMetadata
from kcore_ext.util.slots cimport SlotLayout


cdef class ShareHeartbeatFastPath(EpochFastPath):
    cdef TupleMetadata _metadata
    cdef object _current                # the class of a member's current assignment, a named tuple
    cdef Py_ssize_t _current_epoch
    cdef FieldLayout _response
    cdef SlotLayout _of_machine
    cdef SlotLayout _of_group
    cdef SlotLayout _of_member

    cdef bint _is_enabled_and_valid(self, PyObject* request) except -1
    cdef bint _rests(self, PyObject* member, object group, PyObject* request, int64_t now_ms) except -1
    cdef object _response_of(self, object member, int64_t interval_ms)
