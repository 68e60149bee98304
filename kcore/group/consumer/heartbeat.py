"""ConsumerGroupHeartbeat: adds, updates or removes a member and returns its assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.errors import KafkaError
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.records import group_tombstone
from kcore.group.consumer.assignment import CurrentAssignment, heartbeat_assignment, is_part_of
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.leave import leave, member_of
from kcore.group.consumer.member import STATIC_LEAVE_EPOCH, MemberMetadata
from kcore.group.consumer.member_update import MemberChange
from kcore.group.consumer.records import in_one
from kcore.group.group import GroupType, not_found
from kcore.group.migration.upgrade import dismiss_waiting, upgraded
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kcore.protocol.uuids import to_text
from kcore.runtime.machine import Outcome
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.group.consumer.member import ConsumerMember
    from kcore.group.shard import GroupShard
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record

JOIN: Final = 0
"""The epoch of a joining member."""
UNCHANGED: Final = -1
"""The value of `rebalance_timeout_ms` in a heartbeat that does not change the timeout."""

Request = ConsumerGroupHeartbeatRequest
Response = ConsumerGroupHeartbeatResponse


def heartbeat(
    shard: GroupShard, context: RequestContext, request: Request, visible: Callable[[str], bool] | None = None
) -> Response | Outcome:
    """Decides a heartbeat.

    Args:
        shard: the shard of the group.
        context: client id and host.
        request: the request. The API has made the checks that need no group.
        visible: returns True for a topic that the client may see; patterns match only these topics. None: all topics.

    Raises:
        KafkaError: the request is refused. A refused request writes no records and restarts no timer.
    """
    epoch = request.member_epoch
    if epoch < JOIN:
        group = shard.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise not_found(request.group_id, group, GroupType.CONSUMER)
        return leave(group, request)
    records: list[Record] = []
    group = find_group(shard, request, records)
    check_size(group, request.member_id)
    member_id = request.member_id or new_member_id(shard)
    change = identify(group, member_id, request, records)
    change.set_metadata(_metadata(group, context, request, change.before), visible=visible)
    change.reconcile(request.topic_partitions)
    if change.member is not None and group.live:
        group.keep_session(change.member)
    if not group.live:  # a tentative group
        former = shard.groups.get(request.group_id)
        if isinstance(former, ClassicGroup):
            dismiss_waiting(former)
    response = _response(change, request)
    return Outcome(in_one(records), response) if records else response


def find_group(shard: GroupShard, request: Request, records: list[Record]) -> ConsumerGroup:
    """Returns the group of a heartbeat.

    If a member joins and there is no consumer group, returns a tentative group, which the shard does not contain yet.
    The tentative group may replace a classic group.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND.
    """
    group_id = request.group_id
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if request.member_epoch != JOIN:
        raise not_found(group_id, group, GroupType.CONSUMER)
    if group is None:
        return ConsumerGroup.tentative(shard, group_id)
    if isinstance(group, ClassicGroup):
        if group.is_empty():
            records.append(group_tombstone(group_id))
            return ConsumerGroup.tentative(shard, group_id)
        return upgraded(group, records)
    raise not_found(group_id, group, GroupType.CONSUMER)


def check_size(group: ConsumerGroup, member_id: str) -> None:
    """Refuses new members while the group is full.

    Raises:
        KafkaError: GROUP_MAX_SIZE_REACHED.
    """
    members = group.members
    if len(members) >= group.shard.config.group_consumer_max_size and (not member_id or member_id not in members):
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"{group.group_id} has {len(members)} members, the maximum of group.consumer.max.size",
        )


def new_member_id(shard: GroupShard) -> str:
    """Returns a random UUID in Kafka's form: 22 characters that do not begin with a dash."""
    while True:
        text = to_text(bytes.fromhex(shard.ids().replace("-", "")))
        if not text.startswith("-"):
            return text


# ---- member identification


def identify(group: ConsumerGroup, member_id: str, request: Request, records: list[Record]) -> MemberChange:
    """Returns the `MemberChange` of a heartbeat, for an existing or a new member.

    A new member may replace a static member.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID.
    """
    epoch, instance_id = request.member_epoch, request.instance_id
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            if epoch != JOIN:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {group.group_id}")
            return new_member(group, member_id, records)
        check_epoch(member, request)
        return MemberChange(group, member_id, member, member.current, records)
    if epoch != JOIN:
        member = member_of(group, member_id, instance_id)
        check_epoch(member, request)
        return MemberChange(group, member_id, member, member.current, records)
    current_id = group.static_members.get(instance_id)
    if current_id is None:
        member = group.members.get(member_id)
        if member is None:
            return new_member(group, member_id, records)
        return MemberChange(group, member_id, member, member.current, records)  # a dynamic member becomes static
    old = group.members[current_id]
    if old.current.member_epoch != STATIC_LEAVE_EPOCH and not old.is_classic:
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, f"an active member has the instance id {instance_id}")
    return replacement(group, member_id, old, records)


def new_member(group: ConsumerGroup, member_id: str, records: list[Record]) -> MemberChange:
    """Returns the `MemberChange` with which a new member joins."""
    return MemberChange(group, member_id, None, CurrentAssignment(), records)


def replacement(group: ConsumerGroup, member_id: str, old: ConsumerMember, records: list[Record]) -> MemberChange:
    """Returns the `MemberChange` with which a new member replaces a static member.

    The new member inherits the partitions and the target of the static member. Its member epoch starts at 0.
    """
    current = CurrentAssignment(0, 0, old.current.state, old.current.assigned, old.current.revoking)
    change = MemberChange(group, member_id, None, current, records, replaced=old)
    change.replace(old)
    return change


def check_epoch(member: ConsumerMember, request: Request) -> None:
    """Refuses a member with a wrong epoch.

    A member that missed a response may send the previous epoch. It must then report its partitions, and all of them
    must be assigned to it.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH.
    """
    received, current = request.member_epoch, member.current
    if received in (JOIN, current.member_epoch):
        return
    if received < current.member_epoch and received == current.previous_epoch:
        reported = request.topic_partitions
        if reported is not None and is_part_of(reported, current.assigned):
            return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id} is in epoch {current.member_epoch}, not {received}: the member must drop its "
        "partitions and rejoin",
    )


def _metadata(
    group: ConsumerGroup, context: RequestContext, request: Request, before: MemberMetadata | None
) -> MemberMetadata:
    """Returns the member's metadata after the request. Fields that the request does not set keep their value.

    Returns the object `before` itself if no value can have changed.
    """
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    if (
        before is not None
        and names is None
        and timeout_ms == UNCHANGED
        and request.instance_id is None
        and request.rack_id is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and before.classic is None
        and before.client_id == context.client_id
        and before.client_host == context.client_host
    ):
        return before
    previous = MemberMetadata() if before is None else before
    shard = group.shard
    return MemberMetadata(
        previous.instance_id if request.instance_id is None else request.instance_id,
        previous.rack_id if request.rack_id is None else request.rack_id,
        shared_text(context.client_id),
        shared_text(context.client_host),
        previous.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        previous.names if names is None else group.subscriptions.sets.shared(shard.consumer.names(names)),
        previous.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        previous.server_assignor if request.server_assignor is None else request.server_assignor,
    )


# ---- the response


def _response(change: MemberChange, request: Request) -> Response:
    after = change.after
    group = change.group
    response = Response(
        member_id=change.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=group.shard.consumer.settings(group.group_id).heartbeat_interval_ms,
    )
    if (
        request.member_epoch == JOIN
        or _is_full(request)
        or (after is not change.current and after.assigned != change.current.assigned)
    ):
        response.assignment = heartbeat_assignment(after.assigned)
    return response


def _is_full(request: Request) -> bool:
    """Returns True if the request has all fields.

    A member sends all fields if it does not know the coordinator's state.
    """
    return (
        request.rebalance_timeout_ms != UNCHANGED
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
