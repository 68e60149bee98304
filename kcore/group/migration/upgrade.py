"""Conversion of a classic group to a consumer group when the first consumer member joins.

All members keep their partitions: the generation becomes the epoch, and the leader's assignment becomes both target and
current assignment. The classic members learn of the following rebalance from the responses to their next heartbeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.errors import KafkaError
from kcore.group.classic.records import group_tombstone
from kcore.group.classic.replies import sync_error
from kcore.group.consumer import records as group_records
from kcore.group.consumer.assignment import CurrentAssignment, Target
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.member import ClassicMetadata, MemberMetadata
from kcore.group.consumer.replay import apply_to_tentative
from kcore.group.consumer.states import MemberState
from kcore.group.migration.embedded import read_assignment, read_subscription
from kcore.group.migration.policy import migration_policy
from kcore.protocol import DecodeError
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.group.classic.member import Member
    from kcore.runtime.machine import Record

RECORDS_OF_MEMBER: Final = 3
"""Number of records of each member in a conversion: its metadata, its target, its current assignment."""


def upgraded(group: ClassicGroup, records: list[Record]) -> ConsumerGroup:
    """Returns a tentative consumer group with the members of a classic group.

    The consumer group replaces the classic group in the shard when the records are replayed.

    Args:
        group: the classic group; it is not changed.
        records: receives the records of the conversion.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND if the conversion is not allowed, if its records would be too large, or if a
            member's embedded subscription or assignment cannot be decoded.
    """
    _check(group)
    try:
        members = _converted_members(group)
    except (DecodeError, UnicodeDecodeError) as error:
        raise _refused(group, f"a member's embedded data cannot be decoded: {error}") from error
    group_id, shard = group.group_id, group.shard
    epoch = group.generation_id
    topics = {name for _, metadata, _ in members for name in metadata.names}
    records.append(group_tombstone(group_id))
    first = len(records)
    records += [group_records.member_metadata(group_id, member.member_id, metadata) for member, metadata, _ in members]
    records.append(group_records.group_epoch(group_id, epoch, shard.consumer.metadata.hash_of(topics)))
    records += [group_records.target_assignment(group_id, member.member_id, target) for member, _, target in members]
    records.append(group_records.assignment_epoch(group_id, epoch, 0))
    for member, _, target in members:
        assigned = {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in target.items()}
        current = CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned)
        records.append(group_records.current_assignment(group_id, member.member_id, current))
    tentative = ConsumerGroup.tentative(shard, group_id)
    try:
        for record in records[first:]:
            apply_to_tentative(tentative, record)
    except ValueError as error:
        raise _refused(group, f"the group's leader assigned a partition to two members: {error}") from error
    return tentative


def dismiss_waiting(group: ClassicGroup) -> None:
    """Completes all parked JoinGroup and SyncGroup requests of a replaced group with REBALANCE_IN_PROGRESS."""
    for member in group.members.values():
        if member.awaiting_join is not None:
            group.refuse_join(member, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        if member.awaiting_sync is not None:
            group.respond_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))


def _refused(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is classic and cannot become a consumer group: {reason}"
    )


def _check(group: ClassicGroup) -> None:
    config = group.shard.config
    if not migration_policy(config.group_consumer_migration_policy).upgrade:
        raise _refused(group, "group.consumer.migration.policy does not allow the conversion")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _refused(group, f"the group's protocol type is {group.protocol_type!r}, not {PROTOCOL_TYPE!r}")
    if len(group.members) > config.group_consumer_max_size:
        raise _refused(group, f"the group has {len(group.members)} members, more than group.consumer.max.size")


def _converted_members(group: ClassicGroup) -> list[tuple[Member, MemberMetadata, Target]]:
    """Converts the members of a classic group.

    Refuses the conversion as soon as a lower bound of the records' size exceeds the limit for one decision. A group
    that is not Stable may have megabytes of subscriptions, and decoding all of them would take seconds.
    """
    size_bytes = _least_record_bytes(group)
    converted = []
    for member in group.members.values():
        _check_record_bytes(group, size_bytes)
        metadata, target = _convert(group, member)
        size_bytes += sum(map(len, metadata.names))  # the record has the names in addition to the subscription
        converted.append((member, metadata, target))
    _check_record_bytes(group, size_bytes)
    return converted


def _least_record_bytes(group: ClassicGroup) -> int:
    """Returns a lower bound of the size of the conversion's records, in bytes, without decoding subscriptions."""
    return sum(
        RECORDS_OF_MEMBER * (len(group.group_id) + len(member.member_id))
        + sum(len(metadata) for _, metadata in member.protocols)
        for member in group.members.values()
    )


def _check_record_bytes(group: ClassicGroup, size_bytes: int) -> None:
    most = group.shard.max_record_bytes
    if size_bytes > most:
        raise _refused(group, f"the group's records would have more than {size_bytes} bytes; the maximum is {most}")


def _convert(group: ClassicGroup, member: Member) -> tuple[MemberMetadata, Target]:
    """Converts a classic member; returns its metadata and its target."""
    shard = group.shard
    # In the group's first join phase no protocol is chosen yet: use the member's preferred one.
    metadata = member.metadata(group.protocol_name) or member.protocols[0][1]
    subscription = read_subscription(metadata)
    target, has_user_data = read_assignment(member.assignment, shard.topics)
    if has_user_data:
        raise _refused(group, f"the assignment of {member.member_id} contains user data of its assignor")
    return (
        MemberMetadata(
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            names=shard.consumer.names(subscription.topics),
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        ),
        target,
    )
