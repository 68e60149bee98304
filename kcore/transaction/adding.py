"""Addition of partitions to a transaction, and verification that they are part of it (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Iterable

from kcore.protocol.error_codes import ErrorCode
from kcore.transaction.states import COMPLETION
from kcore.transaction.transaction import Transaction
from kcore_ext.transaction.transaction import add as add_partitions


def add(
    transaction: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[tuple[str, int]],
    client_version: int,
    wall_ms: int,
) -> ErrorCode | Transaction:
    """Adds partitions to a transaction. Begins the transaction if none is open or prepared.

    Args:
        transaction: the current state of the transactional id; None for an unknown id.
        producer_id: the producer id of the request.
        producer_epoch: the producer epoch of the request.
        partitions: (topic, partition) of each partition.
        client_version: the transaction.version of the request.
        wall_ms: the time, in ms since the epoch.

    Returns:
        The next state of the transactional id, or a code: an error, or NONE if the transaction already has all
        partitions.
    """
    result = add_partitions(transaction, producer_id, producer_epoch, partitions, client_version, wall_ms)
    return result if isinstance(result, Transaction) else ErrorCode(result)


def verify(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> ErrorCode:
    """Returns NONE if a producer may write in its transaction now, else the error code.

    The caller then checks each partition with `verify_partition`.
    """
    if transaction is None or transaction.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.state in COMPLETION:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


def verify_partition(transaction: Transaction, topic: str, index: int) -> ErrorCode:
    """Returns NONE if a partition is in the transaction, else TRANSACTION_ABORTABLE.

    The caller has called `verify` before.
    """
    if index in transaction.partitions.get(topic, ()):
        return ErrorCode.NONE
    return ErrorCode.TRANSACTION_ABORTABLE
