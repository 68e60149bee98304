"""A member of a classic group: follows its rebalances, sends heartbeats, commits, and leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from kcore.client.consumer_coordinator.base import NO_COORDINATOR, LeaveStage
from kcore.client.consumer_coordinator.classic_rebalance import ClassicRebalance
from kcore.client.consumer_coordinator.classic_requests import heartbeat_request
from kcore.client.consumer_coordinator.interface import (
    DYNAMIC_LEAVE,
    REMAIN,
    Generation,
)
from kcore.client.consumer_coordinator.ownership import NOT_IN_GROUP
from kcore.client.consumer_coordinator.states import ClassicState
from kcore.errors import CommitFailedError, KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatResponse
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

UNJOINED, PREPARING, JOINING = ClassicState.UNJOINED, ClassicState.PREPARING, ClassicState.JOINING
SYNCING, COMPLETING, STABLE = ClassicState.SYNCING, ClassicState.COMPLETING, ClassicState.STABLE
LEAVING, CLOSED = ClassicState.LEAVING, ClassicState.CLOSED

BEATING: Final = frozenset({PREPARING, SYNCING, COMPLETING, STABLE})
"""States in which a member with a generation sends heartbeats."""
OWNING: Final = frozenset({PREPARING, COMPLETING, STABLE})
"""States in which a member leaves if the user's code does not poll in time."""


class ClassicMember(ClassicRebalance):
    """The state machine of a member of a classic group. See `GroupMemberMachine` for its use."""

    # ---- time

    def _polled(self, now_ms: int) -> None:
        self._polled_once = True

    def _deadlines(self) -> Iterable[int]:
        if self.state in BEATING and self.generation.id >= 0 and not self._closing:
            if self._broker is not None:
                yield self._heartbeat_at_ms
                if self.state in OWNING:
                    yield self._poll_deadline_ms
            yield self._session_deadline_ms
        if self.state in (UNJOINED, STABLE, JOINING) and self._broker is not None and not self._metadata_in_flight:
            if self._may_join and self._needs_topics():
                yield self._metadata_at_ms
            elif (self._may_join or self.state is JOINING) and not self._in_flight:
                yield self._join_at_ms
        if self.state is STABLE and (self.is_leader or self._pattern is not None) and not self._metadata_in_flight:
            yield self._metadata_at_ms
        if self.state is SYNCING and not self._in_flight and not self._metadata_in_flight:
            yield max(self._metadata_at_ms if self.is_leader else self._join_at_ms, 0)

    @property
    def _may_join(self) -> bool:
        idle = self.state is not STABLE and not self.assignment
        return self._rejoin and self._polled_once and (self.may_rebalance or idle)

    def _needs_topics(self) -> bool:
        return self._pattern is not None and not self._in_flight and self.state is UNJOINED and not self._topics()

    def _advance(self, now_ms: int) -> None:
        if self.state is LEAVING:
            self._leave_step(now_ms)
            return
        self._keep_session(now_ms)
        self._watch_topics(now_ms)
        if self.state is STABLE and self._rejoin and self._polled_once and self.may_rebalance:
            self._prepare(now_ms)
        elif self.state is UNJOINED and self._may_join and self._broker is not None:
            if self._needs_topics() and not self._metadata_in_flight and now_ms >= self._metadata_at_ms:
                self._request_metadata(None, (), lambda _: None)
            if not self._metadata_in_flight:
                self._prepare(now_ms)
        elif self.state is JOINING:
            self._send_join(now_ms)
        elif self.state is SYNCING and not self._in_flight and not self._metadata_in_flight:
            self._continue_sync(now_ms)

    def _keep_session(self, now_ms: int) -> None:
        """Sends heartbeats, and detects the end of the session and of the poll interval."""
        if self.generation.id < 0 or self.state not in BEATING:
            return
        if now_ms >= self._session_deadline_ms:
            self._lose_coordinator(now_ms)
            self._session_deadline_ms = now_ms + self.settings.session_timeout_ms
        if self._broker is None:
            return
        if now_ms >= self._poll_deadline_ms and self.state in OWNING:
            self._leave_late(now_ms)
        elif now_ms >= self._heartbeat_at_ms:
            self._heartbeat_at_ms = now_ms + self.settings.heartbeat_interval_ms
            request = heartbeat_request(self.settings, self.generation)
            self._send(request, partial(self._heartbeat_received, self.generation), self._heartbeat_unsent)

    def _leave_late(self, now_ms: int) -> None:
        """Leaves the group, because the user's code did not poll in time. The next poll joins again."""
        if self.settings.instance_id is None:
            self._send_leave("consumer poll timeout has expired")
        self._reset(keep_id=False)
        self._polled_once = False
        if self.state is STABLE:
            self._enter(UNJOINED)

    def _watch_topics(self, now_ms: int) -> None:
        """Looks up the subscribed topics again. If they changed, the member joins again."""
        if self.state is not STABLE or self._metadata_in_flight or now_ms < self._metadata_at_ms:
            return
        if self._pattern is not None:
            self._request_metadata(None, (), self._topics_seen)
        elif self.is_leader:
            self._request_metadata(self._leader_topics, (), self._topics_seen)

    def _topics_seen(self, now_ms: int) -> None:
        if self._pattern is not None and self._topics() != self._joined_topics:
            self.rejoin("the topics that match the subscription changed")
        elif self.is_leader and self._current_snapshot() != self._snapshot:
            self.rejoin("the metadata of the subscribed topics changed")

    # ---- heartbeats

    def _heartbeat_received(self, sent: Generation, response: HeartbeatResponse, now_ms: int) -> bool:
        code = response.error_code
        if not code or code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._heartbeats_failed = 0
            self._session_deadline_ms = now_ms + self.settings.session_timeout_ms
            if code and self.state is STABLE and self.generation == sent:
                self.rejoin("group is already rebalancing")
            return not code
        if code in NO_COORDINATOR:
            self._lose_coordinator(now_ms)
        if self.generation == sent:
            self._membership_lost(code, now_ms)
        self._heartbeat_failed(now_ms)
        return False

    def _membership_lost(self, code: int, now_ms: int) -> bool:
        """Resets the generation after a fencing error; returns False for any other error."""
        if code == ErrorCode.FENCED_INSTANCE_ID and self.state is not LEAVING:
            self._end_fenced(now_ms)
            return True
        if code not in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            return False
        self._reset(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
        if self.state is STABLE:
            self._enter(UNJOINED)
            self._join_at_ms = now_ms
        return True

    def _heartbeat_unsent(self, error: Exception, now_ms: int) -> None:
        self._lose_coordinator(now_ms)
        self._heartbeat_failed(now_ms)

    def _heartbeat_failed(self, now_ms: int) -> None:
        self._heartbeat_at_ms = min(self._heartbeat_at_ms, now_ms + self._backoff_ms(self._heartbeats_failed))
        self._heartbeats_failed += 1

    def _coordinator_found(self, now_ms: int) -> None:
        if self.generation.id >= 0:
            self._session_deadline_ms = now_ms + self.settings.session_timeout_ms
            if self._heartbeats_failed <= 1:  # otherwise lookup and heartbeat would repeat without a pause
                self._heartbeat_at_ms = now_ms

    # ---- commits

    def _commit_identity(self) -> tuple[str, int, str | None]:
        if self.generation.id < 0:
            raise CommitFailedError(NOT_IN_GROUP)
        if self.state in (JOINING, SYNCING):
            raise KafkaError.of(ErrorCode.REBALANCE_IN_PROGRESS, "the commit must wait until the rebalance is over")
        return self.generation.member_id, self.generation.id, self.settings.instance_id

    def _commit_refused(self, code: int, identity: tuple[str, int, str | None], now_ms: int) -> Exception | None:
        error = KafkaError.of(code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin("a commit was refused because the group is rebalancing")
            return error
        if identity[1] == self.generation.id and self._membership_lost(code, now_ms):
            if code == ErrorCode.FENCED_INSTANCE_ID:
                return error
        elif self.state in (JOINING, SYNCING):
            return KafkaError.of(ErrorCode.REBALANCE_IN_PROGRESS)
        failed = CommitFailedError("the member was removed from the group before the commit")
        failed.__cause__ = error
        return failed

    # ---- leaving

    def _begin_close(self, now_ms: int) -> None:
        joined_before = self.state in BEATING
        self._enter(LEAVING)
        self._leave_stage = LeaveStage.COMMIT if joined_before and self.generation.id >= 0 else LeaveStage.REVOKE
        self._interrupt_event()
        self._leave_step(now_ms)

    def _leave(self, now_ms: int) -> None:
        self._leave_stage = LeaveStage.LEFT
        static = self.settings.instance_id is not None
        leaves = self.settings.leave == DYNAMIC_LEAVE or (self.settings.leave != REMAIN and not static)
        if leaves and self.generation.member_id and self._broker is not None:
            self._send_leave("the consumer is being closed", self._left)
        else:
            self._left(None, now_ms)

    def _send_leave(self, reason: str, then: Callable[[Any, int], None] = lambda response, now_ms: None) -> None:
        identity = MemberIdentity(member_id=self.generation.member_id, reason=reason)
        request = LeaveGroupRequest(group_id=self.settings.group_id, members=[identity])
        self._send(request, then, lambda error, now_ms: then(None, now_ms), apart=bool(self._in_flight))

    def _end(self) -> None:
        self._enter(CLOSED)
        self.abandon()

    def _left(self, response: Any, now_ms: int) -> None:
        if self.state is LEAVING:
            self.generation = Generation()
            self._end()
