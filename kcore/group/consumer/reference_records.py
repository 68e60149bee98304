"""Reference implementations of the records of consumer groups. Each record consists of a key and a value object.

The compiled records of `kcore_ext.group.consumer_records` encode and replay to the same results as these records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.group.consumer.assignment import CurrentAssignment, Target, to_current_topics, to_target_topics
from kcore.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from kcore.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from kcore.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from kcore.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kcore.runtime.machine import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.group.consumer.member import MemberMetadata
    from kcore_ext.group.consumer_records import ConsumerRecord


def member_metadata(group_id: str, member_id: str, metadata: MemberMetadata) -> Record:
    """Returns the record of a member's metadata (type 5)."""
    classic = metadata.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.names),
        subscribed_topic_regex=metadata.regex,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        server_assignor=metadata.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
        ),
    )
    return Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """Returns the record of the group's epoch and the hash of its topics (type 3)."""
    return Record(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_assignment(group_id: str, member_id: str, target: Target) -> Record:
    """Returns the record of a member's target (type 7)."""
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_target_topics(target)),
    )


def assignment_epoch(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    """Returns the record of the target assignment's epoch and computation time (type 6)."""
    return Record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_assignment(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """Returns the record of a member's current assignment (type 8)."""
    return Record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_epoch,
            state=int(current.state),
            assigned_partitions=to_current_topics(current.assigned),
            partitions_pending_revocation=to_current_topics(current.revoking),
        ),
    )


REFERENCE_RECORDS: Final[dict[int, Callable[[ConsumerRecord], Record]]] = {
    3: lambda record: group_epoch(record.group_id, record.epoch, record.number),
    5: lambda record: member_metadata(record.group_id, record.member_id or "", record.content),
    6: lambda record: assignment_epoch(record.group_id, record.epoch, record.number),
    7: lambda record: target_assignment(record.group_id, record.member_id or "", record.content),
    8: lambda record: current_assignment(record.group_id, record.member_id or "", record.content),
}
"""Number of a record type -> reference function that builds such a record."""
