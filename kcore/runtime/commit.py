"""The commit pipeline: everything decided since the last commit becomes durable at once, then the replies go out.

Group commit without a timer: a round is whatever was decided since the last one began. While nothing is under way a
single request is committed alone and at once; under load a round carries hundreds. A commit runs where its driver
calls it, on the thread that decides: replies never stand on facts that another thread still writes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kcore.log.errors import LogError
from kcore_ext.shard_core import PipelineCore

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


class CommitPipeline(PipelineCore):
    """Collects participants and the replies that wait for them (see `PipelineCore`), and commits them as one.

    Args:
        log: the engine whose `commit` makes everything staged durable, or nothing of it.

    Attributes:
        rounds: how many commits succeeded.
        failures: how many failed.
    """

    __slots__ = ("_doom", "_log", "failures", "rounds")

    def __init__(self, log: LogEngine) -> None:
        self._log = log
        self._doom: LogError | None = None
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
        self._release(participants, answers)
        return True

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
