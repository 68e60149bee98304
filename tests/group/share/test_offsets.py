"""The APIs that describe, alter and delete the start offsets of share groups, and the deletion of share groups."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.apis.alter_share_group_offsets import AlterShareGroupOffsetsApi
from kcore.group.apis.delete_share_group_offsets import DeleteShareGroupOffsetsApi
from kcore.group.apis.describe_share_group_offsets import DescribeShareGroupOffsetsApi
from kcore.group.apis.share_group_describe import ShareGroupDescribeApi
from kcore.group.apis.share_group_heartbeat import ShareGroupHeartbeatApi
from kcore.group.share.offsets import MAX_NAMES
from kcore.group.share.partitions import StateTopic
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from kcore.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.protocol.records.share_group_state_partition_metadata import ShareGroupStatePartitionMetadataValue
from kcore.runtime.api import RequestContext
from tests.group.share.test_heartbeats import record_types
from tests.group.share.world import GROUP, Member, World
from tests.kit import batch, produce

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def codes(response: AlterShareGroupOffsetsResponse) -> dict[tuple[str, int], int]:
    return {(t.topic_name, p.partition_index): p.error_code for t in response.responses for p in t.partitions}


def delete_group(world: World, group_id: str = GROUP) -> int:
    (result,) = world.node.send(DeleteGroupsRequest(groups_names=[group_id])).results
    return int(result.error_code)


# ---- alter


def test_a_group_is_created_by_its_offsets() -> None:
    """The new group is Empty in epoch 1. A member that joins gets the partitions at once."""
    world = World({"t": 2})
    assert codes(world.alter({"t": {0: 7, 1: 0}})) == {("t", 0): 0, ("t", 1): 0}
    assert record_types(world.records()) == ["StatePartitionMetadata"] * 2
    described = world.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Empty", 1, 1)
    member = Member(world, "m")
    member.beat(["t"])
    assert (member.epoch, member.assigned) == (2, {world.topic_id("t"): [0, 1]})
    (topic,) = world.offsets().topics
    assert [(p.partition_index, p.start_offset) for p in topic.partitions] == [(0, 7), (1, 0)]


def test_offsets_of_a_group_with_members_are_not_altered() -> None:
    """The whole request gets NON_EMPTY_GROUP, and nothing is written."""
    world = World({"t": 1})
    Member(world, "m").join("t")
    world.records()
    assert world.alter({"t": {0: 1}}).error_code == ErrorCode.NON_EMPTY_GROUP
    assert world.delete_offsets("t").error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete_group(world) == ErrorCode.NON_EMPTY_GROUP
    assert world.records() == []


def test_a_refused_initialization_is_the_error_of_the_partitions() -> None:
    """The share coordinator refuses to initialize a partition, and the response has its error. The partition stays on
    the group's initializing list, so that a member's heartbeat initializes it later.
    """
    world = World({"t": 1})
    world.persister.fail.append(ErrorCode.FENCED_STATE_EPOCH)
    assert codes(world.alter({"t": {0: 7}})) == {("t", 0): ErrorCode.FENCED_STATE_EPOCH}
    state = world.group.state_partitions
    assert state.initializing == {world.topic_id("t"): StateTopic("t", frozenset({0}))}
    assert state.initialized == {}
    world.advance(30_000)
    member = Member(world, "m").join("t")
    assert member.assigned == {world.topic_id("t"): [0]}


def test_unknown_topics_and_partitions_have_errors_of_their_own() -> None:
    """Unknown topics and partitions of a request get an error, and its other topics and partitions succeed."""
    world = World({"t": 1})
    response = world.alter({"t": {0: 3, 1: 3, -1: 3}, "none": {0: 1}})
    assert codes(response) == {("t", 0): 0, ("t", 1): UNKNOWN, ("t", -1): UNKNOWN, ("none", 0): UNKNOWN}
    assert {t.topic_name: t.topic_id for t in response.responses} == {"t": world.topic_id("t"), "none": bytes(16)}


def test_altering_again_replaces_the_state() -> None:
    """A second alteration sets a new start offset. The partition is initializing again until its state is written."""
    world = World({"t": 1})
    world.alter({"t": {0: 3}})
    world.alter({"t": {0: 9}})
    (topic,) = world.offsets({"t": [0]}).topics
    assert [p.start_offset for p in topic.partitions] == [9]
    assert [value.initializing_topics != () for _, value in world.records()] == [True, False, True, False]


def test_a_request_without_topics_creates_no_group() -> None:
    """The node checks the group's state as for other requests, and writes nothing."""
    world = World({"t": 1})
    assert world.alter({}) == AlterShareGroupOffsetsResponse()
    assert codes(world.alter({"none": {0: 1}})) == {("none", 0): UNKNOWN}
    assert world.alter({"none": {}}) == AlterShareGroupOffsetsResponse()
    assert world.delete_offsets().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.records() == []
    assert world.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.alter({"t": {0: 1}}, group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    assert world.delete_offsets("t", group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    Member(world, "m").beat(["t"])
    for response in (world.alter({}), world.alter({"none": {0: 1}}), world.delete_offsets()):
        assert (response.error_code, list(response.responses)) == (ErrorCode.NON_EMPTY_GROUP, [])


# ---- describe


def test_the_lag_is_what_remains_from_the_start_offset() -> None:
    """The lag is unknown without a start offset, and negative if the start offset is after the end of the log."""
    world = World({"t": 3})
    for partition in range(3):
        world.node.send(produce("t", batch([b"x"] * 10), partition), 9)
    world.alter({"t": {0: 4, 1: 15}})
    (topic,) = world.offsets({"t": [0, 1, 2]}).topics
    assert [(p.partition_index, p.start_offset, p.lag) for p in topic.partitions] == [
        (0, 4, 6),
        (1, 15, -5),
        (2, -1, -1),
    ]


@pytest.mark.parametrize(("start_offset", "lag"), [(-(2**63), 2**63 - 1), (2**63 - 1, -(2**63 - 1)), (-5, 5)])
def test_a_lag_fits_into_its_field(start_offset: int, lag: int) -> None:
    """A lag that cannot be encoded would close the connection."""
    world = World({"t": 1})
    world.alter({"t": {0: start_offset}})
    response = world.offsets({"t": [0]})
    assert [(p.start_offset, p.lag) for p in response.topics[0].partitions] == [(start_offset, lag)]
    DescribeShareGroupOffsetsResponse(groups=[response]).encode(1)


def test_unknown_groups_have_no_offsets() -> None:
    """DescribeShareGroupOffsets checks neither the existence nor the type of a group."""
    world = World({"t": 1})
    assert world.offsets(group_id="none").topics == []
    (topic,) = world.offsets({"t": [0]}, group_id="none").topics
    assert [(p.start_offset, p.lag, p.error_code) for p in topic.partitions] == [(-1, -1, 0)]
    (topic,) = world.offsets({"t": [0]}, group_id="").topics
    assert [(p.start_offset, p.lag, p.error_code) for p in topic.partitions] == [(-1, -1, 0)]
    (topic,) = world.offsets({"t": []}).topics
    assert topic.partitions == []
    (missing,) = world.offsets({"none": [0]}).topics
    assert (missing.topic_id, [p.start_offset for p in missing.partitions]) == (bytes(16), [-1])


def test_partitions_that_do_not_exist_have_no_offset() -> None:
    """The share coordinator gets no request for missing partitions. A repeated partition is described once."""
    world = World({"t": 1})
    world.alter({"t": {0: 3}})
    (topic,) = world.offsets({"t": [5, 0, -1, 0]}).topics
    assert [(p.partition_index, p.start_offset, p.error_code) for p in topic.partitions] == [
        (0, 3, 0),
        (5, -1, 0),
        (-1, -1, 0),
    ]
    _, request = world.persister.calls[-1]
    assert [p.partition for p in request.topics[0].partitions] == [0]


def test_a_request_that_names_too_much_is_refused() -> None:
    """Requests with too many names or partitions get INVALID_REQUEST, because they would delay other requests."""
    world = World({"t": 1})
    indexes = list(range(MAX_NAMES))
    assert world.offsets({"t": indexes}).error_code == ErrorCode.INVALID_REQUEST
    assert world.offsets({"t": indexes[2:]}).error_code == ErrorCode.NONE
    assert world.alter({"t": dict.fromkeys(indexes, 0)}).error_code == ErrorCode.INVALID_REQUEST
    assert world.delete_offsets(*map(str, range(MAX_NAMES + 1))).error_code == ErrorCode.INVALID_REQUEST


# ---- delete


def test_a_failed_deletion_of_offsets_can_be_repeated() -> None:
    """The topic stays on the deleting list. The repeated request deletes all its partitions."""
    world = World({"t": 2})
    world.alter({"t": {0: 1}})
    world.persister.fail.append(ErrorCode.UNKNOWN_SERVER_ERROR)
    (topic,) = world.delete_offsets("t").responses
    assert topic.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.group.state_partitions.deleting == {world.topic_id("t"): "t"}
    assert world.offsets().topics == []
    (topic,) = world.delete_offsets("t").responses
    assert topic.error_code == ErrorCode.NONE
    name, request = world.persister.calls[-1]
    assert (name, [p.partition for p in request.topics[0].partitions]) == ("delete", [0, 1])
    assert world.group.state_partitions.deleting == {}
    (topic,) = world.delete_offsets("t").responses
    assert (topic.error_code, topic.topic_id) == (UNKNOWN, bytes(16))


def test_a_group_is_deleted_with_its_states() -> None:
    """The start offsets are deleted before the group, so a new group of the same name begins without them."""
    world = World({"t": 2})
    world.alter({"t": {0: 1, 1: 2}})
    world.records()
    assert delete_group(world) == ErrorCode.NONE
    assert record_types(world.records()) == [
        "StatePartitionMetadata",
        "TargetAssignmentMetadata†",
        "StatePartitionMetadata†",
        "Metadata†",
    ]
    (topic,) = world.offsets({"t": [0, 1]}).topics
    assert [p.start_offset for p in topic.partitions] == [-1, -1]
    assert delete_group(world) == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("restarts", [False, True])
def test_the_lists_of_a_group_without_states_are_emptied_before_its_deletion(restarts: bool) -> None:
    """As in Kafka: if the group once had states, the log has a record with empty lists before the tombstones."""
    world = World({"t": 1})
    world.alter({"t": {0: 1}})
    world.delete_offsets("t")
    if restarts:
        world.boot()
    world.records()
    calls = len(world.persister.calls)
    assert delete_group(world) == ErrorCode.NONE
    records = world.records()
    assert record_types(records) == [
        "StatePartitionMetadata",
        "TargetAssignmentMetadata†",
        "StatePartitionMetadata†",
        "Metadata†",
    ]
    assert records[0][1] == ShareGroupStatePartitionMetadataValue()
    assert len(world.persister.calls) == calls


def test_a_group_whose_states_cannot_be_deleted_is_kept() -> None:
    """The group gets the error of the share coordinator. The next request repeats the deletion."""
    world = World({"t": 1})
    world.alter({"t": {0: 1}})
    world.persister.fail.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert delete_group(world) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.describe().group_state == "Empty"
    assert delete_group(world) == ErrorCode.NONE
    assert world.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_that_joins_during_the_deletion_keeps_the_group() -> None:
    """The deletion ends with NON_EMPTY_GROUP, and the member's heartbeats initialize the partitions again."""
    world = World({"t": 1})
    world.alter({"t": {0: 1}})
    world.persister.hold = True
    pending = world.node.start(DeleteGroupsRequest(groups_names=[GROUP]))
    member = Member(world, "m")
    assert member.beat(["t"]).error_code == ErrorCode.NONE
    world.persister.release()
    world.advance(0)
    (result,) = pending.response.results  # type: ignore[union-attr]
    assert result.error_code == ErrorCode.NON_EMPTY_GROUP
    member.beat()
    member.beat()
    assert member.assigned == {world.topic_id("t"): [0]}


def test_a_group_without_states_is_deleted_at_once() -> None:
    """The share coordinator gets no request."""
    world = World()
    Member(world, "m").beat(["later"])
    world.beat("m", -1)
    assert delete_group(world) == ErrorCode.NONE
    assert world.persister.calls == []


# ---- permissions


class Permissions:
    """An authorizer that refuses one operation on one type of resource."""

    def __init__(self, operation: Operation, resource: ResourceType) -> None:
        self._refused = (operation, resource)

    def allowed(self, context: Any, operation: Operation, resource: ResourceType, name: str) -> bool:
        return (operation, resource) != self._refused


GROUP_REFUSED, TOPIC_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("operation", "resource", "expected"),
    [
        (Operation.READ, ResourceType.GROUP, {"beat": GROUP_REFUSED, "alter": GROUP_REFUSED}),
        (Operation.DESCRIBE, ResourceType.GROUP, {"describe": GROUP_REFUSED, "offsets": GROUP_REFUSED}),
        (Operation.DELETE, ResourceType.GROUP, {"delete": GROUP_REFUSED}),
        (
            Operation.DESCRIBE,
            ResourceType.TOPIC,
            {"beat": TOPIC_REFUSED, "describe": TOPIC_REFUSED, "partition offsets": TOPIC_REFUSED},
        ),
        (Operation.READ, ResourceType.TOPIC, {"altered partition": TOPIC_REFUSED, "deleted topic": TOPIC_REFUSED}),
    ],
)
def test_each_api_refuses_a_client_without_its_permissions(
    operation: Operation, resource: ResourceType, expected: dict[str, ErrorCode]
) -> None:
    """The APIs that need the denied permission return an error for the request or the topic. The other APIs work."""
    world = World({"t": 1})
    world.alter({"t": {0: 1}}, group_id="empty")
    Member(world, "m").join("t")
    shards, share, topics = world.engine.groups, world.engine.share_groups, world.engine.topics
    authorizer: Any = Permissions(operation, resource)
    context = RequestContext(1)

    def call(api: Any, request: Any) -> Any:
        response = api.handle(context, request)
        world.advance(0)
        return response.response if hasattr(response, "done") else response

    found: dict[str, int] = {}
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=3, subscribed_topic_names=["t"])
    found["beat"] = call(ShareGroupHeartbeatApi(shards, share, authorizer), request).error_code
    described = call(
        ShareGroupDescribeApi(shards, share, authorizer), ShareGroupDescribeRequest(group_ids=[GROUP])
    ).groups[0]
    found["describe"] = described.error_code
    group = DescribeShareGroupOffsetsRequest(
        groups=[
            DescribeShareGroupOffsetsRequestGroup(
                group_id="empty", topics=[DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])]
            )
        ]
    )
    offsets = call(DescribeShareGroupOffsetsApi(shards, share, topics, authorizer), group).groups[0]
    found["offsets"] = offsets.error_code
    found["partition offsets"] = offsets.topics[0].partitions[0].error_code if offsets.topics else 0
    alter = AlterShareGroupOffsetsRequest(
        group_id="empty",
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name="t", partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)]
            )
        ],
    )
    altered = call(AlterShareGroupOffsetsApi(shards, share, topics, authorizer), alter)
    found["alter"] = altered.error_code
    found["altered partition"] = altered.responses[0].partitions[0].error_code if altered.responses else 0
    delete = DeleteShareGroupOffsetsRequest(
        group_id="empty", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    )
    deleted = call(DeleteShareGroupOffsetsApi(shards, share, topics, authorizer), delete)
    found["delete"] = deleted.error_code
    found["deleted topic"] = deleted.responses[0].error_code if deleted.responses else 0
    assert {name: code for name, code in found.items() if code} == expected
