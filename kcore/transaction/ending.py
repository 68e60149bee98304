"""The end of a transaction: EndTxn before v5, EndTxn from v5 on (KIP-890), fencing, and completion after the last
marker.

Each table covers every state and every request. The entry None means that the coordinator prepares the end.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kcore.protocol.error_codes import ErrorCode
from kcore.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETION,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionStatus,
)
from kcore.transaction.transaction import LAST_EPOCH, NO_EPOCH, NO_PRODUCER_ID
from kcore_ext.transaction.transaction import Transaction, complete, prepared
from kcore_ext.transaction.transaction import check_since_v5 as check_end
from kcore_ext.transaction.transaction import prepare as prepare_end

__all__ = [
    "BEFORE_V5",
    "EPOCH_BUMPS_SINCE",
    "SINCE_V5",
    "Epoch",
    "ProducerIdsExhaustedError",
    "TakeProducerId",
    "check_before_v5",
    "check_since_v5",
    "complete",
    "fence",
    "next_producer_id",
    "prepare",
]

TakeProducerId = Callable[[], int | None]
"""A function that returns an unused producer id, or None if no producer id is available now."""

EPOCH_BUMPS_SINCE = 2
"""The lowest `transaction.version` at which each end of a transaction increases the producer's epoch (KIP-890)."""

NONE = ErrorCode.NONE
INVALID = ErrorCode.INVALID_TXN_STATE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED

BEFORE_V5: dict[tuple[TransactionStatus, bool], ErrorCode | None] = {
    # (state, commit)
    (EMPTY, True): INVALID,
    (EMPTY, False): INVALID,
    (ONGOING, True): None,
    (ONGOING, False): None,
    (PREPARE_COMMIT, True): BUSY,
    (PREPARE_COMMIT, False): BUSY,
    (PREPARE_ABORT, True): BUSY,
    (PREPARE_ABORT, False): BUSY,
    (COMPLETE_COMMIT, True): NONE,  # a repeated request whose response was lost
    (COMPLETE_COMMIT, False): INVALID,
    (COMPLETE_ABORT, True): INVALID,
    (COMPLETE_ABORT, False): NONE,
}


class Epoch(Enum):
    """The epoch of an EndTxn relative to the epoch of the transactional id."""

    CURRENT = "current"
    BEFORE_BUMP = "before the bump of the last end: a repeated request"
    OTHER = "other"


SINCE_V5: dict[tuple[TransactionStatus, Epoch, bool], ErrorCode | None] = {
    # (state, epoch, commit)
    (EMPTY, Epoch.CURRENT, True): INVALID,
    # an abort without an open transaction: the client does not know whether any of its records arrived
    (EMPTY, Epoch.CURRENT, False): None,
    (EMPTY, Epoch.BEFORE_BUMP, True): FENCED,
    (EMPTY, Epoch.BEFORE_BUMP, False): FENCED,
    (ONGOING, Epoch.CURRENT, True): None,
    (ONGOING, Epoch.CURRENT, False): None,
    (ONGOING, Epoch.BEFORE_BUMP, True): FENCED,
    (ONGOING, Epoch.BEFORE_BUMP, False): FENCED,
    (COMPLETE_COMMIT, Epoch.CURRENT, True): INVALID,
    (COMPLETE_COMMIT, Epoch.CURRENT, False): None,
    (COMPLETE_COMMIT, Epoch.BEFORE_BUMP, True): NONE,
    (COMPLETE_COMMIT, Epoch.BEFORE_BUMP, False): INVALID,
    (COMPLETE_ABORT, Epoch.CURRENT, True): INVALID,
    (COMPLETE_ABORT, Epoch.CURRENT, False): None,
    (COMPLETE_ABORT, Epoch.BEFORE_BUMP, True): INVALID,
    (COMPLETE_ABORT, Epoch.BEFORE_BUMP, False): NONE,
    # Until a prepared end is completed, every request gets this code, regardless of its epoch.
    **{(state, epoch, commit): BUSY for state in COMPLETION for epoch in Epoch for commit in (True, False)},
    **{
        (state, Epoch.OTHER, commit): FENCED
        for state in (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT)
        for commit in (True, False)
    },
}

_STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)

_SINCE_V5 = (
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    *(SINCE_V5[state, epoch, commit] for state in _STATES for epoch in Epoch for commit in (False, True)),
)
"""The codes of `SINCE_V5` in the form that `check_end`, the compiled check of an EndTxn, needs.

First comes the code for an unknown producer. Then each state has two entries per epoch, in the order of the epochs:
first for an abort, then for a commit.
"""


def check_before_v5(
    transaction: Transaction | None, producer_id: int, producer_epoch: int, commit: bool
) -> ErrorCode | None:
    """Returns the code for EndTxn v0-4, or None if the caller must prepare the end, with an unchanged epoch."""
    if transaction is None or transaction.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer_epoch:
        return FENCED
    return BEFORE_V5[transaction.state, commit]


def check_since_v5(
    transaction: Transaction | None, producer_id: int, producer_epoch: int, commit: bool
) -> ErrorCode | None:
    """Returns the code for EndTxn v5, or None if the caller must prepare the end, with a higher epoch."""
    return check_end(_SINCE_V5, transaction, producer_id, producer_epoch, commit)


def prepare(transaction: Transaction, commit: bool, version: int, wall_ms: int, take: TakeProducerId) -> Transaction:
    """Returns the prepared end of a transaction. Once its record is in the log, the end cannot change any more.

    Args:
        transaction: the current state of the transactional id.
        commit: True to commit, False to abort.
        version: the transaction.version of the request; from version 2 on, the end increases the epoch.
        wall_ms: the time, in ms since the epoch.
        take: returns a producer id; called if the epoch is exhausted.

    Raises:
        ProducerIdsExhaustedError: no producer id is available now; nothing has changed.
    """
    end = prepare_end(transaction, commit, version, wall_ms, take)
    if end is None:
        raise ProducerIdsExhaustedError
    return end


def fence(transaction: Transaction, version: int, wall_ms: int, take: TakeProducerId) -> Transaction:
    """Returns the prepared abort of an open transaction that timed out, or whose producer has a new instance.

    The epoch increases, so the old producer is fenced. It does not exceed 32767, the last epoch of the coordinator:
    before transaction.version 2, an id keeps this epoch until the next InitProducerId, and a client may use it.

    Args:
        transaction: the current state of the transactional id; its state is Ongoing.
        version: the cluster's transaction.version.
        wall_ms: the time, in ms since the epoch.
        take: returns a producer id; called if `version` is 2 and the epoch is exhausted (KAFKA-20090).

    Raises:
        ProducerIdsExhaustedError: no producer id is available now; nothing has changed.
    """
    epoch, last_epoch, next_id = transaction.producer_epoch, NO_EPOCH, NO_PRODUCER_ID
    if version >= EPOCH_BUMPS_SINCE:
        next_id = next_producer_id(take) if transaction.exhausted else NO_PRODUCER_ID
        last_epoch = epoch
    return prepared(
        transaction, False, min(epoch, LAST_EPOCH) + 1, last_epoch, next_id, transaction.start_ms, wall_ms, version
    )


class ProducerIdsExhaustedError(Exception):
    """The error of a request that needs a producer id while none is available."""


def next_producer_id(take: TakeProducerId) -> int:
    """Returns an unused producer id.

    Raises:
        ProducerIdsExhaustedError: no producer id is available now.
    """
    producer_id = take()
    if producer_id is None:
        raise ProducerIdsExhaustedError
    return producer_id
