"""The commit pipeline: everything decided since the last commit becomes durable at once, then the replies go out.

Group commit without a timer: a round is whatever was decided since the last one began. While nothing is under way a
single request is committed alone and at once; under load a round carries hundreds. A commit runs where its driver
calls it, on the thread that decides: replies never stand on facts that another thread still writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kcore.log.errors import LogError

if TYPE_CHECKING:
    from kcore.log.interface import LogEngine
    from kcore.runtime.pending import Pending

logger = logging.getLogger(__name__)


class Participant(Protocol):
    """Whoever staged something for the next commit: a coordinator's shard, a topic's partition."""

    def seal(self) -> None:
        """The round closes: stage what is still being collected. May enlist other participants."""
        ...

    def committed(self) -> None:
        """What was staged is durable."""
        ...

    def failed(self, error: LogError) -> None:
        """What was staged is gone: memory must go back to what the log holds."""
        ...


class CommitPipeline:
    """Collects participants and the replies that wait for them, and commits them as one.

    Args:
        log: the engine whose `commit` makes everything staged durable, or nothing of it.

    Attributes:
        rounds: how many commits succeeded.
        failures: how many failed.
    """

    __slots__ = ("_answers", "_doom", "_log", "_on_dirty", "_participants", "failures", "rounds")

    def __init__(self, log: LogEngine) -> None:
        self._log = log
        self._participants: dict[Participant, None] = {}
        self._answers: list[tuple[Pending, Any]] = []
        self._on_dirty: Callable[[], None] | None = None
        self._doom: LogError | None = None
        self.rounds = 0
        self.failures = 0

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._participants) or bool(self._answers)

    @property
    def waiting(self) -> int:
        """How many answers wait for the next commit."""
        return len(self._answers)

    def when_dirty(self, callback: Callable[[], None]) -> None:
        """The driver's wake-up: called once a round, when the first participant enlists."""
        self._on_dirty = callback

    def enlist(self, participant: Participant) -> None:
        """`participant` has something for the next commit. Enlisting twice in a round is once."""
        participants = self._participants
        if participant not in participants:
            first = not participants
            participants[participant] = None
            if first and self._on_dirty is not None:
                self._on_dirty()

    def answer_later(self, pending: Pending, response: Any) -> None:
        """`pending` gets `response` once the present round is durable, in the order of these calls."""
        self._answers.append((pending, response))

    def doom(self, error: Exception) -> None:
        """Something of this round can never be written, and memory has moved on: its commit will fail as a whole.

        Half a round would be worse: replies that stand on what is missing would go out as if it were there.
        """
        logger.error("this round will not be written: %s", error)
        if self._doom is None:
            self._doom = error if isinstance(error, LogError) else LogError(f"{type(error).__name__}: {error}")

    def commit(self) -> bool:
        """Writes the round and releases its replies. Returns False if the write failed (replies then carry errors)."""
        if not self._participants and not self._answers:
            return True
        self._seal()
        participants, answers = self._participants, self._answers
        self._participants, self._answers = {}, []
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
        for participant in participants:
            try:
                participant.committed()
            except Exception:
                logger.exception("%r failed behind a commit", participant)
        for pending, response in answers:
            pending.complete(response)
        return True

    def _seal(self) -> None:
        """Closes the round. Sealing may enlist the partitions below: repeated until nobody new came."""
        participants = self._participants
        sealed = 0
        while sealed < len(participants):
            for participant in list(participants)[sealed:]:
                try:
                    participant.seal()
                except Exception as error:
                    self.doom(error)
                sealed += 1

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
