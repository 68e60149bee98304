"""Members of share groups that name thousands of topics: their heartbeats run in slices."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.apis import share_group_heartbeat
from kcore.group.share import initialization, target
from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.runtime import Pending, RequestContext
from tests.group.share.world import GROUP, World

TOPICS = 60
NAMES = [f"topic{number:05}" for number in range(TOPICS)]
RETRIABLE = {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS}


@pytest.fixture(autouse=True)
def few_topics_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes heartbeats of members with more than 10 topics run in slices; without this fixture, the limit is 1,000."""
    monkeypatch.setattr(share_group_heartbeat, "INLINE_TOPICS", 10)


def make_world(*, sliced: bool = True) -> World:
    """Makes a node with one topic for each name in `NAMES`."""
    world = World()
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
    response = world.node.send(CreateTopicsRequest(topics=topics, timeout_ms=1000))
    assert {topic.error_code for topic in response.topics} == {E.NONE}
    world.engine.slices.requests.enabled = sliced
    return world


def beat(member: str, epoch: int = 0, names: list[str] | None = NAMES) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member, member_epoch=epoch, subscribed_topic_names=names
    )


def run_request(world: World, request: Any, hook: Any = None) -> Any:
    """Sends a request and runs all slices that result from it, with a commit after each slice. Returns the response."""
    engine = world.engine
    engine.turn()
    response = engine.submit(RequestContext(1, "test"), request)
    engine.commit()
    steps = 0
    while engine.slices or engine.pipeline.dirty:
        if hook is not None:
            hook(steps)
        engine.slices.step()
        engine.commit()
        steps += 1
        assert steps < 2_000
    assert not isinstance(response, Pending) or response.done
    return response.response if isinstance(response, Pending) else response


def everything(world: World, names: list[str] = NAMES) -> set[tuple[bytes, int]]:
    return {(world.topic_id(name), 0) for name in names}


def assigned(response: Any) -> set[tuple[bytes, int]]:
    assert response.error_code == E.NONE, response
    topics = response.assignment.topic_partitions
    return {(topic.topic_id, index) for topic in topics for index in topic.partitions}


def test_the_group_is_that_of_one_decision() -> None:
    """After the same heartbeats, the groups of nodes with and without slices have the same members, epochs and
    partitions.
    """
    divided, at_once = make_world(), make_world(sliced=False)
    for names, topics in ((NAMES, NAMES), (NAMES[:-50], NAMES[:-50]), (NAMES, NAMES)):
        found = []
        for world in (divided, at_once):
            epoch = 0
            for repetition in (names, names, None):
                response = run_request(world, beat("m", epoch, repetition))
                assert response.error_code == E.NONE, response
                epoch = response.member_epoch
            again = run_request(world, beat("m", epoch, names))
            assert assigned(again) == everything(world, topics)
            described = world.describe()
            (member,) = described.members
            found.append((described.group_state, member.subscribed_topic_names, again.heartbeat_interval_ms))
            assert described.group_epoch == described.assignment_epoch == again.member_epoch == member.member_epoch
        assert found[0] == found[1]


def test_no_slice_holds_all_of_the_work() -> None:
    """A long heartbeat writes its records (member, target, initialization of partitions) in at least three slices."""
    world = make_world()
    records: list[int] = []
    world.records()

    def count(step: int) -> None:
        records.append(len(world.records()))

    run_request(world, beat("m"), count)
    assert len([number for number in records if number]) >= 3


def test_a_commit_that_fails_at_any_slice_leaves_a_working_group() -> None:
    """The commit after one of the slices of a heartbeat fails. The client gets its assignment or a retriable error. In
    both cases, a later heartbeat returns the whole assignment.
    """
    failed = 0
    for nth in range(14):
        world = make_world()

        def fail(step: int, nth: int = nth, world: World = world) -> None:
            if step == nth:
                world.fail_next_commit()

        response = run_request(world, beat("m"), fail)
        world.stop_failing()
        code = E(response.error_code)
        assert code is E.NONE or code in RETRIABLE
        failed += code is not E.NONE
        world.advance(60_000)  # initializations are requested again
        for _ in range(3):
            response = run_request(world, beat("m"))
        assert assigned(response) == everything(world)
    assert failed


def test_a_refused_topic_refuses_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refused heartbeat writes no record."""
    world = make_world()
    api = world.engine.apis[76]

    class Refusing:
        def allowed(self, context: Any, operation: Any, kind: Any, name: str) -> bool:
            return name != NAMES[-1]

    monkeypatch.setattr(api, "_authorizer", Refusing())
    response = run_request(world, beat("m"))
    assert response.error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert GROUP not in world.engine.groups.of(GROUP).machine.groups


def test_each_part_of_a_long_heartbeat_has_a_slice_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Separate slices store the member, look up the topics, compute the target, and initialize the partitions. A last
    slice records that the partitions are initialized.
    """
    parts: list[tuple[int, str]] = []
    now = [-1]  # the first slice is that of the request itself

    def note(module: Any, name: str) -> None:
        original = getattr(module, name)

        def noted(*arguments: Any) -> Any:
            parts.append((now[0], name))
            return original(*arguments)

        monkeypatch.setattr(module, name, noted)

    note(share_group_heartbeat, "heartbeat")
    note(target, "prepare")
    note(initialization, "_finish")
    monkeypatch.setattr(initialization, "FEW_TOPICS", 10)
    world = make_world()
    response = run_request(world, beat("m"), lambda step: now.__setitem__(0, step))
    assert response.error_code == E.NONE
    assert [name for _, name in parts] == ["heartbeat", "prepare", "heartbeat", "heartbeat", "_finish"]
    assert len({step for step, _ in parts}) == len(parts)
    assert len(world.group.state_partitions.initialized) == TOPICS
    at_once = make_world(sliced=False)
    expected = run_request(at_once, beat("m"))
    assert (response.member_epoch, response.heartbeat_interval_ms) == (
        expected.member_epoch,
        expected.heartbeat_interval_ms,
    )
