"""Members that name thousands of topics: heartbeats run in slices, with the same responses as without slices."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.consumer.target import INLINE_TOPICS, AssignmentJob
from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.runtime import Pending
from tests.transaction.world import World

TOPICS = INLINE_TOPICS + 200
NAMES = [f"topic{number:05}" for number in range(TOPICS)]
RETRIABLE = {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS}


def make_world(*, sliced: bool = True, **settings: Any) -> World:
    """Makes a node with the topic `t`, and with one topic for each name in `NAMES`."""
    world = World({"offsets.topic.num.partitions": 1, **settings}, topics={"t": 1})
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
    response = world.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    assert {topic.error_code for topic in response.topics} == {E.NONE}
    world.engine.slices.requests.enabled = sliced
    return world


def beat(member: str, epoch: int = 0, names: list[str] | None = NAMES, owned: Any = ()) -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=names,
        topic_partitions=None if owned is None else list(owned),
    )


def assigned(response: Any) -> set[tuple[bytes, int]]:
    assert response.error_code == E.NONE, response
    assert response.assignment is not None
    return {(topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions}


def everything(world: World, names: list[str] = NAMES) -> set[tuple[bytes, int]]:
    return {(world.engine.topics.by_name(name).topic_id, 0) for name in names}  # type: ignore[union-attr]


def step_through(world: World, response: Any, hook: Any = None) -> int:
    """Runs all queued slices, with a commit after each slice. Returns the number of slices."""
    steps = 0
    while world.engine.slices or world.engine.pipeline.dirty:
        world.engine.slices.step()
        world.engine.commit()
        steps += 1
        if hook is not None:
            hook(steps)
        assert steps < 1_000
    assert response.done
    return steps


def test_the_response_is_that_of_one_decision() -> None:
    """Nodes with and without slices give the member the same epochs and partitions."""
    divided, at_once = make_world(), make_world(sliced=False)
    response = divided.start(beat("m"), 1)
    assert isinstance(response, Pending)
    assert step_through(divided, response) > 5
    expected = at_once.call(beat("m"), 1)
    assert assigned(response.response) == everything(divided)
    assert assigned(expected) == everything(at_once)
    assert response.response.member_id == expected.member_id == "m"
    assert response.response.member_epoch == expected.member_epoch
    assert response.response.heartbeat_interval_ms == expected.heartbeat_interval_ms
    after = divided.call(beat("m", response.response.member_epoch, None, None), 1)
    assert (after.error_code, after.member_epoch) == (E.NONE, response.response.member_epoch)
    divided.restart()
    after = divided.call(beat("m", response.response.member_epoch, None, None), 1)
    assert after.error_code == E.NONE


def test_a_member_that_changes_its_long_subscription_gets_the_difference() -> None:
    world = make_world()
    first = world.call(beat("m"), 1)
    owned = first.assignment.topic_partitions
    fewer = NAMES[:-50]
    world.advance(5_000)  # the assignment interval separates two targets
    response = world.call(beat("m", first.member_epoch, fewer, owned), 1)
    kept = {key for topic in response.assignment.topic_partitions for key in [(topic.topic_id, 0)]}
    assert kept == everything(world, fewer)
    world.advance(5_000)
    settled = world.call(beat("m", response.member_epoch, fewer, response.assignment.topic_partitions), 1)
    assert settled.error_code == E.NONE
    assert settled.member_epoch > first.member_epoch


def test_two_members_join_in_turns() -> None:
    """The slices of both members' requests alternate. In the end each partition has one owner."""
    world = make_world()
    responses = [world.start(beat(name), 1) for name in ("a", "b")]
    world.settle()
    found = [response.response for response in responses]
    for _ in range(12):
        world.advance(5_000)
        for number, name in enumerate(("a", "b")):
            last = found[number]
            owned = last.assignment.topic_partitions
            after = world.call(beat(name, last.member_epoch, NAMES, owned), 1)
            assert after.error_code == E.NONE
            if after.assignment is None:
                after.assignment = last.assignment
            found[number] = after
    first, second = map(assigned, found)
    assert not first & second
    assert first | second == everything(world)
    assert abs(len(first) - len(second)) <= 1


def test_a_commit_that_fails_at_any_slice_leaves_a_working_group() -> None:
    """The commit after one of the slices of a heartbeat fails. The client gets its assignment or a retriable error. In
    both cases, the next heartbeat returns the whole assignment.
    """
    world = make_world()
    steps = step_through(world, world.start(beat("m"), 1))
    failed = 0
    for nth in {*range(1, 6), *range(6, steps, 12), steps}:
        world = make_world()

        def fail(step: int, nth: int = nth, world: World = world) -> None:
            if step == nth:
                world.log.failures_left = 1

        response = world.start(beat("m"), 1)
        step_through(world, response, fail)
        world.log.failures_left = 0
        world.settle()
        code = E(response.response.error_code)
        assert code is E.NONE or code in RETRIABLE
        failed += code is not E.NONE
        assert assigned(world.call(beat("m"), 1)) == everything(world)
        world.restart()
        world.engine.slices.requests.enabled = True
        assert assigned(world.call(beat("m"), 1)) == everything(world)
    assert failed


def test_a_failing_assignor_leaves_the_member_in_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The response has no assignment. The next heartbeat computes the target again."""
    world = make_world()
    with monkeypatch.context() as patch:

        def fail(job: Any) -> None:
            raise MemoryError

        patch.setattr(AssignmentJob, "compute", fail)
        response = world.call(beat("m"), 1)
    assert response.error_code == E.NONE
    assert assigned(response) == set()
    assert assigned(world.call(beat("m"), 1)) == everything(world)
