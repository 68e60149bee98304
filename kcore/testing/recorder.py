"""Records the history of every group of a test engine.

The recorder compares each group before and after each request and each timer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kcore.engine import Engine
from kcore.group.classic.delayed import DelayedSync, InitialDelayedJoin
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.member import Member, PendingMember
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.member import ConsumerMember
from kcore.group.consumer.timers import MemberTimer
from kcore.process_logging import log_failure, log_name
from kcore.protocol.api_keys import ApiKey, api_name
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatResponse
from kcore.protocol.topic_partition import TopicPartition
from kcore.runtime import Pending
from kcore.server.errors import error_counter, error_name
from kcore.testing.arguments import check_text
from kcore.testing.group_state import GroupSnapshot, find_group, snapshot
from kcore.testing.history import Event, History
from kcore.testing.requests import groups_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.clock import Clock
    from kcore.config.node import Config
    from kcore.group.group import Group
    from kcore.log import LogEngine
    from kcore.runtime import RequestContext
    from kcore.testing.history import Kind


logger = logging.getLogger(__name__)

OBSERVED: Final = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
        ApiKey.DELETE_GROUPS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
    }
)
"""The APIs whose requests can change a group, or whose responses can show a member that it was fenced."""

COMMITS: Final = (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT)

FENCING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors of a fenced client: it has lost its membership, or another producer has its transactional id."""

MAX_EVENTS: Final = 10_000
"""Maximum number of events of a group that the recorder keeps. If it has more, it drops the older half."""


class Recorder:
    """The recorder of the events of all groups.

    Args:
        clock: the broker's clock, from which the times are taken.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ms = clock.monotonic_ms()
        self._events: dict[str, list[Event]] = {}
        self._dropped: dict[str, int] = {}
        self._last: dict[str, GroupSnapshot] = {}
        self._marks: dict[str, Any] = {}  # by member id: group and member state at the last heartbeat
        self._removals: dict[tuple[str, str], str] = {}  # (group, member) -> the cause of its removal
        self._error_counters: dict[type, Any] = {}

    # ---- reading

    @property
    def groups(self) -> list[str]:
        """The groups that have a history."""
        return sorted(self._events)

    def history(self, group_id: str) -> History:
        """Returns the history of a group."""
        check_text("group_id", group_id)
        return History(group_id, self._events.get(group_id, ()), self._dropped.get(group_id, 0))

    # ---- recording

    def add(self, group_id: str, kind: Kind, **values: Any) -> None:
        """Adds an event at the present time."""
        events = self._events.setdefault(group_id, [])
        if len(events) >= MAX_EVENTS:
            del events[: MAX_EVENTS // 2]
            self._dropped[group_id] = self._dropped.get(group_id, 0) + MAX_EVENTS // 2
        events.append(Event((self._clock.monotonic_ms() - self._start_ms) / 1000, kind, **values))

    def look(self, engine: Engine, group_id: str, cause: str) -> None:
        """Compares a group's present state with its last recorded state, and adds an event for each difference."""
        before = self._last.get(group_id, GroupSnapshot(group_id))
        after = snapshot(engine, group_id)
        if after.kind == "classic" and after.state != "Stable":
            after = _still_owning(before, after)
        if before == after:
            return
        self._last[group_id] = after
        for member_id in before.members.keys() - after.members.keys():
            self._removals[group_id, member_id] = cause
        self._compare(group_id, before, after, cause)

    def _compare(self, group_id: str, before: GroupSnapshot, after: GroupSnapshot, cause: str) -> None:
        for member_id, member in before.members.items():
            lost = member.partitions - (after.members[member_id].partitions if member_id in after.members else set())
            if lost:
                self._of_member(group_id, "revoked", member, after, cause, partitions=tuple(sorted(lost)))
            if member_id not in after.members:
                self._of_member(group_id, "left", member, after, cause)
        for member_id, member in after.members.items():
            if member_id not in before.members:
                self._of_member(group_id, "joined", member, after, cause)
        if before.epoch != after.epoch and after.kind:
            self.add(group_id, "generation", epoch=after.epoch, detail=f"members: {len(after.members)}", cause=cause)
        if before.state != after.state:
            self.add(group_id, "state", epoch=after.epoch, detail=f"{before.state} -> {after.state}", cause=cause)
        for member_id, member in after.members.items():
            known = before.members.get(member_id)
            gained = member.partitions - (known.partitions if known is not None else frozenset())
            if gained:
                self._of_member(group_id, "assigned", member, after, cause, partitions=tuple(sorted(gained)))

    def _of_member(
        self, group_id: str, kind: Kind, member: Any, after: GroupSnapshot, cause: str, **values: Any
    ) -> None:
        self.add(
            group_id,
            kind,
            member_id=member.member_id,
            client_id=member.client_id,
            epoch=after.epoch,
            cause=cause,
            **values,
        )

    # ---- requests

    def decided(self, engine: Engine, context: RequestContext, request: Any, response: Any) -> Any:
        """Records the effects of a request that the API has processed.

        Returns the response, or a `Pending` that records the effects when it is completed.
        """
        if request.API_KEY == ApiKey.CONSUMER_GROUP_HEARTBEAT and self._unchanged(engine, request, response):
            return response
        cause = _cause(context, request)
        for group_id in groups_of(request):
            self.look(engine, group_id, cause)
        if not isinstance(response, Pending):
            self._responded(context, request, response)
            return response
        if response.done:
            self._responded(context, request, response.response)
            return response
        later = Pending(response.api, response.context, response.request, parked=response.parked)

        def arrived(value: Any) -> None:
            self._responded(context, request, value)
            later.complete(value)

        response.on_complete(arrived)
        return later

    def _unchanged(self, engine: Engine, request: Any, response: Any) -> bool:
        """Returns True if a heartbeat of a consumer group (KIP-848) cannot have changed the group."""
        if isinstance(response, Pending) or response.error_code:
            return False
        group = find_group(engine, request.group_id)
        if not isinstance(group, ConsumerGroup):
            return False
        member = group.members.get(request.member_id)
        mark = (group.group_epoch, group.assignment_epoch, len(group.members), member and member.current)
        if self._marks.get(request.member_id) == mark:
            return True
        self._marks[request.member_id] = mark
        return False

    def _responded(self, context: RequestContext, request: Any, response: Any) -> None:
        codes = self._codes(response)
        member_id = getattr(request, "member_id", "") or ""
        cause = _cause(context, request)
        for group_id in groups_of(request):
            for code in codes:
                removal = self._removals.get((group_id, member_id))
                fenced = code in FENCING
                why = f"{cause}; removed by: {removal}" if fenced and removal else cause
                self.add(
                    group_id,
                    "fenced" if fenced else "refused",
                    member_id=member_id,
                    client_id=context.client_id,
                    epoch=_sent_epoch(request),
                    detail=error_name(code),
                    cause=why,
                )
            offsets = _committed(request, response) if request.API_KEY in COMMITS else {}
            if offsets:
                self.add(
                    group_id,
                    "committed",
                    member_id=member_id,
                    client_id=context.client_id,
                    epoch=_sent_epoch(request),
                    offsets=offsets,
                    cause=cause,
                )

    def _codes(self, response: Any) -> dict[int, int]:
        kind = type(response)
        if kind not in self._error_counters:
            self._error_counters[kind] = error_counter(kind)
        counts: dict[int, int] = {}
        count_errors = self._error_counters[kind]
        if count_errors is not None:
            count_errors(response, counts)
        counts.pop(int(ErrorCode.MEMBER_ID_REQUIRED), None)  # a part of every join, not an error
        return counts


class ObservedEngine(Engine):
    """An engine whose groups have a history.

    Args:
        log: the log that stores the engine's records.
        config: the node's settings.
        clock: the source of time.
        recorder: records the history of each group.
    """

    def __init__(self, log: LogEngine, config: Config, clock: Clock, recorder: Recorder) -> None:
        self.recorder = recorder
        super().__init__(log, config, clock)

    def submit(self, context: RequestContext, request: Any) -> Any:
        """Runs a request of this process as `Engine.submit` does, and records its effects."""
        response = Engine.submit(self, context, request)
        if type(response) is HeartbeatResponse and not response.error_code:
            return response  # the most frequent response by far: it changed nothing
        return self.recorder.decided(self, context, request, response) if request.API_KEY in OBSERVED else response

    def fire_timers(self, is_enough: Callable[[], bool] | None = None) -> None:
        """Fires the due timers, and records the effect of each on its group."""
        for timer in self.wheel.advance(self.now.update()):
            payload = timer.payload
            group, cause = _timer_cause(payload)
            try:
                payload()
            except Exception as error:
                log_failure(
                    logger, error, "engine: the timer of %s raised an error; please report the error", log_name(payload)
                )
            if group is not None:
                self.recorder.look(self, group.group_id, cause)
            if is_enough is not None and is_enough():
                break


def observing(engine: ObservedEngine, handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a function that calls `handle` with a request of the server and records the effects of the request."""
    recorder = engine.recorder

    def observed(context: Any, request: Any) -> Any:
        response = handle(context, request)
        if type(response) is HeartbeatResponse and not response.error_code:
            return response
        return recorder.decided(engine, context, request, response)

    return observed


def _still_owning(before: GroupSnapshot, after: GroupSnapshot) -> GroupSnapshot:
    """Returns `after` with the partitions that its members owned in `before`.

    During a rebalance, the members of a classic group own their partitions until they join again.
    """
    members = {
        member_id: replace(member, partitions=before.members[member_id].partitions)
        if member_id in before.members
        else member
        for member_id, member in after.members.items()
    }
    return replace(after, members=members)


def _cause(context: RequestContext, request: Any) -> str:
    name = api_name(request.API_KEY)
    reason = getattr(request, "reason", None)
    leaving = request.API_KEY == ApiKey.CONSUMER_GROUP_HEARTBEAT and request.member_epoch < 0
    what = "leave" if leaving else reason
    return f"{name} of {context.client_id}" + (f" ({what})" if what else "")


def _sent_epoch(request: Any) -> int:
    for name in ("generation_id", "member_epoch", "generation_id_or_member_epoch"):
        value: int | None = getattr(request, name, None)
        if value is not None:
            return value
    return -1


def _committed(request: Any, response: Any) -> Mapping[TopicPartition, int]:
    """Returns the offsets that a commit has stored. The response lists the partitions in the order of the request."""
    found = {}
    for requested, stored in zip(request.topics, response.topics, strict=False):
        for row, result in zip(requested.partitions, stored.partitions, strict=False):
            if not result.error_code:
                found[TopicPartition(requested.name or stored.name, row.partition_index)] = row.committed_offset
    return found


def _timer_cause(payload: Any) -> tuple[Group | None, str]:
    """Returns the group of a fired timer, and a text that names the cause."""
    if isinstance(payload, Member):
        return payload.group, f"session of {payload.member_id} expired after {payload.session_timeout_ms} ms"
    if isinstance(payload, ConsumerMember):
        return payload.group, f"session of {payload.member_id} expired"
    if isinstance(payload, MemberTimer):
        return payload.member.group, f"{payload.member.member_id}: {payload.awaited.value}"
    if isinstance(payload, PendingMember):
        return payload.group, f"member id {payload.member_id} was never used"
    group = getattr(payload, "group", None)
    if not isinstance(group, ClassicGroup):
        return None, ""
    if isinstance(payload, DelayedSync):
        return group, "members did not sync within the rebalance timeout"
    if isinstance(payload, InitialDelayedJoin):
        return group, "the initial rebalance delay ended"
    return group, "the rebalance timeout ended"
