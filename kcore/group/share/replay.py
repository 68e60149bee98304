"""Replay of share groups' records: the only code that changes their durable state."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import TYPE_CHECKING, Any

from kcore.group.classic.group import ClassicGroup
from kcore.group.consumer.assignment import from_target_topics
from kcore.group.consumer.replay import ReplayError
from kcore.group.share.group import NO_EPOCH, ShareGroup
from kcore.group.share.member import NO_MEMBER, CurrentAssignment, MemberMetadata
from kcore.group.share.partitions import NOTHING, from_value
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

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard


def _group(shard: GroupShard, group_id: str) -> ShareGroup:
    """Returns the share group of a record; creates it, also in place of a simple group (offsets only)."""
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        return group
    if group is not None and not (isinstance(group, ClassicGroup) and not group.protocol_type and group.is_empty()):
        raise ReplayError(f"record of a share group, but {group!r} has the same id")
    if group is not None:
        group.on_unloaded()
    created = shard.groups[group_id] = ShareGroup(shard, group_id, live=shard.live)
    return created


def _existing_group(shard: GroupShard, group_id: str) -> ShareGroup | None:
    """Returns the share group of a tombstone; None if it is already deleted."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, ShareGroup) else None


def replay_member_metadata(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupMemberMetadataKey,
    value: ShareGroupMemberMetadataValue | None,
) -> None:
    """Applies type 10: a member's metadata, or its deletion."""
    if value is not None:
        names = shard.consumer.names(value.subscribed_topic_names)
        metadata = MemberMetadata(value.rack_id, intern(value.client_id), intern(value.client_host), names)
        _group(shard, key.group_id).put_metadata(key.member_id, metadata)
        return
    group = _existing_group(shard, key.group_id)
    member = None if group is None else group.members.get(key.member_id)
    if group is None or member is None:
        return
    if member.current.member_epoch != NO_MEMBER.member_epoch or key.member_id in group.targets:
        raise ReplayError(f"{member!r} is deleted before its assignments")
    group.remove(member)


def replay_group_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupMetadataKey,
    value: ShareGroupMetadataValue | None,
) -> None:
    """Applies type 11: a group epoch, or the deletion of the group."""
    if value is not None:
        _group(shard, key.group_id).put_epoch(value.epoch, value.metadata_hash)
        return
    group = _existing_group(shard, key.group_id)
    if group is None:
        return
    if group.members or group.targets or group.assignment_epoch != NO_EPOCH:
        raise ReplayError(f"{group!r} is deleted before its members and targets")
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
    """Applies type 12: the epoch of a complete target assignment, or its deletion."""
    if value is not None:
        _group(shard, key.group_id).put_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
        return
    group = _existing_group(shard, key.group_id)
    if group is None:
        return
    if group.targets:
        raise ReplayError(f"the assignment epoch of {group!r} is deleted before its members' targets")
    group.put_assignment_epoch(NO_EPOCH, 0)


def replay_target(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupTargetAssignmentMemberKey,
    value: ShareGroupTargetAssignmentMemberValue | None,
) -> None:
    """Applies type 13: a member's target, or its deletion."""
    if value is not None:
        _group(shard, key.group_id).put_target(key.member_id, from_target_topics(value.topic_partitions))
        return
    group = _existing_group(shard, key.group_id)
    if group is not None:
        group.put_target(key.member_id, None)


def replay_current(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupCurrentMemberAssignmentKey,
    value: ShareGroupCurrentMemberAssignmentValue | None,
) -> None:
    """Applies type 14: a member's current assignment, or its deletion."""
    if value is not None:
        group = _group(shard, key.group_id)
        if key.member_id not in group.members:
            group.put_metadata(key.member_id, MemberMetadata())
        assigned = from_target_topics(value.assigned_partitions)
        current = CurrentAssignment(value.member_epoch, value.previous_member_epoch, assigned)
        group.put_current(group.members[key.member_id], current)
        return
    existing = _existing_group(shard, key.group_id)
    member = None if existing is None else existing.members.get(key.member_id)
    if existing is not None and member is not None:
        existing.put_current(member, NO_MEMBER)


def replay_state_partitions(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ShareGroupStatePartitionMetadataKey,
    value: ShareGroupStatePartitionMetadataValue | None,
) -> None:
    """Applies type 15: the share partitions with state, which may create the group, or their deletion."""
    if value is not None:
        _group(shard, key.group_id).put_state_partitions(from_value(value))
        return
    group = _existing_group(shard, key.group_id)
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
"""The records of share groups, by the class of their key."""
