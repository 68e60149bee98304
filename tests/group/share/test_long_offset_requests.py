"""Requests about the offsets of share groups that name many topics: slices, bounds and linear costs."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pytest

from kcore.group.apis import describe_share_group_offsets
from kcore.group.share.offsets import look_up_altered
from kcore.group.share.partitions import StatePartitions, StateTopic
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kcore.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kcore.protocol.records.share_group_state_partition_metadata import ShareGroupStatePartitionMetadataKey
from kcore.runtime.api import RequestContext
from kcore.runtime.pending import Pending
from tests.group.share.world import GROUP, Member, World

LONG = 600
"""Number of partitions of the topic that the test requests name; large enough that the requests run in slices."""


def long_requests() -> list[Any]:
    """Returns requests that name hundreds of partitions; some partitions repeat, do not exist, or have no topic."""
    indexes = [*range(LONG), 3, 3, LONG, LONG + 1, -1]
    partitions = {
        "wide": indexes,
        "unknown": indexes,
        "t": [0, 5],
        **{f"unknown-{number}": [0] for number in range(100)},
    }

    def describe(*group_ids: str) -> DescribeShareGroupOffsetsRequest:
        topics = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=rows) for name, rows in partitions.items()
        ]
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=topics) for name in group_ids]
        groups.append(DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None))
        return DescribeShareGroupOffsetsRequest(groups=groups)

    alter = AlterShareGroupOffsetsRequest(
        group_id="g",
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=index % 7)
                    for index in rows
                ],
            )
            for name, rows in [*partitions.items(), ("t", [0])]
        ],
    )
    delete = DeleteShareGroupOffsetsRequest(
        group_id="g", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in (*partitions, "t")]
    )
    return [alter, describe("g", "other"), delete, describe("g")]


def run_request(world: World, request: Any) -> tuple[Any, int]:
    """Sends a request and commits after each of its slices. Returns the response and the number of slices."""
    engine = world.engine
    engine.slices.requests.enabled = True
    result = engine.submit(RequestContext(engine.newest_version(request)), request)
    slices = 0
    engine.commit()
    while isinstance(result, Pending) and not result.done:
        assert engine.slices.step() or result.done or slices < 10_000
        engine.commit()
        slices += 1
    engine.slices.requests.enabled = False
    return (result.response if isinstance(result, Pending) else result), slices


def test_long_requests_are_decided_in_slices() -> None:
    """Requests that run in slices give the same responses and records as requests that run at once."""
    pieces, whole = World({"wide": LONG, "t": 1}), World({"wide": LONG, "t": 1})
    for request in long_requests():
        response, slices = run_request(pieces, request)
        assert slices >= 2, request
        assert response == whole.node.send(request)
        assert not getattr(response, "error_code", 0)
    assert pieces.records() == whole.records()


def test_other_requests_are_served_between_slices() -> None:
    """Another group is served between the slices. A topic that is deleted between them gets an error."""
    world = World({"wide": LONG, "t": 1})
    engine = world.engine
    engine.slices.requests.enabled = True
    request = long_requests()[0]
    result = engine.submit(RequestContext(0), request)
    assert isinstance(result, Pending)
    assert not result.done
    engine.slices.requests.enabled = False
    other = engine.submit(RequestContext(0), DescribeShareGroupOffsetsRequest(groups=[]))
    assert other.groups == []
    world.drop_topic("wide")
    world.advance(0)
    assert result.done
    wide = result.response.responses[0]
    assert {partition.error_code for partition in wide.partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    state = world.group.state_partitions
    assert state.forget([wide.topic_id]) is state


def describe_whole(*groups: str) -> DescribeShareGroupOffsetsRequest:
    return DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None) for group_id in groups]
    )


def test_all_topics_of_a_repeated_group_are_described_once() -> None:
    """The offsets are read once. Otherwise a request of 1 MB could read 100,000 partitions 25,000 times."""
    world = World({"t": 3})
    Member(world, "m").join("t")
    (once,) = world.node.send(describe_whole("g")).groups
    world.persister.calls.clear()
    response = world.node.send(describe_whole(*["g"] * 100, "absent", "g"))
    assert [call for call, _ in world.persister.calls] == ["read_summary"]
    assert [group.group_id for group in response.groups] == ["g"] * 100 + ["absent", "g"]
    assert [group for group in response.groups if group.group_id == "g"] == [once] * 101
    assert len(once.topics[0].partitions) == 3


def test_the_topics_of_all_groups_of_a_request_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups share one limit of names. A group above the remaining limit gets an error. Smaller groups succeed."""
    monkeypatch.setattr(describe_share_group_offsets, "MAX_NAMES", 12)
    world = World({"t": 4, "small": 1})
    for group_id, topic in (("g", "t"), ("h", "t"), ("i", "small")):
        for _ in range(2):
            assert not world.beat("m", 0, [topic], group_id=group_id).error_code
    groups = world.node.send(describe_whole("g", "h", "i")).groups
    assert {group.group_id: ErrorCode(group.error_code) for group in groups} == {
        "g": ErrorCode.NONE,
        "h": ErrorCode.INVALID_REQUEST,
        "i": ErrorCode.NONE,
    }


class Counting:
    """Allows the topics that do not begin with `hidden`, and counts the checks of topics."""

    def __init__(self, hidden: str) -> None:
        self.hidden = hidden
        self.checks = 0

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.checks += resource_type is ResourceType.TOPIC
        return not name.startswith(self.hidden)


@pytest.mark.parametrize("hidden", ["-", "t1"])
def test_the_topics_of_a_described_group_are_authorized_in_slices(hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one slice, the checks of 10,000 topics would take 25 ms."""
    monkeypatch.setattr(describe_share_group_offsets, "NAME_COST_US", 2_000)
    monkeypatch.setattr(describe_share_group_offsets, "PARTITION_COST_US", 2_000)
    names = [f"t{number}" for number in range(60)]
    world = World(dict.fromkeys(names, 1))
    Member(world, "m").join(*names)
    authorizer = Counting(hidden)
    monkeypatch.setattr(world.engine.apis[ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS], "_authorizer", authorizer)
    whole = world.node.send(describe_whole("g"))
    checks, authorizer.checks = authorizer.checks, 0
    engine = world.engine
    engine.slices.requests.enabled = True
    result = engine.submit(RequestContext(1), describe_whole("g"))
    most = authorizer.checks
    while not result.done:
        before = authorizer.checks
        engine.slices.step()
        engine.commit()
        most = max(most, authorizer.checks - before)
    engine.slices.requests.enabled = False
    assert result.response == whole
    assert {topic.topic_name for topic in whole.groups[0].topics} == {n for n in names if not n.startswith(hidden)}
    assert (authorizer.checks, most) == (checks, 5)


class Unsearched(list[bytes]):
    """A list that refuses linear searches, which would make a long request quadratic."""

    def __contains__(self, item: object) -> bool:
        raise AssertionError("a list was searched")


def test_the_deletion_of_many_topics_is_linear() -> None:
    """Searching the list for each of 10,000 topics would take 4 s."""
    topics = {bytes([number]) * 16: StateTopic(f"t{number}", frozenset({0})) for number in range(3)}
    first, second, third = topics
    state = StatePartitions({}, topics, {}).delete(Unsearched([first, second]))
    assert state == StatePartitions({}, {third: topics[third]}, {first: "t0", second: "t1"})
    assert state.deleted(Unsearched([first])) == StatePartitions({}, {third: topics[third]}, {second: "t1"})


def test_topics_that_are_deleted_together_are_removed_by_one_record() -> None:
    """With 10,000 topics, one record for each would take minutes, because it repeats all remaining topics."""
    names = [f"t{number}" for number in range(40)]
    world = World(dict.fromkeys([*names, "kept"], 1))
    Member(world, "m").join(*names, "kept")
    state = world.group.state_partitions
    assert len(state.initialized) == 41
    world.records()
    engine = world.engine
    engine.slices.requests.enabled = True
    for name in names:
        result = engine.submit(RequestContext(5), DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000))
        engine.commit()
        while not result.done:
            engine.slices.step()
            engine.commit()
    world.advance(0)
    assert {topic.name for topic in world.group.state_partitions.initialized.values()} == {"kept"}
    written = [value for key, value in world.records() if isinstance(key, ShareGroupStatePartitionMetadataKey)]
    assert len(written) == 1
    assert [topic.topic_name for topic in written[-1].initialized_topics] == ["kept"]
    assert len([key for shard in engine.share.shards or () for key in shard.machine.states.values()]) == 1
    assert state.forget([b"?" * 16]) is state


def finished(steps: Generator[int, None, Any]) -> Any:
    """Runs a generator to its end. Returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_a_topic_that_is_named_many_times_costs_no_more_with_many_partitions() -> None:
    """The time for each entry must not depend on the number of partitions in earlier entries of the request."""
    count = 8_000
    world = World({"few": 1, "many": count})
    machine = world.engine.groups.of(GROUP).machine

    def seconds(request: AlterShareGroupOffsetsRequest) -> float:
        begin = time.thread_time()
        alteration = finished(look_up_altered(machine.topics, GROUP, request.topics))
        used = time.thread_time() - begin
        assert [len(topic.partitions) for topic in alteration.responses] == [1] * count
        return used

    few, many = (
        AlterShareGroupOffsetsRequest(
            group_id=GROUP,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=index % partitions)],
                )
                for index in range(count)
            ],
        )
        for name, partitions in (("few", 1), ("many", count))
    )
    ratio = min(seconds(many) for _ in range(3)) / min(seconds(few) for _ in range(3))
    assert ratio < 20, f"{ratio:.1f} times as long"  # copying the partitions for each entry takes 100 times as long
