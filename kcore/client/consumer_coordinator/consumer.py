"""A member of a consumer group (KIP-848): the broker assigns, and heartbeats carry subscriptions and assignments."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from kcore.client.consumer_coordinator.base import (
    NO_COORDINATOR,
    GroupMemberMachine,
    LeaveStage,
    sorted_partitions,
)
from kcore.client.consumer_coordinator.commit_requests import OffsetsByPartition
from kcore.client.consumer_coordinator.interface import (
    DYNAMIC_LEAVE,
    REMAIN,
    Assigned,
    MemberSettings,
    Revoked,
)
from kcore.client.consumer_coordinator.ownership import NOT_IN_GROUP
from kcore.client.consumer_coordinator.states import CONSUMER, IN_GROUP, ConsumerState
from kcore.errors import CommitFailedError, KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kcore.protocol.topic_partition import TopicPartition

UNSUBSCRIBED, JOINING, RECONCILING = ConsumerState.UNSUBSCRIBED, ConsumerState.JOINING, ConsumerState.RECONCILING
ACKNOWLEDGING, STABLE, FENCED = ConsumerState.ACKNOWLEDGING, ConsumerState.STABLE, ConsumerState.FENCED
STALE, PREPARE_LEAVING, LEAVING = ConsumerState.STALE, ConsumerState.PREPARE_LEAVING, ConsumerState.LEAVING
FATAL, CLOSED = ConsumerState.FATAL, ConsumerState.CLOSED

LEAVE_EPOCH, STATIC_LEAVE_EPOCH = -1, -2

DEFAULT_INTERVAL_MS = 5_000
"""The heartbeat interval in ms until a response contains one."""
EMPTY_PAUSE_MS = 100
"""The first pause in ms between the heartbeats of a member that has joined, but has no partitions."""

FENCING = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


def new_member_id() -> str:
    """Returns a random uuid as Kafka writes it: base64 of its sixteen bytes."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class ConsumerMember(GroupMemberMachine):
    """The state machine of a member of a consumer group. See `GroupMemberMachine` for its use.

    While a member that has joined owns no partitions, it repeats its heartbeat with a growing pause from 0.1 seconds up
    to the heartbeat interval. A coordinator may postpone the next assignment by its assignment interval (KIP-1263). It
    then computes the assignment when it receives the first heartbeat after this interval.

    Attributes:
        state: the present state of the member.
    """

    def __init__(
        self,
        settings: MemberSettings,
        now_ms: int,
        *,
        consumed: Callable[[], OffsetsByPartition] = dict,
        member_id: str | None = None,
    ) -> None:
        super().__init__(settings, now_ms, consumed=consumed)
        self.state = UNSUBSCRIBED
        self._member_id = member_id or new_member_id()
        self._epoch = 0
        self._interval_ms = 0
        self._heartbeat_at_ms = now_ms
        self._attempts = 0
        self._heartbeats = 0  # sent so far
        self._in_flight: set[int] = set()  # the numbers of the heartbeats without a response
        self._memberships = 0  # joins so far
        self._empty_beats = 0  # heartbeats of this membership with an empty assignment
        self._sent: dict[str, Any] = {}  # the fields of the last heartbeats
        self._acknowledged = 0  # counts reconciled assignments, so that each is reported
        self._target: dict[bytes, tuple[int, ...]] = {}  # the assignment of the coordinator
        self._owned_ids: dict[bytes, tuple[int, ...]] = {}  # `assignment` by topic id
        self._reconciling = False
        self._reconciliations = 0  # begun so far
        self._reconcile_at_ms = now_ms
        self._reconcile_attempts = 0  # revocations that the user's code failed to handle, one after another
        self._unconfirmed = False  # the partitions that were reported last may be fewer than the response allows for
        self._polled_once = False
        self._join_sent = False  # the coordinator may know the member, though no response has brought an epoch
        self._join_lost = False  # a join may have reached the coordinator though no response arrived
        self._late = False  # leaving because the user's code did not poll

    @property
    def epoch(self) -> int:
        """The member epoch; -1 outside of the group."""
        return self._epoch if self._epoch > 0 else -1

    @property
    def member_id(self) -> str:
        """The member's id, which never changes."""
        return self._member_id

    @property
    def reader(self) -> tuple[str | None, int]:
        """Member id and epoch for OffsetFetch requests; None and -1 outside of the group.

        The coordinator returns committed offsets only to members with the current epoch.
        """
        return (self._member_id, self._epoch) if self._epoch > 0 else (None, -1)

    def _enter(self, state: ConsumerState) -> None:
        assert state in CONSUMER[self.state], f"{self.state} cannot become {state}"
        self.state = state

    # ---- time

    def _polled(self, now_ms: int) -> None:
        self._polled_once = True

    def _deadlines(self) -> Iterable[int]:
        if self._broker is not None:
            if self.state in IN_GROUP or self.state is PREPARE_LEAVING:
                if not self._in_flight:
                    yield self._heartbeat_at_ms
                if self.state is not PREPARE_LEAVING:
                    yield self._poll_deadline_ms
            elif self.state is LEAVING and self._late:
                yield 0
        if self.state in (UNSUBSCRIBED, STALE) and self._polled_once and self.event is None and not self._closing:
            yield 0
        idle = not (self._reconciling or self._unconfirmed or self.event is not None or self._metadata_in_flight)
        if self.state is RECONCILING and idle and self.may_rebalance:
            yield max(self._reconcile_at_ms, self._metadata_at_ms if self._unresolved() else 0)

    def _advance(self, now_ms: int) -> None:
        if self._closing:
            self._leave_step(now_ms)
        if self.state in (UNSUBSCRIBED, STALE) and self._polled_once and self.event is None and not self._closing:
            self._join(now_ms)
        if (
            self.state in IN_GROUP
            and not self._closing
            and self._broker is not None
            and now_ms >= self._poll_deadline_ms
        ):
            self._leave_late(now_ms)
        if self.state is RECONCILING:
            self._reconcile(now_ms)
        self._heartbeat(now_ms)

    def _join(self, now_ms: int) -> None:
        self._enter(JOINING)
        self._epoch = 0
        self._sent = {}
        self._target = {}
        self._owned_ids = {}
        self._reconciling = self._unconfirmed = False
        self._reconcile_attempts = self._empty_beats = 0
        self._memberships += 1
        self._join_sent = False
        self._heartbeat_at_ms = max(now_ms, self._heartbeat_at_ms if self._attempts else now_ms)

    # ---- heartbeats

    def _heartbeat(self, now_ms: int) -> None:
        beating = self.state in IN_GROUP or self.state in (PREPARE_LEAVING, LEAVING)
        if not beating or self._broker is None:
            return
        if self.state is LEAVING:
            if not self._late:
                return  # `_leave_step` has sent the last heartbeat
            self._send_heartbeat(STATIC_LEAVE_EPOCH if self._leaves_temporarily() else LEAVE_EPOCH, now_ms)
            self._late = False
            self._enter(STALE)
            self._lose_all(now_ms)
            return
        due = now_ms >= self._heartbeat_at_ms or (self.state is ACKNOWLEDGING and not self._attempts)
        if due and not self._in_flight:
            self._send_heartbeat(self._epoch, now_ms)
            if self.state is ACKNOWLEDGING:
                self._enter(STABLE if self._target == self._owned_ids else RECONCILING)

    def _send_heartbeat(self, epoch: int, now_ms: int) -> None:
        self._heartbeat_at_ms = now_ms + max(self._interval_ms, 1)
        self._heartbeats = number = self._heartbeats + 1
        self._in_flight.add(number)
        self._join_sent = self._join_sent or epoch == 0
        membership = self._memberships
        request = self._leave_request(epoch) if epoch < 0 else self._heartbeat_request(epoch)

        def handle(response: ConsumerGroupHeartbeatResponse, at_ms: int) -> None:
            self._in_flight.discard(number)
            if epoch < 0 or membership == self._memberships:  # else it belongs to a membership that has ended
                self._heartbeat_received(response, epoch, at_ms)

        def refuse(error: Exception, at_ms: int) -> None:
            self._in_flight.discard(number)
            self._sent = {}
            self._join_lost = self._join_lost or epoch == 0
            if epoch < 0:
                self._left(at_ms)
                return
            if isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION:
                self._fail(KafkaError.of(error.code, "the cluster does not serve consumer groups (KIP-848)"), at_ms)
                return
            self._lose_coordinator(at_ms)
            self._pause(at_ms)

        self._send(request, handle, refuse)

    def _leave_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self.settings.instance_id,
        )

    def _heartbeat_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """Builds a heartbeat. After the first heartbeat, a heartbeat has only the fields that changed."""
        joining = self.state is JOINING
        settings = self.settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=settings.instance_id,
        )
        owned = () if joining else self._owned_rows()
        fields: dict[str, Any] = {
            "rebalance_timeout_ms": settings.rebalance_timeout_ms,
            "subscribed_topic_names": () if settings.pattern is not None else tuple(sorted(settings.topics)),
            "subscribed_topic_regex": settings.pattern,
            "server_assignor": settings.server_assignor,
            "topic_partitions": (owned, self._acknowledged),
        }
        for name, value in fields.items():
            if not joining and self._sent.get(name) == value:
                continue
            self._sent[name] = value
            if name == "topic_partitions":
                self._unconfirmed = True
                request.topic_partitions = [
                    TopicPartitions(topic_id=topic_id, partitions=list(numbers)) for topic_id, numbers in owned
                ]
            elif value is not None:
                setattr(request, name, value)
        if joining:
            request.rack_id = settings.rack
        return request

    def _owned_rows(self) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
        return tuple(sorted(self._owned_ids.items()))

    def _heartbeat_received(self, response: ConsumerGroupHeartbeatResponse, sent_epoch: int, now_ms: int) -> None:
        if sent_epoch < 0:
            self._left(now_ms)
            return
        code = response.error_code
        if code:
            self._sent = {}
            self._join_sent = False
            self._refused(code, response.error_message, now_ms)
            return
        self._attempts = 0
        self._unconfirmed = False
        if response.heartbeat_interval_ms > 0:
            self._interval_ms = response.heartbeat_interval_ms
        self._heartbeat_at_ms = now_ms + (self._interval_ms or DEFAULT_INTERVAL_MS)
        if self.state not in IN_GROUP or response.member_epoch < 0:
            return
        self._epoch = response.member_epoch
        self._join_lost = False
        if response.assignment is not None:
            previous, self._target = (
                self._target,
                {
                    row.topic_id: tuple(sorted(row.partitions))
                    for row in response.assignment.topic_partitions
                    if row.partitions
                },
            )
            if any(topic_id not in previous for topic_id in self._unresolved()):
                # Look the new topics up now, also soon after a lookup of other topics.
                self._metadata_at_ms, self._metadata_attempts = now_ms, 0
            if self._target != self._owned_ids:
                if self.state is not RECONCILING:
                    self._enter(RECONCILING)
            elif self.state is RECONCILING and not self._reconciling:
                self._enter(STABLE)
            elif self.state is JOINING:
                self._adopt_empty(now_ms)
        elif self.state is JOINING:
            self._adopt_empty(now_ms)
        if self.state is STABLE and not self._target:
            pause_ms = EMPTY_PAUSE_MS << min(self._empty_beats, 10)
            self._empty_beats += 1
            self._heartbeat_at_ms = min(self._heartbeat_at_ms, now_ms + pause_ms)

    def _adopt_empty(self, now_ms: int) -> None:
        """Enters the state STABLE without partitions, and notifies the user's code that the member has joined."""
        self._enter(STABLE)
        self.assignment = frozenset()
        if self.event is None:
            self._emit(Assigned((), self._epoch), lambda error, at_ms: None)

    def _refused(self, code: int, message: str | None, now_ms: int) -> None:
        if code in FENCING:
            if self.state is JOINING:
                self._pause(now_ms)  # otherwise refused joins would be repeated without a pause
            self._fence(now_ms)
        elif code in NO_COORDINATOR:
            self._lose_coordinator(now_ms)
            if self._attempts:
                self._pause(now_ms)  # otherwise lookup and heartbeat would repeat without a pause
            else:
                self._attempts = 1
                self._heartbeat_at_ms = now_ms
        elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._pause(now_ms)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.error = KafkaError.of(code, message)
            self._pause(now_ms)
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID and self._join_lost:
            self._pause(now_ms)  # the instance id belongs to the member of a join whose response was lost
        else:
            self._fail(KafkaError.of(code, message), now_ms)

    def _pause(self, now_ms: int) -> None:
        self._heartbeat_at_ms = now_ms + self._backoff_ms(self._attempts)
        self._attempts += 1

    # ---- the end of a membership

    def _fence(self, now_ms: int) -> None:
        if self.state in (PREPARE_LEAVING, LEAVING):
            self._epoch = 0
            self._left(now_ms)
        elif self.state in IN_GROUP:
            self._enter(FENCED)
            self._lose_all(now_ms)

    def _lose_all(self, now_ms: int) -> None:
        """Reports the lost partitions; a fenced member joins again afterwards."""
        last_epoch, self._epoch = self._epoch, 0
        if last_epoch > 0:
            self.ownership.end_membership()
        self._reconciling = False
        self._lose_assignment(last_epoch, now_ms, self._lost)

    def _lost(self, now_ms: int) -> None:
        self.assignment = self.revoking = frozenset()
        self._owned_ids, self._target = {}, {}
        if self.state is FENCED and not self._closing:
            self._join(now_ms)

    def _fail(self, error: KafkaError, now_ms: int) -> None:
        """Ends the membership permanently: every call of the user raises the error."""
        leaving = self.state in (PREPARE_LEAVING, LEAVING)
        if not leaving and self.state not in IN_GROUP:
            return  # the membership has ended already; if the next one is refused too, its response has the error
        self.error = error
        if leaving:
            self._left(now_ms)
            return
        self.fatal = error
        self._enter(FATAL)
        self._lose_all(now_ms)

    def _leave_late(self, now_ms: int) -> None:
        """Leaves the group, because the user's code did not poll in time. The next poll joins again."""
        self._polled_once = False
        self._late = True
        self._enter(PREPARE_LEAVING)
        self._enter(LEAVING)

    # ---- reconciliation

    def _unresolved(self) -> list[bytes]:
        return [topic_id for topic_id in self._target if topic_id not in self.metadata.ids]

    def _reconcile(self, now_ms: int) -> None:
        """Begins to change from the current assignment to the target.

        The change waits for the response to a heartbeat with the owned partitions. Meanwhile, the coordinator may give
        partitions of the target to another member, because this member does not own them yet.
        """
        if self._reconciling or self._unconfirmed or self.event is not None or self._closing or not self.may_rebalance:
            return
        if now_ms < self._reconcile_at_ms:
            return
        unresolved = self._unresolved()
        if unresolved and not self._metadata_in_flight and now_ms >= self._metadata_at_ms:
            self._request_metadata((), unresolved, self._resolved)
        resolved = {topic_id: numbers for topic_id, numbers in self._target.items() if topic_id not in unresolved}
        if resolved == self._owned_ids:
            if not unresolved:
                self._acknowledged += 1
                self._enter(ACKNOWLEDGING)
            return
        if unresolved and self._metadata_in_flight:
            return  # the names arrive soon, and one change then replaces two
        self._reconciling = True
        target = frozenset(
            TopicPartition(self.metadata.ids[topic_id], number)
            for topic_id, numbers in resolved.items()
            for number in numbers
        )
        self.revoking = self.assignment - target
        epoch = self._epoch
        self._reconciliations = number = self._reconciliations + 1

        def committed(at_ms: int) -> None:
            if number == self._reconciliations:  # else the member was fenced during the commit, and has joined again
                self._revoke(resolved, target, epoch, at_ms)

        self._commit_consumed(now_ms, self.settings.rebalance_timeout_ms, committed)

    def _resolved(self, now_ms: int) -> None:
        if self._unresolved():
            self._metadata_at_ms = now_ms + self._backoff_ms(self._metadata_attempts)
            self._metadata_attempts += 1

    def _stopped(self) -> bool:
        """Returns True if the reconciliation must stop, because the member was fenced, left, or joined again."""
        return self.state is not RECONCILING or not self._reconciling or self._closing

    def _revoke(
        self, resolved: dict[bytes, tuple[int, ...]], target: frozenset[TopicPartition], epoch: int, now_ms: int
    ) -> None:
        if self._stopped() or self.event is not None:
            self._reconciling = False
            return
        revoked = sorted_partitions(self.revoking)
        if revoked:
            self._emit(Revoked(revoked, epoch), lambda error, at_ms: self._adopt(resolved, target, error, at_ms))
        else:
            self._adopt(resolved, target, None, now_ms)

    def _adopt(
        self,
        resolved: dict[bytes, tuple[int, ...]],
        target: frozenset[TopicPartition],
        error: BaseException | None,
        now_ms: int,
    ) -> None:
        if self._stopped():
            return
        if error is not None:  # the user's code failed to give partitions up: the event is repeated after a pause
            self._reconciling = False
            self._reconcile_at_ms = now_ms + self._backoff_ms(self._reconcile_attempts)
            self._reconcile_attempts += 1
            return
        self._reconcile_attempts = 0
        if self._unconfirmed:  # see `_reconcile`; the member adopts the other partitions after the response
            resolved = _common(resolved, self._owned_ids)
            target &= self.assignment
        added = target - self.assignment
        self.assignment = target
        self._owned_ids = resolved
        self.revoking = added  # owned, but not fetched until the user's code has handled the event
        self._emit(Assigned(sorted_partitions(added), self._epoch), self._reconciled)

    def _reconciled(self, error: BaseException | None, now_ms: int) -> None:
        if self._stopped():
            return
        self._reconciling = False
        self.revoking = frozenset()
        self._auto_commit_at_ms = now_ms + (self.settings.auto_commit_ms or 0)
        self._acknowledged += 1
        self._enter(ACKNOWLEDGING)

    # ---- commits

    def _commit_identity(self) -> tuple[str, int, str | None]:
        if self._epoch <= 0:
            raise CommitFailedError(NOT_IN_GROUP)
        return self._member_id, self._epoch, self.settings.instance_id

    def _commit_refused(self, code: int, identity: tuple[str, int, str | None], now_ms: int) -> Exception | None:
        if code == ErrorCode.STALE_MEMBER_EPOCH and self._epoch > 0:
            return None  # the epoch changed while the commit was in flight
        failed = CommitFailedError("the member was removed from the group before the commit")
        failed.__cause__ = KafkaError.of(code)
        return failed

    # ---- leaving

    def _leaves_temporarily(self) -> bool:
        static = self.settings.instance_id is not None
        return static and (self._late or self.settings.leave != DYNAMIC_LEAVE)

    def _begin_close(self, now_ms: int) -> None:
        self._leave_stage = LeaveStage.COMMIT
        self._interrupt_event()
        self._reconciling = False
        if self.state in IN_GROUP:
            self._enter(PREPARE_LEAVING)
        self._leave_step(now_ms)

    @property
    def _lost_epoch(self) -> int:
        return self._epoch

    def _leave(self, now_ms: int) -> None:
        joins = self._epoch == 0 and self._join_sent
        if joins and self._in_flight and self._broker is not None:
            return  # until the response: the coordinator might get the leave first, and keep the member
        self._leave_stage = LeaveStage.LEFT
        remain = self.settings.leave == REMAIN and self.settings.instance_id is None
        known = self._epoch > 0 or joins
        if self.state is not PREPARE_LEAVING or self._broker is None or not known or remain:
            self._end()
        else:
            self._enter(LEAVING)
            self._send_heartbeat(STATIC_LEAVE_EPOCH if self._leaves_temporarily() else LEAVE_EPOCH, now_ms)

    def _left(self, now_ms: int) -> None:
        """Ends the membership of a closing member: the coordinator has removed the member, or will do so."""
        if not self._closing:
            return  # the heartbeat of a member that did not poll in time: its response is ignored
        if self.assignment and self._leave_stage is not LeaveStage.LEFT:
            self._epoch = 0  # fenced while leaving: the partitions are lost, which the next step reports
            return
        self._end()

    def _end(self) -> None:
        if self.state is not CLOSED:
            self.state = CLOSED
        self._epoch = 0
        self.abandon()


def _common(first: dict[bytes, tuple[int, ...]], second: dict[bytes, tuple[int, ...]]) -> dict[bytes, tuple[int, ...]]:
    """Returns the partitions that are in both assignments."""
    common = {
        topic_id: tuple(number for number in numbers if number in second.get(topic_id, ()))
        for topic_id, numbers in first.items()
    }
    return {topic_id: numbers for topic_id, numbers in common.items() if numbers}
