"""The commit pipeline: writes all decisions of a round in one commit, then completes the responses.

Group commit without a timer: a round has all decisions since the previous round began. A single request is committed
alone and immediately; under load a round has hundreds of requests. A round is written in one of two ways:

- `commit` writes the round inline: the thread that decides does nothing else meanwhile.
- `start_background` closes the round and returns a `BackgroundCommit`. Any thread may write it while the next round is
  decided. `finish_background`, on the thread that decides, then completes its responses. Only one background commit
  runs at a time: the next round waits for it.

In both ways a response is completed when every record that it may depend on is durable. If a round fails, all decisions
after it fail, too.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

from kcore.errors import EngineInterruptedError
from kcore.log.errors import FailureReason, FencedWriteError, LogError
from kcore.printable import counted
from kcore.process_logging import log_failure, log_name, next_step
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.failed_requests import log_failed_request
from kcore_ext.runtime.shard import PipelineCore, ShardCore

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.log.interface import LogEngine
    from kcore.log.write_set import WriteSet
    from kcore.runtime.pending import Pending

logger = logging.getLogger(__name__)

_REMEDIES: Final = {
    FailureReason.DELETED: "; kcore refuses all writes until it is restarted. The end of the process removes the data: "
    "first copy the deleted files from /proc/PID/fd",
    FailureReason.DISK_FULL: "; free space on the disk: writes then succeed again, without a restart",
    FailureReason.FENCED: "; the clients find the new leader of the partitions and try again",
    FailureReason.SIZE_LIMIT: "; the clients try again; raise the limit of the address space (`ulimit -v`), or delete "
    "records",
}
"""Reason of a failed write -> the advice to the operator, which ends the log line."""

_REMEDY: Final = "; the clients try again; if this repeats, check the disk or the database of the log"
"""The advice for every other reason."""

_ATTEMPTS: Final = (1, 2, 3)
"""Attempts to complete a response of a failed round. A tuple, because `range` would need memory in each loop."""

MAX_NAMES: Final = 5
"""Maximum number of participants of a failed commit that a log line names."""


def refused_write(error: LogError) -> str | None:
    """Returns the message for clients whose changes a full disk has refused; None for other reasons.

    Without this message, a client sees only the retriable code of its API, such as NOT_CONTROLLER.
    """
    if error.reason is FailureReason.DISK_FULL:
        return "the server cannot write the change, because its disk is full"
    return None


class Participant(Protocol):
    """A component that stages records for the next commit: a coordinator's shard or a topic's partition."""

    @property
    def allows_background_commit(self) -> bool:
        """True if requests may be decided and completed between `seal` and `committed`.

        The condition is that no request can see the staged records before these are durable.
        """
        ...

    def seal(self) -> object:
        """Stages the collected records at the close of the round. May enlist other participants.

        It is called again if the background commit does not start and the round is committed inline.
        """
        ...

    def committed(self) -> None:
        """Handles a commit, which has made the staged records durable."""
        ...

    def failed(self, error: LogError) -> None:
        """Resets memory to the contents of the log, because the staged records were not written."""
        ...


class Gate(Protocol):
    """A lock between threads. The driver provides the lock, since the runtime has no threads."""

    def acquire(self) -> object:
        """Waits until the gate is open, and closes it."""
        ...

    def release(self) -> object:
        """Opens the gate."""
        ...

    def __enter__(self) -> object:
        """Acquires the gate."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object:
        """Releases the gate."""
        ...


class BackgroundCommit:
    """A write set that is being written on another thread.

    Args:
        gate: a lock that is free at first. It is held while the other thread writes the write set.
        log: writes the write set.

    Attributes:
        write_set: the sealed write set.
        participants: the participants that staged records in it.
        responses: the responses that wait for this commit, in order. More are added while it is being written.
        error: the error that prevented the write, or None.
    """

    __slots__ = ("_gate", "_log", "_unclaimed", "error", "participants", "responses", "write_set")

    write_set: WriteSet
    participants: list[Participant]
    responses: list[Pending]

    def __init__(self, gate: Gate, log: LogEngine) -> None:
        self._gate = gate
        self._log = log
        self.error: BaseException | None = None
        self._unclaimed = [True]  # `pop` is atomic: one thread either writes or cancels
        gate.acquire()

    def _claim(self) -> bool:
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def write(self) -> None:
        """Makes the write set durable, on any thread; `finish_background` reports an error.

        Does nothing after `cancel`.
        """
        if not self._claim():
            return
        try:
            self._log.write(self.write_set)
        except BaseException as error:
            self.error = error
        finally:
            self._gate.release()

    def cancel(self) -> None:
        """Prevents a write that has not begun, or else waits until it has ended."""
        if not self._claim():
            self.wait()

    def wait(self) -> None:
        """Waits until `write` has ended. An exception that interrupts the wait leaves the gate as it was."""
        with self._gate:
            pass


class CommitPipeline(PipelineCore):
    """The group commit of a node, which writes the records that a round has staged and completes its responses.

    `PipelineCore`, the compiled base, collects participants and responses.

    A round ends when every participant and every response has received the result of the commit. After an exception
    before this end, `interrupted` stays True. Memory may then differ from the log, so the pipeline refuses every later
    commit.

    If the result of a failed commit is not known (`uncertain`), the responses receive an error immediately. The
    participants keep their memory: the file may contain the round, and a reload could miss it. Each later commit
    queries the log again and fails. It resets the participants as soon as the log knows the result.

    Args:
        log: the engine that makes either all staged records durable or none.

    Attributes:
        rounds: the number of commits that succeeded.
        failures: the number of commits that failed.
        on_fenced: called after a round that the store of a cluster has refused, because another node leads a
            partition; None if this node shares no store.
    """

    __slots__ = (
        "_abort_error",
        "_background_commit",
        "_last_refusal",
        "_log",
        "_log_interrupted",
        "_refused",
        "_uncertain_participants",
        "failures",
        "on_fenced",
        "rounds",
    )

    def __init__(self, log: LogEngine) -> None:
        self._log = log
        self._abort_error: BaseException | None = None
        self._background_commit: BackgroundCommit | None = None
        # participants of rounds whose result is not known
        self._uncertain_participants: list[Participant] | None = None
        self._log_interrupted = False  # True while the log is called to discard a round
        self._last_refusal = (-1, "")
        self._refused = 0  # writes that the log refused since the last success, except by fencing
        self.on_fenced: Callable[[FencedWriteError], None] | None = None
        self.rounds = 0
        self.failures = 0

    @property
    def uncertain(self) -> bool:
        """True if it is unknown whether the changes of an earlier round are in the log.

        This is the case if `LogEngine.uncertain` is True. It is also the case if an exception interrupted the method
        that discards a round, perhaps before that method called the log.
        """
        return self._log_interrupted or self._log.uncertain

    def abort_round(self, error: BaseException) -> None:
        """Makes the commit of this round fail as a whole, because a part of it cannot be written.

        Writing the other parts would complete responses that depend on the missing records.
        """
        if self._abort_error is None:
            self._abort_error = error  # first, and without an allocation: logging may fail
        log_failure(
            logger,
            error,
            "commit: one change of the commit of %s cannot be written; kcore therefore writes no change of this "
            "commit, and the clients of its requests get an error and try again%s",
            _names(self._participants),
            "; if this repeats, check the disk of the log" if isinstance(error, LogError) else next_step(error),
        )

    def commit(self) -> bool:
        """Writes the round and completes its responses, with errors if the write failed. Returns True if it succeeded.

        A background commit that is being written is finished first. A `BaseException` other than `Exception`, such as a
        `KeyboardInterrupt` during the write, is raised after the failed round has ended.

        Raises:
            EngineInterruptedError: an earlier call was interrupted.
        """
        if self.interrupted:
            raise EngineInterruptedError
        if self._background_commit is not None and not self.finish_background(self._background_commit):
            return False
        if self._uncertain_participants is not None:
            self._recover_log()
            return False
        if not self._participants and not self._responses:
            return True
        self._seal()
        participants, responses = self._take_round()
        abort_error = self._abort_error
        if abort_error is None and self.changing:
            abort_error = _INTERRUPTED_CHANGE
        if abort_error is not None:
            self._log.rollback()
            self._abort_error = None
            self.changing = 0
            self._fail(participants, responses, abort_error)
            return False
        try:
            self._log.commit()
        except LogError as error:
            self._fail(participants, responses, error)
            return False
        except BaseException as error:
            # The round may be durable, not written, or still staged: an interrupt may come before the first line of
            # the log's `commit`. Staged records are dropped, and memory is read from the log again.
            self._log_interrupted = True
            try:  # noqa: SIM105 - `suppress` would need memory
                self._roll_back()
            except Exception:
                pass  # `_fail` then keeps the round uncertain
            self._fail(participants, responses, error)
            if not isinstance(error, Exception):
                raise
            return False
        self.rounds += 1
        if self._refused:
            self._log_success()
        self._release(participants, responses)
        self.interrupted = False
        return True

    def start_background(self, gate: Gate, exclusive: bool = False) -> BackgroundCommit | None:
        """Closes the round, so that it can be written while the next round is decided.

        Args:
            gate: an open lock, for a caller that must wait until the round is written.
            exclusive: True if the caller neither handles a request nor completes a response before `finish_background`.
                Then the background commit is possible without the consent of the participants.

        Returns:
            The background commit, to be written by `BackgroundCommit.write` and then passed to `finish_background`.
            None if the round must be passed to `commit`: it has nothing to write, it cannot be written, a participant
            does not allow background commits, or another background commit is being written.
        """
        if (
            self.interrupted
            or self._uncertain_participants is not None
            or self._background_commit is not None
            or not (exclusive or self.allows_background_commit)
            or not self._participants
        ):
            return None
        self._seal()
        if self._abort_error is not None or self.changing or not self._log.dirty:
            return None
        if not (exclusive or self.allows_background_commit):  # sealing may enlist participants
            return None
        background_commit = BackgroundCommit(gate, self._log)
        participants, responses = self._take_round()
        try:
            background_commit.write_set = self._log.seal()
        except Exception as error:
            self._give_back(participants, responses)
            self.abort_round(error)
            return None
        background_commit.participants = participants
        background_commit.responses = responses
        self._background_commit = background_commit
        self._begin_background(participants, responses)
        self.interrupted = False
        return background_commit

    def finish_background(self, background_commit: BackgroundCommit) -> bool:
        """Completes the responses of a background commit, once it is written.

        It does nothing if `commit` has already finished the background commit.

        Returns:
            False if the write failed; all decisions since the start of the background commit are then dropped, too.

        Raises:
            EngineInterruptedError: an earlier call was interrupted.
        """
        if background_commit is not self._background_commit:
            return background_commit.error is None
        if self.interrupted:
            raise EngineInterruptedError
        background_commit.wait()
        self.interrupted = True
        self._background_commit = self._background_responses = None
        error = background_commit.error
        # an error after the write: the round is durable all the same
        if error is None or background_commit.write_set.is_durable:
            try:
                self._log.finish(background_commit.write_set)
            except Exception as failure:
                # The file has the round and the log's memory does not: the log accepts no later write set.
                error = failure
            else:
                self.rounds += 1
                if self._refused:
                    self._log_success()
                self._release(background_commit.participants, background_commit.responses)
                self.interrupted = False
                return True
        self._log_interrupted = True
        try:  # noqa: SIM105 - `suppress` would need memory
            self._fail_in_log(background_commit, error)
        except Exception:
            pass  # `_fail` then keeps the round uncertain
        participants, responses = self._take_round()
        self._abort_error = None
        self.changing = 0
        participants = _merged(background_commit.participants, participants)
        self._fail(participants, background_commit.responses + responses, error)
        return False

    def _roll_back(self) -> None:
        """Lets the log discard the staged records."""
        try:
            self._log.rollback()
        except Exception:
            self._log.recover()
        self._log_interrupted = False

    def _fail_in_log(self, background_commit: BackgroundCommit, error: BaseException) -> None:
        """Lets the log discard a background commit."""
        try:
            self._log.fail(background_commit.write_set, error)
        except Exception:
            self._log.recover()
        self._log_interrupted = False

    def _recover_log(self) -> None:
        """Lets the log determine the result of an earlier round. The present round fails, too."""
        participants, responses = self._take_round()
        self._abort_error = None
        self.changing = 0
        try:
            self._log.recover()
        except BaseException as error:
            self._fail(participants, responses, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._log_interrupted = False
            logger.warning(
                "commit: an exception, such as KeyboardInterrupt or MemoryError, interrupted an earlier commit to the "
                "log %s. kcore has read the log to find out which commits are stored, and can commit again. The shards "
                "of failed commits load their state again",
                self._log.name,
            )
            self._fail(participants, responses, _INTERRUPTED_CHANGE)

    def abandon(self) -> None:
        """Waits until no background commit is being written, so that the caller can close the log.

        Afterwards, the pipeline completes no more responses. If an exception interrupted the start of a background
        commit before its write began, the commit is cancelled.
        """
        self.interrupted = True
        if self._background_commit is not None:
            self._background_commit.cancel()

    def _failed_after_commit(self, participant: Participant, error: Exception) -> None:
        log_failure(
            logger,
            error,
            "commit: %r raised an error after a commit; the records of this commit are durable and stay in the log%s",
            participant,
            next_step(error),
        )

    def _response_failed(self, pending: Pending, error: Exception) -> None:
        message = "commit: cannot complete the response to %s%s"
        log_failed_request(logger, error, message, pending.api, pending.context)

    def _fail(self, participants: list[Participant], responses: list[Pending], error: BaseException) -> None:
        """Ends a failed round: resets every participant to the log's contents, and fails every response.

        If a participant cannot be reset, `interrupted` stays set. The pipeline then refuses every later commit, and the
        driver refuses every call. While the log is uncertain, no participant is reset.
        """
        self.failures += 1
        if not isinstance(error, LogError):
            _log_unexpected(participants, error)
            error = _as_log_error(error)
        elif not self.uncertain:
            self._log_refusal(error)
        if self._uncertain_participants is not None:
            participants = _merged(self._uncertain_participants, participants)
        restored = True
        if self.uncertain:
            self._keep_uncertain(participants, error)
        else:
            for participant in participants:
                restored = self._restore(participant, error) and restored
            self._uncertain_participants = None
        for pending in responses:
            for attempt in _ATTEMPTS:
                if pending.done:
                    break
                try:
                    self._fail_response(pending, error, attempt)
                except Exception as failure:  # perhaps no memory, even for the call
                    self._response_failed(pending, failure)
        if restored:
            self.interrupted = False
            if self.on_fenced is not None and isinstance(error, FencedWriteError):
                self.on_fenced(error)

    def _fail_response(self, pending: Pending, error: LogError, attempt: int) -> None:
        """Completes a response with an error. The last attempt does not use the API's own error code, in case the API
        cannot build the response with this code.
        """
        code = pending.api.storage_error if attempt < _ATTEMPTS[-1] else ErrorCode.UNKNOWN_SERVER_ERROR
        pending.fail(code, refused_write(error))

    def _log_refusal(self, error: LogError) -> None:
        """Logs the cause of a failed write, unless the previous commit failed for the same cause, for example a full
        disk.
        """
        try:
            self._refused += error.reason is not FailureReason.FENCED
            refusal = (self.rounds, str(error))
            if refusal != self._last_refusal:
                self._last_refusal = refusal
                logger.log(
                    # a warning after a failover, in which another node has taken over the partitions
                    logging.WARNING if error.reason is FailureReason.FENCED else logging.ERROR,
                    "commit: the log %s refused a write: %s; the requests of this commit fail%s",
                    self._log.name,
                    error,
                    _REMEDIES.get(error.reason, _REMEDY),
                )
        except Exception:
            pass  # no memory for the line

    def _log_success(self) -> None:
        """Logs that the log accepts writes again, after it has refused some."""
        refused, self._refused = self._refused, 0
        try:  # noqa: SIM105 - `suppress` would need memory
            logger.warning(
                "commit: the log %s accepts writes again, after %s", self._log.name, counted(refused, "refused writes")
            )
        except Exception:
            pass  # no memory for the line

    def _keep_uncertain(self, participants: list[Participant], error: LogError) -> None:
        """Marks shards as changed, so that their responses wait for the next commit, in which the log again tries to
        determine the result.
        """
        was_uncertain = self._uncertain_participants is not None
        self._uncertain_participants = participants
        for participant in participants:
            if isinstance(participant, ShardCore):
                participant.dirty, participant.committing = True, False
        if not was_uncertain:
            try:  # noqa: SIM105 - `suppress` would need memory
                logger.error(
                    "commit: it is unknown whether the last commit is in the log %s, because of an error: %s; the "
                    "requests of this commit fail, and all writes fail until kcore has read the log again%s",
                    self._log.name,
                    error,
                    _REMEDIES.get(error.reason, _REMEDY),
                )
            except Exception:
                pass  # no memory for the line

    def _restore(self, participant: Participant, error: LogError) -> bool:
        """Resets a participant to the contents of the log.

        Returns True if it succeeded. Tries twice, because memory may have been exhausted.
        """
        for _ in range(2):
            try:
                participant.failed(error)
            except Exception as failure:
                log_failure(
                    logger,
                    failure,
                    "commit: %r could not return to its last durable state after a failed commit; kcore tries this "
                    "twice. If this line appears twice, a server stops, and an embedded engine refuses every call; "
                    "restart the server, or open the engine again: every acknowledged write is in the log",
                    participant,
                )
            else:
                return True
        return False


def _merged(participants: list[Participant], others: list[Participant]) -> list[Participant]:
    """Returns the participants of two rounds, each once."""
    return list(dict.fromkeys((*participants, *others)))


def _log_unexpected(participants: list[Participant], error: BaseException) -> None:
    """Logs an exception, other than an error of the log, that made a commit fail. It does not raise an `Exception`."""
    try:  # noqa: SIM105 - `suppress` would need memory
        log_failure(
            logger,
            error,
            "commit: an unexpected error in the commit of %s; its requests fail, and their clients try again%s",
            _names(participants),
            next_step(error),
        )
    except Exception:
        pass  # no memory for the values


def _names(participants: list[Participant]) -> str:
    """Returns the names of the first participants, for log lines. It does not raise an `Exception`."""
    try:
        names = [log_name(participant) for participant in participants[:MAX_NAMES]]
        more = len(participants) - len(names)
        return (", ".join(names) or "no partition") + (f" and {more} more" if more else "")
    except Exception:
        pass  # no memory for the names
    return "unknown partitions"


def _as_log_error(error: BaseException) -> LogError:
    try:
        return LogError(f"{type(error).__name__}: {error}")
    except Exception:
        return _INTERRUPTED_CHANGE


_INTERRUPTED_CHANGE = LogError("a change in memory was interrupted, so the commit with this change is not written")
"""The error of a commit after an interrupted change. It exists in advance, because memory may later be exhausted."""
