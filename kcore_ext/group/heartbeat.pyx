"""Fast paths of Heartbeat and ConsumerGroupHeartbeat for requests that only restart a member's session timeout.

`kcore.group.apis.heartbeat` and `kcore.group.apis.consumer_group_heartbeat` serve every request. The fast paths decline
(return None) every request that is not the common case, before any change. A test compares both paths. Groups and
members are ordinary Python objects, whose slots this module reads as C fields.
"""

from cpython.dict cimport PyDict_Check, PyDict_Size
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.runtime.clock cimport Now
from kcore_ext.codec.fields cimport FieldLayout, get
from kcore_ext.runtime.shard cimport ShardCore, ready_shard
from kcore_ext.util.slots cimport SlotLayout, item, number, slot
from kcore_ext.util.text cimport is_same, is_text
from kcore_ext.runtime.timer_wheel cimport Timer, timer_extend

cdef extern from "Python.h":
    PyObject* borrow_from_tuple "PyTuple_GET_ITEM"(object, Py_ssize_t)

cdef enum:
    GROUP_ID = 0                # index of the first field of both requests


# ---- the common part

cdef class GroupFastPath:
    """Documented in heartbeat.pyi."""

    def __init__(self, api, shards not None, authorizer, tuple read not None, denied, request, fields):
        self._api = api
        self._authorizer = authorizer
        self._read, self._group_resource = read
        self._denied = denied
        self._by_partition = shards.by_partition
        self._request = FieldLayout(request, dict(fields))

    cdef ShardCore _ready_shard(self, object request):
        """Returns the shard of a request's group; None if this node has no active shard for the group."""
        cdef PyObject* group_id = get(<PyObject*>request, self._request, GROUP_ID)
        return None if group_id is NULL else ready_shard(self._by_partition, <object>group_id)

    cdef object _serve(self, ShardCore shard, object context, object request, Timer timer, int64_t deadline_ms,
                       object response):
        """Authorizes the request, restarts the session timeout and returns the response.

        The authorizer is called after all other checks, so that it is called only once per request.
        """
        if self._authorizer is not None and not self._authorizer.allowed(
            context, self._read, self._group_resource, <object>get(<PyObject*>request, self._request, GROUP_ID)
        ):
            return self._denied
        self.served += 1
        timer_extend(timer, deadline_ms)
        return shard.when_durable(self._api, context, request, response)


cdef enum:
    SERVICES_ENABLED = 0
    SERVICES_SETTINGS_OF = 1


cdef class EpochFastPath(GroupFastPath):
    """Documented in heartbeat.pyi."""

    def __init__(self, api, shards, authorizer, read, denied, request, fields, services not None, context, settings):
        GroupFastPath.__init__(self, api, shards, authorizer, read, denied, request, fields)
        self._services = services
        self._context = context
        self._client_id = context._fields.index("client_id")
        self._client_host = context._fields.index("client_host")
        self._settings = settings
        self._session_timeout_ms = settings._fields.index("session_timeout_ms")
        self._heartbeat_interval_ms = settings._fields.index("heartbeat_interval_ms")
        self._of_services = SlotLayout(type(services), {SERVICES_ENABLED: "enabled", SERVICES_SETTINGS_OF: "settings_of"})

    cdef bint _is_enabled(self) noexcept:
        """Returns True if the protocol is enabled."""
        cdef PyObject* enabled = slot(<PyObject*>self._services, self._of_services, SERVICES_ENABLED)
        return enabled is not NULL and <object>enabled is True

    cdef PyObject* _settings_of(self, PyObject* services, PyObject* group_id) except? NULL:
        """Returns a borrowed reference to the cached settings of a group; NULL if none are cached."""
        return item(slot(services, self._of_services, SERVICES_SETTINGS_OF), group_id)

    cdef bint _read_timeouts(self, object settings, int64_t* session_ms, int64_t* interval_ms) noexcept:
        """Reads the session timeout and the heartbeat interval; returns False if `settings` has another class."""
        return (
            type(settings) is self._settings
            and number(borrow_from_tuple(settings, self._session_timeout_ms), session_ms)
            and number(borrow_from_tuple(settings, self._heartbeat_interval_ms), interval_ms)
        )

    cdef bint _is_client(self, object context, PyObject* client_id, PyObject* client_host) except -1:
        """Returns True if the client of a request has the client id and host of a member's metadata."""
        return is_same(borrow_from_tuple(context, self._client_id), client_id) and is_same(
            borrow_from_tuple(context, self._client_host), client_host
        )


cdef class TupleMetadata:
    """Documented in heartbeat.pyi."""

    def __init__(self, metadata):
        self._class = metadata
        self._client_id = metadata._fields.index("client_id")
        self._client_host = metadata._fields.index("client_host")

    cdef bint has_client(self, PyObject* metadata, EpochFastPath fast, object context) except -1:
        """Returns True if client id and host of a request equal those in a member's metadata."""
        if metadata is NULL or type(<object>metadata) is not self._class:
            return False
        return fast._is_client(
            context,
            borrow_from_tuple(<object>metadata, self._client_id),
            borrow_from_tuple(<object>metadata, self._client_host),
        )


# ---- classic groups

cdef enum:                      # fields of HeartbeatRequest
    GENERATION_ID = 1
    MEMBER_ID = 2
    GROUP_INSTANCE_ID = 3

cdef dict HEARTBEAT_FIELDS = {
    GROUP_ID: "group_id", GENERATION_ID: "generation_id", MEMBER_ID: "member_id",
    GROUP_INSTANCE_ID: "group_instance_id",
}

cdef enum:
    MACHINE_GROUPS = 0
    MACHINE_NOW = 1
    GROUP_MEMBERS = 0
    GROUP_GENERATION_ID = 1
    GROUP_STATE = 2
    GROUP_REPLY = 3
    MEMBER_TIMER = 0
    MEMBER_SESSION_TIMEOUT_MS = 1


cdef class HeartbeatFastPath(GroupFastPath):
    """Documented in heartbeat.pyi."""

    def __init__(self, api, shards, authorizer, read, denied, *, request, machine, group, member, dead):
        GroupFastPath.__init__(self, api, shards, authorizer, read, denied, request, HEARTBEAT_FIELDS)
        self._dead = dead
        self._of_machine = SlotLayout(machine, {MACHINE_GROUPS: "groups", MACHINE_NOW: "now"})
        self._of_group = SlotLayout(group, {
            GROUP_MEMBERS: "members", GROUP_GENERATION_ID: "generation_id", GROUP_STATE: "state",
            GROUP_REPLY: "heartbeat_reply",
        })
        self._of_member = SlotLayout(member, {MEMBER_TIMER: "timer", MEMBER_SESSION_TIMEOUT_MS: "session_timeout_ms"})

    def serve(self, context, request):
        cdef ShardCore shard = self._ready_shard(request)
        cdef PyObject* fields = <PyObject*>request
        cdef PyObject* machine      # borrowed: no Python code runs before the authorizer
        cdef PyObject* group
        cdef PyObject* member
        cdef PyObject* now
        cdef PyObject* timer
        cdef PyObject* state
        cdef PyObject* reply
        cdef int64_t requested, current, deadline_ms = 0
        if shard is None or get(fields, self._request, GROUP_INSTANCE_ID) is not <PyObject*>None:
            return None
        machine = <PyObject*>shard.machine
        group = item(slot(machine, self._of_machine, MACHINE_GROUPS), get(fields, self._request, GROUP_ID))
        if group is NULL:
            return None
        member = item(slot(group, self._of_group, GROUP_MEMBERS), get(fields, self._request, MEMBER_ID))
        if member is NULL:
            return None
        state = slot(group, self._of_group, GROUP_STATE)
        now = slot(machine, self._of_machine, MACHINE_NOW)
        timer = slot(member, self._of_member, MEMBER_TIMER)
        reply = slot(group, self._of_group, GROUP_REPLY)
        if (
            state is NULL
            or state is <PyObject*>self._dead
            or not number(get(fields, self._request, GENERATION_ID), &requested)
            or not number(slot(group, self._of_group, GROUP_GENERATION_ID), &current)
            or requested != current
            or not number(slot(member, self._of_member, MEMBER_SESSION_TIMEOUT_MS), &deadline_ms)
            or now is NULL or type(<object>now) is not Now
            or timer is NULL or type(<object>timer) is not Timer
            or reply is NULL
        ):
            return None
        deadline_ms += (<Now>now).now_ms
        return self._serve(shard, context, request, <Timer>timer, deadline_ms, <object>reply)


# ---- consumer groups

cdef enum:
    UNCHANGED = -1              # the rebalance timeout of a heartbeat that does not change it

cdef enum:                      # fields of ConsumerGroupHeartbeatRequest
    CONSUMER_MEMBER_ID = 1
    MEMBER_EPOCH = 2
    INSTANCE_ID = 3
    REBALANCE_TIMEOUT_MS = 4
    RACK_ID = 5
    SUBSCRIBED_TOPIC_NAMES = 6
    SUBSCRIBED_TOPIC_REGEX = 7
    SERVER_ASSIGNOR = 8
    FIRST_CHANGE = RACK_ID      # these four are null unless the member changes them
    CHANGES_END = SERVER_ASSIGNOR + 1

cdef dict CONSUMER_HEARTBEAT_FIELDS = {
    GROUP_ID: "group_id", CONSUMER_MEMBER_ID: "member_id", MEMBER_EPOCH: "member_epoch", INSTANCE_ID: "instance_id",
    REBALANCE_TIMEOUT_MS: "rebalance_timeout_ms", RACK_ID: "rack_id",
    SUBSCRIBED_TOPIC_NAMES: "subscribed_topic_names", SUBSCRIBED_TOPIC_REGEX: "subscribed_topic_regex",
    SERVER_ASSIGNOR: "server_assignor",
}

cdef enum:
    HEARTBEAT_INTERVAL_MS = 0   # field of ConsumerGroupHeartbeatResponse
    CONSUMER_MACHINE_GROUPS = 0
    CONSUMER_MACHINE_NOW = 1
    CONSUMER_MACHINE_SERVICES = 2
    GROUP_EPOCH = 0
    ASSIGNMENT_EPOCH = 1
    REFRESH_AT_MS = 2
    REFRESH_EPOCH = 3
    CONSUMER_GROUP_MEMBERS = 4
    SUBSCRIPTIONS = 5
    REGEXES = 0
    SETTLED_EPOCH = 0
    CONSUMER_MEMBER_TIMER = 1
    MEMBER_REPLY = 2
    MEMBER_METADATA = 3
    METADATA_INSTANCE_ID = 0
    METADATA_CLIENT_ID = 1
    METADATA_CLIENT_HOST = 2


cdef class ConsumerHeartbeatFastPath(EpochFastPath):
    """Documented in heartbeat.pyi."""

    def __init__(
        self, api, shards, authorizer, read, denied, *, services, request, response, context, settings, machine, group,
        subscriptions, member, metadata,
    ):
        EpochFastPath.__init__(
            self, api, shards, authorizer, read, denied, request, CONSUMER_HEARTBEAT_FIELDS, services, context, settings
        )
        self._response = FieldLayout(response, {HEARTBEAT_INTERVAL_MS: "heartbeat_interval_ms"})
        self._of_machine = SlotLayout(machine, {
            CONSUMER_MACHINE_GROUPS: "groups", CONSUMER_MACHINE_NOW: "now", CONSUMER_MACHINE_SERVICES: "consumer",
        })
        self._of_group = SlotLayout(group, {
            GROUP_EPOCH: "group_epoch", ASSIGNMENT_EPOCH: "assignment_epoch", REFRESH_AT_MS: "refresh_at_ms",
            REFRESH_EPOCH: "refresh_epoch", CONSUMER_GROUP_MEMBERS: "members", SUBSCRIPTIONS: "subscriptions",
        })
        self._of_subscriptions = SlotLayout(subscriptions, {REGEXES: "regexes"})
        self._of_member = SlotLayout(member, {
            SETTLED_EPOCH: "settled_epoch", CONSUMER_MEMBER_TIMER: "timer", MEMBER_REPLY: "reply",
            MEMBER_METADATA: "metadata",
        })
        self._of_metadata = SlotLayout(metadata, {
            METADATA_INSTANCE_ID: "instance_id", METADATA_CLIENT_ID: "client_id",
            METADATA_CLIENT_HOST: "client_host",
        })

    def serve(self, context, request):
        cdef ShardCore shard = self._ready_shard(request)
        cdef PyObject* fields = <PyObject*>request
        cdef PyObject* group_id
        cdef PyObject* found
        cdef object group, member, timer    # owned: settings, patterns and the authorizer run Python code
        cdef int64_t now_ms, session_ms, interval_ms
        if (
            shard is None
            or type(context) is not self._context
            or not self._is_enabled_and_valid(fields)
            or not self._changes_nothing(fields)
        ):
            return None
        machine = shard.machine
        group_id = get(fields, self._request, GROUP_ID)
        found = item(slot(<PyObject*>machine, self._of_machine, CONSUMER_MACHINE_GROUPS), group_id)
        if found is NULL:
            return None
        group = <object>found
        found = item(
            slot(found, self._of_group, CONSUMER_GROUP_MEMBERS), get(fields, self._request, CONSUMER_MEMBER_ID)
        )
        if found is NULL:
            return None
        member = <object>found
        found = slot(found, self._of_member, CONSUMER_MEMBER_TIMER)
        if found is NULL or type(<object>found) is not Timer:
            return None                     # the shard is loading: members have no timers yet
        timer = <object>found
        found = slot(<PyObject*>machine, self._of_machine, CONSUMER_MACHINE_NOW)
        if found is NULL or type(<object>found) is not Now:
            return None
        now_ms = (<Now>found).now_ms
        if (
            not self._is_settled(<PyObject*>member, <PyObject*>group, fields)
            or not self._has_same_identity(<PyObject*>member, context, fields)
            or not self._is_quiet(group, now_ms)
        ):
            return None
        settings = self._settings_of_group(<PyObject*>machine, group_id)
        if not self._read_timeouts(settings, &session_ms, &interval_ms):
            return None
        response = self._response_of(member, interval_ms)
        return self._serve(shard, context, request, <Timer>timer, now_ms + session_ms, response)

    cdef bint _is_enabled_and_valid(self, PyObject* request) except -1:
        """Returns True if the protocol is enabled and the request's ids are valid."""
        cdef PyObject* instance_id = get(request, self._request, INSTANCE_ID)
        return (
            self._is_enabled()
            and is_text(get(request, self._request, GROUP_ID))
            and is_text(get(request, self._request, CONSUMER_MEMBER_ID))
            and (instance_id is <PyObject*>None or is_text(instance_id))
        )

    cdef bint _changes_nothing(self, PyObject* request) noexcept:
        """Returns True if a request changes neither subscription, assignor, rack nor rebalance timeout."""
        cdef int64_t timeout_ms
        cdef int i
        for i in range(FIRST_CHANGE, CHANGES_END):
            if get(request, self._request, i) is not <PyObject*>None:
                return False
        return number(get(request, self._request, REBALANCE_TIMEOUT_MS), &timeout_ms) and timeout_ms == UNCHANGED

    cdef bint _is_settled(self, PyObject* member, PyObject* group, PyObject* request) noexcept:
        """Returns True if a member has reached its group's target assignment and its request has the target's epoch."""
        cdef int64_t requested, settled, assigned
        return (
            number(get(request, self._request, MEMBER_EPOCH), &requested)
            and number(slot(member, self._of_member, SETTLED_EPOCH), &settled)
            and number(slot(group, self._of_group, ASSIGNMENT_EPOCH), &assigned)
            and 0 < requested == settled == assigned
        )

    cdef bint _has_same_identity(self, PyObject* member, object context, PyObject* request) except -1:
        """Returns True if instance id, client id and host equal those in the member's metadata."""
        cdef PyObject* metadata = slot(member, self._of_member, MEMBER_METADATA)
        cdef PyObject* instance_id = get(request, self._request, INSTANCE_ID)
        if metadata is NULL:
            return False
        if instance_id is not <PyObject*>None:
            if not is_same(instance_id, slot(metadata, self._of_metadata, METADATA_INSTANCE_ID)):
                return False
        return self._is_client(
            context,
            slot(metadata, self._of_metadata, METADATA_CLIENT_ID),
            slot(metadata, self._of_metadata, METADATA_CLIENT_HOST),
        )

    cdef bint _is_quiet(self, object group, int64_t now_ms) except -1:
        """Returns True if heartbeats currently find no work for the group, like `ConsumerGroup.is_quiet`.

        Calls that method only if the group has patterns, or if its target is older than its epoch.
        """
        cdef int64_t group_epoch, assigned, refresh_at_ms, refresh_epoch
        cdef PyObject* found = slot(<PyObject*>group, self._of_group, SUBSCRIPTIONS)
        if found is not NULL:
            found = slot(found, self._of_subscriptions, REGEXES)
        if (
            found is not NULL
            and PyDict_Check(<object>found)
            and PyDict_Size(<object>found) == 0
            and number(slot(<PyObject*>group, self._of_group, GROUP_EPOCH), &group_epoch)
            and number(slot(<PyObject*>group, self._of_group, ASSIGNMENT_EPOCH), &assigned)
            and number(slot(<PyObject*>group, self._of_group, REFRESH_AT_MS), &refresh_at_ms)
            and number(slot(<PyObject*>group, self._of_group, REFRESH_EPOCH), &refresh_epoch)
            and group_epoch == assigned
        ):
            return now_ms < refresh_at_ms and group_epoch >= refresh_epoch
        return group.is_quiet()

    cdef object _settings_of_group(self, PyObject* machine, PyObject* group_id):
        """Returns the settings of a group; None if the state machine has no services."""
        cdef PyObject* services = slot(machine, self._of_machine, CONSUMER_MACHINE_SERVICES)
        cdef PyObject* found
        if services is NULL:
            return None
        found = self._settings_of(services, group_id)
        return (<object>services).settings(<object>group_id) if found is NULL else <object>found

    cdef object _response_of(self, object member, int64_t interval_ms):
        """Returns the member's previous response unless the heartbeat interval has changed, else a new one."""
        cdef PyObject* reply = slot(<PyObject*>member, self._of_member, MEMBER_REPLY)
        cdef int64_t previous_ms
        if (
            reply is not NULL
            and number(get(reply, self._response, HEARTBEAT_INTERVAL_MS), &previous_ms)
            and previous_ms == interval_ms
        ):
            return <object>reply
        return member.reply_at_rest(interval_ms)
