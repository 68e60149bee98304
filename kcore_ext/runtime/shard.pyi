from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, final

from kcore_ext.batch import BatchBuilder
from kcore_ext.runtime.outcome import Outcome, Pending

@final
class EncodedRecords:
    """The encoded form of a list of records that a decision writes. A `RecordBlock` encodes its own records instead.

    Args:
        records: the records. The constructor encodes them, and raises any exception of their keys and values.

    Attributes:
        size_bytes: the maximum size of the records in a batch, without the batch's header.
    """

    def __init__(self, records: Iterable[Any]) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds the records to a batch, all with the same timestamp. Returns False if a record does not fit."""

class ParticipantCore:
    """A participant of rounds. The pipeline calls its `seal` and `committed` as C functions, so a subclass in Python
    must not override them.
    """

    allows_background_commit: bool
    """Documented in `Participant`."""

class ShardLogCore(ParticipantCore):
    """A partition that is a `ShardLog`. A shard calls its `append_built` and `end_offset` as C functions, so a subclass
    in Python must not override them.
    """

class MachineCore:
    """A state machine with the method of `BlockReplay`. A shard calls `replay_block` as a C function, so a subclass in
    Python must not override it.
    """

class PipelineCore:
    """The part of `CommitPipeline` that runs for every request: collects participants and waiting responses.

    It calls the abstract methods of `CommitPipeline` to report errors.
    """

    _participants: list[Any]
    _responses: list[Pending]
    _background_responses: list[Pending] | None
    allows_background_commit: bool
    """True if every participant of the round allows a background commit of the round."""
    changing: int
    """The number of changes of state in memory that have begun and not ended.

    It is 0 between decisions, unless an exception interrupted a change. In that case, the whole round fails, and its
    participants are reset to the contents of the log."""
    interrupted: bool
    """True from `_take_round` until the round is durable or has failed.

    It is False between calls, unless an exception interrupted a call. In that case, the state in memory may not match
    the log."""

    @property
    def dirty(self) -> bool:
        """True if the current round has changes to commit. A background commit does not count."""

    @property
    def committing(self) -> bool:
        """True while a background commit is being written or waits to be finished."""

    @property
    def has_uncommitted(self) -> bool:
        """True if any decision is not durable yet: `dirty` or `committing`."""

    @property
    def waiting(self) -> int:
        """The number of responses that wait for the next commit."""

    def when_dirty(self, callback: Callable[[], None]) -> None:
        """Sets the driver's callback. The pipeline calls it once a round, when the first participant enlists."""

    def enlist(self, participant: Any) -> None:
        """Adds a participant to the round, before the participant changes its state.

        A second call in the same round has no effect.

        If this call raises, the round is unchanged.
        """

    def respond_after_commit(self, pending: Pending, response: Any) -> None:
        """Completes `pending` with `response` once the current round is durable, in the order of these calls."""

    def respond_after_background(self, pending: Pending, response: Any) -> None:
        """Completes `pending` with `response` once the background commit is durable."""

    def _take_round(self) -> tuple[list[Any], list[Pending]]:
        """Returns the round's participants and responses, and begins the next round; sets `interrupted`.

        If this call raises, the round is unchanged.
        """

    def _give_back(self, participants: list[Any], responses: list[Pending]) -> None:
        """Undoes `_take_round`, before another participant enlists."""

    def _begin_background(self, participants: list[Any], responses: list[Pending]) -> None:
        """Marks a taken round as a background commit. Later decisions of its shards belong to the next round."""

    def _seal(self) -> None:
        """Seals every participant of the round, including partitions that sealing a shard enlists."""

    def _release(self, participants: list[Any], responses: list[Pending]) -> None:
        """Calls `committed` of every participant, then completes every response, in order."""

    @abstractmethod
    def abort_round(self, error: BaseException) -> None:
        """Marks the whole round as failed, because a part of it cannot be written."""

    @abstractmethod
    def _failed_after_commit(self, participant: Any, error: Exception) -> None:
        """Reports a participant that failed after its records became durable."""

    @abstractmethod
    def _response_failed(self, pending: Pending, error: Exception) -> None:
        """Reports a response that could not be completed."""

class ShardCore(ParticipantCore):
    """The part of `Shard` that runs for every request.

    It calls the abstract methods of `Shard` for responses of parked requests and to handle errors.
    """

    machine: Any
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
        """Handles a request of a client.

        Returns the response, or a `Pending` if the response is parked or must wait for the commit.
        """

    def respond(self, pending: Pending, response: Any) -> None:
        """Completes a parked request after the commit of this decision and of all earlier ones."""

    def write(self, outcome: Outcome) -> Any:
        """Appends the records of a decision that is not a client's request.

        Returns:
            The reason for which the records were refused, or None if they were appended.
        """

    def _append(self, outcome: Outcome) -> Any:
        """Encodes, replays and collects the records of one decision.

        Returns:
            None, or an error code if the records were refused. The caller replaces KAFKA_STORAGE_ERROR by the
            `storage_error` of the API.
        """

    def _append_transactional(self, outcome: Outcome, records: Any) -> Any:
        """Writes the records of a producer's transaction as a separate batch, and applies them.

        Returns:
            None, or an error code if the records were refused.
        """

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int = 0,
    ) -> Any:
        """Writes the end marker of a producer's transaction after all earlier decisions, and applies it (KIP-98).

        Args:
            producer_id: the producer of the transaction.
            producer_epoch: the epoch in the marker.
            coordinator_epoch: the epoch of the transaction coordinator.
            commit: True for a commit, False for an abort.
            transaction_version: the transaction.version in the marker (KIP-1228).

        Returns:
            NONE, or an error code if the marker was not written.
        """

    def _replay(self, records: Any, producer_id: int, first_offset: int) -> None:
        """Applies records to the state in memory. If the call raises, it has applied only some of the records."""

    def _collect(self, batch: BatchBuilder, records: Any) -> None:
        """Adds encoded records, an `EncodedRecords` or a `RecordBlock`, to a batch with room for them."""

    def seal(self) -> bool:
        """Stages the open batch in the log, at the end of the round (see `Participant`) or before another batch begins.

        Returns:
            False if the log refused the batch; the round then fails.
        """

    def committed(self) -> None:
        """Marks the decisions of the committed round as durable (see `Participant`)."""

    topic: str
    index: int
    _lost: Any
    _taken: Any

    @property
    @abstractmethod
    def refusal(self) -> Any:
        """The error code for requests that arrive while the shard is not ACTIVE."""

    @abstractmethod
    def _failed(self, api: Any, context: Any, request: Any, error: Exception) -> Any:
        """Returns the error response to a request whose decision raised."""

    @abstractmethod
    def _refuse(self, api: Any, context: Any, request: Any, reply: Any, code: Any) -> Any:
        """Returns the error response to a request whose records were refused."""

    @abstractmethod
    def _unwritten(self, action: object, refused: Any) -> None:
        """Reports a refused decision that is not a client's request."""

    @abstractmethod
    def _release(self) -> None:
        """Completes the responses that a decision has made to parked requests, or adds them to the commit on which they
        depend.
        """

    @abstractmethod
    def _unencodable(self, error: Exception) -> Any:
        """Reports a record that cannot be encoded. Returns the error code."""

    @abstractmethod
    def _too_large(self, size_bytes: int) -> Any:
        """Reports a decision that does not fit in one batch. Returns the error code."""

    @abstractmethod
    def _refused_by_log(self, error: Exception) -> Any:
        """Returns the error code for a producer's batch or a marker that the log refused."""

    @abstractmethod
    def _mark_for_reload(self, error: Exception) -> Any:
        """Stops deciding until the log is loaded again, because memory holds a part of a decision that the log will not
        have.

        Returns the error code.
        """

    @abstractmethod
    def _not_replayed(self, error: Exception) -> Any:
        """Fails the round, because the state in memory does not match the staged records. Returns the error code."""

    @abstractmethod
    def _abort_round(self, error: Exception) -> None:
        """Aborts the whole round and stops deciding, because the state in memory is ahead of the log."""
