"""The fast path of Heartbeat and the generic path give the same responses, log and timers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.errors import KafkaError
from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
from kcore.group.apis.heartbeat import HeartbeatApi
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.states import GroupState
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.runtime import Pending, RequestContext
from tests.group.classic.world import CHANGED, COMPLETING, DEAD, SESSION_MS, STABLE
from tests.group.classic.world import World as ClassicWorld
from tests.group.offsets.test_offset_commit import Denies
from tests.kit import serve

GENERATION = 2
"""Generation of a group after `build` in most states. In some states, the generation is one higher."""


class GenericHeartbeatApi(HeartbeatApi):
    """HeartbeatApi without its fast path."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fast = None


class World(ClassicWorld):
    """A group in any state, and one Heartbeat API object that serves all requests, as in a node."""

    def __init__(self, kind: type[HeartbeatApi], authorizer: Denies | None = None) -> None:
        self.kind = kind
        self.authorizer = authorizer
        self.responses: list[Any] = []
        super().__init__()

    def boot(self) -> None:
        super().boot()
        self.heartbeat_api = self.kind(self.context.shards, self.authorizer)

    def send(self, request: HeartbeatRequest, version: int = 4) -> Any:
        """Sends a heartbeat and returns the API's result. A response that is completed later is recorded, too."""
        api, context = self.heartbeat_api, RequestContext(version, "client")
        self.context.now.update()
        index = len(self.responses)
        self.responses.append(None)
        try:
            result = serve(api, context, request)
        except KafkaError as error:
            result = api.error(context, request, error.code, error.message)
        if isinstance(result, Pending):
            result.on_complete(lambda response: self.responses.__setitem__(index, response))
        else:
            self.responses[index] = result
        self.context.finish()
        return result

    def request(self, who: str, **fields: Any) -> HeartbeatRequest:
        """Returns a Heartbeat request.

        Args:
            who: a member id, or the name of the attribute that has the member id, such as "leader" or "follower".
            fields: fields of the request that replace the defaults.
        """
        group = self.context.machine.groups.get("g") if self.context.shards.get(0) else None
        generation = group.generation_id if isinstance(group, ClassicGroup) else GENERATION
        fields = {"group_id": "g", "member_id": getattr(self, who, who), "generation_id": generation, **fields}
        return HeartbeatRequest(**fields)

    def observations(self) -> dict[str, Any]:
        """Returns all that the fast path must not change: responses, authorizer calls, groups, timers and log."""
        context = self.context
        context.commit()
        groups = context.machine.groups if context.shards.get(0) else {}
        members = [member for group in groups.values() for member in group.members.values()]  # type: ignore[attr-defined]
        return {
            "responses": self.responses,
            "authorized": self.authorizer.calls if self.authorizer is not None else [],
            "groups": repr(groups),
            "sessions": [(repr(member), member.timer and member.timer.deadline_ms) for member in members],
            "timers": (len(context.wheel), context.wheel.next_deadline_ms(), context.wheel.fired_total),
            "log": b"".join(bytes(batch) for _, batch in context.log().batches(start=0)),
            "waiting": context.pipeline.waiting,
        }


WHO = ("leader", "follower", "static", "pending", "nobody", "")
REQUEST_FIELDS: list[dict[str, Any]] = [
    {},
    *({"generation_id": generation} for generation in (-1, 0, GENERATION - 1, GENERATION, GENERATION + 1, 1 << 70)),
    *({"group_id": group} for group in ("", " ", "elsewhere", "denied", "ü")),
    *({"group_instance_id": instance} for instance in ("one", "other", "")),
]
states = st.sampled_from([None, STABLE, STABLE, STABLE, *GroupState])
steps = st.one_of(
    st.tuples(st.just("beat"), st.sampled_from(WHO), st.sampled_from([{}] * 5 + REQUEST_FIELDS)),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 5_000, SESSION_MS - 1, SESSION_MS, 300_000])),
    st.tuples(st.sampled_from(["join", "leave"]), st.sampled_from(["leader", "follower"])),
    st.tuples(st.sampled_from(["later", "at once", "fail", "reload", "restart", "unload", "upgrade", "delete"])),
)


def play(world: World, script: list[tuple[Any, ...]], state: GroupState | None) -> dict[str, Any]:
    """Runs a script, which is a list of steps, against a group that starts in the given state. Sends each heartbeat
    twice, with the same request object. Returns the observations at the end.
    """
    world.build(state)
    for name, *details in script:
        match name, details:
            case "beat", (who, fields):
                request = world.request(who, **fields)
                for _ in range(2):
                    world.send(request)
            case "wait", (ms,):
                world.context.advance(ms)
            case "join", (who,):
                world.join(getattr(world, who), offer=[("range", CHANGED)])
            case "leave", (who,):
                world.context.send(world.leave_api, leaving(getattr(world, who)))
            case _:
                apply_event(world, name)
    return world.observations()


def leaving(member_id: str) -> Any:
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])


def apply_event(world: World, what: str) -> None:
    """Runs a step of a script other than a request, such as a failed commit, a restart or an unload of the shard."""
    context = world.context
    match what:
        case "later" | "at once":
            context.auto_commit = what == "at once"
            context.finish()
        case "fail":
            context.fail_next_commit()
            context.commit()
            context.engine.failures_left = 0  # the commit may have been empty
        case "restart":
            world.restart()
        case "reload" | "unload" if context.shards.get(0):
            context.unload()
            world.send(world.request("leader"))
            if what == "reload":
                context.shards.load(0, context.engine.node_epoch)
                world.send(world.request("leader"))  # while the shard is loading
                context.slices.finish()
        case "upgrade":
            joining = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="new",
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=["topic"],
                topic_partitions=[],
            )
            context.send(ConsumerGroupHeartbeatApi(context.shards, context.consumer), joining)
        case "delete":
            context.send(world.delete_api, DeleteGroupsRequest(groups_names=["g"]))


DENIED = ((Operation.READ, ResourceType.GROUP, "denied"),)


def observations(kind: type[HeartbeatApi], denied: Any, *script: Any) -> dict[str, Any]:
    return play(World(kind, None if denied is None else Denies(*denied)), *script)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([None, DENIED]), st.lists(steps, max_size=14), states)
def test_fast_path_equals_generic_path(denied: Any, script: list[Any], state: GroupState | None) -> None:
    assert observations(HeartbeatApi, denied, script, state) == observations(GenericHeartbeatApi, denied, script, state)


@pytest.mark.parametrize("denied", [None, DENIED])
@pytest.mark.parametrize("state", [None, *GroupState])
def test_fast_path_equals_generic_path_in_every_state_for_every_request(state: GroupState | None, denied: Any) -> None:
    script = [step for who in WHO for fields in REQUEST_FIELDS for step in (("wait", 7), ("beat", who, fields))]
    assert observations(HeartbeatApi, denied, script, state) == observations(GenericHeartbeatApi, denied, script, state)


# ---- what the fast path serves


@pytest.fixture(params=[None, Denies()])
def world(request: Any) -> World:
    """Returns a world with a Stable group of three members."""
    world = World(HeartbeatApi, request.param)
    world.build(STABLE)
    return world


def served_fast(world: World, request: HeartbeatRequest) -> bool:
    """Returns True if the fast path serves the request."""
    before = world.heartbeat_api.fast_path.served
    world.send(request)
    return world.heartbeat_api.fast_path.served > before


def test_fast_path_serves_dynamic_members_of_the_current_generation_only(world):
    for who in ("leader", "follower", "static"):
        assert served_fast(world, world.request(who))
        assert not served_fast(world, world.request(who, generation_id=world.generation + 1))
    assert not served_fast(world, world.request("static", group_instance_id="one"))
    assert not served_fast(world, world.request("nobody"))
    world.group().transition(DEAD, "the test wants it")
    assert not served_fast(world, world.request("leader"))


def test_a_session_lasts_from_the_last_heartbeat(world):
    for _ in range(3):
        world.context.advance(SESSION_MS - 1)
        assert served_fast(world, world.request("leader"))
    assert list(world.group().members) == [world.leader]
    assert world.responses[-1].error_code == ErrorCode.REBALANCE_IN_PROGRESS, "the other members were removed"
    world.context.advance(SESSION_MS)
    assert list(world.group().members) == []


def test_response_waits_for_the_commit_of_the_state_it_shows():
    world = World(HeartbeatApi)
    world.build(COMPLETING)
    world.context.auto_commit = False
    world.sync(world.leader, {world.leader: b"l"})
    assert world.state is STABLE, "the change is visible before it is durable"
    waiting = world.send(world.request("leader"))
    assert isinstance(waiting, Pending)
    assert (waiting.api, waiting.parked, waiting.done) == (world.heartbeat_api, False, False)
    assert world.heartbeat_api.fast_path.served == 1
    world.context.pipeline.commit()
    assert waiting.response.error_code == 0


def test_fast_path_declines_a_request_of_a_subclass(world):
    class Request(HeartbeatRequest):
        """A subclass of the request class with the same fields, which the fast path must decline."""

    request = Request(group_id="g", member_id=world.leader, generation_id=world.generation)
    assert not served_fast(world, request)
    assert world.responses[-1].error_code == 0
