"""Replay of consumer groups' records: the only code that changes their durable state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.group.consumer.assignment import CurrentAssignment, from_current_topics, from_target_topics
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.member import ClassicMetadata, MemberMetadata
from kcore.group.consumer.reference_records import REFERENCE_RECORDS
from kcore.group.consumer.states import STATE_OF_BYTE, UNKNOWN
from kcore.group.consumer.subscriptions import ResolvedRegex
from kcore.group.replay import (
    check_deletable,
    delete_current,
    delete_member,
    find,
    find_or_create,
    put_assignment_epoch,
)
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
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Record

NO_MEMBER = CurrentAssignment(-1, -1)
"""The current assignment that replay gives a member after the tombstone of its assignment.

It applies until the tombstone of the member follows.
"""


_group: Callable[[GroupShard, str], ConsumerGroup] = partial(find_or_create, kind=ConsumerGroup)
_existing_group: Callable[[GroupShard, str], ConsumerGroup | None] = partial(find, kind=ConsumerGroup)


def apply_metadata(group: ConsumerGroup, member_id: str, value: ConsumerGroupMemberMetadataValue) -> None:
    """Applies a member's metadata."""
    classic = value.classic_member_metadata
    group.put_metadata(
        member_id,
        MemberMetadata(
            value.instance_id,
            value.rack_id,
            shared_text(value.client_id),
            shared_text(value.client_host),
            value.rebalance_timeout_ms,
            group.subscriptions.sets.shared(group.shard.consumer.names(value.subscribed_topic_names)),
            value.subscribed_topic_regex or "",
            value.server_assignor,
            None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((shared_text(protocol.name), protocol.metadata) for protocol in classic.supported_protocols),
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
    set_assignment(group, member_id, current)


def set_assignment(group: ConsumerGroup, member_id: str, current: CurrentAssignment) -> None:
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
    """Applies a record of type 5: a member's metadata, or its deletion."""
    if value is not None:
        apply_metadata(_group(shard, key.group_id), key.member_id, value)
        return
    delete_member(shard, key, ConsumerGroup)


def replay_group_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupMetadataKey,
    value: ConsumerGroupMetadataValue | None,
) -> None:
    """Applies a record of type 3: a group epoch, or the deletion of the group."""
    if value is not None:
        _group(shard, key.group_id).put_epoch(value.epoch, value.metadata_hash)
        return
    group = _existing_group(shard, key.group_id)
    if group is None:
        return
    check_deletable(group)
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
    """Applies a record of type 4, which Kafka 4.0 wrote; the group stores only whether the record exists."""
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
    """Applies a record of type 6: the epoch of a complete target assignment, or its deletion."""
    put_assignment_epoch(shard, key, ConsumerGroup, value)


def replay_target(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    """Applies a record of type 7: a member's target, or its deletion."""
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
    """Applies a record of type 8: a member's current assignment, or its deletion."""
    if value is not None:
        apply_current(_group(shard, key.group_id), key.member_id, value)
        return
    delete_current(shard, key, ConsumerGroup, NO_MEMBER)


def replay_regex(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> None:
    """Applies a record of type 16: the topics that a pattern matched, or the deletion of the pattern."""
    group = _existing_group(shard, key.group_id) if value is None else _group(shard, key.group_id)
    if group is not None:
        resolved = None
        if value is not None:
            topics = shard.consumer.matches(frozenset(value.topics))
            resolved = ResolvedRegex(topics, value.version, value.timestamp)
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
"""Class of a record's key -> function that replays the record, for the records of consumer groups."""

bind_consumer_records(REFERENCE_RECORDS, _group, set_assignment)


def apply_to_tentative(group: ConsumerGroup, record: Record) -> None:
    """Applies a record to a tentative group, which a decision has created and continues to use."""
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
