"""Replay of streams groups' records: the only code that changes their durable state."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import TYPE_CHECKING, Any

from kcore.group.classic.group import ClassicGroup
from kcore.group.streams.group import NO_EPOCH, StreamsGroup
from kcore.group.streams.member import NEW_METADATA, MemberMetadata
from kcore.group.streams.states import STATE_OF_BYTE, UNKNOWN
from kcore.group.streams.tasks import CurrentAssignment, Tasks, from_current, from_target
from kcore.group.streams.topology import Topology
from kcore.protocol.records.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.streams_group_member_metadata import (
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from kcore.protocol.records.streams_group_metadata import StreamsGroupMetadataKey, StreamsGroupMetadataValue
from kcore.protocol.records.streams_group_target_assignment_member import (
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
)
from kcore.protocol.records.streams_group_target_assignment_metadata import (
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
)
from kcore.protocol.records.streams_group_topology import StreamsGroupTopologyKey, StreamsGroupTopologyValue

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard

NO_MEMBER = CurrentAssignment(-1, -1)
"""The assignment of a member after the tombstone of its current assignment, until its own tombstone."""


class ReplayError(ValueError):
    """A record contradicts the ones before it."""


def _group(shard: GroupShard, group_id: str) -> StreamsGroup:
    """Returns the streams group of a record; creates it, also in place of a simple group (offsets only)."""
    group = shard.groups.get(group_id)
    if isinstance(group, StreamsGroup):
        return group
    if group is not None and not (isinstance(group, ClassicGroup) and not group.protocol_type and group.is_empty()):
        raise ReplayError(f"record of a streams group, but {group!r} has the same id")
    if group is not None:
        group.on_unloaded()
    created = shard.groups[group_id] = StreamsGroup(shard, group_id, live=shard.live)
    return created


def _existing_group(shard: GroupShard, group_id: str) -> StreamsGroup | None:
    """Returns the streams group of a tombstone; None if it is already deleted."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, StreamsGroup) else None


def metadata_of(value: StreamsGroupMemberMetadataValue) -> MemberMetadata:
    """Converts a member's record."""
    endpoint = value.user_endpoint
    return MemberMetadata(
        value.instance_id,
        value.rack_id,
        intern(value.client_id),
        intern(value.client_host),
        value.rebalance_timeout_ms,
        value.topology_epoch,
        intern(value.process_id),
        None if endpoint is None else (endpoint.host, endpoint.port),
        tuple((tag.key, tag.value) for tag in value.client_tags),
    )


def current_of(value: StreamsGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    """Converts the record of a member's current assignment."""
    epoch = value.member_epoch
    return CurrentAssignment(
        epoch,
        value.previous_member_epoch,
        STATE_OF_BYTE.get(value.state, UNKNOWN),
        Tasks(
            from_current(value.active_tasks, epoch, True),
            from_current(value.standby_tasks, epoch, False),
            from_current(value.warmup_tasks, epoch, False),
        ),
        Tasks(
            from_current(value.active_tasks_pending_revocation, epoch, True),
            from_current(value.standby_tasks_pending_revocation, epoch, False),
            from_current(value.warmup_tasks_pending_revocation, epoch, False),
        ),
    )


def replay_group_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupMetadataKey,
    value: StreamsGroupMetadataValue | None,
) -> None:
    """Applies type 17: a group epoch, or the deletion of the group."""
    if value is not None:
        configs = tuple((config.key, config.value) for config in value.last_assignment_configs or ())
        _group(shard, key.group_id).put_epoch(
            value.epoch, value.metadata_hash, value.validated_topology_epoch, tuple(sorted(configs))
        )
        return
    group = _existing_group(shard, key.group_id)
    if group is None:
        return
    if group.members or group.targets or group.assignment_epoch != NO_EPOCH:
        raise ReplayError(f"{group!r} is deleted before its members and targets")
    group.on_unloaded()
    group.put_topology(None)  # its own tombstone follows, and finds no group
    delay = shard.initial_delays.get(key.group_id)
    if delay is not None:
        delay.cancel()
    del shard.groups[key.group_id]
    shard.streams.forget(key.group_id)


def replay_member_metadata(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupMemberMetadataKey,
    value: StreamsGroupMemberMetadataValue | None,
) -> None:
    """Applies type 19: a member's metadata, or its deletion."""
    if value is not None:
        _group(shard, key.group_id).put_metadata(key.member_id, metadata_of(value))
        return
    group = _existing_group(shard, key.group_id)
    member = None if group is None else group.members.get(key.member_id)
    if group is None or member is None:
        return
    if member.current.member_epoch != NO_MEMBER.member_epoch or key.member_id in group.targets:
        raise ReplayError(f"{member!r} is deleted before its tasks")
    group.remove(member)


def replay_assignment_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupTargetAssignmentMetadataKey,
    value: StreamsGroupTargetAssignmentMetadataValue | None,
) -> None:
    """Applies type 20: the epoch of a complete target assignment, or its deletion."""
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
    key: StreamsGroupTargetAssignmentMemberKey,
    value: StreamsGroupTargetAssignmentMemberValue | None,
) -> None:
    """Applies type 21: a member's target, or its deletion."""
    if value is not None:
        target = Tasks(
            from_target(value.active_tasks), from_target(value.standby_tasks), from_target(value.warmup_tasks)
        )
        _group(shard, key.group_id).put_target(key.member_id, target)
        return
    group = _existing_group(shard, key.group_id)
    if group is not None:
        group.put_target(key.member_id, None)


def replay_current(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupCurrentMemberAssignmentKey,
    value: StreamsGroupCurrentMemberAssignmentValue | None,
) -> None:
    """Applies type 22: a member's current assignment, or its deletion. Metadata of a new member may follow it."""
    if value is not None:
        group = _group(shard, key.group_id)
        if key.member_id not in group.members:
            group.put_metadata(key.member_id, NEW_METADATA)
        group.put_current(group.members[key.member_id], current_of(value))
        return
    existing = _existing_group(shard, key.group_id)
    member = None if existing is None else existing.members.get(key.member_id)
    if existing is not None and member is not None:
        existing.put_current(member, NO_MEMBER)


def replay_topology(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupTopologyKey,
    value: StreamsGroupTopologyValue | None,
) -> None:
    """Applies type 23: the group's topology, or its deletion."""
    if value is not None:
        _group(shard, key.group_id).put_topology(Topology(value))
        return
    group = _existing_group(shard, key.group_id)
    if group is not None:
        group.put_topology(None)


REPLAY: dict[type, Callable[[GroupShard, int, int, Any, Any], None]] = {
    StreamsGroupMetadataKey: replay_group_epoch,
    StreamsGroupMemberMetadataKey: replay_member_metadata,
    StreamsGroupTargetAssignmentMetadataKey: replay_assignment_epoch,
    StreamsGroupTargetAssignmentMemberKey: replay_target,
    StreamsGroupCurrentMemberAssignmentKey: replay_current,
    StreamsGroupTopologyKey: replay_topology,
}
"""The records of streams groups, by the class of their key."""
