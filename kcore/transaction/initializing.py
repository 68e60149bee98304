"""InitProducerId with a transactional id: a producer's identity for its next transactions (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.protocol.error_codes import ErrorCode
from kcore.transaction.ending import ProducerIdsExhaustedError
from kcore.transaction.states import COMPLETION, EMPTY, ONGOING
from kcore.transaction.transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    NO_TIME,
    Transaction,
)

if TYPE_CHECKING:
    from kcore.transaction.ending import TakeProducerId

Identity = tuple[int, int]
"""(producer id, epoch)."""


def check(transaction: Transaction | None, expected: Identity | None) -> ErrorCode:
    """Whether a producer may be (re-)initialised: NONE, or why not.

    Args:
        transaction: the transactional id as it is; None for a new one, which takes whoever comes: it may have been
            forgotten for want of use.
        expected: who the producer thinks it is (v3+); None if it says nothing.
    """
    if transaction is None:
        return ErrorCode.NONE
    if transaction.state in COMPLETION:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None:
        producer_id, epoch = expected
        rotated = producer_id == transaction.previous_producer_id and epoch >= LAST_EPOCH
        if producer_id != transaction.producer_id and not rotated:
            return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def initialize(
    transaction: Transaction | None, expected: Identity | None, timeout_ms: int, wall_ms: int, take: TakeProducerId
) -> Transaction | ErrorCode:
    """The identity for the next transactions; the id has none open, and `check` found nothing.

    Args:
        transaction: the id as it is; None for a new one.
        expected: who the producer thinks it is; None if it says nothing.
        timeout_ms: how long its transactions may take.
        wall_ms: now, in ms since the epoch.
        take: gives producer ids.

    Raises:
        ProducerIdsExhaustedError: there is no producer id now.
    """
    if transaction is None:
        return _empty(_taken(take), None, 0, NO_EPOCH, timeout_ms, wall_ms, 0)
    assert transaction.state is not ONGOING, "an open transaction is fenced first"
    epoch = transaction.producer_epoch
    version = transaction.client_version
    producer_id = previous = transaction.producer_id
    if expected is None:
        if transaction.exhausted:
            return _empty(_taken(take), previous, 0, NO_EPOCH, timeout_ms, wall_ms, version)
        return _empty(producer_id, previous, epoch + 1, NO_EPOCH, timeout_ms, wall_ms, version)
    if expected[1] == epoch:
        if transaction.exhausted:
            return _empty(_taken(take), previous, 0, epoch, timeout_ms, wall_ms, version)
        return _empty(producer_id, previous, epoch + 1, epoch, timeout_ms, wall_ms, version)
    if expected[1] == transaction.last_producer_epoch:
        # The producer repeats a request whose answer it never got, or was fenced and may go on as what it became.
        return _empty(producer_id, previous, epoch, expected[1], timeout_ms, wall_ms, version)
    return ErrorCode.PRODUCER_FENCED


def _taken(take: TakeProducerId) -> int:
    producer_id = take()
    if producer_id is None:
        raise ProducerIdsExhaustedError
    return producer_id


def _empty(
    producer_id: int,
    previous: int | None,
    epoch: int,
    last_epoch: int,
    timeout_ms: int,
    wall_ms: int,
    version: int,
) -> Transaction:
    return Transaction(
        producer_id,
        producer_id if previous is None else previous,
        NO_PRODUCER_ID,
        epoch,
        last_epoch,
        timeout_ms,
        EMPTY,
        NO_PARTITIONS,
        NO_TIME,
        wall_ms,
        version,
    )
