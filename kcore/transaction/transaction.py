"""What is known of one transactional id: an immutable value, replaced by every transition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from kcore.protocol.records.transaction_log import PartitionsSchema, TransactionLogValue
from kcore.transaction.states import EMPTY, TransactionStatus

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
LAST_EPOCH = 32_766
"""The last epoch that a producer may hold. 32767 is kept for the coordinator, so that it can always fence once more."""

Partitions = Mapping[str, frozenset[int]]
"""Topic -> partitions."""

NO_PARTITIONS: Partitions = MappingProxyType({})

_STATUSES = tuple(TransactionStatus)


class Transaction:
    """A transactional id as of its last transition. Never changed: a transition makes another one.

    It is what stands in the log (`encode_value`, `of_record`), and what is held in memory; one field is not written,
    as in Kafka, and is unknown after a load: `last_producer_epoch`.

    Attributes:
        producer_id: the id in use.
        previous_producer_id: the one in use before this transition; the same but when an epoch was exhausted.
        next_producer_id: the one that takes over when the transaction is complete, because the epoch is exhausted
            (KIP-890); -1: none.
        producer_epoch: its epoch.
        last_producer_epoch: the epoch that the producer knew before it asked for this one; a producer that asks with
            it repeats itself (KIP-360). -1: none.
        timeout_ms: how long a transaction may take.
        state: where it is.
        partitions: topic -> partitions of the transaction.
        start_ms: when the transaction began, in ms since the epoch; -1 before the first one.
        last_update_ms: when anything happened last, in ms since the epoch.
        client_version: the transaction.version of the request behind this transition (KIP-890).
    """

    __slots__ = (
        "client_version",
        "last_producer_epoch",
        "last_update_ms",
        "next_producer_id",
        "partitions",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
    )

    def __init__(
        self,
        producer_id: int,
        previous_producer_id: int,
        next_producer_id: int,
        producer_epoch: int,
        last_producer_epoch: int,
        timeout_ms: int,
        state: TransactionStatus,
        partitions: Partitions,
        start_ms: int,
        last_update_ms: int,
        client_version: int,
    ) -> None:
        self.producer_id = producer_id
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = last_producer_epoch
        self.timeout_ms = timeout_ms
        self.state = state
        self.partitions = partitions
        self.start_ms = start_ms
        self.last_update_ms = last_update_ms
        self.client_version = client_version

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"Transaction({fields})"

    @property
    def exhausted(self) -> bool:
        """Whether the producer cannot get a higher epoch: it needs another id."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def completed_identity(self) -> tuple[int, int]:
        """(producer id, epoch) once a prepared transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def topic_partitions(self) -> Iterator[tuple[str, int]]:
        """Its partitions one by one."""
        for topic, indexes in self.partitions.items():
            for index in indexes:
                yield topic, index

    def encode_value(self, version: int) -> bytes:
        """The record's value: v0 knows nothing of KIP-890. Without a transaction ever, partitions are null."""
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None
            if self.state is EMPTY
            else [
                PartitionsSchema(topic=topic, partition_ids=sorted(indexes))
                for topic, indexes in self.partitions.items()
            ],
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
        )
        if version:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.client_transaction_version = self.client_version
        return value.encode_value(version)

    @classmethod
    def of_record(cls, value: TransactionLogValue) -> Transaction:
        """What a record of the log says.

        Raises:
            ValueError: it says what no coordinator writes.
        """
        status = _STATUSES[value.transaction_status] if 0 <= value.transaction_status <= 5 else None
        if status is None:
            raise ValueError(f"a transaction's record says status {value.transaction_status}")
        partitions = NO_PARTITIONS
        if value.transaction_partitions:
            partitions = {entry.topic: frozenset(entry.partition_ids) for entry in value.transaction_partitions}
        previous = value.previous_producer_id
        return cls(
            value.producer_id,
            value.producer_id if previous == value.producer_id else previous,  # one int object for both
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
