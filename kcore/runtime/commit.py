"""The commit pipeline: everything decided since the last commit becomes durable at once, then the replies go out.

Group commit without a timer: a round is whatever was decided since the last one began. While nothing is under way a
single request is committed alone and at once; under load a round carries hundreds. A commit runs in three steps, so
that a driver may put the middle one, the only one that touches a disk, on another thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kcore.log.errors import LogError

if TYPE_CHECKING:
    from kcore.log.interface import LogEngine
    from kcore.runtime.pending import Pending


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

    __slots__ = ("_answers", "_log", "_on_dirty", "_participants", "failures", "rounds")

    def __init__(self, log: LogEngine) -> None:
        self._log = log
        self._participants: dict[Participant, None] = {}
        self._answers: list[tuple[Pending, Any]] = []
        self._on_dirty: Callable[[], None] | None = None
        self.rounds = 0
        self.failures = 0

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._participants) or bool(self._answers)

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

    def commit(self) -> bool:
        """Writes the round and releases its replies. Returns False if the write failed (replies then carry errors)."""
        participants, answers = self._participants, self._answers
        if not participants and not answers:
            return True
        # Sealing may enlist the partitions below: iterate until nobody new came.
        sealed = 0
        while sealed < len(participants):
            for participant in list(participants)[sealed:]:
                participant.seal()
                sealed += 1
        self._participants, self._answers = {}, []
        try:
            self._log.commit()
        except LogError as error:
            self._fail(participants, answers, error)
            return False
        self.rounds += 1
        for participant in participants:
            participant.committed()
        for pending, response in answers:
            pending.complete(response)
        return True

    def _fail(self, participants: dict[Participant, None], answers: list[tuple[Pending, Any]], error: LogError) -> None:
        """Nothing of the round exists: every memory goes back to the log, every reply says so."""
        self.failures += 1
        for participant in participants:
            participant.failed(error)
        for pending, _ in answers:
            if not pending.done:
                pending.fail(pending.api.storage_error)
