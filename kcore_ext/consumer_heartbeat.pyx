"""ConsumerGroupHeartbeat as it mostly comes: a member at rest says that it is alive, in a group at rest.

Such a heartbeat begins a session anew and is answered with the response that was made for the last one. Whatever is not
so goes the plain way, which `kcore.group.apis.consumer_group_heartbeat` has in full; that is the definition, and a test
holds the two together. Members and groups stay what they are, plain Python: their slots are read here as C fields.
"""

from cpython.dict cimport PyDict_Check, PyDict_Size
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_GET_LENGTH, PyUnicode_READ_CHAR, Py_UNICODE_ISSPACE
from libc.stdint cimport int64_t

from kcore_ext.clock cimport Now
from kcore_ext.message_shape cimport Shape, get
from kcore_ext.quick_heartbeat cimport GROUP_ID, QuickHeartbeat
from kcore_ext.slots cimport Slots, item, number, slot
from kcore_ext.timer_wheel cimport Timer, timer_extend

cdef extern from "Python.h":
    PyObject* borrow_from_tuple "PyTuple_GET_ITEM"(object, Py_ssize_t)

cdef enum:
    UNCHANGED = -1              # a rebalance timeout that a heartbeat does not say

cdef enum:                      # fields of a request, by their places in its shape; the last are null in one that
    MEMBER_ID = 1               # says nothing new
    MEMBER_EPOCH = 2
    INSTANCE_ID = 3
    REBALANCE_TIMEOUT_MS = 4
    FIRST_NEWS = 5
    NEWS_END = 9

cdef enum:                      # a field of a response
    HEARTBEAT_INTERVAL_MS = 0

cdef enum:                      # slots, by their places: of the services,
    ENABLED = 0
    SETTINGS_OF = 1
    GROUPS = 0                  # of a shard's state machine,
    NOW = 1
    CONSUMER = 2
    GROUP_EPOCH = 0             # of a group,
    ASSIGNMENT_EPOCH = 1
    REFRESH_AT_MS = 2
    REFRESH_EPOCH = 3
    MEMBERS = 4
    SUBSCRIPTIONS = 5
    REGEXES = 0                 # of its subscriptions,
    SETTLED_EPOCH = 0           # of a member,
    TIMER = 1
    REPLY = 2
    METADATA = 3
    OWN_INSTANCE_ID = 0         # and of its metadata
    CLIENT_ID = 1
    CLIENT_HOST = 2


cdef inline bint is_text(PyObject* value) noexcept:
    """Whether it is a text that does not begin with white space; then it is not blank either."""
    return (
        value is not NULL
        and PyUnicode_CheckExact(<object>value)
        and PyUnicode_GET_LENGTH(<object>value) > 0
        and not Py_UNICODE_ISSPACE(PyUnicode_READ_CHAR(<object>value, 0))
    )


cdef inline bint is_same(PyObject* left, PyObject* right) except -1:
    """Whether two texts are the same; False if either is none."""
    if left is NULL or right is NULL:
        return False
    if not PyUnicode_CheckExact(<object>left) or not PyUnicode_CheckExact(<object>right):
        return False
    return left is right or <str>left == <str>right


cdef class ConsumerHeartbeatCore(QuickHeartbeat):
    """See consumer_heartbeat.pyi."""

    def __init__(
        self, shards not None, services not None, authorizer, *, request, response, context, settings, machine,
        group, subscriptions, member, metadata,
    ):
        QuickHeartbeat.__init__(
            self, shards, authorizer,
            Shape(
                request, "group_id", "member_id", "member_epoch", "instance_id", "rebalance_timeout_ms",
                "rack_id", "subscribed_topic_names", "subscribed_topic_regex", "server_assignor",
            ),
        )
        self._services = services
        self._context = context
        self._client_id = context._fields.index("client_id")
        self._client_host = context._fields.index("client_host")
        self._settings = settings
        self._session_timeout_ms = settings._fields.index("session_timeout_ms")
        self._heartbeat_interval_ms = settings._fields.index("heartbeat_interval_ms")
        self._response = Shape(response, "heartbeat_interval_ms")
        self._of_services = Slots(type(services), "enabled", "settings_of")
        self._of_machine = Slots(machine, "groups", "now", "consumer")
        self._of_group = Slots(
            group, "group_epoch", "assignment_epoch", "refresh_at_ms", "refresh_epoch", "members", "subscriptions"
        )
        self._of_subscriptions = Slots(subscriptions, "regexes")
        self._of_member = Slots(member, "settled_epoch", "timer", "reply", "metadata")
        self._of_metadata = Slots(metadata, "instance_id", "client_id", "client_host")

    cdef bint _is_usual(self, PyObject* request) except -1:
        cdef PyObject* enabled = slot(<PyObject*>self._services, self._of_services, ENABLED)
        cdef PyObject* instance_id = get(request, self._request, INSTANCE_ID)
        return (
            enabled is not NULL
            and <object>enabled is True
            and is_text(get(request, self._request, GROUP_ID))
            and is_text(get(request, self._request, MEMBER_ID))
            and (instance_id is <PyObject*>None or is_text(instance_id))
        )

    cdef object _renewed(self, object machine, object context, object request):
        cdef PyObject* asked = <PyObject*>request
        cdef PyObject* group_id = get(asked, self._request, GROUP_ID)
        cdef PyObject* found
        cdef object group, member, timer    # owned: settings and patterns are asked in Python
        cdef int64_t now_ms
        if type(context) is not self._context or not self._says_nothing(asked):
            return None
        found = item(slot(<PyObject*>machine, self._of_machine, GROUPS), group_id)
        if found is NULL:
            return None
        group = <object>found
        found = item(slot(found, self._of_group, MEMBERS), get(asked, self._request, MEMBER_ID))
        if found is NULL:
            return None
        member = <object>found
        found = slot(found, self._of_member, TIMER)
        if found is NULL or type(<object>found) is not Timer:
            return None                     # its log is being read
        timer = <object>found
        found = slot(<PyObject*>machine, self._of_machine, NOW)
        if found is NULL or type(<object>found) is not Now:
            return None
        now_ms = (<Now>found).now_ms
        if (
            not self._is_settled(<PyObject*>member, <PyObject*>group, asked)
            or not self._is_as_before(<PyObject*>member, context, asked)
            or not self._is_quiet(group, now_ms)
        ):
            return None
        return self._answered(machine, member, <Timer>timer, now_ms, <object>group_id)

    cdef bint _says_nothing(self, PyObject* request) noexcept:
        """Whether a request says no more than who sends it, in which epoch, and what it uses."""
        cdef int64_t timeout_ms
        cdef int i
        for i in range(FIRST_NEWS, NEWS_END):
            if get(request, self._request, i) is not <PyObject*>None:
                return False
        return number(get(request, self._request, REBALANCE_TIMEOUT_MS), &timeout_ms) and timeout_ms == UNCHANGED

    cdef bint _is_settled(self, PyObject* member, PyObject* group, PyObject* request) noexcept:
        """Whether a member is at rest in the epoch of its group's target, and knows it."""
        cdef int64_t said, settled, assigned
        return (
            number(get(request, self._request, MEMBER_EPOCH), &said)
            and number(slot(member, self._of_member, SETTLED_EPOCH), &settled)
            and number(slot(group, self._of_group, ASSIGNMENT_EPOCH), &assigned)
            and 0 < said == settled == assigned
        )

    cdef bint _is_as_before(self, PyObject* member, object context, PyObject* request) except -1:
        """Whether a member has the names and the address that it is known by."""
        cdef PyObject* metadata = slot(member, self._of_member, METADATA)
        cdef PyObject* instance_id = get(request, self._request, INSTANCE_ID)
        if metadata is NULL:
            return False
        if instance_id is not <PyObject*>None:
            if not is_same(instance_id, slot(metadata, self._of_metadata, OWN_INSTANCE_ID)):
                return False
        return is_same(
            borrow_from_tuple(context, self._client_id), slot(metadata, self._of_metadata, CLIENT_ID)
        ) and is_same(
            borrow_from_tuple(context, self._client_host), slot(metadata, self._of_metadata, CLIENT_HOST)
        )

    cdef bint _is_quiet(self, object group, int64_t now_ms) except -1:
        """`ConsumerGroup.is_quiet`; it is asked itself where there are patterns, or a target is due."""
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

    cdef object _answered(self, object machine, object member, Timer timer, int64_t now_ms, object group_id):
        """Begins a session anew. The response is the last one while it says what it must, else a new one."""
        cdef PyObject* services = slot(<PyObject*>machine, self._of_machine, CONSUMER)
        cdef PyObject* found
        cdef PyObject* reply
        cdef object settings
        cdef int64_t session_ms, interval_ms, told_ms
        if services is NULL:
            return None
        found = item(slot(services, self._of_services, SETTINGS_OF), <PyObject*>group_id)
        settings = (<object>services).settings(group_id) if found is NULL else <object>found
        if (
            type(settings) is not self._settings
            or not number(borrow_from_tuple(settings, self._session_timeout_ms), &session_ms)
            or not number(borrow_from_tuple(settings, self._heartbeat_interval_ms), &interval_ms)
        ):
            return None
        timer_extend(timer, now_ms + session_ms)
        reply = slot(<PyObject*>member, self._of_member, REPLY)
        if (
            reply is not NULL
            and number(get(reply, self._response, HEARTBEAT_INTERVAL_MS), &told_ms)
            and told_ms == interval_ms
        ):
            return <object>reply
        return member.reply_at_rest(interval_ms)
