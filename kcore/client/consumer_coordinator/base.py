"""The base of both protocols' members: coordinator lookup, requests, events, commits and topic metadata."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto
from typing import Any

from kcore.client import versions
from kcore.client.consumer_coordinator.auto_commit_log import AutoCommitLog
from kcore.client.consumer_coordinator.commit_requests import (
    COMMIT_RETRIED,
    MEMBERSHIP_ERRORS,
    OffsetsByPartition,
    commit_request,
    offset_and_metadata,
    partition_error,
)
from kcore.client.consumer_coordinator.interface import (
    Assigned,
    Commit,
    Lost,
    MemberEvent,
    MemberSettings,
    OffsetAndMetadata,
    Outgoing,
    Revoked,
)
from kcore.client.consumer_coordinator.ownership import NOT_IN_GROUP, Ownership
from kcore.client.consumer_coordinator.requests import MemberRequests
from kcore.client.malformed import MALFORMED, malformed
from kcore.errors import CommitFailedError, ConnectionClosedError, EngineClosedError, KafkaError, MemberClosedError
from kcore.protocol import EncodeError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import OffsetCommitResponse
from kcore.protocol.topic_partition import TopicPartition

NO_COORDINATOR = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
HANDLER_GRACE_MS = 5_000
"""Time in ms for which `close` waits after its deadline while the user's code handles an event. The member then
leaves.
"""

LEAVE_TIMEOUT_MS = 5_000
"""Time in ms for which `close` waits for the coordinator once no commit can be lost any more.

Without a response in this time, the coordinator removes the member after its session timeout.
"""


class LeaveStage(Enum):
    """The stages in which a member leaves its group, in their order."""

    NOT_LEAVING = auto()
    COMMIT = auto()
    COMMITTING = auto()
    REVOKE = auto()
    REVOKING = auto()
    LEAVE = auto()
    LEFT = auto()


class GroupMemberMachine(MemberRequests):
    """A member's state machine without I/O. Its subclasses are `ClassicMember` and `ConsumerMember`.

    A driver calls `advance` with the time, and again at `wake_ms`. The driver sends the requests of `take_requests`,
    and passes the responses to `received` or the errors to `failed`. It passes `event` to the user's code, and then
    calls `event_done`. Times are monotonic milliseconds.

    Args:
        settings: the member's settings.
        now_ms: the present time, in monotonic ms.
        consumed: returns the consumed positions, for automatic commits.

    Attributes:
        settings: the member's settings.
        metadata: the topics that the member knows.
        ownership: the partitions that the member owns, and the partitions that it has lost.
        revoking: the owned partitions that must not be fetched now. The member is giving them up, or the user's code
            has not handled their `Assigned` event yet.
        event: the event that the user's code has to handle now, or None.
        error: the error that the next call of the user raises, or None.
        fatal: the error with which the coordinator refused the member permanently; every call of the user raises it.
        closed: True once the member has left.
        on_committed: called with the offsets of each successful commit, or None.
        may_rebalance: False while the user's code processes records. A rebalance then waits for the next poll.
    """

    def __init__(
        self, settings: MemberSettings, now_ms: int, *, consumed: Callable[[], OffsetsByPartition] = dict
    ) -> None:
        super().__init__(settings, now_ms)
        self.ownership = Ownership()
        self.revoking: frozenset[TopicPartition] = frozenset()
        self.event: MemberEvent | None = None
        self.error: BaseException | None = None
        self.fatal: KafkaError | None = None
        self.closed = False
        self.may_rebalance = True
        self.on_committed: Callable[[OffsetsByPartition], None] | None = None
        self._consumed = consumed
        self._event_done: Callable[[BaseException | None, int], None] | None = None
        self._commits: deque[Commit] = deque()
        self._committing: Commit | None = None
        self._stored_offsets: dict[TopicPartition, OffsetAndMetadata] = {}  # the offsets of successful commits
        self._auto_commit_at_ms = now_ms + (settings.auto_commit_ms or 0)
        self._auto_commit_log = AutoCommitLog(settings)
        self._poll_deadline_ms = now_ms + settings.rebalance_timeout_ms
        self._closing = False
        self._close_deadline_ms = 0
        self._leave_stage = LeaveStage.NOT_LEAVING
        self._interrupted = False

    # ---- defined by each protocol

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The member epoch, or in a classic group the generation; -1 outside of the group."""

    @property
    @abstractmethod
    def member_id(self) -> str:
        """The member's id; "" before a classic member has joined."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the member owns."""
        return self.ownership.partitions

    @assignment.setter
    def assignment(self, partitions: frozenset[TopicPartition]) -> None:
        self.ownership.partitions = partitions
        if not self._closing:  # another member may commit offsets of the other partitions
            self._stored_offsets = {key: value for key, value in self._stored_offsets.items() if key in partitions}

    @property
    def reader(self) -> tuple[str | None, int]:
        """Member id and epoch for OffsetFetch requests. A classic member sends neither: its values are None and -1."""
        return None, -1

    @abstractmethod
    def _advance(self, now_ms: int) -> None:
        """Fires the timers of the protocol, and prepares its next request."""

    @abstractmethod
    def _deadlines(self) -> Iterable[int]:
        """Returns the times at which the protocol's next timers fire, in monotonic ms."""

    @abstractmethod
    def _polled(self, now_ms: int) -> None:
        """Handles a poll of the application."""

    @abstractmethod
    def _begin_close(self, now_ms: int) -> None:
        """Begins to leave the group; closes the machine at the end."""

    @abstractmethod
    def _commit_identity(self) -> tuple[str, int, str | None]:
        """Returns member id, epoch and instance id of a commit.

        Raises:
            KcoreError: the member cannot commit now.
        """

    @abstractmethod
    def _commit_refused(self, code: int, identity: tuple[str, int, str | None], now_ms: int) -> Exception | None:
        """Returns the error for a commit that the coordinator refused with the error `code`.

        Returns None if the member repeats the commit with its current epoch."""

    @property
    @abstractmethod
    def _lost_epoch(self) -> int:
        """The epoch of a `Lost` event for the partitions of a member that is not in the group."""

    @abstractmethod
    def _leave(self, now_ms: int) -> None:
        """Leaves the group after the member has given its partitions up. Sets the stage LEFT, or waits."""

    @abstractmethod
    def _end(self) -> None:
        """Closes the machine, although the coordinator may not know yet that the member leaves."""

    # ---- inputs

    def advance(self, now_ms: int) -> None:
        """Advances the clock: fires the due timers, and prepares requests and events."""
        if self.closed:
            return
        self._look_up(now_ms)
        self._advance(now_ms)
        self._auto_commit(now_ms)
        self._send_commits(now_ms)

    def poll(self, now_ms: int) -> None:
        """Records that the user's code makes progress. A member that does not poll in time leaves the group."""
        self._poll_deadline_ms = now_ms + self.settings.rebalance_timeout_ms
        if not self.closed and not self._closing:
            self._polled(now_ms)

    def received(self, outgoing: Outgoing, response: Any, now_ms: int) -> bool:
        """Handles the response to a request.

        After a malformed response, the user's code receives an error. The machine continues as after a failed request.

        Returns:
            False if the driver need not call `advance` before the time that `wake_ms` last returned.
        """
        if self.closed:
            return False
        try:
            return not outgoing.handle(response, now_ms)
        except MALFORMED as error:
            failure = malformed(outgoing.broker, outgoing.request, error)
            failure.__cause__ = error
            if self.error is None:
                self.error = failure
            outgoing.refuse(failure, now_ms)
            return True

    def failed(self, outgoing: Outgoing, error: Exception, now_ms: int) -> None:
        """Handles the failure of a request: no connection, a timeout, no common version, a closed engine, or a value of
        the user that does not fit in a request.
        """
        if isinstance(error, EngineClosedError | EncodeError) and self.error is None:
            self.error = error  # no repetition can succeed
        if not self.closed:
            outgoing.refuse(error, now_ms)

    def event_done(self, error: BaseException | None, now_ms: int) -> None:
        """Reports that the user's code has handled `event`.

        Args:
            error: the exception that the user's code raised, or None.
            now_ms: the present time, in monotonic ms.
        """
        continuation, self._event_done = self._event_done, None
        event, self.event = self.event, None
        if self._interrupted and event is not None and not isinstance(event, Assigned):
            self.assignment -= frozenset(event.partitions)  # given up, although the rebalance has ended
        self._interrupted = False
        if error is not None and self.error is None:
            self.error = error
        if continuation is not None:
            continuation(error, now_ms)

    def commit(
        self,
        offsets: OffsetsByPartition,
        now_ms: int,
        *,
        retry: bool = True,
        timeout_ms: int = 60_000,
        on_done: Callable[[Commit], None] | None = None,
        seen_losses: int | None = None,
    ) -> Commit:
        """Commits offsets. Commits are sent in the order of the calls, one at a time.

        The commit fails with CommitFailedError, and no request is sent, if the membership has ended or one of the
        partitions was given up since `seen_losses`.

        Args:
            offsets: partition -> the offset of the next record.
            now_ms: the present time, in monotonic ms.
            retry: True to repeat the commit after retriable errors.
            timeout_ms: the time limit of the repetitions.
            on_done: called when the commit is completed.
            seen_losses: the value of `ownership.losses` that the user's code has seen; None: the current one.
        """
        commit = Commit(
            dict(offsets), retry, now_ms + timeout_ms, self.ownership.losses if seen_losses is None else seen_losses
        )
        commit.on_done = on_done
        error = self.ownership.commit_error(offsets, commit.seen_losses)
        if self.closed:
            commit.complete(MemberClosedError("the member has left its group"))
        elif error is not None or not offsets:
            commit.complete(error)
        else:
            self._commits.append(commit)
        return commit

    def identity(self, partitions: Collection[TopicPartition], seen_losses: int) -> tuple[str, int, str | None]:
        """Returns member id, epoch and instance id for offsets that a transaction commits.

        The returned epoch may be newer than the epoch at which the user's code read `seen_losses`. Both epochs belong
        to the same membership, which has owned the partitions without interruption.

        Args:
            partitions: the partitions of the offsets; if empty, only the membership is checked.
            seen_losses: the value of `ownership.losses` that the user's code has seen.

        Raises:
            CommitFailedError: the member is not in its group, or the membership has ended or one of the partitions was
                given up since `seen_losses`.
        """
        error = self.ownership.commit_error(partitions, seen_losses)
        if error is not None:
            raise error
        if self.epoch < 0 and partitions:
            raise CommitFailedError(NOT_IN_GROUP)
        return self.member_id, self.epoch, self.settings.instance_id

    def close(self, now_ms: int, timeout_ms: int = 30_000) -> None:
        """Leaves the group: commits if auto-commit is on, gives the partitions up, and notifies the coordinator.

        Args:
            now_ms: the present time, in monotonic ms.
            timeout_ms: the longest wait for commits. If no commit can be lost, the coordinator has `LEAVE_TIMEOUT_MS`.
        """
        if self.closed or self._closing:
            return
        self._closing = True
        self._close_deadline_ms = now_ms + timeout_ms
        self._begin_close(now_ms)

    def _leave_step(self, now_ms: int) -> None:
        """Takes the next step of leaving, as soon as the user's code has handled the last event."""
        stage, deadline_ms = self._leave_stage, self._close_deadline_ms
        late = now_ms >= deadline_ms
        if self.event is not None:
            if now_ms >= deadline_ms + HANDLER_GRACE_MS:  # the user's code has not returned
                self._end()
            return
        if late and stage in (LeaveStage.COMMIT, LeaveStage.COMMITTING):
            stage = LeaveStage.REVOKE  # the commit did not end in time; the user's code still gives the partitions up
        elif late and stage is not LeaveStage.REVOKE:
            self._end()
            return
        if stage is LeaveStage.COMMIT:
            self._leave_stage = LeaveStage.COMMITTING
            if self._is_stored(self._owned_offsets()):
                self._leave_committed(now_ms)
            else:
                self._commit_consumed(now_ms, deadline_ms - now_ms, self._leave_committed)
        elif stage is LeaveStage.REVOKE:
            self._leave_stage = LeaveStage.REVOKING
            self._close_deadline_ms = max(deadline_ms, now_ms + 1)
            partitions = sorted_partitions(self.assignment)
            if not partitions:
                self._leave_revoked(None, now_ms)
            elif self.epoch >= 0:
                self.revoking = self.assignment
                self._emit(Revoked(partitions, self.epoch), self._leave_revoked)
            else:
                self._emit(Lost(partitions, self._lost_epoch), self._leave_revoked)
        elif stage is LeaveStage.LEAVE:
            waiting = [*self._commits, *([self._committing] if self._committing else ())]
            if all(self._is_stored(commit.offsets) for commit in waiting):
                self._close_deadline_ms = min(deadline_ms, now_ms + LEAVE_TIMEOUT_MS)
            if not waiting:
                self._leave(now_ms)

    def _leave_committed(self, now_ms: int) -> None:
        if self._leave_stage is LeaveStage.COMMITTING:
            self._leave_stage = LeaveStage.REVOKE
            self._leave_step(now_ms)

    def _leave_revoked(self, error: BaseException | None, now_ms: int) -> None:
        self.assignment = self.revoking = frozenset()
        self._leave_stage = LeaveStage.LEAVE
        self._leave_step(now_ms)

    def abandon(self) -> None:
        """Ends the machine without a request. Waiting commits fail."""
        self.closed = True
        self.assignment = self.revoking = frozenset()
        self.event = self._event_done = None
        error = MemberClosedError("the member has left its group")
        if self._committing is not None:
            self._committing.complete(error)
        while self._commits:
            self._commits.popleft().complete(error)

    def take_error(self) -> BaseException | None:
        """Returns the error to raise to the user, and clears it."""
        error, self.error = self.error, None
        return error

    # ---- outputs

    def wake_ms(self) -> int | None:
        """Returns the time of the next `advance` in monotonic ms; None: no timer is set."""
        if self.closed:
            return None
        deadlines = list(self._deadlines())
        if self._broker is None and not self._looking_up:
            deadlines.append(self._lookup_at_ms)
        if self._commits and self._committing is None:
            commit = self._commits[0]
            if self._broker is not None:
                deadlines.append(commit.not_before_ms)
            if commit.attempts or self._broker is None:
                deadlines.append(commit.deadline_ms)
        if self.settings.auto_commit_ms is not None and self.assignment and not self._closing:
            deadlines.append(self._auto_commit_at_ms)
        if self._closing:
            deadlines.append(self._close_deadline_ms + (0 if self.event is None else HANDLER_GRACE_MS))
        return min(deadlines, default=None)

    @property
    def rebalancing(self) -> bool:
        """True until the events of a rebalance are handled. Meanwhile, a consumer returns no records."""
        return self.event is not None or bool(self.revoking)

    def fetchable(self, partition: TopicPartition) -> bool:
        """Returns True if records of the partition may be fetched and returned."""
        return partition in self.assignment and partition not in self.revoking

    # ---- events

    def _emit(self, event: MemberEvent, continuation: Callable[[BaseException | None, int], None]) -> None:
        """Sets the event that the user's code must handle. `event_done` later calls `continuation`."""
        assert self.event is None, f"{self.event} is not handled yet"
        self.event = event
        self._event_done = continuation

    def _interrupt_event(self) -> None:
        """Cancels the step that follows the event. `event` stays set, because the user's code may be handling it."""
        self._event_done = None
        self._interrupted = self.event is not None

    def _lose_assignment(self, epoch: int, now_ms: int, then: Callable[[int], None]) -> None:
        """Reports the owned partitions as lost, and then calls `then`.

        If an event is set, the report waits until the user's code has handled this event.
        """
        self.revoking = self.assignment
        self._interrupt_event()
        if self.event is not None:
            self._event_done = lambda error, at_ms: self._report_lost(epoch, at_ms, then)
        else:
            self._report_lost(epoch, now_ms, then)

    def _report_lost(self, epoch: int, now_ms: int, then: Callable[[int], None]) -> None:
        partitions = sorted_partitions(self.assignment)
        if partitions:
            self._emit(Lost(partitions, epoch), lambda error, at_ms: then(at_ms))
        else:
            then(now_ms)

    # ---- commits

    def _lookup_refused(self, error: KafkaError) -> None:
        self.error = error
        while self._commits:
            self._commits.popleft().complete(error)

    def take_commit(self, commit: Commit, now_ms: int) -> list[Outgoing]:
        """Returns a list with the request of a new commit. The list is empty if the commit must wait for `advance`.

        If no earlier commit is under way, a caller may use this method in place of `advance` and `take_requests`.
        """
        alone = len(self._commits) == 1 and self._commits[0] is commit
        if not alone or self._outgoing or self._committing is not None or self._closing:
            return []
        self._send_commits(now_ms)
        return [] if self._committing is not commit else self.take_requests()

    def give_up_commit(self, commit: Commit, error: Exception) -> None:
        """Fails a commit that `take_commit` has returned. A later response to it is ignored."""
        if self._committing is commit:
            self._committing = None
        commit.complete(error)

    def _auto_commit(self, now_ms: int) -> None:
        interval_ms = self.settings.auto_commit_ms
        if interval_ms is None or now_ms < self._auto_commit_at_ms or self._closing:
            return
        self._auto_commit_at_ms = now_ms + interval_ms
        offsets = self._owned_offsets()
        if offsets and self.epoch >= 0 and not self._commits and self._committing is None:
            losses = self.ownership.losses
            self._commits.append(Commit(offsets, False, now_ms + interval_ms, losses, self._auto_committed))

    def _auto_committed(self, commit: Commit) -> None:
        self._auto_commit_log.add(commit, self.member_id)

    def _commit_consumed(self, now_ms: int, timeout_ms: int, then: Callable[[int], None]) -> None:
        """Commits the consumed positions before partitions are given up. Calls `then` even if the commit failed."""
        offsets = self._owned_offsets()
        if self.settings.auto_commit_ms is None or not offsets or self.epoch < 0:
            then(now_ms)
            return

        def done(commit: Commit) -> None:
            if not self.closed:
                then(self._commit_done_ms)
            self._auto_committed(commit)

        self._commit_done_ms = now_ms
        commit = Commit(offsets, True, now_ms + timeout_ms, self.ownership.losses, done, newest=self._owned_offsets)
        self._commits.append(commit)

    def _is_stored(self, offsets: OffsetsByPartition) -> bool:
        """Returns True if the coordinator has acknowledged these offsets, so that a further commit changes nothing."""
        return all(self._stored_offsets.get(key) == offset_and_metadata(value) for key, value in offsets.items())

    def _owned_offsets(self) -> OffsetsByPartition:
        return {key: value for key, value in self._consumed().items() if key in self.assignment}

    def _send_commits(self, now_ms: int) -> None:
        self._commit_done_ms = now_ms
        while self._commits and self._committing is None:
            commit = self._commits[0]
            if now_ms >= commit.deadline_ms and (commit.attempts or self._broker is None):
                self._commits.popleft()
                commit.complete(TimeoutError("the commit was not acknowledged in time"))
                continue
            if self._broker is None or now_ms < commit.not_before_ms:
                return
            try:
                self._require_owned(commit)
                identity = self._commit_identity()
            except Exception as error:
                self._commits.popleft()
                commit.complete(error)
                continue
            self._commits.popleft()
            self._committing = commit
            self._send_commit(commit, identity)

    def _require_owned(self, commit: Commit) -> None:
        """Raises CommitFailedError if the membership has ended, or if a partition of a repeated commit was given up.

        The user's code may begin a commit in a `Revoked` event. The member may send the first attempt even after this
        event. After the event it must not repeat the commit, because the new owner may have committed meanwhile. A
        member that leaves may repeat its commits, because it owns its partitions until it has left.
        """
        repeated = commit.attempts > 0 and not self._closing
        error = self.ownership.commit_error(commit.offsets if repeated else (), commit.seen_losses)
        if error is not None:
            raise error

    def _send_commit(self, commit: Commit, identity: tuple[str, int, str | None]) -> None:
        if commit.newest is not None:
            commit.offsets = commit.newest() or commit.offsets
        request = commit_request(self.settings.group_id, identity, commit.offsets)

        def handle(response: OffsetCommitResponse, now_ms: int) -> bool:
            if self._committing is not commit:
                return True  # given up
            try:
                self._committed(commit, identity, response, now_ms)
            except MALFORMED:
                raise  # `received` handles it
            except Exception as error:  # for example MemoryError; the caller of the commit waits
                self._committing = None
                commit.complete(error)
                return False
            return commit.error is None and self._committing is None and not self._commits and not self._closing

        def refuse(error: Exception, now_ms: int) -> None:
            if self._committing is not commit:
                return  # given up
            if isinstance(error, ConnectionClosedError | TimeoutError):
                self._lose_coordinator(now_ms)
                self._retry_commit(commit, error, now_ms)
            else:
                self._end_commit(commit, error, now_ms)

        self._send(request, handle, refuse, at_most=versions.COMMIT)

    def _committed(
        self, commit: Commit, identity: tuple[str, int, str | None], response: OffsetCommitResponse, now_ms: int
    ) -> None:
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in response.topics
            for row in topic.partitions
        }
        first_code = next((code for code in codes.values() if code), 0)
        if not first_code:
            if not codes.keys() >= commit.offsets.keys():
                raise ValueError(
                    f"the OffsetCommit response has no result for {sorted(commit.offsets.keys() - codes.keys())}"
                )
            self._end_commit(commit, None, now_ms)
            return
        if first_code in NO_COORDINATOR or first_code == ErrorCode.REQUEST_TIMED_OUT:
            self._lose_coordinator(now_ms)
        if set(codes.values()) - {0} <= COMMIT_RETRIED:
            self._retry_commit(commit, partition_error(codes), now_ms)
        elif first_code in MEMBERSHIP_ERRORS:
            error = self._commit_refused(first_code, identity, now_ms)
            if error is None:
                self._retry_commit(commit, KafkaError.of(first_code), now_ms)
            else:
                self._end_commit(commit, error, now_ms)
        else:
            self._end_commit(commit, partition_error(codes), now_ms)

    def _retry_commit(self, commit: Commit, error: Exception, now_ms: int) -> None:
        self._committing = None
        commit.not_before_ms = now_ms + self._backoff_ms(commit.attempts)
        commit.attempts += 1
        if not commit.retry or commit.not_before_ms >= commit.deadline_ms:
            self._end_commit(commit, error, now_ms)
        else:
            self._commits.appendleft(commit)

    def _end_commit(self, commit: Commit, error: Exception | None, now_ms: int) -> None:
        self._committing = None
        self._commit_done_ms = now_ms
        if error is None:
            self._stored_offsets.update({key: offset_and_metadata(value) for key, value in commit.offsets.items()})
            if self.on_committed is not None:
                self.on_committed(commit.offsets)
        commit.complete(error)


def sorted_partitions(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Returns partitions sorted by topic and number. Listeners receive partitions in this order."""
    return tuple(sorted(partitions))
