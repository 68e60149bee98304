"""Fast path of ShareGroupHeartbeat for requests that only restart a member's session timeout.

`kcore.group.apis.share_group_heartbeat` is the generic path. It sets `ShareGroup.quiet_until_ms` when a heartbeat finds
no work, and each change of the group or of its topics resets this attribute. The fast path declines (returns None)
unless the group is quiet and the request changes nothing. A test compares both paths.
"""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_GET_LENGTH
from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout, get
from kcore_ext.group.heartbeat cimport EpochFastPath, TupleMetadata
from kcore_ext.runtime.clock cimport Now
from kcore_ext.runtime.shard cimport ShardCore
from kcore_ext.runtime.timer_wheel cimport Timer
from kcore_ext.util.slots cimport SlotLayout, item, number, slot
from kcore_ext.util.text cimport is_text

cdef extern from "Python.h":
    PyObject* borrow_from_tuple "PyTuple_GET_ITEM"(object, Py_ssize_t)

cdef enum:
    MAX_MEMBER_ID = 36          # `MAX_MEMBER_ID` of the generic path

cdef enum:                      # fields of ShareGroupHeartbeatRequest
    GROUP_ID = 0
    MEMBER_ID = 1
    MEMBER_EPOCH = 2
    RACK_ID = 3                 # both are null unless the member changes them
    SUBSCRIBED_TOPIC_NAMES = 4

cdef dict REQUEST_FIELDS = {
    GROUP_ID: "group_id", MEMBER_ID: "member_id", MEMBER_EPOCH: "member_epoch", RACK_ID: "rack_id",
    SUBSCRIBED_TOPIC_NAMES: "subscribed_topic_names",
}

cdef enum:
    RESPONSE_INTERVAL_MS = 0    # field of ShareGroupHeartbeatResponse
    MACHINE_GROUPS = 0
    MACHINE_NOW = 1
    GROUP_MEMBERS = 0
    GROUP_EPOCH = 1
    GROUP_ASSIGNMENT_EPOCH = 2
    GROUP_QUIET_UNTIL_MS = 3
    MEMBER_TIMER = 0
    MEMBER_REPLY = 1
    MEMBER_METADATA = 2
    MEMBER_CURRENT = 3


cdef class ShareHeartbeatFastPath(EpochFastPath):
    """Documented in share_heartbeat.pyi."""

    def __init__(
        self, api, shards, authorizer, read, denied, *, services, request, response, context, settings, machine, group,
        member, metadata, current,
    ):
        EpochFastPath.__init__(
            self, api, shards, authorizer, read, denied, request, REQUEST_FIELDS, services, context, settings
        )
        self._metadata = TupleMetadata(metadata)
        self._current = current
        self._current_epoch = current._fields.index("member_epoch")
        self._response = FieldLayout(response, {RESPONSE_INTERVAL_MS: "heartbeat_interval_ms"})
        self._of_machine = SlotLayout(machine, {MACHINE_GROUPS: "groups", MACHINE_NOW: "now"})
        self._of_group = SlotLayout(group, {
            GROUP_MEMBERS: "members", GROUP_EPOCH: "group_epoch", GROUP_ASSIGNMENT_EPOCH: "assignment_epoch",
            GROUP_QUIET_UNTIL_MS: "quiet_until_ms",
        })
        self._of_member = SlotLayout(member, {
            MEMBER_TIMER: "timer", MEMBER_REPLY: "reply", MEMBER_METADATA: "metadata", MEMBER_CURRENT: "current",
        })

    def serve(self, context, request):
        cdef ShardCore shard = self._ready_shard(request)
        cdef PyObject* fields = <PyObject*>request
        cdef PyObject* group_id
        cdef PyObject* machine
        cdef PyObject* found
        cdef object group, member, timer, settings      # owned: `target_must_wait` and the authorizer run Python code
        cdef int64_t now_ms, session_ms, interval_ms
        if shard is None or type(context) is not self._context or not self._is_enabled_and_valid(fields):
            return None
        machine = <PyObject*>shard.machine
        group_id = get(fields, self._request, GROUP_ID)
        found = item(slot(machine, self._of_machine, MACHINE_GROUPS), group_id)
        if found is NULL:
            return None
        group = <object>found
        found = item(slot(found, self._of_group, GROUP_MEMBERS), get(fields, self._request, MEMBER_ID))
        if found is NULL:
            return None
        member = <object>found
        found = slot(found, self._of_member, MEMBER_TIMER)
        if found is NULL or type(<object>found) is not Timer:
            return None                     # the shard is loading: members have no timers yet
        timer = <object>found
        found = slot(machine, self._of_machine, MACHINE_NOW)
        if found is NULL or type(<object>found) is not Now:
            return None
        now_ms = (<Now>found).now_ms
        found = self._settings_of(<PyObject*>self._services, group_id)
        if found is NULL:
            return None
        settings = <object>found
        if (
            not self._read_timeouts(settings, &session_ms, &interval_ms)
            or not self._metadata.has_client(slot(<PyObject*>member, self._of_member, MEMBER_METADATA), self, context)
            or not self._rests(<PyObject*>member, group, fields, now_ms)
        ):
            return None
        response = self._response_of(member, interval_ms)
        return self._serve(shard, context, request, <Timer>timer, now_ms + session_ms, response)

    cdef bint _is_enabled_and_valid(self, PyObject* request) except -1:
        """Returns True if share groups are enabled, the request's ids are valid, and the request changes nothing."""
        cdef PyObject* member_id = get(request, self._request, MEMBER_ID)
        return (
            self._is_enabled()
            and is_text(get(request, self._request, GROUP_ID))
            and is_text(member_id)
            and PyUnicode_GET_LENGTH(<object>member_id) <= MAX_MEMBER_ID
            and get(request, self._request, RACK_ID) is <PyObject*>None
            and get(request, self._request, SUBSCRIBED_TOPIC_NAMES) is <PyObject*>None
        )

    cdef bint _rests(self, PyObject* member, object group, PyObject* request, int64_t now_ms) except -1:
        """Returns True if request, member and target have the same epoch, and no work of the group is due."""
        cdef PyObject* current = slot(member, self._of_member, MEMBER_CURRENT)
        cdef PyObject* fields = <PyObject*>group
        cdef int64_t requested, epoch, assigned, group_epoch, quiet_until_ms
        if (
            current is NULL
            or type(<object>current) is not self._current
            or not number(get(request, self._request, MEMBER_EPOCH), &requested)
            or not number(borrow_from_tuple(<object>current, self._current_epoch), &epoch)
            or not number(slot(fields, self._of_group, GROUP_ASSIGNMENT_EPOCH), &assigned)
            or not number(slot(fields, self._of_group, GROUP_EPOCH), &group_epoch)
            or not number(slot(fields, self._of_group, GROUP_QUIET_UNTIL_MS), &quiet_until_ms)
            or not 0 < requested == epoch == assigned
            or now_ms >= quiet_until_ms
        ):
            return False
        return assigned == group_epoch or group.target_must_wait()

    cdef object _response_of(self, object member, int64_t interval_ms):
        """Returns the member's previous response unless the heartbeat interval has changed, else a new one."""
        cdef PyObject* reply = slot(<PyObject*>member, self._of_member, MEMBER_REPLY)
        cdef int64_t previous_ms
        if (
            reply is not NULL
            and reply is not <PyObject*>None
            and number(get(reply, self._response, RESPONSE_INTERVAL_MS), &previous_ms)
            and previous_ms == interval_ms
        ):
            return <object>reply
        return member.reply_at_rest(interval_ms)
