"""The records of share groups, as pure functions: types 10 to 15 of `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.share.partitions import StatePartitions, StateValue
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
from kcore.protocol.records.share_group_state_partition_metadata import ShareGroupStatePartitionMetadataKey
from kcore.protocol.records.share_group_target_assignment_member import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from kcore.protocol.records.share_group_target_assignment_member import TopicPartition as TargetTopic
from kcore.protocol.records.share_group_target_assignment_metadata import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from kcore.runtime.machine import Record

if TYPE_CHECKING:
    from kcore.group.consumer.assignment import Target
    from kcore.group.share.group import ShareGroup
    from kcore.group.share.member import CurrentAssignment, MemberMetadata


def member_metadata(group_id: str, member_id: str, metadata: MemberMetadata) -> Record:
    """Returns the record of a member's metadata (type 10)."""
    return Record(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
        ShareGroupMemberMetadataValue(
            rack_id=metadata.rack_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topic_names=sorted(metadata.names),
        ),
    )


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """Returns the record of the group's epoch and the hash of its topics (type 11)."""
    return Record(
        ShareGroupMetadataKey(group_id=group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def assignment_epoch(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    """Returns the record of the epoch of the target assignment and the time of its computation (type 12)."""
    return Record(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_assignment(group_id: str, member_id: str, target: Target) -> Record:
    """Returns the record of a member's target assignment (type 13)."""
    topics = [TargetTopic(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()]
    return Record(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(topic_partitions=topics),
    )


def current_assignment(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """Returns the record of a member's current assignment (type 14)."""
    topics = [
        CurrentTopic(topic_id=topic_id, partitions=list(partitions))
        for topic_id, partitions in current.assigned.items()
    ]
    return Record(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_epoch,
            assigned_partitions=topics,
        ),
    )


def state_partitions(group_id: str, state: StatePartitions) -> Record:
    """Returns the record of the share partitions with state (type 15)."""
    return Record(ShareGroupStatePartitionMetadataKey(group_id=group_id), StateValue(state))


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Returns the records that delete a member: its assignments before its metadata, as replay requires."""
    return [
        Record(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: ShareGroup) -> list[Record]:
    """Returns the records that delete the whole group, in Kafka's order."""
    group_id, members = group.group_id, list(group.members)
    records = [
        Record(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=name), None) for name in members
    ]
    records += [
        Record(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=name), None) for name in members
    ]
    records.append(Record(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    records += [Record(ShareGroupMemberMetadataKey(group_id=group_id, member_id=name), None) for name in members]
    records.append(Record(ShareGroupStatePartitionMetadataKey(group_id=group_id), None))
    records.append(Record(ShareGroupMetadataKey(group_id=group_id), None))
    return records
