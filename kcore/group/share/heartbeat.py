"""ShareGroupHeartbeat: adds, updates or removes a member and returns its assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import KafkaError
from kcore.group.group import GroupType, not_found
from kcore.group.heartbeat_parts import HeartbeatPart
from kcore.group.metadata_bound import check_room
from kcore.group.name_bound import check_names
from kcore.group.share import initialization, leave, target
from kcore.group.share import records as share_records
from kcore.group.share.group import ShareGroup
from kcore.group.share.member import NEW_MEMBER, CurrentAssignment, MemberMetadata, own_bytes
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kcore.runtime.machine import Outcome
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from kcore.group.consumer.assignment import Target
    from kcore.group.shard import GroupShard
    from kcore.group.share.member import ShareMember
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record

JOIN: Final = 0
"""The epoch of a joining member."""

Request = ShareGroupHeartbeatRequest
Response = ShareGroupHeartbeatResponse


class Change(NamedTuple):
    """The change of one member by its heartbeat.

    Attributes:
        group: the member's group before the decision. If the heartbeat creates the group, the shard does not contain it
            yet.
        member: the existing member; None for a new member.
        member_id: identifies the member in the group.
        metadata: the member's metadata after the decision.
        resubscribes: whether the member's set of subscribed topics changes.
    """

    group: ShareGroup
    member: ShareMember | None
    member_id: str
    metadata: MemberMetadata
    resubscribes: bool

    def names(self) -> set[str]:
        """Returns the topics to which the group subscribes after the member's change."""
        before = frozenset() if self.member is None else self.member.metadata.names
        after = self.metadata.names
        return {name for name, count in self.group.names.items() if count > (name in before)} | after


class Stage(NamedTuple):
    """One decision about a heartbeat. A heartbeat with many topics has several stages, any other heartbeat has one.

    Attributes:
        request: the ShareGroupHeartbeat request.
        part: the part of the heartbeat that this stage handles. The last part also starts the initialization of share
            partitions.
    """

    request: Request
    part: HeartbeatPart = HeartbeatPart.WHOLE


def heartbeat(shard: GroupShard, context: RequestContext, stage: Stage) -> Response | Outcome:
    """Decides a heartbeat.

    Args:
        shard: the shard of the group.
        context: client id and host.
        stage: the request, and the work that this decision may do. The API has made the checks that need no group.

    Raises:
        KafkaError: the request is refused. A refused request writes no records and restarts no timer.
    """
    request = stage.request
    if request.member_epoch < JOIN:
        return _leave(shard, request)
    group = _find_group(shard, request)
    member = _find_member(group, request)
    metadata = _metadata(group, context, request, member)
    if (
        member is not None
        and metadata is member.metadata
        and request.subscribed_topic_names is None
        and request.member_epoch == member.current.member_epoch == group.assignment_epoch
        and shard.now.now_ms < group.quiet_until_ms
        and (group.assignment_epoch == group.group_epoch or group.target_must_wait())
    ):
        group.keep_session(member)
        return member.reply_at_rest(shard.share.settings(group.group_id).heartbeat_interval_ms)
    before = frozenset[str]() if member is None else member.metadata.names
    resubscribes = before != metadata.names
    if resubscribes:
        check_names(group.group_id, group.names, before, metadata.names, shard.config.kcore_max_request_elements)
    if member is None or metadata is not member.metadata:
        growth = group.sets.growth(group.names, before, metadata.names) + own_bytes(request.member_id, metadata)
        check_room(group, growth - (0 if member is None else own_bytes(member.member_id, member.metadata)))
    return _update(Change(group, member, request.member_id, metadata, resubscribes), stage)


def _leave(shard: GroupShard, request: Request) -> Outcome:
    group = shard.groups.get(request.group_id)
    if not isinstance(group, ShareGroup):
        raise not_found(request.group_id, group, GroupType.SHARE)
    member = group.members.get(request.member_id)
    if member is None:
        raise _unknown(group, request.member_id)
    response = Response(member_id=request.member_id, member_epoch=request.member_epoch)
    return Outcome(leave.fence(group, member), response)


def _unknown(group: ShareGroup, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {group.group_id}")


def _find_group(shard: GroupShard, request: Request) -> ShareGroup:
    """Returns the group of a heartbeat; a new, tentative group if a member joins and there is no group with this id.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND; GROUP_MAX_SIZE_REACHED.
    """
    group = shard.groups.get(request.group_id)
    if group is None and request.member_epoch == JOIN:
        return ShareGroup.tentative(shard, request.group_id)
    if not isinstance(group, ShareGroup):
        raise not_found(request.group_id, group, GroupType.SHARE)
    members = group.members
    if len(members) >= shard.config.group_share_max_size and request.member_id not in members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"{group.group_id} has {len(members)} members, the maximum of group.share.max.size",
        )
    return group


def _find_member(group: ShareGroup, request: Request) -> ShareMember | None:
    """Returns the member of a request, None for a new member.

    A member that missed a response may send the previous epoch. It need not report its partitions, because partitions
    of a share group have no exclusive owners.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID; FENCED_MEMBER_EPOCH.
    """
    member, received = group.members.get(request.member_id), request.member_epoch
    if member is None:
        if received != JOIN:
            raise _unknown(group, request.member_id)
        return None
    current = member.current
    if received not in (JOIN, current.member_epoch) and not (
        received < current.member_epoch and received == current.previous_epoch
    ):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {member.member_id} is in epoch {current.member_epoch}, not {received}: the member must rejoin",
        )
    return member


def _metadata(
    group: ShareGroup, context: RequestContext, request: Request, member: ShareMember | None
) -> MemberMetadata:
    """Returns the member's metadata after the request. Returns its current object if the request changes no value."""
    before = MemberMetadata() if member is None else member.metadata
    names, rack_id = request.subscribed_topic_names, request.rack_id
    is_same_client = before.client_id == context.client_id and before.client_host == context.client_host
    if names is None and rack_id is None and is_same_client and member is not None:
        return before
    after = MemberMetadata(
        before.rack_id if rack_id is None else rack_id,
        shared_text(context.client_id),
        shared_text(context.client_host),
        before.names if names is None else group.sets.shared(group.shard.consumer.names(names)),
    )
    return before if member is not None and after == before else after


def _update(change: Change, stage: Stage) -> Response | Outcome:
    """Decides a heartbeat that may need records: the member joins or changes, or the group has work to do."""
    group, member, request = change.group, change.member, stage.request
    shard = group.shard
    records: list[Record] = []
    if member is None or change.metadata is not member.metadata:
        records.append(share_records.member_metadata(group.group_id, change.member_id, change.metadata))
    bump = change.resubscribes or (group.assignment_epoch >= group.group_epoch and group.has_unassigned())
    checks_topics = bump or group.must_check_topics()
    names = change.names() if checks_topics or stage.part.assigns else set[str]()
    group_epoch = _next_epoch(change, names, bump, records) if checks_topics else group.group_epoch
    after = _reconcile(change, group_epoch, records, stage.part)
    current = NEW_MEMBER if member is None else member.current
    if after != current:
        records.append(share_records.current_assignment(group.group_id, change.member_id, after))
    initialized_until_ms = 0
    if stage.part.assigns:
        initialized_until_ms = initialization.start(group, names, group_epoch, records)
    if member is not None and group.live:
        group.keep_session(member)
    response = Response(
        member_id=change.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=shard.share.settings(group.group_id).heartbeat_interval_ms,
    )
    if request.member_epoch == JOIN or request.subscribed_topic_names is not None or after.assigned != current.assigned:
        response.assignment = _to_assignment(after.assigned)
    if records:
        return Outcome(records, response)
    group.quiet_until_ms = initialized_until_ms
    return response


def _next_epoch(change: Change, names: set[str], bump: bool, records: list[Record]) -> int:
    """Returns the group epoch after the decision. Raises the epoch if the hash of the group's topics has changed.

    Args:
        change: the member's change.
        names: the topics of the whole group after the change.
        bump: True to raise the epoch even if the hash is the same.
        records: the decision's records, to which the record of a new epoch is added.
    """
    group = change.group
    epoch = group.group_epoch
    metadata_hash = group.shard.consumer.metadata.hash_of(names)
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        records.append(share_records.group_epoch(group.group_id, epoch, metadata_hash))
    group.topics_checked, group.checked_epoch = True, epoch
    return epoch


def _reconcile(change: Change, group_epoch: int, records: list[Record], part: HeartbeatPart) -> CurrentAssignment:
    """Returns the member's assignment after the decision.

    Computes a new target first if it is due and belongs to this part of the heartbeat.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR if the assignor failed.
    """
    group, member_id = change.group, change.member_id
    target_epoch, own = group.assignment_epoch, group.target_of(member_id)
    if part.computes_target and group_epoch > group.assignment_epoch and not group.target_must_wait():
        changed, last_target = target.compute(group, member_id, change.metadata)
        group.next_target = (group_epoch, last_target)
        records += target.records_of(group, changed, group_epoch)
        target_epoch, own = group_epoch, changed.get(member_id, own)
    current = NEW_MEMBER if change.member is None else change.member.current
    if current.member_epoch != target_epoch:
        return CurrentAssignment(target_epoch, current.member_epoch, _subscribed(change, own))
    if group_epoch > group.group_epoch:
        return current._replace(assigned=_subscribed(change, own))
    return current


def _subscribed(change: Change, partitions: Target) -> Target:
    """Returns those of `partitions` that belong to topics to which the member subscribes."""
    by_id, names = change.group.shard.topics.by_id, change.metadata.names
    chosen = {}
    for topic_id, of_topic in partitions.items():
        topic = by_id(topic_id)
        if topic is not None and topic.name in names:
            chosen[topic_id] = of_topic
    return chosen


def _to_assignment(assigned: Target) -> Assignment:
    topics = [TopicPartitions(topic_id=topic_id, partitions=list(of_topic)) for topic_id, of_topic in assigned.items()]
    return Assignment(topic_partitions=topics)
