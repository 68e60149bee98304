"""The state of a transactional id: `Transaction`. It is immutable, so every transition makes a new object."""

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
"""The last epoch of a producer.

The coordinator reserves 32767, so that it can fence the producer after its last epoch.
"""

Partitions = Mapping[str, frozenset[int]]
"""The partitions of a transaction: a mapping from each topic to the numbers of its partitions."""

NO_PARTITIONS: Partitions = bind_states(TransactionStatus, PREVIOUS, COMPLETION)

_STATUSES = tuple(TransactionStatus)


def record_of(transactional_id: str, transaction: Transaction | None, version: int) -> Record:
    """Returns the record of a transactional id; a tombstone if `transaction` is None."""
    return Record(TransactionLogKey(transactional_id=transactional_id), transaction, version)


def of_value(value: TransactionLogValue) -> Transaction:
    """Makes a transaction from a record's value. Records do not contain `last_producer_epoch`.

    Raises:
        ValueError: the record has a status that no coordinator writes.
    """
    status = _STATUSES[value.transaction_status] if 0 <= value.transaction_status <= 5 else None
    if status is None:
        raise ValueError(f"a record of __transaction_state has the unknown status {value.transaction_status}")
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
