"""Topologies with thousands of topics: heartbeats run in slices, and get the same response as without slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcore.group.apis import streams_group_heartbeat
from kcore.group.streams import preparation
from kcore.group.streams import topology as topologies
from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kcore.protocol.messages.streams_group_heartbeat import KeyValue, StreamsGroupHeartbeatRequest, Topology
from kcore.protocol.records.streams_group_current_member_assignment import StreamsGroupCurrentMemberAssignmentKey
from kcore.protocol.records.streams_group_target_assignment_member import StreamsGroupTargetAssignmentMemberKey
from kcore.runtime import Pending
from tests.group.streams.members import internal, subtopology, topology
from tests.transaction.world import World

TOPICS = 60
NAMES = [f"topic{number:02}" for number in range(TOPICS)]
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
}
LONG = topology(*(subtopology(name, [name], [internal(f"{name}-log")]) for name in NAMES))
LOOP = topology(*(subtopology(name, [], [], [f"r{number}"], [internal(f"r{number}")])
                  for number, name in enumerate(NAMES)))  # fmt: skip
RETRIABLE = {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS}


@pytest.fixture(autouse=True)
def few_topics_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes heartbeats with more than 10 names run in slices (without this fixture, 1,000 names). Makes the slices
    short.
    """
    monkeypatch.setattr(streams_group_heartbeat, "LONG_TOPOLOGY", 10)
    monkeypatch.setattr(streams_group_heartbeat, "NAMES_PER_STEP", 25)
    monkeypatch.setattr(streams_group_heartbeat, "NAME_COST_US", 1_000)
    monkeypatch.setattr(preparation, "NAMES_PER_STEP", 25)
    monkeypatch.setattr(preparation, "NAME_COST_US", 1_000)
    monkeypatch.setattr(topologies, "PARTS_PER_STEP", 25)
    monkeypatch.setattr(topologies, "PART_COST_US", 1_000)


def make_world(*, sliced: bool = True, **settings: Any) -> World:
    """Makes a node with the topic `t`, and with a source topic and a changelog topic for each name in `NAMES`."""
    world = World({**SETTINGS, **settings}, topics={"t": 1})
    names = [*NAMES, *(f"{name}-log" for name in NAMES)]
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    response = world.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    assert {topic.error_code for topic in response.topics} == {E.NONE}
    world.engine.slices.requests.enabled = sliced
    return world


def join(member: str, requested: Topology = LONG) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        topology=requested,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=f"p-{member}",
    )


def run_request(world: World, request: Any, hook: Callable[[int], None] | None = None) -> Any:
    """Processes a request, with a commit after each slice. Returns the response."""
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


def test_the_responses_equal_the_responses_of_one_decision() -> None:
    """Two members get the same epochs and tasks from nodes with and without slices."""
    divided, at_once = make_world(), make_world(sliced=False)
    for member in ("a", "b", "a"):
        steps: list[int] = []
        response = run_request(divided, join(member), steps.append)
        assert len(steps) > 5
        expected = run_request(at_once, join(member))
        assert expected.error_code == E.NONE
        assert response.active_tasks == expected.active_tasks
        assert (response.status, response.heartbeat_interval_ms) == (expected.status, expected.heartbeat_interval_ms)
    found, wanted = described(divided), described(at_once)
    assert found.topology == wanted.topology
    assert [member.target_assignment for member in found.members] == [
        member.target_assignment for member in wanted.members
    ]
    assert found.group_state == wanted.group_state
    for world in (divided, at_once):
        world.restart()
    assert described(divided).topology == described(at_once).topology


@pytest.mark.parametrize(("tags", "long_tasks"), [(11, 1_000), (0, 1)])
def test_many_tags_or_tasks_take_three_decisions(tags: int, long_tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat with many tags or tasks writes its records in three slices: the member, the target, and the member's
    assignment.
    """
    monkeypatch.setattr(streams_group_heartbeat, "LONG_TASKS", long_tasks)
    written: list[tuple[int, int]] = []
    decide = streams_group_heartbeat.heartbeat

    def counted(shard: Any, context: Any, stage: Any) -> Any:
        decision = decide(shard, context, stage)
        types = [type(record.key) for record in decision.records]
        written.append(
            (types.count(StreamsGroupTargetAssignmentMemberKey), types.count(StreamsGroupCurrentMemberAssignmentKey))
        )
        return decision

    monkeypatch.setattr(streams_group_heartbeat, "heartbeat", counted)
    responses, shown = [], []
    for sliced in (True, False):
        world = make_world(sliced=sliced)
        request = join("a", topology(subtopology("s", [NAMES[0]])))
        request.client_tags = [KeyValue(key=f"k{number}", value="v") for number in range(tags)]
        responses.append(run_request(world, request))
        shown.append(described(world))
    assert written == [(0, 1), (1, 0), (0, 1), (1, 1)]
    assert responses[0].error_code == E.NONE
    assert responses[0].active_tasks == responses[1].active_tasks
    assert len(responses[0].active_tasks[0].partitions) == 2
    assert shown[0].topology == shown[1].topology
    (one,), (other,) = (group.members for group in shown)
    assert (one.assignment, one.target_assignment, one.client_tags) == (
        other.assignment,
        other.target_assignment,
        other.client_tags,
    )


def test_a_topic_that_changes_between_slices_is_seen() -> None:
    """The configuration from before the change is not used."""
    for at in range(3, 9):
        world = make_world()

        def delete(step: int, at: int = at, world: World = world) -> None:
            if step == at:
                world.start(DeleteTopicsRequest(topic_names=[NAMES[0]], timeout_ms=1000), 5)

        response = run_request(world, join("m"), delete)
        assert response.error_code == E.NONE
        again = run_request(world, join("m"))
        assert [status.status_detail for status in again.status] == [f"the source topics {NAMES[0]} are missing"]
        assert not again.active_tasks


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (LOOP, E.STREAMS_INVALID_TOPOLOGY),
        (topology(*(subtopology("same", [name]) for name in NAMES)), E.UNKNOWN_SERVER_ERROR),
        (topology(subtopology("0", [*NAMES, "__consumer_offsets"])), E.STREAMS_INVALID_TOPOLOGY),
    ],
)
def test_errors_equal_the_errors_of_one_decision(requested: Topology, code: E) -> None:
    divided, at_once = (run_request(make_world(sliced=sliced), join("m", requested)) for sliced in (True, False))
    assert divided == at_once
    assert divided.error_code == code


def test_a_member_that_fills_the_group_gets_its_tasks() -> None:
    """A join runs in several slices, and its first slice fills the group. The later slices are not refused for this
    reason.
    """
    world = make_world(**{"group.streams.max.size": 1})
    response = run_request(world, join("m"))
    assert response.error_code == E.NONE
    assert len(response.active_tasks) == TOPICS
    assert run_request(world, join("other")).error_code == E.GROUP_MAX_SIZE_REACHED


def test_another_topology_is_refused() -> None:
    world = make_world()
    assert run_request(world, join("m")).error_code == E.NONE
    other = topology(*(subtopology(name, [name]) for name in NAMES))
    assert run_request(world, join("n", other)).error_code == E.INVALID_REQUEST
    assert [member.member_id for member in described(world).members] == ["m"]


def test_a_commit_that_fails_at_any_slice_leaves_a_working_group() -> None:
    """The commit after one of the slices of a join fails. The client gets its tasks or a retriable error. In both
    cases, the next join returns all tasks.
    """
    failed = 0
    for nth in range(20):
        world = make_world()

        def fail(step: int, nth: int = nth, world: World = world) -> None:
            if step == nth:
                world.log.failures_left = 1

        code = E(run_request(world, join("m"), fail).error_code)
        world.log.failures_left = 0
        assert code is E.NONE or code in RETRIABLE
        failed += code is not E.NONE
        assert len(run_request(world, join("m")).active_tasks) == TOPICS
    assert failed
