"""Replay of consumer groups' records: the only code that changes their durable state."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import TYPE_CHECKING, Any

from kcore.group.classic.group import ClassicGroup
from kcore.group.consumer.assignment import CurrentAssignment, from_current_topics, from_target_topics
from kcore.group.consumer.group import NO_EPOCH, ConsumerGroup
from kcore.group.consumer.member import ClassicMetadata, MemberMetadata
from kcore.group.consumer.plain_records import PLAIN
from kcore.group.consumer.states import STATE_OF_BYTE, UNKNOWN
from kcore.group.consumer.subscriptions import ResolvedRegex
from kcore.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from kcore.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from kcore.protocol.records.consumer_group_partition_metadata import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from kcore.protocol.records.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from kcore.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from kcore.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kcore_ext.group.consumer_records import bind_consumer_records

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Record

NO_MEMBER = CurrentAssignment(-1, -1)
"""The assignment of a member after the tombstone of its current assignment, until its own tombstone."""


class ReplayError(ValueError):
    """A record contradicts the ones before it."""


def _group(shard: GroupShard, group_id: str) -> ConsumerGroup:
    """Returns the consumer group of a record; creates it, also in place of a simple group (offsets only)."""
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is not None and not (isinstance(group, ClassicGroup) and not group.protocol_type and group.is_empty()):
        raise ReplayError(f"record of a consumer group, but {group!r} has the same id")
    if group is not None:
        group.on_unloaded()
    created = shard.groups[group_id] = ConsumerGroup(shard, group_id, live=shard.live)
    return created


def _existing_group(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    """Returns the consumer group of a tombstone; None if it is already deleted."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def apply_metadata(group: ConsumerGroup, member_id: str, value: ConsumerGroupMemberMetadataValue) -> None:
    """Applies a member's metadata."""
    classic = value.classic_member_metadata
    group.put_metadata(
        member_id,
        MemberMetadata(
            value.instance_id,
            value.rack_id,
            intern(value.client_id),
            intern(value.client_host),
            value.rebalance_timeout_ms,
            group.shard.consumer.names(value.subscribed_topic_names),
            value.subscribed_topic_regex or "",
            value.server_assignor,
            None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((intern(protocol.name), protocol.metadata) for protocol in classic.supported_protocols),
            ),
        ),
    )


def apply_current(group: ConsumerGroup, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue) -> None:
    """Applies a member's current assignment."""
    epoch = value.member_epoch
    current = CurrentAssignment(
        epoch,
        value.previous_member_epoch,
        STATE_OF_BYTE.get(value.state, UNKNOWN),
        from_current_topics(value.assigned_partitions, epoch),
        from_current_topics(value.partitions_pending_revocation, epoch),
    )
    place(group, member_id, current)


def place(group: ConsumerGroup, member_id: str, current: CurrentAssignment) -> None:
    """Sets a member's current assignment; creates an unknown member, whose metadata may follow in the log."""
    if member_id not in group.members:
        group.put_metadata(member_id, MemberMetadata())
    group.put_current(group.members[member_id], current)


def replay_member_metadata(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
) -> None:
    """Applies type 5: a member's metadata, or its deletion."""
    if value is not None:
        apply_metadata(_group(shard, key.group_id), key.member_id, value)
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
    key: ConsumerGroupMetadataKey,
    value: ConsumerGroupMetadataValue | None,
) -> None:
    """Applies type 3: a group epoch, or the deletion of the group."""
    if value is not None:
        _group(shard, key.group_id).put_epoch(value.epoch, value.metadata_hash)
        return
    group = _existing_group(shard, key.group_id)
    if group is None:
        return
    if group.members or group.targets or group.assignment_epoch != NO_EPOCH:
        raise ReplayError(f"{group!r} is deleted before its members and targets")
    group.on_unloaded()
    for regex in list(group.subscriptions.resolved):
        group.put_regex(regex, None)
    del shard.groups[key.group_id]
    shard.consumer.forget(key.group_id)
    shard.consumer.events.touch(group)


def replay_partition_metadata(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupPartitionMetadataKey,
    value: ConsumerGroupPartitionMetadataValue | None,
) -> None:
    """Applies type 4, which Kafka 4.0 wrote: only its presence matters."""
    group = _existing_group(shard, key.group_id) if value is None else _group(shard, key.group_id)
    if group is not None:
        group.has_legacy_metadata = value is not None


def replay_assignment_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    """Applies type 6: the epoch of a complete target assignment, or its deletion."""
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
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    """Applies type 7: a member's target, or its deletion."""
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
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    """Applies type 8: a member's current assignment, or its deletion."""
    if value is not None:
        apply_current(_group(shard, key.group_id), key.member_id, value)
        return
    group = _existing_group(shard, key.group_id)
    member = None if group is None else group.members.get(key.member_id)
    if group is not None and member is not None:
        group.put_current(member, NO_MEMBER)


def replay_regex(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> None:
    """Applies type 16: the topics that a pattern matched, or its deletion."""
    group = _existing_group(shard, key.group_id) if value is None else _group(shard, key.group_id)
    if group is not None:
        resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.put_regex(key.regular_expression, resolved)


REPLAY: dict[type, Callable[[GroupShard, int, int, Any, Any], None]] = {
    ConsumerGroupMetadataKey: replay_group_epoch,
    ConsumerGroupPartitionMetadataKey: replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: replay_member_metadata,
    ConsumerGroupTargetAssignmentMetadataKey: replay_assignment_epoch,
    ConsumerGroupTargetAssignmentMemberKey: replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: replay_current,
    ConsumerGroupRegularExpressionKey: replay_regex,
}
"""The records of consumer groups, by the class of their key."""

bind_consumer_records(PLAIN, _group, place)


def apply_to_thought(group: ConsumerGroup, record: Record) -> None:
    """Applies a record to a tentative group: one that a decision creates and continues to use."""
    key, value = record.key, record.value
    if isinstance(value, ConsumerGroupMemberMetadataValue) and isinstance(key, ConsumerGroupMemberMetadataKey):
        apply_metadata(group, key.member_id, value)
    elif isinstance(value, ConsumerGroupMetadataValue):
        group.put_epoch(value.epoch, value.metadata_hash)
    elif isinstance(value, ConsumerGroupTargetAssignmentMemberValue) and isinstance(
        key, ConsumerGroupTargetAssignmentMemberKey
    ):
        group.put_target(key.member_id, from_target_topics(value.topic_partitions))
    elif isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
        group.put_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
    elif isinstance(value, ConsumerGroupCurrentMemberAssignmentValue) and isinstance(
        key, ConsumerGroupCurrentMemberAssignmentKey
    ):
        apply_current(group, key.member_id, value)
