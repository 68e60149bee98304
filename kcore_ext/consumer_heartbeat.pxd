"""ConsumerGroupHeartbeat of a member at rest, for other compiled modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.message_shape cimport Shape
from kcore_ext.quick_heartbeat cimport QuickHeartbeat
from kcore_ext.slots cimport Slots
from kcore_ext.timer_wheel cimport Timer


cdef class ConsumerHeartbeatCore(QuickHeartbeat):
    cdef public object _services
    cdef object _context            # the class of contexts, and where in one its fields are
    cdef Py_ssize_t _client_id
    cdef Py_ssize_t _client_host
    cdef object _settings           # the same of a group's settings
    cdef Py_ssize_t _session_timeout_ms
    cdef Py_ssize_t _heartbeat_interval_ms
    cdef Shape _response
    cdef Slots _of_services
    cdef Slots _of_machine
    cdef Slots _of_group
    cdef Slots _of_subscriptions
    cdef Slots _of_member
    cdef Slots _of_metadata

    cdef bint _says_nothing(self, PyObject* request) noexcept
    cdef bint _is_settled(self, PyObject* member, PyObject* group, PyObject* request) noexcept
    cdef bint _is_as_before(self, PyObject* member, object context, PyObject* request) except -1
    cdef bint _is_quiet(self, object group, int64_t now_ms) except -1
    cdef object _answered(self, object machine, object member, Timer timer, int64_t now_ms, object group_id)
