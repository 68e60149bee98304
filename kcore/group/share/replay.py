"""Replay of share groups' records: the only code that changes their durable state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kcore.group.consumer.assignment import from_target_topics
from kcore.group.replay import (
    check_deletable,
    delete_current,
    delete_member,
    find,
    find_or_create,
    put_assignment_epoch,
    put_target,
)
from kcore.group.share.group import ShareGroup
from kcore.group.share.member import NO_MEMBER, CurrentAssignment, MemberMetadata
from kcore.group.share.partitions import NOTHING, StateValue, from_value
from kcore.protocol.records.share_group_current_member_assignment import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.share_group_member_metadata import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from kcore.protocol.records.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from kcore.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)
from kcore.protocol.records.share_group_target_assignment_member import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from kcore.protocol.records.share_group_target_assignment_metadata import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard


def replay_member_metadata(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupMemberMetadataKey,
    value: ShareGroupMemberMetadataValue | None,
) -> None:
    """Applies a record of type 10: a member's metadata, or its deletion."""
    if value is not None:
        group = find_or_create(shard, key.group_id, ShareGroup)
        names = group.sets.shared(shard.consumer.names(value.subscribed_topic_names))
        metadata = MemberMetadata(value.rack_id, shared_text(value.client_id), shared_text(value.client_host), names)
        group.put_metadata(key.member_id, metadata)
        return
    delete_member(shard, key, ShareGroup)


def replay_group_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupMetadataKey,
    value: ShareGroupMetadataValue | None,
) -> None:
    """Applies a record of type 11: a group epoch, or the deletion of the group."""
    if value is not None:
        find_or_create(shard, key.group_id, ShareGroup).put_epoch(value.epoch, value.metadata_hash)
        return
    group = find(shard, key.group_id, ShareGroup)
    if group is None:
        return
    check_deletable(group)
    group.on_unloaded()
    del shard.groups[key.group_id]
    shard.share.forget(key.group_id)


def replay_assignment_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupTargetAssignmentMetadataKey,
    value: ShareGroupTargetAssignmentMetadataValue | None,
) -> None:
    """Applies a record of type 12: the epoch of a complete target assignment, or its deletion."""
    put_assignment_epoch(shard, key, ShareGroup, value)


def replay_target(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupTargetAssignmentMemberKey,
    value: ShareGroupTargetAssignmentMemberValue | None,
) -> None:
    """Applies a record of type 13: a member's target, or its deletion."""
    target = None if value is None else from_target_topics(value.topic_partitions)
    put_target(shard, key, ShareGroup, target)


def replay_current(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupCurrentMemberAssignmentKey,
    value: ShareGroupCurrentMemberAssignmentValue | None,
) -> None:
    """Applies a record of type 14: a member's current assignment, or its deletion."""
    if value is not None:
        group = find_or_create(shard, key.group_id, ShareGroup)
        if key.member_id not in group.members:
            group.put_metadata(key.member_id, MemberMetadata())
        assigned = from_target_topics(value.assigned_partitions)
        current = CurrentAssignment(value.member_epoch, value.previous_member_epoch, assigned)
        group.put_current(group.members[key.member_id], current)
        return
    delete_current(shard, key, ShareGroup, NO_MEMBER)


def replay_state_partitions(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupStatePartitionMetadataKey,
    value: ShareGroupStatePartitionMetadataValue | StateValue | None,
) -> None:
    """Applies a record of type 15: the lists of share partitions, or the deletion of the lists.

    A record with lists creates the group if it does not exist.
    """
    if value is not None:
        state = value.state if isinstance(value, StateValue) else from_value(value)
        find_or_create(shard, key.group_id, ShareGroup).put_state_partitions(state)
        return
    group = find(shard, key.group_id, ShareGroup)
    if group is not None:
        group.put_state_partitions(NOTHING)


REPLAY: dict[type, Callable[[GroupShard, int, int, Any, Any], None]] = {
    ShareGroupMetadataKey: replay_group_epoch,
    ShareGroupMemberMetadataKey: replay_member_metadata,
    ShareGroupTargetAssignmentMetadataKey: replay_assignment_epoch,
    ShareGroupTargetAssignmentMemberKey: replay_target,
    ShareGroupCurrentMemberAssignmentKey: replay_current,
    ShareGroupStatePartitionMetadataKey: replay_state_partitions,
}
"""Class of a record's key -> function that replays the record, for the records of share groups."""
