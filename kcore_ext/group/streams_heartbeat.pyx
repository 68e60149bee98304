"""Fast path of StreamsGroupHeartbeat for requests that only restart a member's session timeout.

`kcore.group.apis.streams_group_heartbeat` is the generic path. If a heartbeat changed nothing and its response had no
status, the generic path sets a mark in the group (`StreamsGroup.note_rest`). Any change of the group, its topics or its
settings removes the mark. The fast path declines (returns None) unless the mark exists and the request changes nothing.
A test compares the responses and records of both paths.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout, get
from kcore_ext.group.heartbeat cimport EpochFastPath, TupleMetadata
from kcore_ext.runtime.clock cimport Now
from kcore_ext.runtime.shard cimport ShardCore
from kcore_ext.runtime.timer_wheel cimport Timer
from kcore_ext.util.slots cimport SlotLayout, item, number, slot

cdef enum:
    UNCHANGED = -1              # the rebalance timeout of a heartbeat that does not change it

cdef enum:                      # fields of StreamsGroupHeartbeatRequest
    GROUP_ID = 0
    MEMBER_ID = 1
    MEMBER_EPOCH = 2
    ENDPOINT_EPOCH = 3
    REBALANCE_TIMEOUT_MS = 4
    SHUTDOWN_APPLICATION = 5
    FIRST_CHANGE = 6            # the others are null unless the member changes or reports something
    CHANGES_END = 17

cdef dict REQUEST_FIELDS = {
    GROUP_ID: "group_id", MEMBER_ID: "member_id", MEMBER_EPOCH: "member_epoch",
    ENDPOINT_EPOCH: "endpoint_information_epoch", REBALANCE_TIMEOUT_MS: "rebalance_timeout_ms",
    SHUTDOWN_APPLICATION: "shutdown_application", 6: "instance_id", 7: "rack_id", 8: "topology", 9: "active_tasks",
    10: "standby_tasks", 11: "warmup_tasks", 12: "process_id", 13: "user_endpoint", 14: "client_tags",
    15: "task_offsets", 16: "task_end_offsets",
}

cdef enum:
    RESPONSE_INTERVAL_MS = 0    # fields of StreamsGroupHeartbeatResponse
    RESPONSE_ENDPOINT_EPOCH = 1
    MACHINE_GROUPS = 0
    MACHINE_NOW = 1
    GROUP_MEMBERS = 0
    GROUP_REST_EPOCH = 1
    GROUP_REST_SETTINGS = 2
    GROUP_ENDPOINT_EPOCH = 3
    MEMBER_TIMER = 0
    MEMBER_REST_EPOCH = 1
    MEMBER_REPLY = 2
    MEMBER_METADATA = 3


cdef class StreamsHeartbeatFastPath(EpochFastPath):
    """Documented in streams_heartbeat.pyi."""

    def __init__(
        self, api, shards, authorizer, read, denied, *, services, request, response, context, settings, machine, group,
        member, metadata,
    ):
        EpochFastPath.__init__(
            self, api, shards, authorizer, read, denied, request, REQUEST_FIELDS, services, context, settings
        )
        self._metadata = TupleMetadata(metadata)
        self._response = FieldLayout(response, {
            RESPONSE_INTERVAL_MS: "heartbeat_interval_ms", RESPONSE_ENDPOINT_EPOCH: "endpoint_information_epoch",
        })
        self._of_machine = SlotLayout(machine, {MACHINE_GROUPS: "groups", MACHINE_NOW: "now"})
        self._of_group = SlotLayout(group, {
            GROUP_MEMBERS: "members", GROUP_REST_EPOCH: "rest_epoch", GROUP_REST_SETTINGS: "rest_settings",
            GROUP_ENDPOINT_EPOCH: "endpoint_epoch",
        })
        self._of_member = SlotLayout(member, {
            MEMBER_TIMER: "timer", MEMBER_REST_EPOCH: "rest_epoch", MEMBER_REPLY: "reply", MEMBER_METADATA: "metadata",
        })

    def serve(self, context, request):
        cdef ShardCore shard = self._ready_shard(request)
        cdef PyObject* fields = <PyObject*>request
        cdef PyObject* group_id
        cdef PyObject* machine      # borrowed: no Python code runs before the response is made
        cdef PyObject* group
        cdef PyObject* member
        cdef PyObject* value
        cdef object settings
        cdef Timer timer
        cdef int64_t now_ms, session_ms, interval_ms, endpoint_epoch
        if (
            shard is None
            or type(context) is not self._context
            or not self._changes_nothing(fields)
            or not self._is_enabled()
        ):
            return None
        machine = <PyObject*>shard.machine
        group_id = get(fields, self._request, GROUP_ID)
        group = item(slot(machine, self._of_machine, MACHINE_GROUPS), group_id)
        if group is NULL:
            return None
        member = item(slot(group, self._of_group, GROUP_MEMBERS), get(fields, self._request, MEMBER_ID))
        if member is NULL:
            return None
        value = slot(member, self._of_member, MEMBER_TIMER)
        if value is NULL or type(<object>value) is not Timer:
            return None                     # the shard is loading: members have no timers yet
        timer = <Timer>value
        value = slot(machine, self._of_machine, MACHINE_NOW)
        if value is NULL or type(<object>value) is not Now:
            return None
        now_ms = (<Now>value).now_ms
        if not self._rests(member, group, fields) or not self._metadata.has_client(
            slot(member, self._of_member, MEMBER_METADATA), self, context
        ):
            return None
        value = self._settings_of(<PyObject*>self._services, group_id)
        if value is NULL or value is not slot(group, self._of_group, GROUP_REST_SETTINGS):
            return None                     # settings changed: the generic path compares them with the group's
        settings = <object>value
        if not self._read_timeouts(settings, &session_ms, &interval_ms) or not number(
            slot(group, self._of_group, GROUP_ENDPOINT_EPOCH), &endpoint_epoch
        ):
            return None
        response = self._response_of(<object>member, interval_ms, endpoint_epoch)
        return self._serve(shard, context, request, timer, now_ms + session_ms, response)

    cdef bint _changes_nothing(self, PyObject* request) noexcept:
        """Returns True if a request changes no metadata, reports no tasks and requests no shutdown."""
        cdef int64_t timeout_ms
        cdef PyObject* shutdown = get(request, self._request, SHUTDOWN_APPLICATION)
        cdef int i
        if shutdown is NULL or <object>shutdown is not False:
            return False
        for i in range(FIRST_CHANGE, CHANGES_END):
            if get(request, self._request, i) is not <PyObject*>None:
                return False
        return number(get(request, self._request, REBALANCE_TIMEOUT_MS), &timeout_ms) and timeout_ms == UNCHANGED

    cdef bint _rests(self, PyObject* member, PyObject* group, PyObject* request) noexcept:
        """Returns True if the last heartbeat of the member had no work, and the group has not changed since then.

        The request must also have the member's epoch and the current endpoint epoch.
        """
        cdef int64_t requested, of_member, of_group, known_endpoints, endpoint_epoch
        return (
            number(get(request, self._request, MEMBER_EPOCH), &requested)
            and number(slot(member, self._of_member, MEMBER_REST_EPOCH), &of_member)
            and number(slot(group, self._of_group, GROUP_REST_EPOCH), &of_group)
            and 0 < requested == of_member == of_group
            and number(get(request, self._request, ENDPOINT_EPOCH), &known_endpoints)
            and number(slot(group, self._of_group, GROUP_ENDPOINT_EPOCH), &endpoint_epoch)
            and known_endpoints == endpoint_epoch
        )

    cdef object _response_of(self, object member, int64_t interval_ms, int64_t endpoint_epoch):
        """Returns the member's previous response unless its contents have changed, else a new one."""
        cdef PyObject* reply = slot(<PyObject*>member, self._of_member, MEMBER_REPLY)
        cdef int64_t previous_ms, previous_epoch
        if (
            reply is not NULL
            and reply is not <PyObject*>None
            and number(get(reply, self._response, RESPONSE_INTERVAL_MS), &previous_ms)
            and number(get(reply, self._response, RESPONSE_ENDPOINT_EPOCH), &previous_epoch)
            and previous_ms == interval_ms
            and previous_epoch == endpoint_epoch
        ):
            return <object>reply
        return member.reply_at_rest(interval_ms)
