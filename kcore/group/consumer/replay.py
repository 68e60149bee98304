"""Replay of consumer groups' records: the only code that changes what is durable of them."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import TYPE_CHECKING, Any

from kcore.group.classic.group import ClassicGroup
from kcore.group.consumer.assignment import CurrentAssignment, from_current_topics, from_target_topics
from kcore.group.consumer.group import NO_EPOCH, ConsumerGroup
from kcore.group.consumer.member import ClassicMetadata, MemberMetadata
from kcore.group.consumer.reference_records import PLAIN
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
"""Where a member is whose present assignment is gone: it goes with the next record."""


class ReplayError(ValueError):
    """A record contradicts the ones before it."""


def _group(shard: GroupShard, group_id: str) -> ConsumerGroup:
    """The group that a value is about. A group that held offsets alone is no obstacle."""
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is not None and not (isinstance(group, ClassicGroup) and not group.protocol_type and group.is_empty()):
        raise ReplayError(f"a record of a consumer group, but {group!r} is there")
    if group is not None:
        group.on_unloaded()
    made = shard.groups[group_id] = ConsumerGroup(shard, group_id, live=shard.live)
    return made


def _known(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    """The group that a tombstone is about; None if it is gone already."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def apply_metadata(group: ConsumerGroup, member_id: str, value: ConsumerGroupMemberMetadataValue) -> None:
    """A member, as it describes itself."""
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
    """Where a member is."""
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
    """A member is there now. One that is not known yet is made: what it says of itself may stand behind it."""
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
    """Applies type 5: a member, or its end."""
    if value is not None:
        apply_metadata(_group(shard, key.group_id), key.member_id, value)
        return
    group = _known(shard, key.group_id)
    member = None if group is None else group.members.get(key.member_id)
    if group is None or member is None:
        return
    if member.current.member_epoch != NO_MEMBER.member_epoch or key.member_id in group.targets:
        raise ReplayError(f"{member!r} ends before its assignments do")
    group.remove(member)


def replay_group_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupMetadataKey,
    value: ConsumerGroupMetadataValue | None,
) -> None:
    """Applies type 3: a group epoch, or the end of the group."""
    if value is not None:
        _group(shard, key.group_id).put_epoch(value.epoch, value.metadata_hash)
        return
    group = _known(shard, key.group_id)
    if group is None:
        return
    if group.members or group.targets or group.assignment_epoch != NO_EPOCH:
        raise ReplayError(f"{group!r} ends before its members and targets do")
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
    """Applies type 4, which Kafka 4.0 wrote: all that matters is whether there is one."""
    group = _known(shard, key.group_id) if value is None else _group(shard, key.group_id)
    if group is not None:
        group.has_legacy_metadata = value is not None


def replay_assignment_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    """Applies type 6: a target assignment is complete, or there is none any more."""
    if value is not None:
        _group(shard, key.group_id).put_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
        return
    group = _known(shard, key.group_id)
    if group is None:
        return
    if group.targets:
        raise ReplayError(f"the targets of {group!r} end before those of its members do")
    group.put_assignment_epoch(NO_EPOCH, 0)


def replay_target(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    """Applies type 7: what a member shall have."""
    if value is not None:
        _group(shard, key.group_id).put_target(key.member_id, from_target_topics(value.topic_partitions))
        return
    group = _known(shard, key.group_id)
    if group is not None:
        group.put_target(key.member_id, None)


def replay_current(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    """Applies type 8: where a member is, or that it is nowhere any more."""
    if value is not None:
        apply_current(_group(shard, key.group_id), key.member_id, value)
        return
    group = _known(shard, key.group_id)
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
    """Applies type 16: what a pattern matched, or that nobody has it any more."""
    group = _known(shard, key.group_id) if value is None else _group(shard, key.group_id)
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
    """Applies a value to a group that is only thought of: one that a decision makes and goes on from."""
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
