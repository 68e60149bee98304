"""What a partition knows of its producers: sequences, epochs, open transactions (KIP-98, KIP-360, KIP-890, KIP-1228).

Checks are separate from changes: everything about an append is checked before anything of it is kept. A change leaves
a note of what was there before, so that an append whose commit fails can be taken back, with what came after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcore.broker.transaction_index import AbortedTransaction, AbortedTransactionIndex
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.producers import BatchMetadata, ProducerEntry, ProducersCore

__all__ = [
    "MAX_SEQUENCE",
    "BatchMetadata",
    "ProducerEntry",
    "ProducerStates",
    "Verification",
    "increment_sequence",
]

MAX_SEQUENCE = 2**31 - 1


def increment_sequence(sequence: int, by: int) -> int:
    """`sequence + by`; sequences wrap from 2147483647 to 0."""
    if sequence > MAX_SEQUENCE - by:
        return by - (MAX_SEQUENCE - sequence) - 1
    return sequence + by


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


class ProducerStates(ProducersCore):
    """The producers of one partition, its open transactions and its aborted ones.

    What changes with every batch is compiled: see `ProducersCore`, whose the attributes are.
    """

    __slots__ = ()

    verifications: dict[int, Verification]
    aborted: AbortedTransactionIndex

    def __init__(self) -> None:
        self.aborted = AbortedTransactionIndex()

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

    def rollback(self, high_watermark: int) -> None:
        """Takes back everything at or beyond `high_watermark`: its commit failed."""
        self._take_back(high_watermark)
        self.aborted.truncate(high_watermark)
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
                if current and not self._has_notes_of(producer_id):
                    del self.entries[producer_id]
            until_pause -= 1
            if not until_pause:
                until_pause = slice_size
                yield
        for producer_id, verification in list(self.verifications.items()):
            idle = wall_ms - verification.created_ms >= expiration_ms
            if idle and self.verifications.get(producer_id) is verification:
                del self.verifications[producer_id]
