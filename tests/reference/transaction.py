"""Reference implementation of a transactional id: its state transitions and the record of its state. Tests compare it
with the compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from kcore.transaction.ending import SINCE_V5, Epoch
from kcore.transaction.states import (
    COMPLETION,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionStatus,
)
from kcore.transaction.transaction import LAST_EPOCH, Partitions


@dataclass(frozen=True)
class ReferenceTransaction:
    """The state of a transactional id, with the same fields as the compiled class `Transaction`."""

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    state: TransactionStatus
    partitions: Partitions
    start_ms: int
    last_update_ms: int
    client_version: int

    @property
    def completed_identity(self) -> tuple[int, int]:
        if self.next_producer_id != -1:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def encode_value(self, version: int) -> bytes:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=sorted(indexes)) for topic, indexes in self.partitions.items()
        ]
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is EMPTY else partitions,
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
        )
        if version:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.client_transaction_version = self.client_version
        return value.encode_value(version)


def encode_key(transactional_id: str) -> bytes:
    return TransactionLogKey(transactional_id=transactional_id).encode_key()


def add(
    transaction: ReferenceTransaction | None,
    producer_id: int,
    producer_epoch: int,
    topic_partitions: Iterable[tuple[str, int]],
    client_version: int,
    wall_ms: int,
) -> ErrorCode | ReferenceTransaction:
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.state in COMPLETION:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    partitions = dict(transaction.partitions)
    for topic, index in topic_partitions:
        partitions[topic] = partitions.get(topic, frozenset()) | {index}
    ongoing = transaction.state is ONGOING
    if ongoing and partitions == transaction.partitions:
        return ErrorCode.NONE
    return replace(
        transaction,
        previous_producer_id=transaction.producer_id,
        next_producer_id=-1,
        state=ONGOING,
        partitions=partitions,
        start_ms=transaction.start_ms if ongoing else wall_ms,
        last_update_ms=wall_ms,
        client_version=client_version,
    )


def check_since_v5(
    transaction: ReferenceTransaction | None, producer_id: int, producer_epoch: int, commit: bool
) -> ErrorCode | None:
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.state in COMPLETION:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    overflowed = (
        transaction.previous_producer_id == producer_id
        and producer_epoch == LAST_EPOCH
        and transaction.producer_epoch == 0
    )
    if transaction.producer_id != producer_id and not overflowed:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if overflowed or transaction.producer_epoch == producer_epoch + 1:
        epoch = Epoch.BEFORE_BUMP
    elif transaction.producer_epoch == producer_epoch:
        epoch = Epoch.CURRENT
    else:
        epoch = Epoch.OTHER
    return SINCE_V5[transaction.state, epoch, commit]


def prepare(
    transaction: ReferenceTransaction, commit: bool, version: int, wall_ms: int, take: Callable[[], int | None]
) -> ReferenceTransaction | None:
    epoch, last_epoch, next_id = transaction.producer_epoch, transaction.last_producer_epoch, -1
    if version >= 2:
        if epoch >= LAST_EPOCH:
            taken = take()
            if taken is None:
                return None
            next_id = taken
        epoch, last_epoch = min(epoch, LAST_EPOCH) + 1, epoch
    return replace(
        transaction,
        previous_producer_id=transaction.producer_id,
        next_producer_id=next_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        state=PREPARE_COMMIT if commit else PREPARE_ABORT,
        start_ms=transaction.start_ms if transaction.state is ONGOING else wall_ms,
        last_update_ms=wall_ms,
        client_version=version,
    )


def complete(transaction: ReferenceTransaction, wall_ms: int) -> ReferenceTransaction:
    producer_id, epoch = transaction.completed_identity
    return replace(
        transaction,
        producer_id=producer_id,
        previous_producer_id=transaction.producer_id,
        next_producer_id=-1,
        producer_epoch=epoch,
        state=COMPLETION[transaction.state],
        partitions={},
        last_update_ms=wall_ms,
    )
