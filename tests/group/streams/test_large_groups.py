"""Streams groups with many members: slices compute the same targets as a single step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcore.errors import KafkaError
from kcore.group.streams import target
from kcore.group.streams.configure import Status
from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from kcore.runtime import Pending
from tests.group.streams.members import internal, subtopology, topology
from tests.transaction.world import World

SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.num.standby.replicas": 1,
}
MEMBERS = [f"m{number}" for number in range(9)]
TOPOLOGY = topology(subtopology("0", ["t"], [internal("log")]), subtopology("1", ["u"]))


@pytest.fixture(autouse=True)
def few_members_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "INLINE_MEMBERS", 3)
    monkeypatch.setattr(target, "MEMBERS_PER_SLICE", 2)
    monkeypatch.setattr(target, "SLICE_RECORDS", 2)


def make_world(*, sliced: bool = True, **settings: Any) -> World:
    world = World({**SETTINGS, **settings}, topics={"t": 8, "log": 8, "u": 5})
    world.engine.slices.requests.enabled = sliced
    return world


def beat(member: str, epoch: int = 0, **fields: Any) -> StreamsGroupHeartbeatRequest:
    joins = (
        {"topology": TOPOLOGY, "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": f"p-{member}"}
        if epoch == 0
        else {}
    )
    return StreamsGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, rebalance_timeout_ms=10_000, **joins, **fields
    )


def run_request(world: World, request: Any, hook: Callable[[int], None] | None = None) -> Any:
    """Sends a request and commits after each slice. Returns the response."""
    engine = world.engine
    response = world.start(request, 0)
    engine.commit()
    steps = 0
    while engine.slices or engine.pipeline.dirty:
        if hook is not None:
            hook(steps)
        engine.slices.step()
        engine.commit()
        steps += 1
        assert steps < 1_000
    return response.response if isinstance(response, Pending) else response


def described(world: World) -> Any:
    (group,) = world.call(StreamsGroupDescribeRequest(group_ids=["g"]), 0).groups
    return group


def targets(world: World) -> dict[str, Any]:
    return {member.member_id: member.target_assignment for member in described(world).members}


def group_of(world: World) -> Any:
    (shard,) = world.engine.groups
    return shard.machine.groups["g"]


def test_the_targets_equal_the_targets_of_one_decision() -> None:
    """Nodes with and without slices compute the same targets. With slices, the response to a join has the status
    ASSIGNMENT_DELAYED.
    """
    divided, at_once = make_world(), make_world(sliced=False)
    for number, member in enumerate(MEMBERS):
        steps: list[int] = []
        response = run_request(divided, beat(member), steps.append)
        run_request(at_once, beat(member))
        codes = {status.status_code for status in response.status or ()}
        assert (Status.ASSIGNMENT_DELAYED.value in codes) is (number > 3)
        assert (len(steps) > 5) is (number > 3)
        assert targets(divided) == targets(at_once)
    after = described(divided)
    assert after.group_epoch == after.assignment_epoch
    divided.restart()
    assert targets(divided) == targets(at_once)


def test_a_member_gets_its_tasks_with_its_next_heartbeat() -> None:
    world = make_world(**{"group.streams.num.standby.replicas": 0})
    for member in MEMBERS[:5]:
        run_request(world, beat(member))
    first = run_request(world, beat(MEMBERS[5]))
    assert not first.active_tasks
    epochs = {member.member_id: member.member_epoch for member in described(world).members}
    for _ in range(3):  # the other members hand over the tasks that they lose
        for member in MEMBERS[:6]:
            owned = group_of(world).members[member].current.assigned.active
            reported = [{"subtopology_id": part, "partitions": list(numbers)} for part, numbers in owned.items()]
            request = beat(member, epochs[member], standby_tasks=[], warmup_tasks=[])
            request.active_tasks = [type_of_tasks()(**one) for one in reported]
            response = run_request(world, request)
            assert response.error_code == E.NONE, response
            epochs[member] = response.member_epoch
    current = {member.member_id: member.assignment for member in described(world).members}
    assert current == targets(world)
    assert sum(len(part.partitions) for found in current.values() for part in found.active_tasks) == 13


def type_of_tasks() -> Any:
    return next(field.struct for field in StreamsGroupHeartbeatRequest.FIELDS if field.name == "active_tasks")


def test_members_that_join_and_leave_meanwhile_are_in_the_next_target() -> None:
    world = make_world()
    for member in MEMBERS[:6]:
        run_request(world, beat(member))

    def change(step: int) -> None:
        if step == 2:
            for request in (
                beat(MEMBERS[7]),
                StreamsGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=-1),
            ):
                response = world.start(request, 0)
                world.engine.commit()
                response = response.response if isinstance(response, Pending) else response
                assert response.error_code == E.NONE, response

    run_request(world, beat(MEMBERS[6]), change)
    stale = described(world)
    assert stale.assignment_epoch < stale.group_epoch
    run_request(world, beat(MEMBERS[0], group_of(world).members[MEMBERS[0]].current.member_epoch))
    found = described(world)
    assert found.assignment_epoch == found.group_epoch
    expected = make_world(sliced=False)
    for member in ("m0", "m2", "m3", "m4", "m5", "m6", "m7"):
        run_request(expected, beat(member))
    sizes = [
        sorted(len(part.partitions) for one in targets(node).values() for part in one.active_tasks)
        for node in (world, expected)
    ]
    assert sum(sizes[0]) == sum(sizes[1]) == 13


def test_after_a_failure_of_the_assignor_the_next_heartbeat_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world()
    for member in MEMBERS[:4]:
        run_request(world, beat(member))
    before = targets(world)

    def fail(*_: Any) -> Any:
        raise KafkaError(E.UNKNOWN_SERVER_ERROR, "the assignor failed")

    with monkeypatch.context() as patched:
        patched.setattr(target, "_assign", fail)
        assert run_request(world, beat(MEMBERS[4])).error_code == E.NONE
    assert {member: found for member, found in targets(world).items() if member != MEMBERS[4]} == before
    assert not group_of(world).target_job
    run_request(world, beat(MEMBERS[0], group_of(world).members[MEMBERS[0]].current.member_epoch))
    assert all(found.active_tasks for found in targets(world).values())


def test_the_target_after_the_initial_delay_is_computed_in_slices() -> None:
    """Members join during the initial delay, which begins with the first join. After the delay, slices compute the
    targets, and all members have tasks.
    """
    world = make_world(**{"group.streams.initial.rebalance.delay.ms": 3_000})
    for member in MEMBERS:
        run_request(world, beat(member))
    assert not any(found.active_tasks for found in targets(world).values())
    world.advance(4_000)
    world.settle()
    found = described(world)
    assert found.assignment_epoch == found.group_epoch
    assert all(one.active_tasks for one in targets(world).values())
