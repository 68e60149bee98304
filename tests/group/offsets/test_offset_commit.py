"""OffsetCommit for groups without members: authorization and other checks, the stored offsets, and the response."""

from __future__ import annotations

import pytest

from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.runtime import RequestContext
from tests.group.offsets.world import OffsetsContext
from tests.harness import WALL_MS

UNKNOWN_ID = b"\xff" * 16
READ_TOPIC = (Operation.READ, ResourceType.TOPIC)


class Denies:
    """An authorizer that denies the given permissions and records all its calls."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str]) -> None:
        self.denied = denied
        self.calls: list[tuple[Operation, ResourceType, str]] = []

    def allowed(self, context: object, operation: Operation, kind: ResourceType, name: str) -> bool:
        self.calls.append((operation, kind, name))
        return (operation, kind, name) not in self.denied


@pytest.fixture
def context() -> OffsetsContext:
    return OffsetsContext(topics={"topic": 3, "other": 1})


def value(offset: int, topic: str = "topic", **more: object) -> OffsetCommitValue:
    topic_id = topic.encode().rjust(16, b"-")
    return OffsetCommitValue(**{"offset": offset, "commit_timestamp": WALL_MS, "topic_id": topic_id, **more})


def key(partition: int, topic: str = "topic", group: str = "g") -> OffsetCommitKey:
    return OffsetCommitKey(group=group, topic=topic, partition=partition)


# ---- the first checks (in their order)


def test_a_client_that_may_not_read_the_group_gets_no_other_error(context):
    context.authorizer = Denies((Operation.READ, ResourceType.GROUP, "g"))
    assert context.commit_offsets("g", {"topic": {0: 1, 9: 1}, "missing": {0: 1}}) == [30, 30, 30]
    assert context.authorizer.calls == [(Operation.READ, ResourceType.GROUP, "g")]


def test_unauthorized_topics_fail_alone(context):
    context.authorizer = Denies((*READ_TOPIC, "topic"), (*READ_TOPIC, "missing"))
    offsets = {"topic": {0: 1, 9: 1}, "missing": {0: 1}, "other": {0: 1}, "unknown": {0: 1}}
    assert context.commit_offsets("g", offsets) == [29, 29, 29, 0, 3]
    assert context.fetch("g", None) == {"other": {0: (1, -1, "", 0)}}


def test_by_id_an_unknown_topic_precedes_authorization(context):
    context.authorizer = Denies((*READ_TOPIC, "topic"))
    topic, other = (context.topics.by_name(name).topic_id for name in ("topic", "other"))
    offsets = {UNKNOWN_ID: {0: 1}, bytes(16): {0: 1}, topic: {0: 1}, other: {0: 1, 1: 1}}
    assert context.commit_offsets("g", offsets, version=10) == [100, 100, 29, 0, 3]


def test_unknown_topics_and_partitions_fail_before_the_group_is_checked(context):
    assert context.commit_offsets("g", {"missing": {0: 1}, "topic": {3: 1, -1: 1}}, generation=5) == [3, 3, 3]
    assert context.machine.groups == {}
    assert context.commit_offsets("g", {"missing": {0: 1}, "topic": {1: 1}}, generation=5) == [3, 69]
    assert context.machine.groups == {}
    assert context.records() == []


def test_a_request_without_topics_needs_no_group(context):
    assert context.commit_offsets("g", {}, generation=5) == []
    assert context.machine.groups == {}


def test_an_existing_topic_without_requested_partitions_is_omitted(context):
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name=name) for name in ("topic", "missing")]
    )
    response = context.call(context.api(OffsetCommitApi), request, version=9)
    assert response == OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="missing")])
    assert context.machine.groups == {}


def test_the_empty_group_id_is_valid(context):
    assert context.commit_offsets("", {"topic": {0: 1}}) == [0]
    assert context.offset("", "topic", 0) == 1


# ---- an absent group


@pytest.mark.parametrize(("version", "code"), [(2, 22), (8, 22), (9, 69)])
@pytest.mark.parametrize("generation", [0, 7])
def test_a_generation_of_an_absent_group_is_refused(context, version, code, generation):
    offsets = {"topic": {0: 1, 1: 1}, "missing": {0: 1}}
    assert context.commit_offsets("g", offsets, version=version, generation=generation, member="m") == [code, code, 3]
    assert context.machine.groups == {}
    assert context.records() == []


@pytest.mark.parametrize("member", ["", "m"])
@pytest.mark.parametrize("generation", [-1, -5])
def test_a_commit_without_a_generation_creates_a_simple_group(context, member, generation):
    assert context.commit_offsets("g", {"topic": {0: 1}}, generation=generation, member=member) == [0]
    group = context.machine.groups["g"]
    assert (group.state_name(), group.protocol_type) == ("Empty", "")
    assert context.records() == [(key(0), value(1))]
    context.assert_restart_changes_nothing()


def test_any_client_without_a_generation_may_commit_to_an_empty_group(context):
    context.commit_offsets("g", {"topic": {0: 1}})
    assert context.commit_offsets("g", {"topic": {0: 2}}, member="m", instance="i", generation=-1) == [0]
    assert context.commit_offsets("g", {"topic": {0: 3}}, member="m", generation=0) == [25]
    assert context.commit_offsets("g", {"topic": {0: 3}}, instance="i", generation=0) == [25]
    assert context.offset("g", "topic", 0) == 2


# ---- stored offsets


def test_one_record_per_entry_in_request_order(context):
    offsets = {"topic": {2: (7, 4, "note"), 0: (-3, -1, None)}, "other": {0: 1 << 62}}
    assert context.commit_offsets("g", offsets) == [0, 0, 0]
    assert context.records() == [
        (key(2), value(7, leader_epoch=4, metadata="note")),
        (key(0), value(-3)),
        (key(0, "other"), value(1 << 62, "other")),
    ]
    assert context.fetch("g", None) == {
        "topic": {2: (7, 4, "note", 0), 0: (-3, -1, "", 0)},
        "other": {0: (1 << 62, -1, "", 0)},
    }
    context.assert_restart_changes_nothing()


def test_unchanged_offsets_are_written_again(context):
    for _ in range(2):
        context.commit_offsets("g", {"topic": {0: 5}})
    assert context.records() == [(key(0), value(5))] * 2
    assert context.machine.offsets.offset_count == 1
    assert context.machine.offsets.commits == 2


def test_a_duplicate_partition_is_written_and_returned_twice_and_the_last_one_wins(context):
    def topic(name: str, *offsets: tuple[int, int]) -> OffsetCommitRequestTopic:
        partitions = [OffsetCommitRequestPartition(partition_index=p, committed_offset=o) for p, o in offsets]
        return OffsetCommitRequestTopic(name=name, partitions=partitions)

    request = OffsetCommitRequest(
        group_id="g", topics=[topic("topic", (0, 1), (1, 2), (0, 3)), topic("topic", (1, 4), (8, 1))]
    )

    def topic_response(*codes: tuple[int, int]) -> OffsetCommitResponseTopic:
        partitions = [OffsetCommitResponsePartition(partition_index=p, error_code=c) for p, c in codes]
        return OffsetCommitResponseTopic(name="topic", partitions=partitions)

    assert context.call(context.api(OffsetCommitApi), request, version=9) == OffsetCommitResponse(
        topics=[topic_response((0, 0), (1, 0), (0, 0)), topic_response((1, 0), (8, 3))]
    )
    assert context.records() == [(key(0), value(1)), (key(1), value(2)), (key(0), value(3)), (key(1), value(4))]
    assert context.offset("g", "topic", 0) == 3
    assert context.offset("g", "topic", 1) == 4


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_stores_the_topics_id(context, version):
    topic = context.topics.by_name("topic").topic_id if version >= 10 else "topic"
    assert context.commit_offsets("g", {topic: {1: (version, 3, "m")}}, version=version) == [0]
    epoch = 3 if version >= 6 else -1
    assert context.records() == [(key(1), value(version, leader_epoch=epoch, metadata="m"))]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_retention_time_gives_an_expiration_time_and_a_record_of_version_1(context, version):
    context.commit_offsets("g", {"topic": {0: 1}}, version=version, retention_ms=60_000)
    context.commit_offsets("g", {"topic": {1: 2}}, version=version, retention_ms=0)
    context.commit_offsets("g", {"topic": {2: 3}}, version=version, retention_ms=-1)
    assert context.records() == [
        (key(0), OffsetCommitValue(offset=1, commit_timestamp=WALL_MS, expire_timestamp=WALL_MS + 60_000)),
        (key(1), OffsetCommitValue(offset=2, commit_timestamp=WALL_MS, expire_timestamp=WALL_MS)),
        (key(2), value(3)),
    ]
    context.assert_restart_changes_nothing()


def test_the_commit_timestamp_is_the_coordinators(context):
    context.advance(5_000)
    context.commit_offsets("g", {"topic": {0: 1}})
    assert context.records() == [(key(0), value(1, commit_timestamp=WALL_MS + 5_000))]


# ---- metadata


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 10, 0),
        ("x" * 11, 12),
        ("é" * 10, 0),  # twenty bytes in UTF-8, ten code units
        ("é" * 11, 12),
        ("😀" * 5, 0),  # two code units each
        ("😀" * 5 + "x", 12),
        ("😀" * 6, 12),
        ("", 0),
        (None, 0),
    ],
)
def test_metadata_is_limited_in_utf16_code_units(metadata, code):
    context = OffsetsContext({"offset.metadata.max.bytes": 10}, {"topic": 3})
    assert context.commit_offsets("g", {"topic": {0: (1, -1, metadata), 1: 2}}) == [code, 0]
    expected = {1: (2, -1, "", 0)} if code else {0: (1, -1, metadata or "", 0), 1: (2, -1, "", 0)}
    assert context.fetch("g", None) == {"topic": expected}


def test_only_refused_metadata_creates_a_group_until_the_next_load(context):
    assert context.commit_offsets("g", {"topic": {0: (1, -1, "x" * 4097)}}) == [12]
    assert list(context.machine.groups) == ["g"]
    assert context.records() == []
    context.restart()
    assert context.machine.groups == {}


def test_a_group_id_that_is_too_long_for_a_record_fails_its_request_alone(context):
    """A request from the wire cannot contain a group id of this length, but an embedding program can pass one."""
    partitions = [OffsetCommitRequestPartition(partition_index=p) for p in (0, 9)]
    topics = [OffsetCommitRequestTopic(name="topic", partitions=partitions)]
    request = OffsetCommitRequest(group_id="g" * 40_000, topics=topics)
    response = context.api(OffsetCommitApi).handle(RequestContext(9), request)
    assert [p.error_code for p in response.topics[0].partitions] == [-1, 3]
    context.finish()
    assert context.records() == []
    assert context.commit_offsets("g", {"topic": {0: 1}}) == [0]


# ---- durability


def test_a_response_waits_for_the_commit(context):
    context.auto_commit = False
    request = OffsetCommitRequest(
        group_id="g",
        topics=[OffsetCommitRequestTopic(name="topic", partitions=[OffsetCommitRequestPartition(partition_index=0)])],
    )
    call = context.send(context.api(OffsetCommitApi), request, version=9)
    assert not call.done
    assert context.commit()
    assert call.done
    assert call.response.topics[0].partitions[0].error_code == 0


def test_a_failed_commit_returns_errors_per_partition_and_changes_nothing(context):
    context.commit_offsets("g", {"topic": {0: 1}})
    context.records()
    context.fail_next_commit()
    assert context.commit_offsets("g", {"topic": {0: 2, 9: 1}, "other": {0: 1}}) == [16, 3, 16]
    assert context.records() == []
    assert context.fetch("g", None) == {"topic": {0: (1, -1, "", 0)}}
    assert context.commit_offsets("g", {"topic": {0: 3}}) == [0]
    context.assert_restart_changes_nothing()


def test_a_loading_or_moved_shard_returns_errors_per_partition(context):
    context.unload()
    assert context.commit_offsets("g", {"topic": {0: 1, 9: 1}}) == [16, 3]
    context.auto_commit = False
    context.shards.load(0, 1)
    api = context.api(OffsetCommitApi)
    request = OffsetCommitRequest(
        group_id="g",
        topics=[OffsetCommitRequestTopic(name="topic", partitions=[OffsetCommitRequestPartition(partition_index=0)])],
    )
    response = api.handle(RequestContext(9), request)
    assert response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_an_error_without_a_plan_applies_to_every_partition(context):
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="missing", partitions=[OffsetCommitRequestPartition(partition_index=p) for p in (0, 4)]
            )
        ],
    )
    response = context.api(OffsetCommitApi).error(RequestContext(9), request, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [(p.partition_index, p.error_code) for p in response.topics[0].partitions] == [(0, -1), (4, -1)]
