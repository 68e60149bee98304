"""JoinGroup on a consumer group. The request is decided like a ConsumerGroupHeartbeat with all fields.

The response does not wait for other members. Every classic member is a follower: the coordinator computes the
assignment, and SyncGroup returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.errors import KafkaError
from kcore.group.classic.protocols import protocols_of
from kcore.group.classic.replies import join_error
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.heartbeat import check_size, new_member, new_member_id, replacement
from kcore.group.consumer.leave import member_of
from kcore.group.consumer.member import ClassicMetadata, MemberMetadata
from kcore.group.consumer.member_update import MemberChange
from kcore.group.consumer.timers import Awaited, MemberTimer
from kcore.group.migration.downgrade import downgrade_by_replacement
from kcore.group.migration.embedded import owned_partitions, read_subscription
from kcore.group.migration.policy import migration_policy
from kcore.group.side_effects import LiveValue
from kcore.protocol import DecodeError
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupResponse
from kcore.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataKey
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.group.classic.member import Protocols
    from kcore.group.consumer.member import ConsumerMember
    from kcore.group.shard import GroupShard
    from kcore.protocol.consumer_protocol import Subscription
    from kcore.protocol.messages.join_group import JoinGroupRequest
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record

NO_MEMBER_ID: Final = ""
REQUIRES_KNOWN_MEMBER_ID: Final = 4  # from this version on, a dynamic member gets an id to join with (KIP-394)


def join_consumer_group(
    group: ConsumerGroup,
    context: RequestContext,
    request: JoinGroupRequest,
    visible: Callable[[str], bool] | None = None,
) -> JoinGroupResponse | Outcome:
    """Decides a JoinGroup on a consumer group with members.

    Args:
        group: the consumer group to join.
        context: version, client id and host.
        request: the request; group id and session timeout have been checked.
        visible: returns True for a topic that the client may see. If this request causes patterns of other members to
            be resolved, they match only these topics. None: all topics.
    """
    try:
        return _join(group, context, request, visible)
    except KafkaError as error:
        return join_error(context.api_version, NO_MEMBER_ID, error.code)


def _join(
    group: ConsumerGroup,
    context: RequestContext,
    request: JoinGroupRequest,
    visible: Callable[[str], bool] | None,
) -> JoinGroupResponse | Outcome:
    if not migration_policy(group.shard.config.group_consumer_migration_policy).mixed:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member_id = request.member_id or new_member_id(group.shard)
    check_size(group, member_id)
    protocols = protocols_of(request.protocols)
    if not _shares_a_protocol(group, request.protocol_type, protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    dynamic = request.group_instance_id is None
    if dynamic and not request.member_id and context.api_version >= REQUIRES_KNOWN_MEMBER_ID:
        return join_error(context.api_version, member_id, ErrorCode.MEMBER_ID_REQUIRED)
    if sum(len(metadata) for _, metadata in protocols) > group.shard.max_record_bytes:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # the member's record has the metadata of all protocols
    records: list[Record] = []
    change = _identify(group, member_id, request, records)
    try:
        subscription = read_subscription(protocols[0][1], group.shard.config.kcore_max_request_elements)
    except (DecodeError, UnicodeDecodeError):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from None  # as Kafka 4.3.1
    metadata = _metadata(change, context, request, subscription, protocols)
    change.set_metadata(metadata, visible=visible, any_regex_counts=True)
    downgraded = downgrade_by_replacement(change, request.group_instance_id)
    owned = owned_partitions(subscription, group.shard.topics)
    if downgraded is not None:
        if change.group_epoch <= group.assignment_epoch:
            change.reconcile(owned)  # as Kafka: the log has the member's last assignment before its tombstone
        return Outcome(records + downgraded, _response(change, change.group_epoch, protocols))
    change.reconcile(owned)
    response = _response(change, change.after.member_epoch, protocols)
    if change.member is not None and change.member.is_classic:
        update_timers_of_joined(change.member, change.metadata)
    else:
        _arm_after_replay(change)
    return Outcome(records, response) if records else response


def _shares_a_protocol(group: ConsumerGroup, protocol_type: str, protocols: Protocols) -> bool:
    if protocol_type != PROTOCOL_TYPE:
        return False
    subscriptions = group.subscriptions
    needed = subscriptions.classic_members
    return any(subscriptions.classic_protocols.get(name, 0) == needed for name, _ in protocols)


def _identify(group: ConsumerGroup, member_id: str, request: JoinGroupRequest, records: list[Record]) -> MemberChange:
    instance_id = request.group_instance_id
    if instance_id is not None and request.member_id:
        member = member_of(group, member_id, instance_id)
        return MemberChange(group, member_id, member, member.current, records)
    if instance_id is not None:
        current_id = group.static_members.get(instance_id)
        if current_id is None:
            return new_member(group, member_id, records)
        return replacement(group, member_id, group.members[current_id], records)
    existing = group.members.get(member_id)
    if existing is None:
        return new_member(group, member_id, records)
    return MemberChange(group, member_id, existing, existing.current, records)


def _metadata(
    change: MemberChange,
    context: RequestContext,
    request: JoinGroupRequest,
    subscription: Subscription,
    protocols: Protocols,
) -> MemberMetadata:
    previous = MemberMetadata() if change.before is None else change.before
    # Version 0 has no rebalance timeout: the session timeout replaces it.
    timeout_ms = request.rebalance_timeout_ms if context.api_version >= 1 else request.session_timeout_ms
    return MemberMetadata(
        instance_id=previous.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=previous.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=context.client_id,
        client_host=context.client_host,
        rebalance_timeout_ms=timeout_ms,
        names=change.group.subscriptions.sets.shared(change.group.shard.consumer.names(subscription.topics)),
        server_assignor=previous.server_assignor,
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )


def _response(change: MemberChange, generation_id: int, protocols: Protocols) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocols[0][0],
        member_id=change.member_id,
    )


# ---- timers


def update_timers_of_joined(member: ConsumerMember, metadata: MemberMetadata) -> None:
    """Updates the timers of a classic member that has joined.

    Restarts its session, cancels its join timer, and arms its sync timer.

    Args:
        member: the classic member that has joined.
        metadata: the member's new metadata.
    """
    group = member.group
    member.stop_classic_timers()
    member.sync_timer = MemberTimer.armed(member, Awaited.SYNC, metadata.rebalance_timeout_ms)
    if member.timer is not None and metadata.classic is not None:
        member.timer.extend(group.shard.now.now_ms + metadata.classic.session_timeout_ms)


def _arm_after_replay(change: MemberChange) -> None:
    """Adds a side effect to the record of a new member: after the replay, `update_timers_of_joined` runs for it."""
    group_id, member_id = change.group.group_id, change.member_id

    def joined(shard: GroupShard) -> None:
        group = shard.groups[group_id]
        assert isinstance(group, ConsumerGroup), group
        member = group.members[member_id]
        update_timers_of_joined(member, member.metadata)

    for index in reversed(range(len(change.records))):
        record = change.records[index]
        if isinstance(record.key, ConsumerGroupMemberMetadataKey) and record.value is not None:
            change.records[index] = record._replace(value=LiveValue(record.value, joined))
            return
    raise AssertionError("a new member has a metadata record")
