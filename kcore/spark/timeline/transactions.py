"""Derives transactions from `__transaction_state`: from the first added partition to the last marker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kcore.spark.timeline.event_kinds import TimelineEvent
from kcore.spark.timeline.rebalance import LogPosition
from kcore.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    NAMES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionStatus,
)

TV2: Final = 2
"""The lowest `transaction.version` at which every end of a transaction raises the producer's epoch (KIP-890)."""

OUTCOMES: Final = {COMPLETE_COMMIT: "committed", COMPLETE_ABORT: "aborted"}


@dataclass(slots=True)
class Open:
    """A transaction in progress.

    Attributes:
        start: the position of the transaction's first record.
        start_ms: the start of the transaction by the coordinator's clock.
        producer_id: the id of the transaction's producer.
        producer_epoch: the epoch of the producer while the transaction is open.
        client_version: the `transaction.version` of the transaction's last Ongoing record.
        timeout_ms: the transaction timeout that the producer requested.
        state: the transaction's state after its last record.
        prepare_ms: the time at which the coordinator decided to commit or abort.
        cause: the reason for which the coordinator aborts the transaction.
        partitions: the number of partitions in the transaction.
        topics: the topics of these partitions.
        whole: True if the log was complete at the start of the transaction.
    """

    start: LogPosition
    start_ms: int
    producer_id: int
    producer_epoch: int
    client_version: int
    timeout_ms: int
    state: TransactionStatus
    whole: bool
    prepare_ms: int | None = None
    cause: str | None = None
    partitions: int = 0
    topics: tuple[str, ...] = ()


class Transactions:
    """The transactional ids with an open transaction, in one partition of `__transaction_state`.

    Args:
        partition: a partition of `__transaction_state`.
    """

    __slots__ = ("_open", "_partition")

    def __init__(self, partition: int) -> None:
        self._open: dict[str, Open] = {}
        self._partition = partition

    def replay(self, key: Any, value: Any, position: LogPosition, whole: bool) -> Iterator[TimelineEvent]:
        """Applies one record; yields transactions that it finishes."""
        transactional_id = key.transactional_id
        transaction = self._open.get(transactional_id)
        if value is None:
            yield from self._lost(transactional_id, transaction)
            return
        state = TransactionStatus(value.transaction_status)
        if state is ONGOING or state is PREPARE_COMMIT or state is PREPARE_ABORT:
            if transaction is not None and transaction.start_ms != value.transaction_start_timestamp_ms:
                yield from self._lost(transactional_id, transaction)
                transaction = None
            if transaction is None:
                transaction = self._open[transactional_id] = _begun(value, state, position, whole)
            _follow(transaction, value, state)
        elif state in OUTCOMES:
            if transaction is not None:
                del self._open[transactional_id]
                transaction.state = state
                yield self._event(
                    transactional_id, transaction, OUTCOMES[state], position, value.transaction_last_update_timestamp_ms
                )
        else:
            yield from self._lost(transactional_id, transaction)

    def at_end(self, last_ms: int) -> Iterator[TimelineEvent]:
        """Yields the transactions that are open at the end of the log, whose latest time is `last_ms`."""
        for transactional_id, transaction in self._open.items():
            yield self._event(transactional_id, transaction, "open", None, None, last_ms)
        self._open.clear()

    def _lost(self, transactional_id: str, transaction: Open | None) -> Iterator[TimelineEvent]:
        """Yields a transaction whose end is not in the log because of compaction."""
        if transaction is not None:
            del self._open[transactional_id]
            yield self._event(transactional_id, transaction, "unknown", None, None)

    def _event(
        self,
        transactional_id: str,
        transaction: Open,
        outcome: str,
        end: LogPosition | None,
        end_ms: int | None,
        until_ms: int | None = None,
    ) -> TimelineEvent:
        until_ms = end_ms if until_ms is None else until_ms
        return (
            "transactions",
            (
                self._partition,
                transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.start.offset,
                None if end is None else end.offset,
                transaction.start_ms,
                transaction.prepare_ms,
                end_ms,
                None if until_ms is None else max(0, until_ms - transaction.start_ms),
                transaction.timeout_ms,
                NAMES[transaction.state],
                outcome,
                transaction.cause,
                transaction.partitions,
                list(transaction.topics),
                transaction.whole,
            ),
        )


def _begun(value: Any, state: TransactionStatus, position: LogPosition, whole: bool) -> Open:
    start_ms = value.transaction_start_timestamp_ms
    return Open(
        position,
        position.timestamp_ms if start_ms < 0 else start_ms,
        value.producer_id,
        value.producer_epoch,
        value.client_transaction_version,
        value.transaction_timeout_ms,
        state,
        whole,
    )


def _follow(transaction: Open, value: Any, state: TransactionStatus) -> None:
    """Updates a transaction from one of its records."""
    entries = value.transaction_partitions or ()
    transaction.partitions = sum(len(entry.partition_ids) for entry in entries)
    transaction.topics = tuple(sorted(entry.topic for entry in entries))
    transaction.timeout_ms = value.transaction_timeout_ms
    if state is ONGOING:
        transaction.client_version = value.client_transaction_version
        transaction.producer_id, transaction.producer_epoch = value.producer_id, value.producer_epoch
    elif transaction.prepare_ms is None:
        transaction.prepare_ms = value.transaction_last_update_timestamp_ms
        if state is PREPARE_ABORT:
            transaction.cause = _abort_cause(transaction, value)
    transaction.state = state


def _abort_cause(transaction: Open, value: Any) -> str:
    """Returns the cause of an abort.

    The coordinator fences a producer because of a timeout or a new instance, and raises the epoch. With
    `transaction.version` 2, an abort by the producer itself also raises the epoch. The log then does not distinguish
    both causes, and the result is `producer or fenced`. An abort with a raised epoch after the timeout counts as
    `timeout`, even if the producer aborted before the coordinator checked the timeout.
    """
    assert transaction.prepare_ms is not None
    if transaction.state is not ONGOING:
        return "producer"  # aborted an empty transaction (KIP-890)
    if value.producer_epoch == transaction.producer_epoch:
        return "producer"
    if 0 < transaction.timeout_ms <= transaction.prepare_ms - transaction.start_ms:
        return "timeout"
    return "producer or fenced" if transaction.client_version >= TV2 else "fenced"
