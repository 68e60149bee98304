"""StreamsGroupHeartbeat: adds, updates or removes a member and returns its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import KafkaError
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.records import group_tombstone
from kcore.group.group import GroupType, not_found
from kcore.group.heartbeat_parts import HeartbeatPart
from kcore.group.migration.upgrade import dismiss_waiting
from kcore.group.streams.configure import InternalTopic, Status, TopicFault, shortened
from kcore.group.streams.endpoints import endpoints
from kcore.group.streams.group import StreamsGroup
from kcore.group.streams.leave import leave
from kcore.group.streams.member import NEW_METADATA, MemberMetadata
from kcore.group.streams.member_update import MemberChange
from kcore.group.streams.tasks import NEW_MEMBER, Report, has_same_tasks, is_part_of, to_heartbeat
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.streams_group_heartbeat import Status as ResponseStatus
from kcore.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from kcore.runtime.machine import Outcome
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcore.group.shard import GroupShard
    from kcore.group.streams.member import StreamsMember
    from kcore.group.streams.preparation import PreparedTopology
    from kcore.protocol.messages.streams_group_heartbeat import KeyValue
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record

JOIN: Final = 0
"""The epoch of a joining member."""
UNCHANGED: Final = -1
"""The value of `rebalance_timeout_ms` in a heartbeat that does not change the timeout."""

Request = StreamsGroupHeartbeatRequest
Response = StreamsGroupHeartbeatResponse


class Decision(NamedTuple):
    """The result of a decision about a heartbeat.

    Attributes:
        records: the records to write.
        response: the response. If `missing` is not empty, the response is a new object, which the API may change.
        missing: internal topics that must be created, by name.
    """

    records: list[Record]
    response: Response
    missing: dict[str, InternalTopic]


class Stage(NamedTuple):
    """One decision about a heartbeat. A heartbeat with a long topology has several stages, any other heartbeat has one.

    Attributes:
        request: the StreamsGroupHeartbeat request.
        prepared: the topology of the request, if earlier slices have prepared it; else None.
        part: the part of the heartbeat that this stage handles.
    """

    request: Request
    prepared: PreparedTopology | None = None
    part: HeartbeatPart = HeartbeatPart.WHOLE


def heartbeat(shard: GroupShard, context: RequestContext, stage: Stage) -> Decision | Outcome:
    """Decides a heartbeat.

    Args:
        shard: the shard of the group.
        context: client id and host.
        stage: the request, and the work that this decision may do. The API has made the checks that need no group.

    Raises:
        KafkaError: the request is refused. A refused request writes no records and restarts no timer.
    """
    request = stage.request
    epoch = request.member_epoch
    if epoch < JOIN:
        existing = shard.groups.get(request.group_id)
        if not isinstance(existing, StreamsGroup):
            raise not_found(request.group_id, existing, GroupType.STREAMS)
        return leave(existing, request)
    records: list[Record] = []
    group = find_group(shard, request, records)
    if epoch == JOIN and not (stage.part.follows_join and request.member_id in group.members):
        check_size(group)
    report = report_of(request)
    member = identify(group, request, report)
    before = NEW_METADATA if member is None else member.metadata
    current = NEW_MEMBER if member is None else member.current
    metadata = _metadata(context, request, before)
    change = MemberChange(group, request.member_id, member, current, metadata, records, stage.prepared)
    change.set_topology(request.topology)
    change.check_room(before)
    change.move_epoch(report)
    change.reconcile(report, stage.part)
    if member is not None and group.live:
        group.keep_session(member)
    if request.shutdown_application:
        group.request_shutdown(request.member_id)
    if not group.live:  # a tentative group
        former = shard.groups.get(request.group_id)
        if isinstance(former, ClassicGroup):
            dismiss_waiting(former)
    return _decision(change, request)


def find_group(shard: GroupShard, request: Request, records: list[Record]) -> StreamsGroup:
    """Returns the group of a heartbeat.

    If a member joins and there is no streams group, returns a tentative group, which the shard does not contain yet.
    The tentative group may replace an empty classic group.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND.
    """
    group_id = request.group_id
    group = shard.groups.get(group_id)
    if isinstance(group, StreamsGroup):
        return group
    if request.member_epoch != JOIN:
        raise not_found(group_id, group, GroupType.STREAMS)
    if isinstance(group, ClassicGroup) and group.is_empty():
        records.append(group_tombstone(group_id))
    elif group is not None:
        raise not_found(group_id, group, GroupType.STREAMS)
    return StreamsGroup.tentative(shard, group_id)


def check_size(group: StreamsGroup) -> None:
    """Refuses joins while the group is full. Also refuses repeated joins of existing members, as Kafka 4.3 does.

    Raises:
        KafkaError: GROUP_MAX_SIZE_REACHED.
    """
    if len(group.members) >= group.shard.config.group_streams_max_size:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"{group.group_id} has {len(group.members)} members, the maximum of group.streams.max.size",
        )


def report_of(request: Request) -> Report | None:
    """Returns the tasks that a member reports; None if one of the three lists is missing."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Report(request.active_tasks, request.standby_tasks, request.warmup_tasks)


def identify(group: StreamsGroup, request: Request, report: Report | None) -> StreamsMember | None:
    """Returns the member of a heartbeat; None for a new member.

    A member that missed a response may send the previous epoch. It must then report its tasks, and all of them must be
    assigned to it.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
    """
    received = request.member_epoch
    member = group.members.get(request.member_id)
    if member is None:
        if received != JOIN:
            message = f"{request.member_id} is not a member of group {group.group_id}"
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return None
    current = member.current
    if received in (JOIN, current.member_epoch):
        return member
    missed = received < current.member_epoch and received == current.previous_epoch
    if missed and report is not None and is_part_of(report, current.assigned):
        return member
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id} is in epoch {current.member_epoch}, not {received}: the member must drop its "
        "tasks and rejoin",
    )


def _metadata(context: RequestContext, request: Request, before: MemberMetadata) -> MemberMetadata:
    """Returns the member's metadata after the request. Fields that the request does not set keep their value."""
    endpoint, tags = request.user_endpoint, request.client_tags
    timeout_ms = request.rebalance_timeout_ms
    return MemberMetadata(
        before.instance_id,
        before.rack_id if request.rack_id is None else request.rack_id,
        shared_text(context.client_id),
        shared_text(context.client_host),
        before.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        before.topology_epoch if request.topology is None else request.topology.epoch,
        before.process_id if request.process_id is None else shared_text(request.process_id),
        before.endpoint if endpoint is None else (endpoint.host, endpoint.port),
        before.client_tags if tags is None else _ordered(tags),
    )


def _ordered(tags: Sequence[KeyValue]) -> tuple[tuple[str, str], ...]:
    """Returns client tags ordered by key.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR without a message, as in Kafka, for a key that occurs twice.
    """
    by_key = {tag.key: tag.value for tag in tags}
    if len(by_key) < len(tags):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return tuple(sorted(by_key.items()))


# ---- the response


def _decision(change: MemberChange, request: Request) -> Decision:
    group, after, settings, records = change.group, change.after, change.settings, change.records
    fault = change.configured.fault
    if fault is not None:
        change.statuses.append(fault)
    if group.shutdown_member is not None:
        text = f"member {group.shutdown_member} requested the shutdown of the application"
        change.statuses.append(TopicFault(Status.SHUTDOWN_APPLICATION, text))
    has_tasks = request.member_epoch == JOIN or not has_same_tasks(after.assigned, change.current.assigned)
    member = change.member
    if member is not None and not (records or change.statuses or has_tasks) and _knows_endpoints(group, request):
        if after.member_epoch == group.group_epoch == group.assignment_epoch:
            group.note_rest(member, settings)
        return Decision(records, member.reply_at_rest(settings.heartbeat_interval_ms), {})
    response = Response(
        member_id=change.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        status=[
            ResponseStatus(status_code=status.value, status_detail=shortened(detail))
            for status, detail in change.statuses
        ],
    )
    if has_tasks:
        response.active_tasks = to_heartbeat(after.assigned.active)
        response.standby_tasks = to_heartbeat(after.assigned.standby)
        response.warmup_tasks = to_heartbeat(after.assigned.warmup)
        if change.metadata.endpoint is not None:
            group.endpoint_epoch += 1
    if not _knows_endpoints(group, request):
        response.partitions_by_user_endpoint = endpoints(
            group, change.configured, change.member_id, change.metadata, after.assigned
        )
    if group.live:  # a tentative group is discarded with its endpoint epoch
        response.endpoint_information_epoch = group.endpoint_epoch
    return Decision(records, response, change.configured.missing)


def _knows_endpoints(group: StreamsGroup, request: Request) -> bool:
    """Returns True if the member has already received the current endpoints of the group."""
    return group.endpoint_epoch == request.endpoint_information_epoch
