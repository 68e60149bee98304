"""Heartbeat as it mostly comes: a dynamic member of a classic group, in the generation that it believes to be in.

Whatever is not so goes the plain way, which `kcore.group.apis.heartbeat` has in full; that is the definition, and a test
holds the two together.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.clock cimport Now
from kcore_ext.message_shape cimport Shape, get
from kcore_ext.quick_heartbeat cimport GROUP_ID, QuickHeartbeat
from kcore_ext.slots cimport Slots, item, number, slot
from kcore_ext.timer_wheel cimport Timer, timer_extend

cdef enum:                      # fields of a request, by their places in its shape
    GENERATION_ID = 1
    MEMBER_ID = 2
    GROUP_INSTANCE_ID = 3

cdef enum:                      # slots, by their places: of a shard's state machine,
    GROUPS = 0
    NOW = 1
    MEMBERS = 0                 # of a group,
    PRESENT_GENERATION_ID = 1
    STATE = 2
    REPLY = 3
    TIMER = 0                   # and of a member
    SESSION_TIMEOUT_MS = 1


cdef class HeartbeatCore(QuickHeartbeat):
    """See heartbeat.pyi."""

    def __init__(self, shards not None, authorizer, *, request, machine, group, member, dead):
        QuickHeartbeat.__init__(
            self, shards, authorizer, Shape(request, "group_id", "generation_id", "member_id", "group_instance_id")
        )
        self._dead = dead
        self._of_machine = Slots(machine, "groups", "now")
        self._of_group = Slots(group, "members", "generation_id", "state", "heartbeat_reply")
        self._of_member = Slots(member, "timer", "session_timeout_ms")

    cdef object _renewed(self, object machine, object context, object request):
        cdef PyObject* asked = <PyObject*>request
        cdef PyObject* group
        cdef PyObject* member
        cdef PyObject* timer
        cdef PyObject* now
        cdef PyObject* state
        cdef PyObject* reply
        cdef int64_t said, present, session_ms
        group = item(slot(<PyObject*>machine, self._of_machine, GROUPS), get(asked, self._request, GROUP_ID))
        if group is NULL:
            return None
        member = item(slot(group, self._of_group, MEMBERS), get(asked, self._request, MEMBER_ID))
        if member is NULL or get(asked, self._request, GROUP_INSTANCE_ID) is not <PyObject*>None:
            return None
        state = slot(group, self._of_group, STATE)
        if (
            not number(get(asked, self._request, GENERATION_ID), &said)
            or not number(slot(group, self._of_group, PRESENT_GENERATION_ID), &present)
            or said != present
            or state is NULL
            or state is <PyObject*>self._dead
        ):
            return None
        now = slot(<PyObject*>machine, self._of_machine, NOW)
        timer = slot(member, self._of_member, TIMER)
        reply = slot(group, self._of_group, REPLY)
        if (
            now is NULL or type(<object>now) is not Now
            or timer is NULL or type(<object>timer) is not Timer
            or reply is NULL
            or not number(slot(member, self._of_member, SESSION_TIMEOUT_MS), &session_ms)
        ):
            return None
        timer_extend(<Timer>timer, (<Now>now).now_ms + session_ms)
        return <object>reply
