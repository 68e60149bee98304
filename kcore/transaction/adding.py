"""Adding partitions to a transaction, and looking whether they are in it (KIP-98, KIP-890)."""

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
    places: Iterable[tuple[str, int]],
    client_version: int,
    wall_ms: int,
) -> ErrorCode | Transaction:
    """Adds partitions; the first ones begin the transaction, from whatever state the last one left.

    Args:
        transaction: the transactional id as it is; None for one that is not known.
        producer_id: who asks.
        producer_epoch: in which epoch.
        places: (topic, partition) of each.
        client_version: the transaction.version behind the request.
        wall_ms: now, in ms since the epoch.

    Returns:
        What the id becomes; or a code: NONE if all of them are in already and nothing is to be written.
    """
    result = add_partitions(transaction, producer_id, producer_epoch, places, client_version, wall_ms)
    return result if isinstance(result, Transaction) else ErrorCode(result)


def verify(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> ErrorCode:
    """Whether a producer may write in its transaction now: NONE, then each partition must be in it; or why not."""
    if transaction is None or transaction.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.state in COMPLETION:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


def verify_partition(transaction: Transaction, topic: str, index: int) -> ErrorCode:
    """Whether a partition is in the transaction of a producer that `verify` found nothing against."""
    if index in transaction.partitions.get(topic, ()):
        return ErrorCode.NONE
    return ErrorCode.TRANSACTION_ABORTABLE
