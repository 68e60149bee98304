"""Replay of streams groups' records: the only code that changes their durable state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kcore.group.replay import (
    check_deletable,
    delete_current,
    delete_member,
    find,
    find_or_create,
    put_assignment_epoch,
    put_target,
)
from kcore.group.streams.group import StreamsGroup
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
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard

NO_MEMBER = CurrentAssignment(-1, -1)
"""The current assignment of a member between the tombstone of this assignment and the tombstone of the member."""


def metadata_of(value: StreamsGroupMemberMetadataValue) -> MemberMetadata:
    """Converts the value of a record of type 19 to a member's metadata."""
    endpoint = value.user_endpoint
    return MemberMetadata(
        value.instance_id,
        value.rack_id,
        shared_text(value.client_id),
        shared_text(value.client_host),
        value.rebalance_timeout_ms,
        value.topology_epoch,
        shared_text(value.process_id),
        None if endpoint is None else (endpoint.host, endpoint.port),
        tuple((tag.key, tag.value) for tag in value.client_tags),
    )


def current_of(value: StreamsGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    """Converts the value of a record of type 22 to a member's current assignment."""
    epoch = value.member_epoch
    return CurrentAssignment(
        epoch,
        value.previous_member_epoch,
        STATE_OF_BYTE.get(value.state, UNKNOWN),
        Tasks(
            from_current(value.active_tasks, epoch, with_epochs=True),
            from_current(value.standby_tasks, epoch, with_epochs=False),
            from_current(value.warmup_tasks, epoch, with_epochs=False),
        ),
        Tasks(
            from_current(value.active_tasks_pending_revocation, epoch, with_epochs=True),
            from_current(value.standby_tasks_pending_revocation, epoch, with_epochs=False),
            from_current(value.warmup_tasks_pending_revocation, epoch, with_epochs=False),
        ),
    )


def replay_group_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupMetadataKey,
    value: StreamsGroupMetadataValue | None,
) -> None:
    """Applies a record of type 17: a group epoch, or the deletion of the group."""
    if value is not None:
        configs = tuple((config.key, config.value) for config in value.last_assignment_configs or ())
        find_or_create(shard, key.group_id, StreamsGroup).put_epoch(
            value.epoch, value.metadata_hash, value.validated_topology_epoch, tuple(sorted(configs))
        )
        return
    group = find(shard, key.group_id, StreamsGroup)
    if group is None:
        return
    check_deletable(group)
    group.on_replaced()  # the topology's tombstone follows, and finds no group
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
    """Applies a record of type 19: a member's metadata, or its deletion."""
    if value is not None:
        find_or_create(shard, key.group_id, StreamsGroup).put_metadata(key.member_id, metadata_of(value))
        return
    delete_member(shard, key, StreamsGroup)


def replay_assignment_epoch(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupTargetAssignmentMetadataKey,
    value: StreamsGroupTargetAssignmentMetadataValue | None,
) -> None:
    """Applies a record of type 20: the epoch of a complete target assignment, or its deletion."""
    put_assignment_epoch(shard, key, StreamsGroup, value)


def replay_target(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupTargetAssignmentMemberKey,
    value: StreamsGroupTargetAssignmentMemberValue | None,
) -> None:
    """Applies a record of type 21: a member's target, or its deletion."""
    target = None
    if value is not None:
        target = Tasks(
            from_target(value.active_tasks), from_target(value.standby_tasks), from_target(value.warmup_tasks)
        )
    put_target(shard, key, StreamsGroup, target)


def replay_current(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupCurrentMemberAssignmentKey,
    value: StreamsGroupCurrentMemberAssignmentValue | None,
) -> None:
    """Applies a record of type 22: a member's current assignment, or its deletion.

    The metadata of a new member may be in a later record.
    """
    if value is not None:
        group = find_or_create(shard, key.group_id, StreamsGroup)
        if key.member_id not in group.members:
            group.put_metadata(key.member_id, NEW_METADATA)
        group.put_current(group.members[key.member_id], current_of(value))
        return
    delete_current(shard, key, StreamsGroup, NO_MEMBER)


def replay_topology(
    shard: GroupShard,
    offset: int,
    producer_id: int,
    key: StreamsGroupTopologyKey,
    value: StreamsGroupTopologyValue | Topology | None,
) -> None:
    """Applies a record of type 23: the group's topology, or its deletion.

    After a decision, `value` is the `Topology` object that the decision created. During a load, `value` is
    the decoded record.
    """
    if value is not None:
        topology = value if isinstance(value, Topology) else Topology(value)
        find_or_create(shard, key.group_id, StreamsGroup).put_topology(topology)
        return
    group = find(shard, key.group_id, StreamsGroup)
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
"""Class of a record's key -> function that replays the record, for the records of streams groups."""
