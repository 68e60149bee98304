"""What is known of one transactional id: an immutable value, replaced by every transition (`Transaction`)."""

from __future__ import annotations

from collections.abc import Mapping

from kcore.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from kcore.runtime.machine import Record
from kcore.transaction.states import COMPLETION, PREVIOUS, TransactionStatus
from kcore_ext.transaction.transaction import Transaction, bind_states

__all__ = ["LAST_EPOCH", "NO_EPOCH", "NO_PARTITIONS", "NO_PRODUCER_ID", "NO_TIME", "Partitions", "Transaction"]

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
LAST_EPOCH = 32_766
"""The last epoch that a producer may hold. 32767 is kept for the coordinator, so that it can always fence once more."""

Partitions = Mapping[str, frozenset[int]]
"""Topic -> partitions."""

NO_PARTITIONS: Partitions = bind_states(TransactionStatus, PREVIOUS, COMPLETION)

_STATUSES = tuple(TransactionStatus)


def record_of(transactional_id: str, transaction: Transaction | None, version: int) -> Record:
    """The record that says what an id is; None: that it is forgotten."""
    return Record(TransactionLogKey(transactional_id=transactional_id), transaction, version)


def of_value(value: TransactionLogValue) -> Transaction:
    """What a record of the log says. `last_producer_epoch` stands in none.

    Raises:
        ValueError: it says what no coordinator writes.
    """
    status = _STATUSES[value.transaction_status] if 0 <= value.transaction_status <= 5 else None
    if status is None:
        raise ValueError(f"a transaction's record says status {value.transaction_status}")
    partitions = NO_PARTITIONS
    if value.transaction_partitions:
        partitions = {entry.topic: frozenset(entry.partition_ids) for entry in value.transaction_partitions}
    return Transaction(
        value.producer_id,
        value.previous_producer_id,
        value.next_producer_id,
        value.producer_epoch,
        NO_EPOCH,
        value.transaction_timeout_ms,
        status,
        partitions,
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.client_transaction_version,
    )
