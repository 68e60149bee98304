"""InitProducerId with a transactional id: the producer id and epoch of the next transactions (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kcore.protocol.error_codes import ErrorCode
from kcore.transaction.ending import next_producer_id
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


class Identity(NamedTuple):
    """The identity of a producer.

    Attributes:
        producer_id: the producer id.
        epoch: the producer epoch.
    """

    producer_id: int
    epoch: int


def check(transaction: Transaction | None, expected: Identity | None) -> ErrorCode:
    """Returns NONE if a producer may be (re-)initialised, else the error code.

    Args:
        transaction: the current state of the transactional id; None for a new id. A new id accepts every producer,
            because the id may have expired.
        expected: the producer id and epoch in the request (v3+); None if it has none.
    """
    if transaction is None:
        return ErrorCode.NONE
    if transaction.state in COMPLETION:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None:
        rotated = expected.producer_id == transaction.previous_producer_id and expected.epoch >= LAST_EPOCH
        if expected.producer_id != transaction.producer_id and not rotated:
            return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def initialize(
    transaction: Transaction | None, expected: Identity | None, timeout_ms: int, wall_ms: int, take: TakeProducerId
) -> Transaction | ErrorCode:
    """Returns the next state of a transactional id without an open transaction, for which `check` returned NONE.

    Args:
        transaction: the current state of the transactional id; None for a new id.
        expected: the producer id and epoch in the request; None if it has none.
        timeout_ms: the timeout of the id's transactions.
        wall_ms: the time, in ms since the epoch.
        take: returns an unused producer id; called for a new id, or if the epoch is exhausted.

    Returns:
        The next state. PRODUCER_FENCED if the producer epoch in the request is neither the current nor the last epoch.

    Raises:
        ProducerIdsExhaustedError: no producer id is available now.
    """
    if transaction is None:
        return _empty(next_producer_id(take), None, 0, NO_EPOCH, timeout_ms, wall_ms, 0)
    assert transaction.state is not ONGOING, "an open transaction is fenced first"
    epoch = transaction.producer_epoch
    version = transaction.client_version
    producer_id = previous = transaction.producer_id
    if expected is None:
        if transaction.exhausted:
            return _empty(next_producer_id(take), previous, 0, NO_EPOCH, timeout_ms, wall_ms, version)
        return _empty(producer_id, previous, epoch + 1, NO_EPOCH, timeout_ms, wall_ms, version)
    if expected.epoch == epoch:
        if transaction.exhausted:
            return _empty(next_producer_id(take), previous, 0, epoch, timeout_ms, wall_ms, version)
        return _empty(producer_id, previous, epoch + 1, epoch, timeout_ms, wall_ms, version)
    if expected.epoch == transaction.last_producer_epoch:
        # The producer repeats a request whose response was lost, or it was fenced and may continue with its new epoch.
        return _empty(producer_id, previous, epoch, expected.epoch, timeout_ms, wall_ms, version)
    return ErrorCode.PRODUCER_FENCED


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
