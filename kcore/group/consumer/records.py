"""The records of consumer groups, as pure functions: types 3 to 8 and 16 of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterable
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
from kcore.protocol.records.consumer_group_partition_metadata import ConsumerGroupPartitionMetadataKey
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
from kcore.runtime.machine import Record

if TYPE_CHECKING:
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import MemberMetadata

MAX_TARGET_RECORD_BYTES: Final = 128  # about what one member's target takes beside its ids and partitions


def member_metadata(group_id: str, member_id: str, metadata: MemberMetadata) -> Record:
    """What a member says of itself (type 5)."""
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


def member_metadata_tombstone(group_id: str, member_id: str) -> Record:
    """A member is gone."""
    return Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """The group's epoch, and the hash of its topics (type 3)."""
    return Record(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def legacy_metadata_tombstone(group_id: str) -> Record:
    """The topics as Kafka 4.0 wrote them are gone (type 4)."""
    return Record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def target_assignment(group_id: str, member_id: str, target: Target) -> Record:
    """What a member shall have (type 7)."""
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_target_topics(target)),
    )


def target_assignment_tombstone(group_id: str, member_id: str) -> Record:
    """A member shall have nothing any more: it is gone."""
    return Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def assignment_epoch(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    """The epoch of the target assignment, and when it was computed (type 6)."""
    return Record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_assignment(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """Where a member is (type 8)."""
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


def current_assignment_tombstone(group_id: str, member_id: str) -> Record:
    """A member is nowhere any more."""
    return Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)


def regular_expression(group_id: str, regex: str, topics: Iterable[str], version: int, timestamp_ms: int) -> Record:
    """The topics that a pattern matches (type 16)."""
    return Record(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms),
    )


def regular_expression_tombstone(group_id: str, regex: str) -> Record:
    """Nobody subscribes to a pattern any more."""
    return Record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """A member goes: its present assignment first, so that replay finds nobody who owns and is not there."""
    return [
        current_assignment_tombstone(group_id, member_id),
        target_assignment_tombstone(group_id, member_id),
        member_metadata_tombstone(group_id, member_id),
    ]


def group_tombstones(group: ConsumerGroup, renamed: tuple[str, str] | None = None) -> list[Record]:
    """The whole group goes, in Kafka's order; some of it whether it was ever written or not.

    Args:
        group: the group.
        renamed: a member that records before these replaced, and the id that took its place.
    """
    group_id = group.group_id
    old, new = renamed or ("", "")
    members = [new if member_id == old else member_id for member_id in group.members]
    records = [current_assignment_tombstone(group_id, member_id) for member_id in members]
    records += [target_assignment_tombstone(group_id, member_id) for member_id in members]
    records.append(Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    records += [member_metadata_tombstone(group_id, member_id) for member_id in members]
    records += [regular_expression_tombstone(group_id, regex) for regex in group.subscriptions.resolved]
    records.append(legacy_metadata_tombstone(group_id))
    records.append(Record(ConsumerGroupMetadataKey(group_id=group_id), None))
    return records
