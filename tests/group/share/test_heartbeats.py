"""Heartbeats of share groups: epochs, targets, and the initialization of share partitions, with every record."""

from __future__ import annotations

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kcore.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kcore.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kcore.protocol.records.share_group_current_member_assignment import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.share_group_current_member_assignment import TopicPartitions as CurrentTopic
from kcore.protocol.records.share_group_member_metadata import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from kcore.protocol.records.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from kcore.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicPartitionsInfo,
)
from kcore.protocol.records.share_group_target_assignment_member import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from kcore.protocol.records.share_group_target_assignment_member import TopicPartition as TargetTopic
from kcore.protocol.records.share_group_target_assignment_metadata import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from tests.group.share.world import GROUP, Member, World
from tests.harness import WALL_MS
from tests.kit import COMMIT_VERSION, commit

GROUP_KEY = ShareGroupMetadataKey(group_id=GROUP)
TARGET_KEY = ShareGroupTargetAssignmentMetadataKey(group_id=GROUP)
STATE_KEY = ShareGroupStatePartitionMetadataKey(group_id=GROUP)
RETRY_MS = 30_000


def metadata_key(member_id: str) -> ShareGroupMemberMetadataKey:
    return ShareGroupMemberMetadataKey(group_id=GROUP, member_id=member_id)


def target_key(member_id: str) -> ShareGroupTargetAssignmentMemberKey:
    return ShareGroupTargetAssignmentMemberKey(group_id=GROUP, member_id=member_id)


def current_key(member_id: str) -> ShareGroupCurrentMemberAssignmentKey:
    return ShareGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id)


def record_types(records: list) -> list[str]:
    """Returns the types of records. A tombstone has a dagger after its type."""
    return [
        type(key).__name__.removeprefix("ShareGroup").removesuffix("Key") + ("" if value is not None else "†")
        for key, value in records
    ]


def hash_of(world: World, *names: str) -> int:
    return world.engine.consumer_groups.metadata.hash_of(names)


def test_a_group_gets_its_partitions_with_its_second_heartbeat() -> None:
    """The first heartbeat gets epoch 2 and no partitions, and starts the initialization of the partitions. The next
    heartbeat after the initialization gets epoch 3 and all partitions.
    """
    world = World({"t": 2})
    topic_id = world.topic_id("t")
    partitions = TopicPartitionsInfo(topic_id=topic_id, topic_name="t", partitions=[0, 1])
    assert world.beat("m", 0, ["t"]) == ShareGroupHeartbeatResponse(
        member_id="m", member_epoch=2, heartbeat_interval_ms=5_000, assignment=Assignment()
    )
    assert world.records() == [
        (metadata_key("m"), ShareGroupMemberMetadataValue(
            rack_id=None, client_id="kcore", client_host="/127.0.0.1", subscribed_topic_names=["t"])),
        (GROUP_KEY, ShareGroupMetadataValue(epoch=2, metadata_hash=hash_of(world, "t"))),
        (target_key("m"), ShareGroupTargetAssignmentMemberValue()),
        (TARGET_KEY, ShareGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=WALL_MS)),
        (current_key("m"), ShareGroupCurrentMemberAssignmentValue(member_epoch=2)),
        (STATE_KEY, ShareGroupStatePartitionMetadataValue(initializing_topics=[partitions])),
        (STATE_KEY, ShareGroupStatePartitionMetadataValue(initialized_topics=[partitions])),
    ]  # fmt: skip
    ((name, request),) = world.persister.calls
    assert name == "initialize"
    assert [(p.partition, p.state_epoch, p.start_offset) for p in request.topics[0].partitions] == [
        (0, 2, -1),
        (1, 2, -1),
    ]
    assert world.beat("m", 2) == ShareGroupHeartbeatResponse(
        member_id="m",
        member_epoch=3,
        heartbeat_interval_ms=5_000,
        assignment=Assignment(topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=[0, 1])]),
    )
    assigned = CurrentTopic(topic_id=topic_id, partitions=[0, 1])
    assert world.records() == [
        (GROUP_KEY, ShareGroupMetadataValue(epoch=3, metadata_hash=hash_of(world, "t"))),
        (target_key("m"), ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[TargetTopic(topic_id=topic_id, partitions=[0, 1])])),
        (TARGET_KEY, ShareGroupTargetAssignmentMetadataValue(assignment_epoch=3, assignment_timestamp=WALL_MS)),
        (current_key("m"), ShareGroupCurrentMemberAssignmentValue(
            member_epoch=3, previous_member_epoch=2, assigned_partitions=[assigned])),
    ]  # fmt: skip
    assert world.beat("m", 3) == ShareGroupHeartbeatResponse(member_id="m", member_epoch=3, heartbeat_interval_ms=5_000)
    assert world.records() == []


def test_heartbeats_at_rest_share_one_response() -> None:
    """A member whose heartbeats change nothing gets the same response object each time. Thus no response is computed,
    and the encoded bytes are sent again.
    """
    world = World({"t": 1})
    member = Member(world, "m").join("t")
    member.beat()
    assert member.beat() is member.beat()
    world.grow_topic("t", 2)
    assert member.beat().member_epoch == 4


def test_a_failed_initialization_is_tried_again_by_the_next_heartbeat() -> None:
    """A failed initialization removes the partitions from the group's initializing list. The next heartbeat adds the
    partitions to the list again and repeats the initialization.
    """
    world = World({"t": 2})
    world.persister.fail.append(ErrorCode.UNKNOWN_SERVER_ERROR)
    member = Member(world, "m")
    member.beat(["t"])
    assert record_types(world.records())[-2:] == ["StatePartitionMetadata", "StatePartitionMetadata"]
    assert world.group.state_partitions.initializing == {}
    member.beat()
    partitions = TopicPartitionsInfo(topic_id=world.topic_id("t"), topic_name="t", partitions=[0, 1])
    assert world.records() == [
        (STATE_KEY, ShareGroupStatePartitionMetadataValue(initializing_topics=[partitions])),
        (STATE_KEY, ShareGroupStatePartitionMetadataValue(initialized_topics=[partitions])),
    ]
    member.beat()
    assert member.assigned == {world.topic_id("t"): [0, 1]}


def test_an_unconfirmed_initialization_is_requested_again_after_the_retry_interval() -> None:
    """An initialization has no result yet. During the retry interval, heartbeats neither write records nor repeat the
    initialization. After the interval, a heartbeat repeats it, and a late result of the first one is ignored.
    """
    world = World({"t": 1})
    world.persister.hold = True
    member = Member(world, "m")
    member.beat(["t"])
    world.records()
    world.advance(RETRY_MS - 1)
    member.beat()
    assert (world.records(), len(world.persister.calls)) == ([], 1)
    world.advance(1)
    member.beat()
    assert record_types(world.records()) == ["StatePartitionMetadata"]
    assert len(world.persister.calls) == 2
    world.persister.release()
    world.advance(1)
    assert record_types(world.records()) == ["StatePartitionMetadata"], "the second result changes nothing"
    member.beat()
    assert member.assigned == {world.topic_id("t"): [0]}


def test_a_restart_repeats_an_unconfirmed_initialization_at_once() -> None:
    """The restarted node does not know whether the earlier request was sent, and cannot receive its result."""
    world = World({"t": 1})
    world.persister.hold = True
    member = Member(world, "m")
    member.beat(["t"])
    before = world.persister
    world.restart()
    before.release()
    assert world.group.state_partitions.initialized == {}
    member.beat()
    member.beat()
    assert member.assigned == {world.topic_id("t"): [0]}


def test_a_topic_that_is_deleted_meanwhile_is_not_initialized() -> None:
    """A topic is deleted while its partitions are being initialized. The result of the initialization does not add the
    topic to the group's list of initialized topics.
    """
    world = World({"t": 1, "u": 1})
    world.persister.hold = True
    Member(world, "m").beat(["t", "u"])
    world.drop_topic("t")
    world.advance(1)
    world.persister.release()
    world.advance(1)
    state = world.group.state_partitions
    assert (set(state.initializing), set(state.initialized)) == (set(), {world.topic_id("u")})


def test_a_grown_topic_raises_the_epoch_twice() -> None:
    """The epoch rises once for the changed topic, and again when the new partition is initialized."""
    world = World({"t": 1})
    member = Member(world, "m").join("t")
    world.grow_topic("t", 2)
    assert member.beat().member_epoch == 4
    assert member.assigned == {world.topic_id("t"): [0]}
    _, request = world.persister.calls[-1]
    assert [(p.partition, p.state_epoch) for p in request.topics[0].partitions] == [(1, 4)]
    assert member.beat().member_epoch == 5
    assert member.assigned == {world.topic_id("t"): [0, 1]}


def test_a_topic_created_later_is_assigned_to_its_subscribers() -> None:
    """The members had subscribed to the topic before it existed."""
    world = World()
    member = Member(world, "m")
    assert member.beat(["later"]).member_epoch == 2
    world.make_topic("later", 1)
    member.beat()
    member.beat()
    assert (member.epoch, member.assigned) == (4, {world.topic_id("later"): [0]})


def test_the_assignment_interval_delays_the_next_target() -> None:
    """The group epoch rises at once, but the members keep the old target (KIP-1263)."""
    world = World({"t": 1}, group_share_assignment_interval_ms=1_000)
    member = Member(world, "m")
    member.beat(["t"])
    member.beat()
    assert (world.group.group_epoch, world.group.assignment_epoch, member.epoch) == (3, 2, 2)
    world.advance(1_000)
    member.beat()
    assert (world.group.assignment_epoch, member.epoch, member.assigned) == (3, 3, {world.topic_id("t"): [0]})


def test_a_full_group_refuses_new_members() -> None:
    """The limit is group.share.max.size. A member may rejoin."""
    world = World({"t": 1}, group_share_max_size=1)
    member = Member(world, "m").join("t")
    assert world.beat("other", 0, ["t"]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    member.epoch = 0
    assert member.beat(["t"]).error_code == ErrorCode.NONE


@pytest.mark.parametrize("by_timeout", [False, True])
def test_a_member_that_leaves_or_expires_is_removed(by_timeout: bool) -> None:
    """A leave and an expiry write the same records: three tombstones and a new group epoch."""
    world = World({"t": 1})
    Member(world, "m").join("t")
    world.records()
    if by_timeout:
        world.advance(44_999)
        assert world.records() == []
        world.advance(1)
    else:
        assert world.beat("m", -1) == ShareGroupHeartbeatResponse(member_id="m", member_epoch=-1)
    assert world.records() == [
        (current_key("m"), None),
        (target_key("m"), None),
        (metadata_key("m"), None),
        (GROUP_KEY, ShareGroupMetadataValue(epoch=4, metadata_hash=0)),
    ]
    assert world.describe().group_state == "Empty"
    assert world.beat("m", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_the_session() -> None:
    """The fast path's response to a member also renews the session."""
    world = World({"t": 1})
    member = Member(world, "m").join("t")
    for _ in range(4):
        world.advance(40_000)
        assert member.beat().error_code == ErrorCode.NONE


def test_a_group_of_another_type_is_not_found() -> None:
    """A classic group has committed offsets but no members. A share group heartbeat does not convert it, and gets
    GROUP_ID_NOT_FOUND.
    """
    world = World({"t": 1})
    world.node.send(commit(GROUP, {("t", 0): 5}), COMMIT_VERSION)
    assert world.beat("m", 0, ["t"]).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_restart_keeps_the_group() -> None:
    """A replay of the log gives the same group. Its sessions restart."""
    world = World({"t": 3, "u": 1})
    members = [Member(world, f"m{i}").join("t", *(["u"] if i else [])) for i in range(3)]
    for member in members * 2:
        member.beat()
    before, state = world.describe(), world.group.state_partitions
    world.restart()
    assert world.describe() == before
    assert world.group.state_partitions == state
    assert [member.beat().error_code for member in members] == [0, 0, 0]
    world.advance(45_000)
    assert world.describe().group_state == "Empty"


def test_a_failed_commit_loses_only_its_own_heartbeat() -> None:
    """The shard loads its log again, and the member repeats its heartbeat."""
    world = World({"t": 1})
    member = Member(world, "m").join("t")
    world.fail_next_commit()
    assert world.beat("other", 0, ["t"]).error_code == ErrorCode.NOT_COORDINATOR
    assert member.beat().error_code == ErrorCode.NONE
    assert [m.member_id for m in world.describe().members] == ["m"]


def test_disabled_share_groups_get_unsupported_version() -> None:
    """With share.version 0, the server accepts requests of share groups and responds with UNSUPPORTED_VERSION."""
    world = World({"t": 1})
    Member(world, "m").join("t")
    off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
    assert world.node.send(UpdateFeaturesRequest(feature_updates=[off], timeout_ms=1_000)).error_code == 0
    off_code = ErrorCode.UNSUPPORTED_VERSION
    assert world.beat("m", 3).error_code == off_code
    assert world.describe().error_code == off_code
    assert world.offsets().error_code == off_code
    assert world.alter({"t": {0: 0}}).error_code == off_code
    assert world.delete_offsets("t").error_code == off_code


def test_members_share_partitions_and_keep_them() -> None:
    """Each partition has a reader, each member has a partition, and a heartbeat without a change moves nothing."""
    world = World({"t": 2})
    members = [Member(world, f"m{i}") for i in range(5)]
    for _ in range(3):
        for member in members:
            member.beat(["t"])
    before = [member.assigned for member in members]
    topic_id = world.topic_id("t")
    assert {p for assigned in before for p in assigned[topic_id]} == {0, 1}
    assert all(assigned[topic_id] for assigned in before)
    world.records()
    for member in members:
        member.beat(["t"])
    assert [member.assigned for member in members] == before
    assert world.records() == []


def test_a_description_of_an_unknown_group_is_an_error() -> None:
    """As in Kafka, the error is GROUP_ID_NOT_FOUND with a message."""
    world = World()
    (group,) = world.node.send(ShareGroupDescribeRequest(group_ids=["none"])).groups
    assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")


def test_a_very_long_member_id_is_refused() -> None:
    """A member id has at most 36 characters. As in Kafka, the error has no message."""
    world = World({"t": 1})
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m" * 37, subscribed_topic_names=["t"])
    assert world.node.send(request) == ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)


def test_an_initialization_that_failed_is_not_repeated_after_its_group_was_loaded_again() -> None:
    """An initialization fails, and its group is loaded again. A heartbeat then initializes the partition successfully.

    The failed initialization must not be repeated later, because this would discard acknowledgements.
    """
    world = World({"t": 1})
    request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=0, subscribed_topic_names=["t"])
    first = Member(world, "a")
    first.epoch = world.node.send(request).member_epoch
    for _ in range(20):
        world.fail_next_commit()
    world.advance(0)  # the share coordinator cannot write the state, and the persister tries again later
    assert Member(world, "b").beat(["t"]).error_code == ErrorCode.NOT_COORDINATOR  # the group is loaded again
    world.stop_failing()
    assert first.beat().error_code == 0  # the group has the same epoch
    epochs = [
        state.snapshot_epoch for shard in world.engine.share.shards or () for state in shard.machine.states.values()
    ]
    assert epochs == [0]
    world.advance(60_000)
    epochs = [
        state.snapshot_epoch for shard in world.engine.share.shards or () for state in shard.machine.states.values()
    ]
    assert epochs == [0]
