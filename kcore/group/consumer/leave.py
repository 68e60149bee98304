"""Removal of members: by their own request, by a timer, or by an administrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.group.consumer import records as group_records
from kcore.group.consumer.assignment import CurrentAssignment, with_epoch
from kcore.group.consumer.member import STATIC_LEAVE_EPOCH
from kcore.group.migration.downgrade import downgrade_after
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import ConsumerMember
    from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from kcore.runtime.machine import Record


def leave(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Outcome:
    """Decides a heartbeat with epoch -1 (leave) or -2 (a static member that may return). Epochs are not checked.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    member = member_of(group, request.member_id, request.instance_id)
    epoch = request.member_epoch
    records = static_leave_records(member) if epoch == STATIC_LEAVE_EPOCH else fence(group, [member])
    return Outcome(records, ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=epoch))


def member_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Returns the member of a request. Finds a dynamic member by its member id, a static member by its instance id.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if the instance has another member id.
    """
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {group.group_id}")
        return member
    current_id = group.static_members.get(instance_id)
    if current_id is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has no member with instance id {instance_id}"
        )
    if current_id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"another member has the instance id {instance_id}")
    return group.members[current_id]


def static_leave_records(member: ConsumerMember) -> list[Record]:
    """Returns the record of a static member that leaves temporarily.

    The member keeps its partitions until it returns or its session ends; the other members see no change. The
    partitions that it was revoking are released, because its client is not running.
    """
    current = member.current
    away = CurrentAssignment(
        STATIC_LEAVE_EPOCH, current.previous_epoch, current.state, with_epoch(current.assigned, 0), {}
    )
    return [group_records.current_assignment(member.group.group_id, member.member_id, away)]


def fence(group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> list[Record]:
    """Returns the records that remove members, all with one new group epoch.

    Later heartbeats of other members reassign the partitions of these members.

    If only classic members remain and the migration policy allows it, the group becomes a classic group.
    """
    downgraded = downgrade_after(group, leaving)
    if downgraded is not None:
        return downgraded
    group_id, subscriptions = group.group_id, group.subscriptions
    records: list[Record] = []
    names: dict[str, int] = {}
    regexes: dict[str, int] = {}
    for member in leaving:
        records += group_records.member_tombstones(group_id, member.member_id)
        for name in member.metadata.names:
            names[name] = names.get(name, 0) + 1
        if member.metadata.regex:
            regexes[member.metadata.regex] = regexes.get(member.metadata.regex, 0) + 1
    dropped = {regex for regex, count in regexes.items() if subscriptions.regexes[regex] == count}
    records += [group_records.regular_expression_tombstone(group_id, regex) for regex in sorted(dropped)]
    metadata_hash = group.metadata_hash
    outdated = dropped or group.hash_outdated or group.refresh_due()
    if outdated or any(subscriptions.names[name] == count for name, count in names.items()):
        topics = {name for name, count in subscriptions.names.items() if count > names.get(name, 0)}
        for regex, resolved in subscriptions.resolved.items():
            if regex not in dropped:
                topics |= resolved.topics
        metadata_hash = group.shard.consumer.metadata.hash_of(topics)
    records.append(group_records.group_epoch(group_id, group.group_epoch + 1, metadata_hash))
    return records
