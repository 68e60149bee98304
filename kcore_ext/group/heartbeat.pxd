"""Fast paths of Heartbeat and ConsumerGroupHeartbeat, for other compiled modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.runtime.shard cimport ShardCore
from kcore_ext.util.slots cimport SlotLayout
from kcore_ext.runtime.timer_wheel cimport Timer


cdef class GroupFastPath:
    cdef readonly int64_t served        # requests that the fast path has served
    cdef object _api
    cdef object _authorizer
    cdef object _read                   # Operation.READ
    cdef object _group_resource         # ResourceType.GROUP
    cdef object _denied                 # the response to a client that may not READ the group
    cdef list _by_partition             # for each partition its shard, or None
    cdef FieldLayout _request

    cdef ShardCore _ready_shard(self, object request)
    cdef object _serve(self, ShardCore shard, object context, object request, Timer timer, int64_t deadline_ms,
                       object response)


cdef class EpochFastPath(GroupFastPath):
    cdef object _services
    cdef object _context                # the class of contexts, a named tuple, and the indices of its fields
    cdef Py_ssize_t _client_id
    cdef Py_ssize_t _client_host
    cdef object _settings               # the class of a group's settings, a named tuple, and the indices of its fields
    cdef Py_ssize_t _session_timeout_ms
    cdef Py_ssize_t _heartbeat_interval_ms
    cdef SlotLayout _of_services

    cdef bint _is_enabled(self) noexcept
    cdef PyObject* _settings_of(self, PyObject* services, PyObject* group_id) except? NULL
    cdef bint _read_timeouts(self, object settings, int64_t* session_ms, int64_t* interval_ms) noexcept
    cdef bint _is_client(self, object context, PyObject* client_id, PyObject* client_host) except -1


cdef class TupleMetadata:
    cdef object _class
    cdef Py_ssize_t _client_id
    cdef Py_ssize_t _client_host

    cdef bint has_client(self, PyObject* metadata, EpochFastPath fast, object context) except -1


cdef class HeartbeatFastPath(GroupFastPath):
    cdef object _dead                   # GroupState.DEAD
    cdef SlotLayout _of_machine
    cdef SlotLayout _of_group
    cdef SlotLayout _of_member


cdef class ConsumerHeartbeatFastPath(EpochFastPath):
    cdef FieldLayout _response
    cdef SlotLayout _of_machine
    cdef SlotLayout _of_group
    cdef SlotLayout _of_subscriptions
    cdef SlotLayout _of_member
    cdef SlotLayout _of_metadata

    cdef bint _is_enabled_and_valid(self, PyObject* request) except -1
    cdef bint _changes_nothing(self, PyObject* request) noexcept
    cdef bint _is_settled(self, PyObject* member, PyObject* group, PyObject* request) noexcept
    cdef bint _has_same_identity(self, PyObject* member, object context, PyObject* request) except -1
    cdef bint _is_quiet(self, object group, int64_t now_ms) except -1
    cdef object _settings_of_group(self, PyObject* machine, PyObject* group_id)
    cdef object _response_of(self, object member, int64_t interval_ms)
