"""The records of streams groups, as pure functions: types 17 and 19 to 23 of `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.streams.tasks import CurrentAssignment, Tasks, to_current, to_target
from kcore.protocol.records.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.streams_group_member_metadata import (
    Endpoint,
    KeyValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from kcore.protocol.records.streams_group_metadata import (
    LastAssignmentConfig,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from kcore.protocol.records.streams_group_target_assignment_member import (
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
)
from kcore.protocol.records.streams_group_target_assignment_metadata import (
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
)
from kcore.protocol.records.streams_group_topology import StreamsGroupTopologyKey
from kcore.runtime.machine import Record

if TYPE_CHECKING:
    from kcore.group.streams.group import StreamsGroup
    from kcore.group.streams.member import MemberMetadata
    from kcore.group.streams.topology import Topology

AssignmentConfigs = tuple[tuple[str, str], ...]
"""The settings of an assignment, (name, value), ordered by name."""


def group_epoch(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: AssignmentConfigs
) -> Record:
    """Returns the record of the group's epoch and of the values that determine it (type 17)."""
    return Record(
        StreamsGroupMetadataKey(group_id=group_id),
        StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_topology_epoch,
            last_assignment_configs=[LastAssignmentConfig(key=key, value=value) for key, value in configs],
        ),
    )


def member_metadata(group_id: str, member_id: str, metadata: MemberMetadata) -> Record:
    """Returns the record of a member's metadata (type 19)."""
    endpoint = metadata.endpoint
    return Record(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
        StreamsGroupMemberMetadataValue(
            instance_id=metadata.instance_id,
            rack_id=metadata.rack_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            rebalance_timeout_ms=metadata.rebalance_timeout_ms,
            topology_epoch=metadata.topology_epoch,
            process_id=metadata.process_id,
            user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
            client_tags=[KeyValue(key=key, value=value) for key, value in metadata.client_tags],
        ),
    )


def assignment_epoch(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    """Returns the record of the target assignment's epoch and the time of its computation (type 20)."""
    return Record(
        StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_assignment(group_id: str, member_id: str, target: Tasks) -> Record:
    """Returns the record of a member's target (type 21)."""
    return Record(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberValue(
            active_tasks=to_target(target.active),
            standby_tasks=to_target(target.standby),
            warmup_tasks=to_target(target.warmup),
        ),
    )


def current_assignment(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """Returns the record of a member's current assignment (type 22)."""
    assigned, revoking = current.assigned, current.revoking
    return Record(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_epoch,
            state=current.state.value,
            active_tasks=to_current(assigned.active, with_epochs=True),
            standby_tasks=to_current(assigned.standby, with_epochs=False),
            warmup_tasks=to_current(assigned.warmup, with_epochs=False),
            active_tasks_pending_revocation=to_current(revoking.active, with_epochs=True),
            standby_tasks_pending_revocation=to_current(revoking.standby, with_epochs=False),
            warmup_tasks_pending_revocation=to_current(revoking.warmup, with_epochs=False),
        ),
    )


def topology_record(group_id: str, topology: Topology) -> Record:
    """Returns the record of a new topology (type 23).

    After the decision, the replay of the record uses the same `Topology` object. Only a load decodes the record.
    """
    return Record(StreamsGroupTopologyKey(group_id=group_id), topology)


def group_records(group: StreamsGroup) -> list[Record]:
    """Returns the records that define the whole group, with its members in order."""
    group_id = group.group_id
    records = []
    if group.topology is not None:
        records.append(Record(StreamsGroupTopologyKey(group_id=group_id), group.topology.value))
    for member_id, member in group.members.items():
        records.append(member_metadata(group_id, member_id, member.metadata))
        records.append(current_assignment(group_id, member_id, member.current))
    records += [target_assignment(group_id, member_id, target) for member_id, target in group.targets.items()]
    records.append(
        group_epoch(group_id, group.group_epoch, group.metadata_hash, group.validated_epoch, group.assignment_configs)
    )
    records.append(assignment_epoch(group_id, group.assignment_epoch, group.assigned_at_ms))
    return records


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Returns the records that delete a member: its tasks first, its metadata last."""
    return [
        Record(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: StreamsGroup) -> list[Record]:
    """Returns the records that delete the whole group, in Kafka's order.

    Some tombstones may have no record to delete.
    """
    group_id, members = group.group_id, list(group.members)
    records = [
        Record(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member), None) for member in members
    ]
    records += [
        Record(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member), None) for member in members
    ]
    records.append(Record(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    records += [Record(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member), None) for member in members]
    records.append(Record(StreamsGroupMetadataKey(group_id=group_id), None))
    records.append(Record(StreamsGroupTopologyKey(group_id=group_id), None))
    return records
