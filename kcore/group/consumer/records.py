"""Functions that build the records of consumer groups: the types 3 to 8 and 16 of `__consumer_offsets`.

The records of frequent decisions, such as a join, contain the Python objects that the group will store. Compiled code
encodes these objects when the records are written to the log. `reference_records` is the reference implementation: it
defines the contents of all records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kcore.group.consumer import reference_records
from kcore.group.consumer.assignment import CurrentAssignment, Target
from kcore.protocol.records.consumer_group_current_member_assignment import ConsumerGroupCurrentMemberAssignmentKey
from kcore.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataKey
from kcore.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey
from kcore.protocol.records.consumer_group_partition_metadata import ConsumerGroupPartitionMetadataKey
from kcore.protocol.records.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from kcore.protocol.records.consumer_group_target_assignment_member import ConsumerGroupTargetAssignmentMemberKey
from kcore.protocol.records.consumer_group_target_assignment_metadata import ConsumerGroupTargetAssignmentMetadataKey
from kcore.runtime.machine import Record
from kcore_ext.group import consumer_records

if TYPE_CHECKING:
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import MemberMetadata

MAX_TARGET_RECORD_BYTES: Final = 128  # approximate size of one member's target besides its ids and partitions


group_epoch: Final[Callable[[str, int, int], Record]] = consumer_records.group_epoch
"""Builds the record with a group's epoch and the hash of its topics (type 3) from (group id, epoch, metadata hash)."""

assignment_epoch: Final[Callable[[str, int, int], Record]] = consumer_records.assignment_epoch
"""Builds the record with the epoch and the computation time of the target assignment (type 6).

Arguments: group id, epoch, timestamp in ms.
"""

target_assignment: Final[Callable[[str, str, Target], Record]] = consumer_records.target_assignment
"""Builds the record of a member's target assignment (type 7) from (group id, member id, target)."""

current_assignment: Final[Callable[[str, str, CurrentAssignment], Record]] = consumer_records.current_assignment
"""Builds the record of a member's current assignment (type 8) from (group id, member id, assignment)."""

in_one: Final[Callable[[list[Record]], Any]] = consumer_records.in_one
"""Combines the records of a decision into one block, which is encoded and replayed as a whole.

Returns the list itself if a record was not built by `kcore_ext.group.consumer_records`.
"""


def member_metadata(group_id: str, member_id: str, metadata: MemberMetadata) -> Record:
    """Returns the record of a member's metadata (type 5)."""
    if metadata.classic is not None:
        return reference_records.member_metadata(group_id, member_id, metadata)
    record: Record = consumer_records.member_metadata(group_id, member_id, metadata)
    return record


def member_metadata_tombstone(group_id: str, member_id: str) -> Record:
    """Returns the record that deletes a member's metadata."""
    return Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def legacy_metadata_tombstone(group_id: str) -> Record:
    """Returns the record that deletes the list of topics which Kafka 4.0 wrote (type 4)."""
    return Record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def target_assignment_tombstone(group_id: str, member_id: str) -> Record:
    """Returns the record that deletes a member's target."""
    return Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def current_assignment_tombstone(group_id: str, member_id: str) -> Record:
    """Returns the record that deletes a member's current assignment."""
    return Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)


def regular_expression(group_id: str, regex: str, topics: Iterable[str], version: int, timestamp_ms: int) -> Record:
    """Returns the record of the topics that a pattern matches, in the order of `topics` (type 16)."""
    return Record(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(topics=list(topics), version=version, timestamp=timestamp_ms),
    )


def regular_expression_tombstone(group_id: str, regex: str) -> Record:
    """Returns the record that deletes a pattern without subscribers."""
    return Record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Returns the records that delete a member.

    The current assignment comes first, so that replay never sees an owner that is not a member.
    """
    return [
        current_assignment_tombstone(group_id, member_id),
        target_assignment_tombstone(group_id, member_id),
        member_metadata_tombstone(group_id, member_id),
    ]


def group_tombstones(group: ConsumerGroup, renamed: tuple[str, str] | None = None) -> list[Record]:
    """Returns the records that delete the whole group, in Kafka's order. Some tombstones may have no record to delete.

    Args:
        group: the group to delete.
        renamed: the old and the new id of a member, if earlier records of the same decision give the member a new id.
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
