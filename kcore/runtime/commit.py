"""The commit pipeline: everything decided since the last commit becomes durable at once, then the replies go out.

Group commit without a timer: a round is whatever was decided since the last one began. While nothing is under way a
single request is committed alone and at once; under load a round carries hundreds. There are two ways to write it.

`commit` does it in place, on the thread that decides, which does nothing else meanwhile. `take_off` closes a round and
hands it out as a `Flight`, which any thread writes while the next round is being decided; `land`, on the thread that
decides, gives its answers out. One flight at a time: the round behind it waits. In both ways a reply goes out when all
that it may stand on is durable, and a round that fails takes with it whatever was decided on top of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kcore.log.errors import LogError
from kcore_ext.shard_core import PipelineCore

if TYPE_CHECKING:
    from kcore.log.interface import LogEngine
    from kcore.log.round import Round
    from kcore.runtime.pending import Pending

logger = logging.getLogger(__name__)


class Participant(Protocol):
    """Whoever staged something for the next commit: a coordinator's shard, a topic's partition."""

    @property
    def overlaps(self) -> bool:
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


class Flight:
    """A round that is being written.

    Args:
        gate: open; it is closed until the round is written.
        log: writes it.
        round: what is written.
        participants: who staged something in it.
        answers: which answers wait for it, in order; more come while it is under way.

    Attributes:
        error: why it was not written, if it was not.
    """

    __slots__ = ("_gate", "_log", "answers", "error", "participants", "round")

    def __init__(
        self,
        gate: Gate,
        log: LogEngine,
        round: Round,
        participants: dict[Participant, None],
        answers: list[tuple[Pending, Any]],
    ) -> None:
        self._gate = gate
        self._log = log
        self.round = round
        self.participants = participants
        self.answers = answers
        self.error: BaseException | None = None
        gate.acquire()

    def write(self) -> None:
        """Makes the round durable, on any thread; what goes wrong is told by `land`."""
        try:
            self._log.write(self.round)
        except BaseException as error:
            self.error = error
        finally:
            self._gate.release()

    def wait(self) -> None:
        """Returns once `write` is over."""
        self._gate.acquire()
        self._gate.release()


class CommitPipeline(PipelineCore):
    """Collects participants and the replies that wait for them (see `PipelineCore`), and commits them as one.

    Args:
        log: the engine that makes everything staged durable, or nothing of it.

    Attributes:
        rounds: how many commits succeeded.
        failures: how many failed.
    """

    __slots__ = ("_doom", "_flight", "_log", "failures", "rounds")

    def __init__(self, log: LogEngine) -> None:
        self._log = log
        self._doom: LogError | None = None
        self._flight: Flight | None = None
        self.rounds = 0
        self.failures = 0

    def doom(self, error: Exception) -> None:
        """Something of this round can never be written, and memory has moved on: its commit will fail as a whole.

        Half a round would be worse: replies that stand on what is missing would go out as if it were there.
        """
        logger.error("this round will not be written: %s", error)
        if self._doom is None:
            self._doom = error if isinstance(error, LogError) else LogError(f"{type(error).__name__}: {error}")

    def commit(self) -> bool:
        """Writes the round and releases its replies. Returns False if the write failed (replies then carry errors).

        Waits for a flight that is under way, and lands it first.
        """
        if self._flight is not None and not self.land(self._flight):
            return False
        if not self._participants and not self._answers:
            return True
        self._seal()
        participants, answers = self._take_round()
        doom, self._doom = self._doom, None
        try:
            if doom is not None:
                self._log.rollback()
                raise doom
            self._log.commit()
        except LogError as error:
            self._fail(participants, answers, error)
            return False
        except (Exception, KeyboardInterrupt) as error:
            # Nobody knows whether it was written. What the log says now is the truth, and memory is read from it.
            self._fail(participants, answers, LogError(f"{type(error).__name__}: {error}"))
            if isinstance(error, KeyboardInterrupt):
                raise
            logger.exception("a commit failed in a way that the log does not know")
            return False
        self.rounds += 1
        self._release(participants, answers)
        return True

    def take_off(self, gate: Gate) -> Flight | None:
        """Closes the round, to be written beside what is decided from now on.

        Args:
            gate: an open lock, for whoever must wait until the round is written.

        Returns:
            What somebody must `write`, and then `land` here; None if the round is one for `commit`: nothing is to be
            written, somebody in it does not overlap, it cannot be written, or another one is under way.
        """
        if self._flight is not None or not self.overlaps or not self._participants:
            return None
        self._seal()
        if self._doom is not None or not self.overlaps or not self._log.dirty:
            return None
        try:
            round = self._log.seal()
        except Exception as error:
            self.doom(error)
            return None
        participants, answers = self._take_round()
        self._depart(participants, answers)
        self._flight = Flight(gate, self._log, round, participants, answers)
        return self._flight

    def land(self, flight: Flight) -> bool:
        """Releases the replies of a flight, once it is written. False if it was not: nothing of it exists, nor of what
        was decided meanwhile.

        A flight that was landed already, by a `commit`, is left alone.
        """
        if flight is not self._flight:
            return flight.error is None
        flight.wait()
        self._flight = self._landing = None
        error = flight.error
        if error is None or flight.round.landed:  # an error behind the write: the round is durable all the same
            try:
                self._log.finish(flight.round)
            except Exception as failure:
                # The file has the round, and the log's memory does not: it takes nothing behind it any more.
                error = failure
            else:
                self.rounds += 1
                self._release(flight.participants, flight.answers)
                return True
        self._log.fail(flight.round, error)
        participants, answers = self._take_round()
        self._doom = None
        if not isinstance(error, LogError):
            logger.error("a commit failed in a way that the log does not know", exc_info=error)
            error = LogError(f"{type(error).__name__}: {error}")
        self._fail(flight.participants | participants, flight.answers + answers, error)
        return False

    def _failed_behind(self, participant: Participant, error: Exception) -> None:
        logger.error("%r failed behind a commit", participant, exc_info=error)

    def _fail(self, participants: dict[Participant, None], answers: list[tuple[Pending, Any]], error: LogError) -> None:
        """Nothing of the round exists: every memory goes back to the log, every reply says so."""
        self.failures += 1
        for participant in participants:
            try:
                participant.failed(error)
            except Exception:
                logger.exception("%r failed behind a commit that failed", participant)
        for pending, _ in answers:
            if not pending.done:
                pending.fail(pending.api.storage_error)
