"""State of a partition's producers: sequences, epochs, open transactions (KIP-98, KIP-360, KIP-890, KIP-1228).

Checks are separate from changes: an append passes all checks before any state changes. A change records the previous
state, so that an append whose commit fails can be rolled back together with later appends.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcore.broker.data.aborted_transactions import AbortedTransaction, AbortedTransactionIndex
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.broker.producers import MAX_BATCHES, BatchMetadata, ProducerEntry, ProducersCore

__all__ = [
    "MAX_SEQUENCE",
    "BatchMetadata",
    "ProducerEntry",
    "ProducerStates",
    "VerificationGuard",
    "increment_sequence",
]

MAX_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1
ENDED_BEFORE_COPY = 1_000
"""Number of ended transactions after which the dictionary of the open transactions is copied.

A dictionary keeps an empty slot for each removed entry, and the search for its first entry passes these slots. With
100,000 open transactions that end in order, the end of each would take 100 µs.
"""


def increment_sequence(sequence: int, by: int) -> int:
    """Returns `sequence + by`; sequences wrap from 2147483647 to 0."""
    if sequence > MAX_SEQUENCE - by:
        return by - (MAX_SEQUENCE - sequence) - 1
    return sequence + by


class VerificationGuard:
    """The guard of one transaction of a producer in a partition (KIP-890), named as in Kafka.

    The coordinator verifies the transaction before its first batch is appended. An end marker or the first batch
    removes the guard from the partition. The partition refuses an append whose guard was removed.

    Each combination of transactional id, producer id and epoch has its own object, because the coordinator has not
    confirmed the combination yet. So a request with a forged producer id cannot change the object of the real producer.

    Attributes:
        transactional_id: the id under which the producer writes.
        epoch: the producer's epoch.
        supports_epoch_bump: True if the producer follows transaction.version 2, in which each transaction starts at
            sequence 0.
        created_ms: wall-clock time of the first request, in ms; the guard expires a fixed time after it.
        lowest_sequence: the lowest first sequence of the requests that were not rejected; a batch with a higher
            sequence may not be appended first. None before the coordinator's first result.
    """

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "supports_epoch_bump", "transactional_id")

    def __init__(self, transactional_id: str, epoch: int, supports_epoch_bump: bool, created_ms: int) -> None:
        self.transactional_id = transactional_id
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.created_ms = created_ms
        self.lowest_sequence: int | None = None


class ProducerStates(ProducersCore):
    """The producers of one partition, and its open and aborted transactions.

    `ProducersCore` holds the attributes and the compiled code that runs for every batch.
    """

    __slots__ = ("_ended", "_refused_before")

    verification_guards: dict[int, dict[tuple[str, int], VerificationGuard]]
    aborted: AbortedTransactionIndex

    def __init__(self) -> None:
        self.aborted = AbortedTransactionIndex()
        self._ended = 0  # since the last copy
        self._refused_before: tuple[int, ...] = ()  # the producers in `refused` at the last expiry

    # ---- data

    def check_client_data(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        transactional: bool,
        guard: VerificationGuard | None = None,
        verify: bool = False,
    ) -> BatchMetadata | None:
        """Checks the epoch, the sequences and the transaction of a client's batch; changes nothing.

        Args:
            producer_id: the batch's producer.
            epoch: the producer's epoch.
            first_sequence: the batch's first sequence.
            last_sequence: the batch's last sequence.
            transactional: True if the batch belongs to a transaction.
            guard: the guard of the verification that the coordinator confirmed for this batch; None if none was needed.
            verify: True if the first batch of a transaction needs a guard that is still valid.

        Returns:
            None if the batch may be appended. For a duplicate, the metadata of the original batch, whose offset the
            response carries.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            if transactional and verify and not self._is_guarded(producer_id, guard):
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
            if self.refused:
                self._check_after_refusal(producer_id, epoch, first_sequence)
            if guard is not None:
                self._check_verified_sequence(guard, first_sequence, is_first_batch=True)
            return None
        known = entry.epoch
        follows = first_sequence == 0
        if epoch == known:
            last = entry.last_sequence
            follows = first_sequence == last + 1
            if not follows:
                # A batch that directly follows the last batch is no duplicate. Any other batch may be a duplicate.
                duplicate = entry.duplicate(epoch, first_sequence, last_sequence)
                if duplicate is not None:
                    return duplicate
                follows = first_sequence == 0 and last == MAX_SEQUENCE
        elif epoch < known:
            if not (transactional and self._is_guarded(producer_id, guard)) or self._is_transactional(entry):
                raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
            # The higher epoch is not that of a transaction in this partition. The coordinator has verified the lower
            # epoch, so another client wrote with this producer id.
        elif not transactional and producer_id in self.owners:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        opens = transactional and (entry.txn_first_offset < 0 or epoch != known)
        if opens and verify and not self._is_guarded(producer_id, guard):
            # Begin and end of the transaction in this partition remove the guard, so a late verification cannot open
            # a transaction (KIP-890).
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        if guard is not None:
            self._check_verified_sequence(guard, first_sequence, is_first_batch=not entry.batches)
        if not follows:
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if entry.txn_first_offset >= 0 and not transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return None

    def _check_after_refusal(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        """Refuses a batch of an unknown producer if an earlier batch of this producer could not be stored.

        The client sends several batches at a time, and repeats the batch that was refused. An unknown producer may
        begin with any sequence. So without this check the partition would append the later batch, and could never
        append the earlier batch.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        refused = self.refused.get(producer_id)
        if refused is not None and refused[0] == epoch and refused[1] < first_sequence:
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def adopt_refused(self, before: ProducerStates) -> None:
        """Takes over the list of refused batches from an earlier state of the same partition, such as a placeholder."""
        for producer_id, (epoch, sequence) in before.refused.items():
            self.refuse(producer_id, epoch, sequence)

    def adopt_deleted(self, before: ProducerStates, log_start_offset: int) -> None:
        """Takes over the producers of an earlier snapshot that have no batch in the log. For the other producers,
        takes over the snapshot's batches below the start of the log.

        A transaction that was open in the snapshot is not taken over: compaction may have removed its marker.
        """
        for producer_id, entry in before.entries.items():
            own = self.entries.get(producer_id)
            if own is None:
                entry.txn_first_offset = -1
                self.entries[producer_id] = entry
            elif own.epoch == entry.epoch:
                deleted = tuple(batch for batch in entry.batches if batch.last_offset < log_start_offset)
                own.batches = (deleted + own.batches)[-MAX_BATCHES:]

    @staticmethod
    def _is_transactional(entry: ProducerEntry) -> bool:
        """Returns True if this partition has, or had, a transaction of this producer."""
        return entry.txn_first_offset >= 0 or entry.coordinator_epoch >= 0

    def _is_guarded(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Returns True if the partition still has this guard.

        The partition has at most one guard for each combination of transactional id, producer and epoch.
        """
        if guard is None:
            return False
        own = self.verification_guards.get(producer_id)
        return own is not None and own.get((guard.transactional_id, guard.epoch)) is guard

    @staticmethod
    def _check_verified_sequence(guard: VerificationGuard, first_sequence: int, *, is_first_batch: bool) -> None:
        """Refuses a batch that would be appended before the first batch of the transaction.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        lowest = guard.lowest_sequence
        if (guard.supports_epoch_bump and is_first_batch and first_sequence != 0) or (
            lowest is not None and first_sequence > lowest
        ):
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def check_coordinator_data(self, producer_id: int, epoch: int, transactional: bool) -> None:
        """Checks the epoch and the transaction of a coordinator's batch. Such batches have no sequences.

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
        """Checks that an end marker may be appended.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.entries.get(producer_id)
        known, known_coordinator = (-1, -1) if entry is None else (entry.epoch, entry.coordinator_epoch)
        fenced = epoch < known
        if transaction_version >= 2 and entry is not None and epoch == known < MAX_EPOCH:
            # KIP-1228: a marker of transaction.version 2 carries an epoch above that of its data. An equal epoch
            # without an open transaction means a repeated marker, whose first response was lost. The largest epoch has
            # no epoch above it.
            fenced = entry.txn_first_offset >= 0
        if fenced:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if known_coordinator > coordinator_epoch:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    def add_marker(
        self, producer_id: int, epoch: int, offset: int, timestamp_ms: int, coordinator_epoch: int, commit: bool
    ) -> None:
        """Applies an appended or replayed end marker: ends the producer's transaction."""
        entry = self._prepare_change(producer_id, offset)
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches = ()
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        first_offset = entry.txn_first_offset
        if first_offset >= 0:
            entry.txn_first_offset = -1
            self._forget_open(producer_id)
            self._completing.append((first_offset, offset))
            if not commit:
                earliest = next(iter(self.open_transactions.values()), offset + 1)
                self.aborted.add(AbortedTransaction(producer_id, first_offset, offset, earliest))
        self.verification_guards.pop(producer_id, None)

    def _forget_open(self, producer_id: int) -> None:
        """Removes a transaction that has ended from the open transactions."""
        del self.open_transactions[producer_id]
        self._ended += 1
        if self._ended >= ENDED_BEFORE_COPY:
            self._ended = 0
            self.open_transactions = dict(self.open_transactions)

    # ---- commit

    def rollback(self, high_watermark: int) -> None:
        """Rolls back all changes by batches at or beyond `high_watermark`, whose commit failed."""
        self._take_back(high_watermark)
        self.aborted.truncate(high_watermark)
        self.find_open_transactions()

    def find_open_transactions(self) -> None:
        """Rebuilds the open transactions from the entries."""
        still_open = [entry for entry in self.entries.values() if entry.txn_first_offset >= 0]
        still_open.sort(key=lambda entry: entry.txn_first_offset)
        self.open_transactions = {entry.producer_id: entry.txn_first_offset for entry in still_open}

    # ---- verification

    def begin_verification(
        self, producer_id: int, transactional_id: str, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """Returns the guard for a request that the coordinator is about to verify, creating it if there is none.

        The call itself has no effect on other requests. The caller must call `settle_verification` afterwards.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH if a newer epoch has written to the partition.
        """
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch and self._is_transactional(entry):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        own = self.verification_guards.setdefault(producer_id, {})
        guard = own.get((transactional_id, epoch))
        if guard is None:
            guard = VerificationGuard(transactional_id, epoch, supports_epoch_bump, now_ms)
            own[transactional_id, epoch] = guard
        return guard

    def settle_verification(
        self, producer_id: int, guard: VerificationGuard, first_sequence: int, rejected: bool
    ) -> None:
        """Applies the coordinator's result to the guard of a request.

        Args:
            producer_id: the request's producer.
            guard: from `begin_verification`.
            first_sequence: the first sequence of the request's batch. Unless the request is rejected, no later batch
                may be appended before this batch. The rule also applies if the coordinator was unreachable, because the
                client then sends the batch again.
            rejected: True if the coordinator found that the partition or the producer is not in this transaction. The
                method then removes the guard, unless another request with this guard was not rejected.
        """
        if not rejected:
            lowest = guard.lowest_sequence
            guard.lowest_sequence = first_sequence if lowest is None else min(lowest, first_sequence)
        elif guard.lowest_sequence is None and self._is_guarded(producer_id, guard):
            own = self.verification_guards[producer_id]
            del own[guard.transactional_id, guard.epoch]
            if not own:
                del self.verification_guards[producer_id]

    def has_open_transaction(self, producer_id: int, epoch: int, transactional_id: str) -> bool:
        """Returns True if the transactional id has an open transaction of this epoch in the partition. A batch then
        needs no verification.

        A restart forgets which transactional id owns the transaction, so the next batch of the transaction is verified
        again.
        """
        entry = self.entries.get(producer_id)
        return (
            entry is not None
            and entry.epoch == epoch
            and entry.txn_first_offset >= 0
            and self.owners.get(producer_id) == transactional_id
        )

    # ---- expiry

    def expire(self, wall_ms: int, expiration_ms: int, slice_size: int) -> Iterator[None]:
        """Removes producers that were idle for `expiration_ms`, and guards that are older than `expiration_ms`.

        It keeps producers with an open transaction or with an append that is not durable. It forgets batches that were
        refused before the previous call. The generator pauses after every `slice_size` producers.
        """
        for producer_id in self._refused_before:
            self.refused.pop(producer_id, None)
        self._refused_before = tuple(self.refused)
        until_pause = slice_size
        for producer_id in list(self.entries):
            entry = self.entries.get(producer_id)
            if entry is None:
                continue
            idle = entry.txn_first_offset < 0 and wall_ms - entry.last_timestamp_ms >= expiration_ms
            if idle and not self._has_pending_append(producer_id):
                del self.entries[producer_id]
                self.owners.pop(producer_id, None)
            until_pause -= 1
            if not until_pause:
                until_pause = slice_size
                yield
        for producer_id, own in list(self.verification_guards.items()):
            for key in [key for key, guard in own.items() if wall_ms - guard.created_ms >= expiration_ms]:
                del own[key]
            if not own and self.verification_guards.get(producer_id) is own:
                del self.verification_guards[producer_id]
                if producer_id not in self.entries:
                    self.owners.pop(producer_id, None)
            until_pause -= 1
            if not until_pause:
                until_pause = slice_size
                yield
