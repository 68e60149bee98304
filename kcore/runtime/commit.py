"""The commit pipeline: everything decided since the last commit becomes durable at once, then the replies go out.

Group commit without a timer: a round is whatever was decided since the last one began. While nothing is under way a
single request is committed alone and at once; under load a round carries hundreds. There are two ways to write it.

`commit` does it in place, on the thread that decides, which does nothing else meanwhile. `start_background` closes a
round and hands it out as a `BackgroundCommit`, which any thread writes while the next round is being decided;
`finish_background`, on the thread that decides, gives its answers out. One background commit at a time: the round
behind it waits. In both ways a reply goes out when all that it may stand on is durable, and a round that fails takes
with it whatever was decided on top of it.
"""

from __future__ import annotations

import contextlib
import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from kcore.errors import EngineInterruptedError
from kcore.log.errors import LogError
from kcore.process_logging import log_failure
from kcore_ext.runtime.shard import PipelineCore

if TYPE_CHECKING:
    from kcore.log.interface import LogEngine
    from kcore.log.write_set import WriteSet
    from kcore.runtime.pending import Pending

logger = logging.getLogger(__name__)


class Participant(Protocol):
    """Whoever staged something for the next commit: a coordinator's shard, a topic's partition."""

    @property
    def allows_background_commit(self) -> bool:
        """Whether others may decide, and be answered, between `seal` and `committed`: yes where none of them sees what
        was staged before it is durable."""
        ...

    def seal(self) -> None:
        """The round closes: stage what is still being collected. May enlist other participants.

        Called again if the round does not take off after all, and is committed in place.
        """
        ...

    def committed(self) -> None:
        """What was staged is durable."""
        ...

    def failed(self, error: LogError) -> None:
        """What was staged is gone: memory must go back to what the log holds."""
        ...


class Gate(Protocol):
    """A lock between threads: the driver's, since nothing here knows of threads."""

    def acquire(self) -> object:
        """Waits until it is open, and closes it."""
        ...

    def release(self) -> object:
        """Opens it."""
        ...

    def __enter__(self) -> object:
        """Acquires it."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object:
        """Releases it."""
        ...


class BackgroundCommit:
    """A round that is being written on another thread.

    Args:
        gate: an open lock; it is closed until the round is written.
        log: writes the round.

    Attributes:
        round: the sealed round.
        participants: the participants that staged something in it.
        answers: the responses that wait for it, in order; more come while it is under way.
        error: the reason why it was not written, if it was not.
    """

    __slots__ = ("_gate", "_log", "answers", "error", "participants", "write_set")

    write_set: WriteSet
    participants: dict[Participant, None]
    answers: list[tuple[Pending, Any]]

    def __init__(self, gate: Gate, log: LogEngine) -> None:
        self._gate = gate
        self._log = log
        self.error: BaseException | None = None
        gate.acquire()

    def write(self) -> None:
        """Makes the round durable, on any thread; `finish_background` reports an error."""
        try:
            self._log.write(self.write_set)
        except BaseException as error:
            self.error = error
        finally:
            self._gate.release()

    def wait(self) -> None:
        """Returns once `write` is over. An exception that interrupts it leaves the gate as it was."""
        with self._gate:
            pass


class CommitPipeline(PipelineCore):
    """Collects participants and the replies that wait for them (see `PipelineCore`), and commits them as one.

    A round is settled when every participant and every reply knows what became of it. An exception that breaks off the
    settling leaves `settling` set: memory may disagree with the log, and the pipeline refuses to commit from then on.

    Args:
        log: the engine that makes everything staged durable, or nothing of it.

    Attributes:
        rounds: how many commits succeeded.
        failures: how many failed.
    """

    __slots__ = ("_abort_error", "_background_commit", "_log", "failures", "rounds")

    def __init__(self, log: LogEngine) -> None:
        self._log = log
        self._abort_error: BaseException | None = None
        self._background_commit: BackgroundCommit | None = None
        self.rounds = 0
        self.failures = 0

    def abort_round(self, error: BaseException) -> None:
        """Makes the commit of this round fail as a whole: a part of it cannot be written, and memory has moved on.

        Half a round would be worse: replies that stand on what is missing would go out as if it were there.
        """
        if self._abort_error is None:
            self._abort_error = error  # first, and without an allocation: what follows may fail
        log_failure(logger, error, "this round will not be written")

    def commit(self) -> bool:
        """Writes the round and releases its replies. Returns False if the write failed (replies then carry errors).

        Waits for a background commit that is under way, and finishes it first. An exception that is no `Exception` (a
        `KeyboardInterrupt` while the log is written) is raised when the round has failed in order.

        Raises:
            EngineInterruptedError: an earlier call was broken off.
        """
        if self.settling:
            raise EngineInterruptedError
        if self._background_commit is not None and not self.finish_background(self._background_commit):
            return False
        if not self._participants and not self._answers:
            return True
        self._seal()
        participants, answers = self._take_round()
        abort_error = self._abort_error
        if abort_error is None and self.changing:
            abort_error = _BROKEN_OFF
        if abort_error is not None:
            self._log.rollback()
            self._abort_error = None
            self.changing = 0
            self._fail(participants, answers, abort_error)
            return False
        try:
            self._log.commit()
        except LogError as error:
            self._fail(participants, answers, error)
            return False
        except BaseException as error:
            # The round may be durable, or not written, or still staged: an interrupt may come before the first line of
            # the log's `commit`. What is staged goes; whatever the log has then is read into memory again.
            with contextlib.suppress(LogError):
                self._log.rollback()
            self._fail(participants, answers, error)
            if not isinstance(error, Exception):
                raise
            return False
        self.rounds += 1
        self._release(participants, answers)
        self.settling = False
        return True

    def start_background(self, gate: Gate) -> BackgroundCommit | None:
        """Closes the round, to be written beside what is decided from now on.

        Args:
            gate: an open lock, for a caller that must wait until the round is written.

        Returns:
            The background commit, to be written by `BackgroundCommit.write` and then passed to `finish_background`.
            None if the round is one for `commit`: there is nothing to write, a participant does not overlap, it cannot
            be written, or another background commit is under way.
        """
        if (
            self.settling
            or self._background_commit is not None
            or not self.allows_background_commit
            or not self._participants
        ):
            return None
        self._seal()
        if self._abort_error is not None or self.changing or not self.allows_background_commit or not self._log.dirty:
            return None
        background_commit = BackgroundCommit(gate, self._log)
        participants, answers = self._take_round()
        try:
            background_commit.write_set = self._log.seal()
        except Exception as error:
            self._give_back(participants, answers)
            self.abort_round(error)
            return None
        background_commit.participants = participants
        background_commit.answers = answers
        self._background_commit = background_commit
        self._begin_background(participants, answers)
        self.settling = False
        return background_commit

    def finish_background(self, background_commit: BackgroundCommit) -> bool:
        """Releases the replies of a background commit, once it is written. False if it was not: nothing of it exists,
        nor of what was decided meanwhile.

        A background commit that a `commit` is written already is left alone.

        Raises:
            EngineInterruptedError: an earlier call was broken off.
        """
        if background_commit is not self._background_commit:
            return background_commit.error is None
        if self.settling:
            raise EngineInterruptedError
        background_commit.wait()
        self.settling = True
        self._background_commit = self._background_answers = None
        error = background_commit.error
        # an error behind the write: the round is durable all the same
        if error is None or background_commit.write_set.is_durable:
            try:
                self._log.finish(background_commit.write_set)
            except Exception as failure:
                # The file has the round, and the log's memory does not: it takes nothing behind it any more.
                error = failure
            else:
                self.rounds += 1
                self._release(background_commit.participants, background_commit.answers)
                self.settling = False
                return True
        self._log.fail(background_commit.write_set, error)
        participants, answers = self._take_round()
        self._abort_error = None
        self.changing = 0
        self._fail(background_commit.participants | participants, background_commit.answers + answers, error)
        return False

    def abandon(self) -> None:
        """Waits until no background commit is being written: the log may be closed then. Settles nothing."""
        self.settling = True
        if self._background_commit is not None:
            self._background_commit.wait()

    def _failed_behind(self, participant: Participant, error: Exception) -> None:
        log_failure(logger, error, "%r failed behind a commit", participant)

    def _unanswered(self, pending: Pending, error: Exception) -> None:
        log_failure(logger, error, "a response of %s could not be given out", type(pending.api).__name__)

    def _fail(
        self, participants: dict[Participant, None], answers: list[tuple[Pending, Any]], error: BaseException
    ) -> None:
        """Settles a round that failed: every memory goes back to the log, and every reply carries an error.

        A participant that cannot go back leaves `settling` set: the pipeline refuses to commit from then on.
        """
        self.failures += 1
        if not isinstance(error, LogError):
            log_failure(logger, error, "a commit failed with an error that is not the log's")
            error = _as_log_error(error)
        restored = True
        for participant in participants:
            restored = self._restore(participant, error) and restored
        for pending, _ in answers:
            try:
                if not pending.done:
                    pending.fail(pending.api.storage_error)
            except Exception as failure:
                self._unanswered(pending, failure)
        if restored:
            self.settling = False

    def _restore(self, participant: Participant, error: LogError) -> bool:
        """Takes a participant back to the log; returns whether it is there. Tries twice: memory may be short."""
        for _ in range(2):
            try:
                participant.failed(error)
            except Exception as failure:
                log_failure(logger, failure, "%r failed behind a commit that failed", participant)
            else:
                return True
        return False


def _as_log_error(error: BaseException) -> LogError:
    try:
        return LogError(f"{type(error).__name__}: {error}")
    except Exception:
        return _BROKEN_OFF


_BROKEN_OFF = LogError("a change of memory was broken off, so its round is not written")
"""Made beforehand: there may be no memory for it when it is needed."""
