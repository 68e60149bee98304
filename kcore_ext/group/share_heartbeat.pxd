"""The fast path of ShareGroupHeartbeat, for other compiled modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.group.heartbeat cimport GroupFastPath
from kcore_ext.util.slots cimport SlotLayout


cdef class ShareHeartbeatFastPath(GroupFastPath):
    cdef object _services
    cdef object _context                # the class of contexts, a named tuple, and the indices of its fields
    cdef Py_ssize_t _client_id
    cdef Py_ssize_t _client_host
    cdef object _settings               # the class of a group's settings, likewise
    cdef Py_ssize_t _session_timeout_ms
    cdef Py_ssize_t _heartbeat_interval_ms
    cdef object _metadata               # the class of a member's metadata, likewise
    cdef Py_ssize_t _metadata_client_id
    cdef Py_ssize_t _metadata_client_host
    cdef object _current                # the class of a member's current assignment, likewise
    cdef Py_ssize_t _current_epoch
    cdef FieldLayout _response
    cdef SlotLayout _of_services
    cdef SlotLayout _of_machine
    cdef SlotLayout _of_group
    cdef SlotLayout _of_member

    cdef bint _is_enabled_and_valid(self, PyObject* request) except -1
    cdef bint _has_same_identity(self, PyObject* member, object context) except -1
    cdef bint _rests(self, PyObject* member, object group, PyObject* request, int64_t now_ms) except -1
    cdef object _response_of(self, object member, int64_t interval_ms)
