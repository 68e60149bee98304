from typing import Any, NamedTuple, final

class BatchMetadata(NamedTuple):
    """A batch that a producer wrote.

    Attributes:
        first_sequence: the sequence of its first record; -1 where a coordinator wrote it.
        last_sequence: the sequence of its last record; -1 likewise.
        base_offset: the offset of its first record.
        last_offset: the offset of its last record.
        timestamp_ms: its largest timestamp, in ms since the epoch.
    """

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int

SavedProducer = tuple[int, int, int, int, tuple[BatchMetadata, ...]]

@final
class ProducerEntry:
    """One producer, as the partition last saw it.

    Attributes:
        producer_id: who.
        epoch: its newest epoch, -1 for one never seen.
        coordinator_epoch: the epoch of the coordinator that wrote its last end marker, -1 for none.
        last_timestamp_ms: when it last wrote (largest timestamp of its last batch, or the marker's).
        txn_first_offset: where its open transaction begins, -1 without one.
        batches: its last batches in this epoch, oldest first, at most 5: an idempotent client has at most so many
            requests in flight. More cannot be set: ValueError.
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
        """The sequence of its last record, -1 if it has none in this epoch."""

    def duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The remembered batch with exactly these sequences, if there is one."""

    def state(self) -> SavedProducer:
        """All of it as a value, for comparing and saving: epoch, coordinator epoch, last timestamp, first offset of the
        transaction, batches.
        """

    def restore(self, state: SavedProducer) -> None:
        """Goes back to what `state()` gave."""

class AbortedCore:
    """The list below `kcore.broker.data.aborted_transactions.AbortedTransactionIndex`, where C sees whether it is
    empty.
    """

    _entries: list[Any]

class ProducersCore:
    """What a partition knows of its producers, and how each append since the last commit is taken back.

    `kcore.broker.data.producer_state.ProducerStates` is the rest of it: which appends are refused, end markers, expiry.

    Attributes:
        entries: by producer id.
        open_transactions: producer id -> first offset, ascending by offset (a transaction opens at the log's end).
        verifications: producer id -> (transactional id, epoch) -> `Verification`, from the first request until the
            transaction's first batch or an end marker.
        aborted: the index of aborted transactions.
    """

    entries: dict[int, ProducerEntry]
    open_transactions: dict[int, int]
    verifications: dict[int, Any]
    owners: dict[int, str]
    aborted: Any  # an AbortedCore
    _completing: list[tuple[int, int]]

    def add_data(self, producer_id: int, epoch: int, batch: BatchMetadata, transactional: bool) -> None:
        """Keeps a batch that was appended, or is replayed."""

    def _touch(self, producer_id: int, offset: int) -> ProducerEntry:
        """The entry of a producer that is about to change, made if there is none, with a note of what it was."""

    def _has_notes_of(self, producer_id: int) -> bool:
        """Whether the producer's last append can still be taken back."""

    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction begins that is open, or whose marker is not durable; None without one."""

    def committed(self, high_watermark: int) -> None:
        """What was appended below `high_watermark` is durable and can no longer be taken back."""

    def _take_back(self, high_watermark: int) -> None:
        """Producers are again as they were before everything at or beyond `high_watermark`."""
