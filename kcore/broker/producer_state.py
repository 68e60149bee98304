"""What a partition knows of its producers: sequences, epochs, open transactions (KIP-98, KIP-360, KIP-890, KIP-1228).

Checks are separate from changes: everything about an append is checked before anything of it is kept. A change leaves
a note of what was there before, so that an append whose commit fails can be taken back, with what came after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from kcore.broker.transaction_index import AbortedTransaction, AbortedTransactionIndex
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

CACHED_BATCHES = 5
"""How many batches of a producer are remembered: an idempotent client has at most so many requests in flight."""
MAX_SEQUENCE = 2**31 - 1
NO_EPOCH = -1
NO_SEQUENCE = -1


def increment_sequence(sequence: int, by: int) -> int:
    """`sequence + by`; sequences wrap from 2147483647 to 0."""
    if sequence > MAX_SEQUENCE - by:
        return by - (MAX_SEQUENCE - sequence) - 1
    return sequence + by


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


_Saved = tuple[int, int, int, int, tuple[BatchMetadata, ...]]


class ProducerEntry:
    """One producer, as the partition last saw it.

    Attributes:
        producer_id: who.
        epoch: its newest epoch, -1 for one never seen.
        coordinator_epoch: the epoch of the coordinator that wrote its last end marker, -1 for none.
        last_timestamp_ms: when it last wrote (largest timestamp of its last batch, or the marker's).
        txn_first_offset: where its open transaction begins, -1 without one.
        batches: its last batches in this epoch, oldest first, at most `CACHED_BATCHES`.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp_ms", "producer_id", "txn_first_offset")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.txn_first_offset = -1
        self.batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record, -1 if it has none in this epoch."""
        batches = self.batches
        return batches[-1].last_sequence if batches else NO_SEQUENCE

    def duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The remembered batch with exactly these sequences, if there is one."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None

    def state(self) -> _Saved:
        """All of it as a value: for undoing, comparing and saving."""
        return self.epoch, self.coordinator_epoch, self.last_timestamp_ms, self.txn_first_offset, self.batches

    def restore(self, state: _Saved) -> None:
        """Goes back to what `state()` gave."""
        self.epoch, self.coordinator_epoch, self.last_timestamp_ms, self.txn_first_offset, self.batches = state


class Verification:
    """A transaction that is being verified for a partition, and has not written to it yet (KIP-890).

    Its identity is the guard: an append that was verified under another object comes too late.

    Attributes:
        epoch: the producer's epoch.
        lowest_sequence: the lowest first sequence that asked: nothing above it may be appended first.
        supports_epoch_bump: the producer follows transaction.version 2, where each transaction starts at sequence 0.
        created_ms: wall-clock ms of the last request that asked.
    """

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, epoch: int, lowest_sequence: int, supports_epoch_bump: bool, created_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.supports_epoch_bump = supports_epoch_bump
        self.created_ms = created_ms


class ProducerStates:
    """The producers of one partition, its open transactions and its aborted ones.

    Attributes:
        entries: by producer id.
        open_transactions: producer id -> first offset, ascending by offset (a transaction opens at the log's end).
        aborted: the index of aborted transactions.
        verifications: producer id -> the verification under way.
    """

    __slots__ = ("_completing", "_undo", "aborted", "entries", "open_transactions", "verifications")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.open_transactions: dict[int, int] = {}
        self.aborted = AbortedTransactionIndex()
        self.verifications: dict[int, Verification] = {}
        # Transactions whose marker is not durable yet: (first offset, marker's offset). They still hold readers back.
        self._completing: list[tuple[int, int]] = []
        # What each append since the last commit found: (its offset, producer id, state or None for an unknown one).
        self._undo: deque[tuple[int, int, _Saved | None]] = deque()

    # ---- data

    def check_client_data(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        transactional: bool,
        guard: Verification | None = None,
        verify: bool = False,
    ) -> BatchMetadata | None:
        """Whether a client's batch may be appended now.

        Args:
            producer_id: who writes.
            epoch: in which epoch.
            first_sequence: the batch's first sequence.
            last_sequence: its last.
            transactional: whether it belongs to a transaction.
            guard: under which its transaction was verified; None if it was not.
            verify: whether the first batch of a transaction needs that.

        Returns:
            None if it may; the batch that it repeats if it is a duplicate (it is answered with that one's offset).

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        entry = self.entries.get(producer_id)
        verification = self.verifications.get(producer_id) if self.verifications else None
        if entry is None:
            if transactional and verify and (guard is None or verification is not guard):
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
            if verification is not None:
                self._check_verified_sequence(verification, first_sequence, True)
            return None
        known = entry.epoch
        follows = first_sequence == 0
        if epoch == known:
            last = entry.last_sequence
            follows = first_sequence == last + 1
            if not follows:
                # What follows the last batch cannot repeat one; everything else may, and is then no error.
                duplicate = entry.duplicate(epoch, first_sequence, last_sequence)
                if duplicate is not None:
                    return duplicate
                follows = first_sequence == 0 and last == MAX_SEQUENCE
        elif epoch < known:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        opens = transactional and (entry.txn_first_offset < 0 or epoch != known)
        if opens and verify and (guard is None or verification is not guard):
            # The guard is gone once the transaction has begun or ended here: a late answer opens nothing (KIP-890).
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        if verification is not None:
            self._check_verified_sequence(verification, first_sequence, not entry.batches)
        if not follows:
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if entry.txn_first_offset >= 0 and not transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return None

    @staticmethod
    def _check_verified_sequence(verification: Verification, first_sequence: int, first_batch: bool) -> None:
        """While a transaction is verified, no later batch may overtake the one that began it."""
        if (verification.supports_epoch_bump and first_batch and first_sequence != 0) or (
            first_sequence > verification.lowest_sequence
        ):
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def check_coordinator_data(self, producer_id: int, epoch: int, transactional: bool) -> None:
        """Whether a coordinator may append on behalf of a producer: the epoch counts, sequences do not exist.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if entry.txn_first_offset >= 0 and not transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def add_data(self, producer_id: int, epoch: int, batch: BatchMetadata, transactional: bool) -> None:
        """Keeps a batch that was appended, or is replayed."""
        entry = self._touch(producer_id, batch.base_offset)
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches = (batch,)
        elif len(entry.batches) < CACHED_BATCHES:
            entry.batches = (*entry.batches, batch)
        else:
            entry.batches = (*entry.batches[1:], batch)
        entry.last_timestamp_ms = batch.timestamp_ms
        if transactional:
            if entry.txn_first_offset < 0:
                entry.txn_first_offset = batch.base_offset
                self.open_transactions[producer_id] = batch.base_offset
            if self.verifications:
                self.verifications.pop(producer_id, None)

    # ---- end markers

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Whether an end marker may be appended.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if transaction_version >= 2:
            # KIP-1228: a marker of transaction.version 2 carries an epoch above its data's. An equal one without an
            # open transaction repeats a marker whose answer was lost.
            fenced = epoch < entry.epoch or (epoch == entry.epoch and entry.txn_first_offset >= 0)
        else:
            fenced = epoch < entry.epoch
        if fenced:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if entry.coordinator_epoch > coordinator_epoch:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    def add_marker(
        self, producer_id: int, epoch: int, offset: int, timestamp_ms: int, coordinator_epoch: int, commit: bool
    ) -> None:
        """Keeps an end marker that was appended, or is replayed: the producer's transaction is over."""
        entry = self._touch(producer_id, offset)
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches = ()
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        first_offset = entry.txn_first_offset
        if first_offset >= 0:
            entry.txn_first_offset = -1
            del self.open_transactions[producer_id]
            self._completing.append((first_offset, offset))
            if not commit:
                earliest = next(iter(self.open_transactions.values()), offset + 1)
                self.aborted.add(AbortedTransaction(producer_id, first_offset, offset, earliest))
        self.verifications.pop(producer_id, None)

    # ---- commit

    def _touch(self, producer_id: int, offset: int) -> ProducerEntry:
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
            self._undo.append((offset, producer_id, None))
        else:
            self._undo.append((offset, producer_id, entry.state()))
        return entry

    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction begins that is open, or whose marker is not durable; None without one."""
        first = None
        for offset in self.open_transactions.values():
            first = offset
            break
        for offset, _ in self._completing:
            if first is None or offset < first:
                first = offset
        return first

    def committed(self, high_watermark: int) -> None:
        """What was appended below `high_watermark` is durable and can no longer be taken back."""
        undo = self._undo
        while undo and undo[0][0] < high_watermark:
            undo.popleft()
        if self._completing:
            self._completing = [pair for pair in self._completing if pair[1] >= high_watermark]

    def rollback(self, high_watermark: int) -> None:
        """Takes back everything at or beyond `high_watermark`: its commit failed."""
        undo = self._undo
        while undo and undo[-1][0] >= high_watermark:
            _, producer_id, state = undo.pop()
            if state is None:
                del self.entries[producer_id]
            else:
                # An entry cannot be missing: only idle ones expire, and one with an undo note just wrote.
                self.entries[producer_id].restore(state)
        self.aborted.truncate(high_watermark)
        self._completing = [pair for pair in self._completing if pair[1] < high_watermark]
        self.find_open_transactions()

    def find_open_transactions(self) -> None:
        """Lists the open transactions anew, from what the entries say."""
        still_open = [entry for entry in self.entries.values() if entry.txn_first_offset >= 0]
        still_open.sort(key=lambda entry: entry.txn_first_offset)
        self.open_transactions = {entry.producer_id: entry.txn_first_offset for entry in still_open}

    # ---- verification

    def begin_verification(
        self, producer_id: int, epoch: int, first_sequence: int, supports_epoch_bump: bool, now_ms: int
    ) -> Verification:
        """The guard under which a producer's transaction is verified for this partition; the one there is, if any.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH if a newer epoch has written here, or is being verified.
        """
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        verification = self.verifications.get(producer_id)
        if verification is None:
            verification = Verification(epoch, first_sequence, supports_epoch_bump, now_ms)
            self.verifications[producer_id] = verification
            return verification
        verification.created_ms = now_ms
        if epoch > verification.epoch:
            verification.epoch = epoch
            verification.lowest_sequence = first_sequence
        elif epoch == verification.epoch:
            verification.lowest_sequence = min(verification.lowest_sequence, first_sequence)
        else:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        return verification

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer already writes in a transaction of this epoch here: then there is nothing to verify."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.txn_first_offset >= 0

    # ---- expiry

    def expire(self, wall_ms: int, expiration_ms: int, slice_size: int) -> Iterator[None]:
        """Forgets producers and verifications that were idle for `expiration_ms`, pausing every `slice_size`.

        A producer in a transaction stays, and so does one whose last append is not durable yet.
        """
        until_pause = slice_size
        for producer_id, entry in list(self.entries.items()):
            if entry.txn_first_offset < 0 and wall_ms - entry.last_timestamp_ms >= expiration_ms:
                current = self.entries.get(producer_id) is entry
                if current and not any(note[1] == producer_id for note in self._undo):
                    del self.entries[producer_id]
            until_pause -= 1
            if not until_pause:
                until_pause = slice_size
                yield
        for producer_id, verification in list(self.verifications.items()):
            idle = wall_ms - verification.created_ms >= expiration_ms
            if idle and self.verifications.get(producer_id) is verification:
                del self.verifications[producer_id]
