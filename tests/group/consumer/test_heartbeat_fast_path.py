"""The fast path of ConsumerGroupHeartbeat and the generic path give the same responses, log and timers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.errors import KafkaError
from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.member import ConsumerMember
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.runtime import Pending, RequestContext
from kcore_ext.util.slots import SlotLayout
from tests.group.consumer.members import GROUP, Owned, reported
from tests.group.consumer.members import World as ConsumerWorld
from tests.group.context import CLIENT_HOST
from tests.group.migration.members import ClassicClient
from tests.group.offsets.test_offset_commit import Denies
from tests.kit import serve

SESSION_MS = 45_000
TOPICS = {"t": 4, "u": 2}
MEMBERS = ("m0", "m1", "m2", "static")


class GenericHeartbeatApi(ConsumerGroupHeartbeatApi):
    """ConsumerGroupHeartbeatApi without its fast path."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fast = None


class World(ConsumerWorld):
    """A shard with one API object for all requests, as in a node, and clients that store their responses.

    Args:
        kind: the class of the heartbeat API.
        authorizer: checks permissions.
        options: settings of the node.
    """

    def __init__(self, kind: type[ConsumerGroupHeartbeatApi], authorizer: Denies | None = None, **options: Any) -> None:
        super().__init__(TOPICS, **options)
        self.kind = kind
        self.authorizer = authorizer
        self.api = kind(self.shards, self.consumer, authorizer)
        self.responses: list[Any] = []
        self.known: dict[str, tuple[int, Owned]] = {}
        self.classic = ClassicClient(self, ["t"])

    def restart(self) -> None:
        super().restart()
        self.api = self.kind(self.shards, self.consumer, self.authorizer)

    def request(self, who: str, what: str, **overrides: Any) -> ConsumerGroupHeartbeatRequest:
        """Returns a client's next heartbeat.

        `what` selects a join, a heartbeat without changes ("beat"), a heartbeat that reports the owned partitions
        ("confirm"), or a leave.
        """
        epoch, owned = self.known.get(who, (0, {}))
        fields: dict[str, Any] = {"group_id": GROUP, "member_id": who, "member_epoch": epoch}
        if who == "static":
            fields["instance_id"] = "i"
        if what == "leave":
            fields["member_epoch"] = -2 if who == "static" else -1
        elif what == "join" or epoch == 0:
            fields |= {
                "member_epoch": 0,
                "rebalance_timeout_ms": 10_000,
                "subscribed_topic_names": ["t"],
                "topic_partitions": [],
            }
        elif what == "confirm":
            fields["topic_partitions"] = reported(owned)
        if "epoch" in overrides:
            fields["member_epoch"] += overrides.pop("epoch")
        return ConsumerGroupHeartbeatRequest(**{**fields, **overrides})

    def send_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int = 1,
        client_id: str = "client",
        client_host: str = CLIENT_HOST,
    ) -> Any:
        """Sends a heartbeat and returns the API's result. A response that is completed later is recorded, too."""
        self.now.update()
        index = len(self.responses)
        self.responses.append(None)

        def take(response: Any) -> None:
            self.responses[index] = response
            if request.group_id == GROUP and not response.error_code and request.member_epoch >= 0:
                _, owned = self.known.get(request.member_id, (0, {}))
                if response.assignment is not None:
                    owned = {t.topic_id: list(t.partitions) for t in response.assignment.topic_partitions}
                self.known[request.member_id] = response.member_epoch, owned
            elif response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.known.pop(request.member_id, None)

        context = RequestContext(version, client_id, client_host)
        try:
            result = serve(self.api, context, request)
        except KafkaError as error:
            result = self.api.error(context, request, error.code, error.message)
        if isinstance(result, Pending):
            result.on_complete(take)
        else:
            take(result)
        self.finish()
        return result

    def rest(self, *members: str) -> None:
        """Makes clients join and send heartbeats until all of them own their target assignments."""
        for _ in range(4):
            for who in members:
                self.send_heartbeat(self.request(who, "confirm"))

    def observations(self) -> dict[str, Any]:
        """Returns all that the fast path must not change: responses, authorizer calls, group, members, timers
        and log.
        """
        self.commit()
        group = self.machine.groups.get(GROUP) if self.shards.get(0) else None
        members = list(group.members.values()) if isinstance(group, ConsumerGroup) else []
        return {
            "responses": self.responses,
            "authorized": self.authorizer.calls if self.authorizer is not None else [],
            "group": repr(group),
            "members": [(repr(m), m.settled_epoch, m.timer and m.timer.deadline_ms) for m in members],
            "timers": (len(self.wheel), self.wheel.next_deadline_ms(), self.wheel.fired_total),
            "log": b"".join(bytes(batch) for _, batch in self.log().batches(start=0)),
            "waiting": self.pipeline.waiting,
        }


who = st.sampled_from(MEMBERS)
what = st.sampled_from(["beat"] * 5 + ["confirm", "join", "leave"])
BLANK_OR_ODD = ("", " ", " \t", "\u3000", "x", "ü", " m0")
ODDITIES: list[dict[str, Any]] = [
    *({"epoch": step} for step in (-1, 1, 1 << 20)),
    *({"member_epoch": epoch} for epoch in (-1000, -3, -2, -1, 0, 1, 1 << 70)),
    *({"group_id": text} for text in (*BLANK_OR_ODD, "elsewhere", "classic")),
    *({"member_id": text} for text in (*BLANK_OR_ODD, "nobody")),
    *({"instance_id": text} for text in (None, *BLANK_OR_ODD, "i")),
    *({"rack_id": text} for text in (" ", "r")),
    *({"rebalance_timeout_ms": ms} for ms in (-2, 0, 10_000, 20_000)),
    *({"subscribed_topic_names": names} for names in ([], ["t"], ["u"], ["t", "u"], ["denied"])),
    *({"subscribed_topic_regex": regex} for regex in ("", "t", "u.*", "(")),
    *({"server_assignor": name} for name in ("uniform", "range", "none")),
    {"topic_partitions": []},
]
CONTEXTS: list[dict[str, Any]] = [
    {"client_id": "other"},
    {"client_id": ""},
    {"client_host": "/10.0.0.1"},
    {"version": 0},
]
oddities = st.sampled_from([{}, *ODDITIES])
contexts = st.sampled_from([{}, {}, {}, *CONTEXTS])
beats = st.tuples(st.just("beat"), who, what, st.just({}), st.just({}))
odd_beats = st.tuples(st.just("beat"), who, what, oddities, contexts)
steps = st.one_of(
    beats,
    odd_beats,
    odd_beats,
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 4_000, 10_000, SESSION_MS - 1, SESSION_MS, 700_000])),
    st.tuples(st.just("group"), st.sampled_from(["session", "interval"]), st.sampled_from([5_000, 50_000])),
    st.tuples(st.sampled_from(["later", "at once", "fail", "reload", "restart", "unload", "off", "on", "classic"])),
    st.tuples(st.sampled_from(["grow", "drop", "make"])),
)


def play(world: World, script: list[tuple[Any, ...]], resting: int) -> dict[str, Any]:
    """Runs a script, which is a list of steps, against a group of `resting` members that own their targets. Sends each
    heartbeat twice, with the same request object. Returns the observations at the end.
    """
    world.machine.get_or_create_group("classic")
    world.rest(*MEMBERS[:resting])
    for name, *details in script:
        match name, details:
            case "beat", (client, does, overrides, context):
                request = world.request(client, does, **dict(overrides))
                for _ in range(2):
                    world.send_heartbeat(request, **context)
            case "wait", (ms,):
                world.advance(ms)
            case "group", ("session", ms):
                world.set_group(GROUP, consumer_session_timeout_ms=ms)
            case "group", (_, ms):
                world.set_group(GROUP, consumer_heartbeat_interval_ms=ms)
            case _:
                apply_event(world, name)
    return world.observations()


def apply_event(world: World, what: str) -> None:
    """Runs a step of a script other than a heartbeat, such as a failed commit, a restart or an unload of the shard."""
    match what:
        case "later" | "at once":
            world.auto_commit = what == "at once"
            world.finish()
        case "fail":
            world.fail_next_commit()
            world.commit()
            world.engine.failures_left = 0  # the commit may have been empty
        case "restart":
            world.restart()
        case "reload" | "unload":
            world.shards.unload(0)
            world.send_heartbeat(world.request("m0", "beat"))
            if what == "reload":
                world.shards.load(0, world.engine.node_epoch)
                world.slices.finish()
        case "off" | "on":
            world.consumer._enabled = lambda: what == "on"
            world.consumer.feature_changed()
        case "classic":
            world.classic.join()
        case "grow":
            world.make_topic("t", 6)
        case "make":
            world.make_topic("u", 2)
        case "drop" if world.topics.by_name("t"):
            world.drop_topic("t")


DENIED = ((Operation.READ, ResourceType.GROUP, "elsewhere"), (Operation.DESCRIBE, ResourceType.TOPIC, "denied"))


def observations(kind: type[ConsumerGroupHeartbeatApi], denied: Any, interval_ms: int, *script: Any) -> dict[str, Any]:
    authorizer = None if denied is None else Denies(*denied)
    return play(World(kind, authorizer, group_consumer_assignment_interval_ms=interval_ms), *script)


@settings(max_examples=70, deadline=None)
@given(
    st.sampled_from([None, DENIED]), st.sampled_from([0, 0, 15_000]), st.lists(steps, max_size=14), st.integers(0, 4)
)
def test_fast_path_equals_generic_path(denied: Any, interval_ms: int, script: list[Any], resting: int) -> None:
    compiled = observations(ConsumerGroupHeartbeatApi, denied, interval_ms, script, resting)
    assert compiled == observations(GenericHeartbeatApi, denied, interval_ms, script, resting)


@pytest.mark.parametrize("denied", [None, DENIED])
@pytest.mark.parametrize("client", ["m0", "static"])
def test_fast_path_equals_generic_path_for_every_heartbeat_of_a_member_at_rest(client: str, denied: Any) -> None:
    for overrides, context in [*((odd, {}) for odd in ODDITIES), *(({}, context) for context in CONTEXTS)]:
        script = [
            ("wait", 1_000),
            ("beat", client, "beat", overrides, context),
            ("wait", 1),
            ("beat", client, "beat", {}, {}),
        ]
        compiled = observations(ConsumerGroupHeartbeatApi, denied, 0, script, 4)
        assert compiled == observations(GenericHeartbeatApi, denied, 0, script, 4), (overrides, context)


# ---- what the fast path serves


@pytest.fixture(params=[None, Denies()])
def world(request: Any) -> World:
    """Returns a world with two reconciled members."""
    world = World(ConsumerGroupHeartbeatApi, request.param)
    world.rest("m0", "static")
    return world


def served_fast(world: World, request: Any, **context: Any) -> bool:
    """Returns True if the fast path serves the request."""
    before = world.api.fast_path.served
    world.send_heartbeat(request, **context)
    return world.api.fast_path.served > before


def test_a_member_at_rest_gets_the_same_response_object(world):
    request = world.request("m0", "beat")
    first = world.send_heartbeat(request)
    assert world.send_heartbeat(world.request("m0", "beat")) is first
    assert (first.error_code, first.member_epoch, first.assignment) == (0, world.group.group_epoch, None)
    world.set_group(GROUP, consumer_heartbeat_interval_ms=7_000)
    assert world.send_heartbeat(request).heartbeat_interval_ms == 7_000
    assert served_fast(world, request)


def test_fast_path_serves_members_at_rest_only(world):
    for who in ("m0", "static"):
        assert served_fast(world, world.request(who, "beat"))
        assert served_fast(world, world.request(who, "confirm"))
        assert not served_fast(world, world.request(who, "beat", epoch=-1))
    assert not served_fast(world, world.request("nobody", "confirm"))
    assert not served_fast(world, world.request("m0", "beat"), client_id="renamed")
    world.make_topic("t", 6)
    assert not served_fast(world, world.request("m0", "beat"), client_id="renamed")


def test_a_pattern_is_checked_with_every_heartbeat(world):
    world.send_heartbeat(world.request("m1", "join", subscribed_topic_names=None, subscribed_topic_regex="u"))
    world.rest("m0", "static", "m1")
    assert served_fast(world, world.request("m0", "beat"))
    world.make_topic("u2", 1)
    world.advance(20_000)
    assert not served_fast(world, world.request("m0", "beat"))


def test_a_session_lasts_from_the_last_heartbeat():
    world = World(ConsumerGroupHeartbeatApi)
    world.rest("m0")
    for _ in range(3):
        world.advance(SESSION_MS - 1)
        assert served_fast(world, world.request("m0", "beat"))
    assert list(world.group.members) == ["m0"]
    world.set_group(GROUP, consumer_session_timeout_ms=50_000)
    assert served_fast(world, world.request("m0", "beat"))
    world.advance(49_999)
    assert list(world.group.members) == ["m0"]
    world.advance(1)
    assert list(world.group.members) == []


def test_response_waits_for_the_commit_of_the_state_it_shows():
    world = World(ConsumerGroupHeartbeatApi)
    world.rest("m0", "m1")
    world.auto_commit = False
    world.send_heartbeat(world.request("m1", "leave"))
    group = world.group
    group.assignment_epoch = group.group_epoch = group.members["m0"].settled_epoch  # as if no work were due
    waiting = world.send_heartbeat(world.request("m0", "beat"))
    assert isinstance(waiting, Pending)
    assert (waiting.api, waiting.parked, waiting.done) == (world.api, False, False)
    assert world.api.fast_path.served > 0
    world.pipeline.commit()
    assert waiting.response.member_epoch == group.group_epoch


def test_fast_path_declines_a_request_of_a_subclass(world):
    class Request(ConsumerGroupHeartbeatRequest):
        """A subclass of the request class with the same fields, which the fast path must decline."""

    epoch, _ = world.known["m0"]
    assert not served_fast(world, Request(group_id=GROUP, member_id="m0", member_epoch=epoch))
    assert world.responses[-1].error_code == 0


def test_slot_layout_refuses_names_without_a_slot():
    assert SlotLayout(ConsumerMember, {0: "timer", 1: "reply"}).names == ("timer", "reply")
    assert SlotLayout(ConsumerGroup, {0: "group_id"}).cls is ConsumerGroup, "a slot of its base"
    for name in ("is_classic", "set_metadata", "nothing"):
        with pytest.raises(TypeError, match=f"ConsumerMember.{name} is not a slot"):
            SlotLayout(ConsumerMember, {0: name})
    with pytest.raises(TypeError, match="is not a class"):
        SlotLayout("ConsumerMember", {0: "timer"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="9 slots; the maximum is 8"):
        SlotLayout(ConsumerMember, dict.fromkeys(range(9), "timer"))
    with pytest.raises(TypeError, match="indices must be 0 to 1, each once"):
        SlotLayout(ConsumerMember, {0: "timer", 2: "reply"})
