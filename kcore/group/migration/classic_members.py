"""Heartbeat, SyncGroup and LeaveGroup of classic members in a consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.group.classic.replies import HEARTBEAT, sync_error
from kcore.group.consumer.assignment import NO_PARTITIONS
from kcore.group.consumer.leave import fence, member_of
from kcore.group.consumer.states import MemberState
from kcore.group.consumer.timers import Awaited, MemberTimer
from kcore.group.migration.embedded import write_assignment
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import ConsumerMember
    from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from kcore.protocol.messages.leave_group import MemberIdentity
    from kcore.protocol.messages.sync_group import SyncGroupRequest
    from kcore.runtime.machine import Record


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResponse:
    """Decides a Heartbeat: restarts the member's session, and requests that the member rejoin if necessary."""
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
    except KafkaError as error:
        return HEARTBEAT[error.code]
    current = member.current
    if request.generation_id != current.member_epoch:
        return HEARTBEAT[ErrorCode.ILLEGAL_GENERATION]
    group.keep_session(member)
    if (
        current.member_epoch < group.assignment_epoch
        or current.state is MemberState.UNREVOKED
        or (current.state is MemberState.UNRELEASED and not _waits_for_others(member))
        or _must_compute_target(group)
    ):
        await_join(member)
        return HEARTBEAT[ErrorCode.REBALANCE_IN_PROGRESS]
    return HEARTBEAT[ErrorCode.NONE]


def sync_group(group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
    """Decides a SyncGroup: returns the member's assignment, in the version of its subscription."""
    if not group.members:
        return sync_error(ErrorCode.UNKNOWN_MEMBER_ID)
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
    except KafkaError as error:
        return sync_error(error.code)
    classic, current = member.metadata.classic, member.current
    assert classic is not None, member
    if request.generation_id != current.member_epoch:
        return sync_error(ErrorCode.ILLEGAL_GENERATION)
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
        return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.assignment_epoch > current.member_epoch and current.state is not MemberState.UNREVOKED:
        await_join(member)
        return sync_error(ErrorCode.REBALANCE_IN_PROGRESS)
    if member.sync_timer is not None:
        member.sync_timer.disarm()
        member.sync_timer = None
    group.keep_session(member)
    return SyncGroupResponse(
        protocol_type=PROTOCOL_TYPE,
        protocol_name=name,
        assignment=write_assignment(current.assigned, group.shard.topics, metadata),
    )


def leave_group(group: ConsumerGroup, members: Sequence[MemberIdentity]) -> tuple[list[ErrorCode], list[Record]]:
    """Removes members of both protocols, all in one decision.

    Returns:
        The error code for each member, in order, and the records to write.
    """
    codes: list[ErrorCode] = []
    leaving: dict[str, ConsumerMember] = {}
    for identity in members:
        try:
            member = _leaving(group, identity)
        except KafkaError as error:
            codes.append(error.code)
        else:
            codes.append(ErrorCode.NONE)
            leaving[member.member_id] = member
    return codes, fence(group, list(leaving.values())) if leaving else []


def await_join(member: ConsumerMember) -> None:
    """Starts a classic member's rebalance timeout when a response first requests that it rejoin."""
    if member.join_timer is None:
        member.join_timer = MemberTimer.armed(member, Awaited.JOIN, member.metadata.rebalance_timeout_ms)


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = member_of(group, member_id, instance_id)
    if not member.is_classic:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """Returns the leaving member; an administrator may name a static member by its instance id alone (KIP-345)."""
    instance_id = identity.group_instance_id
    if instance_id is not None and not identity.member_id:
        current_id = group.static_members.get(instance_id)
        if current_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group.members[current_id]
    return member_of(group, identity.member_id, instance_id)


def _must_compute_target(group: ConsumerGroup) -> bool:
    """Returns True if a target is due and no consumer member remains whose heartbeat would compute it.

    This occurs only if the policy prevents a downgrade. In this case, Kafka 4.3 does not make the classic members
    rejoin: the partitions of the last consumer member stay without an owner until another member joins.
    """
    return group.group_epoch > group.assignment_epoch and group.subscriptions.classic_members == len(group.members)


def _waits_for_others(member: ConsumerMember) -> bool:
    """Returns True if another member still owns a partition of this member's target."""
    group, current = member.group, member.current
    for topic_id, target_partitions in group.target_of(member.member_id).items():
        owned = group.owners.of(topic_id)
        own = current.assigned.get(topic_id, NO_PARTITIONS)
        if any(partition in owned and partition not in own for partition in target_partitions):
            return True
    return False
