from typing import Any, Final, NamedTuple, final

MAX_BATCHES: Final[int]
"""Maximum number of a producer's newest batches that a partition remembers."""

class BatchMetadata(NamedTuple):
    """The metadata of a batch that a producer wrote.

    Attributes:
        first_sequence: the sequence of the batch's first record; -1 if a coordinator wrote it.
        last_sequence: the sequence of the batch's last record; -1 if a coordinator wrote it.
        base_offset: the offset of the batch's first record.
        last_offset: the offset of the batch's last record.
        timestamp_ms: the largest timestamp of the batch, in ms since the epoch.
    """

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int

SavedProducer = tuple[int, int, int, int, tuple[BatchMetadata, ...]]

@final
class ProducerEntry:
    """The state of one producer in a partition.

    Attributes:
        producer_id: the producer's id.
        epoch: the producer's newest epoch; -1 before its first write.
        coordinator_epoch: the epoch of the coordinator that wrote its last end marker; -1 for none.
        last_timestamp_ms: time of the producer's last write (the largest timestamp of its last batch, or the marker's).
        txn_first_offset: the first offset of the producer's open transaction; -1 if no transaction is open.
        batches: the producer's last batches in this epoch, oldest first; at most 5, because an idempotent client sends
            at most 5 requests before it gets a response. Setting more batches raises ValueError.
    """

    epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    txn_first_offset: int
    batches: tuple[BatchMetadata, ...]

    def __init__(self, producer_id: int) -> None: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def last_sequence(self) -> int:
        """The sequence of its last record; -1 if it has none in this epoch."""

    def duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Returns the stored batch with this epoch, first sequence and last sequence, or None."""

    def state(self) -> SavedProducer:
        """Returns the state as a tuple: epoch, coordinator epoch, last timestamp, first offset of the transaction,
        batches.
        """

    def restore(self, state: SavedProducer) -> None:
        """Restores a state that `state()` returned."""

    def encode(self) -> bytes:
        """Encodes the state for a snapshot; `kcore.broker.data.producer_snapshot` describes the format."""

    @staticmethod
    def decode_all(chunk: bytes, position: int, entries: dict[int, ProducerEntry]) -> None:
        """Decodes the producers of a snapshot's chunk into `entries`, by producer id.

        Args:
            chunk: encoded producers, one after the other.
            position: the position of the first producer.
            entries: the dictionary to which the producers are added.

        Raises:
            ValueError: the chunk is damaged.
        """

    def wrote(self, last_offset: int, newest: bool) -> bool:
        """Returns True if one of `batches` has this last offset. With `newest`, tests only the newest batch."""

class AbortedCore:
    """Compiled base of `kcore.broker.data.aborted_transactions.AbortedTransactionIndex`.

    It stores the list of entries, so that compiled code can test if it is empty.
    """

    _entries: list[Any]

class ProducersCore:
    """The state of a partition's producers, with the data to roll back each append since the last commit.

    Its subclass `kcore.broker.data.producer_state.ProducerStates` adds the checks of appends, end markers and expiry.

    Attributes:
        entries: producer id -> state.
        open_transactions: producer id -> first offset of its open transaction, in ascending order of the offsets.
        verification_guards: producer id -> (transactional id, epoch) -> `VerificationGuard`. An entry exists from the
            first request until the transaction's first batch or an end marker.
        aborted: the index of aborted transactions.
        refused: producer id -> (epoch, first sequence) of the producer's first batch, for producers that are not in
            `entries` because this batch could not be stored.
    """

    entries: dict[int, ProducerEntry]
    open_transactions: dict[int, int]
    verification_guards: dict[int, Any]
    owners: dict[int, str]
    refused: dict[int, tuple[int, int]]
    aborted: Any  # an AbortedCore
    _completing: list[tuple[int, int]]

    def add_data(self, producer_id: int, epoch: int, batch: BatchMetadata, transactional: bool) -> None:
        """Applies an appended or replayed batch."""

    def _prepare_change(self, producer_id: int, offset: int) -> ProducerEntry:
        """Returns the entry of a producer that is about to change, and stores the entry's current state for a rollback.

        Creates the entry if it is missing.
        """

    def _has_pending_append(self, producer_id: int) -> bool:
        """Returns True if the producer's last append is not durable, so that it may be rolled back."""

    def durable_entries(self) -> list[ProducerEntry]:
        """Returns the producers' state before the appends that are not durable, as a new list."""

    def first_unstable_offset(self) -> int | None:
        """Returns the start of the earliest transaction that is open or has no durable marker, or None."""

    def committed(self, high_watermark: int) -> None:
        """Drops the rollback data of appends below `high_watermark`, which are durable."""

    def refuse(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Records in `refused` that a producer's batch was refused, and that the producer may send it again.

        If the producer has no entry in `entries`, the partition accepts no later batch of the producer before this
        batch. `refused` has at most 100 producers; the oldest is removed first.
        """

    def _take_back(self, high_watermark: int) -> None:
        """Restores the state that the producers had before the appends at or beyond `high_watermark`."""
