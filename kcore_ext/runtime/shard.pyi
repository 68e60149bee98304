from collections.abc import Callable, Iterable
from typing import Any, final

from kcore_ext.batch import BatchBuilder
from kcore_ext.runtime.outcome import Outcome, Pending

@final
class EncodedRecords:
    """Records as they go to the log, of a decision whose records are a list: the generic path (see `RecordBlock`).

    Args:
        records: they are encoded at once; whatever their keys and values raise is raised here.

    Attributes:
        size_bytes: what they take in a batch at most, without its header.
    """

    def __init__(self, records: Iterable[Any]) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds them to a batch, all with the same timestamp; False if one did not fit."""

class PipelineCore:
    """The part of `CommitPipeline` that is used for every request: who has something to commit, who waits for it."""

    _participants: dict[Any, None]
    _answers: list[tuple[Pending, Any]]
    _background_answers: list[tuple[Pending, Any]] | None
    allows_background_commit: bool
    """Whether the round may be written beside what is decided next: all who staged something in it allow that."""
    changing: int
    """Changes of memory that were begun and have not ended. It is 0 between decisions, unless a change was broken off:
    the round then fails as a whole, and its participants go back to the log."""
    settling: bool
    """Whether a round left the collection and is neither durable nor failed. It is False between calls, unless a call
    was broken off: memory and log may then disagree for good."""

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit, beside a round that is being written."""

    @property
    def committing(self) -> bool:
        """Whether a round is being written on another thread."""

    @property
    def has_uncommitted(self) -> bool:
        """Whether something was decided that is not durable yet: there is something to commit, or being written."""

    @property
    def waiting(self) -> int:
        """How many answers wait for the next commit."""

    def when_dirty(self, callback: Callable[[], None]) -> None:
        """The driver's wake-up: called once a round, when the first participant enlists."""

    def enlist(self, participant: Any) -> None:
        """Adds `participant` to the round, before it changes anything. Enlisting twice in a round is once.

        If this raises, nothing changed.
        """

    def answer_later(self, pending: Pending, response: Any) -> None:
        """`pending` gets `response` once the present round is durable, in the order of these calls."""

    def answer_after_background(self, pending: Pending, response: Any) -> None:
        """`pending` gets `response` once the round that is being written is durable."""

    def _take_round(self) -> tuple[dict[Any, None], list[tuple[Pending, Any]]]:
        """Returns the round's participants and answers, and begins the next round; sets `settling`.

        If it raises, nothing changed.
        """

    def _give_back(self, participants: dict[Any, None], answers: list[tuple[Pending, Any]]) -> None:
        """Undoes `_take_round`, before anything else was enlisted."""

    def _begin_background(self, participants: dict[Any, None], answers: list[tuple[Pending, Any]]) -> None:
        """The round of these goes to be written: what its shards decide from now on belongs to the next one."""

    def _seal(self) -> None:
        """Closes the round. Sealing may enlist the partitions below: repeated until nobody new came."""

    def _release(self, participants: dict[Any, None], answers: list[tuple[Pending, Any]]) -> None:
        """Tells every participant that the round is durable, then gives every answer out, in order."""

class ShardCore:
    """The part of `Shard` that is used for every request. What it calls when something is wrong is the shard's own."""

    machine: Any
    allows_background_commit: bool
    dirty: bool
    committing: bool
    _active: bool
    _log: Any
    _now: Any
    _pipeline: Any
    _batch: BatchBuilder | None
    _next_offset: int
    _max_batch_bytes: int
    _outbox: list[tuple[Pending, Any]]
    _parked: dict[Pending, None]
    _reload: bool
    leader_epoch: int
    def run(self, api: Any, context: Any, request: Any) -> Any:
        """Decides one request. Returns the response, or a `Pending` if it is parked or must wait for the commit."""

    def answer(self, pending: Pending, response: Any) -> None:
        """Answers a parked request after the commit of everything decided up to the end of this decision."""

    def write(self, outcome: Outcome) -> Any:
        """Takes facts that no client asked this shard for, and that were decided just now.

        Returns:
            Why nothing was taken; None if all of it was.
        """

    def _append(self, outcome: Outcome) -> Any:
        """Encodes, replays and collects the facts of one decision. Returns a code if nothing of it was taken;
        KAFKA_STORAGE_ERROR stands for the API's own `storage_error`.
        """

    def _append_transactional(self, outcome: Outcome, records: Any) -> Any:
        """Writes and applies the facts of a producer's transaction, a batch of their own. Returns a code if nothing of
        it was taken."""

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int = 0,
    ) -> Any:
        """Writes the end of a producer's transaction behind everything decided so far, and applies it (KIP-98).

        Args:
            producer_id: whose transaction.
            producer_epoch: the epoch that the marker carries.
            coordinator_epoch: the epoch of the transaction coordinator.
            commit: how it ended.
            transaction_version: the transaction.version behind the marker (KIP-1228).

        Returns:
            NONE, or why nothing was written.
        """

    def _replay(self, records: Any, producer_id: int, first_offset: int) -> None:
        """Applies facts to memory. What it raises leaves memory with a part of them."""

    def _collect(self, batch: BatchBuilder, records: Any) -> None:
        """Adds encoded facts, an `EncodedRecords` or a `RecordBlock`, to a batch with room for them."""

    def _close_batch(self) -> bool:
        """Hands the open batch to the log's staging; False if the log refused it, and the round is lost."""

    def seal(self) -> None:
        """The round closes: the open batch goes to the log's staging (`Participant`)."""

    def committed(self) -> None:
        """Everything decided is durable (`Participant`)."""
