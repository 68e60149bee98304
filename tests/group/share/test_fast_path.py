"""Compares share group heartbeats with a reference run: same responses, records and timers.

The reference run has no fast path. Before each step it discards the results that later heartbeats would reuse: the
assignor's last result, and the result of the search for unassigned partitions.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.errors import KafkaError
from kcore.group.share import target
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.runtime.api import RequestContext
from tests.group.share.test_model import Model
from tests.group.share.world import GROUP, World

STEPS = 150


class Observed(Model):
    """A model that observes each response, record and timer.

    Args:
        seed: determines all events.
        reference: True for the run without fast path and soft state.
    """

    def __init__(self, seed: int, reference: bool) -> None:
        super().__init__(seed)
        self.reference = reference
        self.served = 0
        self.seen: list[Any] = []

    def step(self) -> None:
        """Runs one event."""
        api: Any = self.world.engine.apis[ApiKey.SHARE_GROUP_HEARTBEAT]
        group = self.group()
        if self.reference:
            api.fast = None
            if group is not None:
                group.last_target = None
                group._unassigned = None
        served = api.fast_path.served
        send = self.world.node.send

        def observe(request: Any, *arguments: Any) -> Any:
            response = send(request, *arguments)
            self.seen.append((request, response))
            return response

        self.world.node.send = observe  # type: ignore[method-assign]
        super().step()
        self.world.node.__dict__.pop("send", None)
        self.served += api.fast_path.served - served
        self.seen.append((self.world.records(), self.world.engine.next_deadline_ms()))


@pytest.mark.parametrize("seed", range(12))
def test_fast_path_equals_generic_path(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any interleaving of members, faults, topics and restarts gives the same responses, records and timers."""
    joined = target._joined
    joins: list[str] = []

    def count(group: Any, member_id: str, metadata: Any) -> Any:
        joins.append(member_id)
        return joined(group, member_id, metadata)

    monkeypatch.setattr(target, "_joined", count)
    compiled = Observed(seed, False)
    for _ in range(STEPS):
        compiled.step()
    used = len(joins)
    reference = Observed(seed, True)
    for _ in range(STEPS):
        reference.step()
    assert compiled.seen == reference.seen
    assert compiled.served > 0
    assert reference.served == 0
    assert len(joins) == used, "the reference collects all members at each join"


def test_joins_reuse_the_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty members join one by one. The records are the same whether or not the group reuses the last target."""
    written = []
    for reuse in (True, False):
        world = World({"ta": 3, "tb": 4})
        world.beat("m00", 0, ["ta", "tb"])
        for number in range(1, 30):
            if not reuse:
                world.group.last_target = None
            names = [["ta", "tb"], ["ta"], ["tb"]][number % 3 if number > 15 else 0]
            world.beat(f"m{number * 7 % 30:02}", 0, names)
            assert world.group.last_target is not None
        written.append(world.records())
    assert written[0] == written[1]


class Authorizer:
    """An authorizer that allows only the operations that a test has granted."""

    def __init__(self) -> None:
        self.allows = True
        self.calls: list[tuple[Operation, ResourceType, str]] = []

    def allowed(self, context: RequestContext, operation: Operation, kind: ResourceType, name: str) -> bool:
        self.calls.append((operation, kind, name))
        return self.allows


@pytest.fixture
def world() -> World:
    """Returns a world in which the member "m" of a group has its target."""
    world = World({"t": 1})
    world.beat("m", 0, ["t"])
    epoch = world.beat("m", 2).member_epoch
    assert world.beat("m", epoch).error_code == 0
    return world


def served(world: World, context: RequestContext | None = None, **fields: Any) -> Any:
    """Returns the fast path's response to a heartbeat of "m", or None if the fast path declines."""
    api: Any = world.engine.apis[ApiKey.SHARE_GROUP_HEARTBEAT]
    request = {"group_id": GROUP, "member_id": "m", "member_epoch": world.group.group_epoch} | fields
    return api.fast(context or RequestContext(1, "kcore"), ShareGroupHeartbeatRequest(**request))


def context_of(world: World, **fields: Any) -> RequestContext:
    """Returns a context with the member's client id and host. `fields` replace fields of the context."""
    metadata = world.group.members["m"].metadata
    return RequestContext(1, metadata.client_id, metadata.client_host)._replace(**fields)


def test_only_an_unchanged_member_takes_the_fast_path(world: World) -> None:
    """The fast path declines a request that changes the member, and a request that does not match the member's id,
    epoch or client. It declines all requests while the group has work to do.
    """
    context = context_of(world)
    response = served(world, context)
    assert (response.error_code, response.member_epoch, response.assignment) == (0, world.group.group_epoch, None)
    assert served(world, context) is response
    declined = [
        {"group_id": "other"},
        {"group_id": " "},
        {"member_id": "other"},
        {"member_id": "x" * 37},
        {"member_epoch": 0},
        {"member_epoch": -1},
        {"member_epoch": world.group.group_epoch - 1},
        {"rack_id": "r"},
        {"subscribed_topic_names": ["t"]},
    ]
    assert [served(world, context, **fields) for fields in declined] == [None] * len(declined)
    assert served(world, context_of(world, client_id="another")) is None
    assert served(world, context_of(world, client_host="/10.0.0.9")) is None
    world.grow_topic("t", 2)
    assert served(world, context) is None


def test_the_session_is_renewed_in_full(world: World) -> None:
    """A heartbeat on the fast path moves the deadline of the session, with the current timeout of the group."""
    timer = world.group.members["m"].timer
    assert timer is not None
    world.advance(1_000)
    assert served(world, context_of(world)) is not None
    assert timer.deadline_ms == world.engine.now.now_ms + 45_000


def test_the_fast_path_authorizes_the_group_and_declines_disabled_share_groups(world: World) -> None:
    """The fast path checks READ on the group for each heartbeat, and declines while share groups are disabled."""
    api: Any = world.engine.apis[ApiKey.SHARE_GROUP_HEARTBEAT]
    authorizer = Authorizer()
    guarded = type(api)(api._shards, api._services, authorizer)
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=world.group.group_epoch)
    assert guarded.fast(context_of(world), request).error_code == 0
    authorizer.allows = False
    assert guarded.fast(context_of(world), request).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert authorizer.calls == [(Operation.READ, ResourceType.GROUP, GROUP)] * 2
    api._services.enabled = False
    assert guarded.fast(context_of(world), request) is None


def test_failed_assignor_keeps_the_last_result(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The join during which the assignor fails is refused. The next join gets the same target as
    without the failure.
    """
    assignor = type(world.engine.share_groups.assignor)

    def fail(*arguments: Any, **named: Any) -> Any:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the test wants it to fail")

    before = world.group.targets.copy()
    with monkeypatch.context() as patch:
        patch.setattr(assignor, "assign", fail)
        assert world.beat("n", 0, ["t"]).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.group.targets == before
    assert world.beat("n", 0, ["t"]).error_code == 0
    assert world.group.targets.keys() == {"m", "n"}
