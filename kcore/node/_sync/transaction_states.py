# Made by tools/generate_sync.py from _async/transaction_states.py: change that file, then run the program.
"""Transactions and producers of a cluster for administration (KIP-664): list, describe, and abort hanging ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kcore.client.aio.broker import Broker
from kcore.client.aio.routes import TRANSACTION
from kcore.client.malformed import malformed
from kcore.errors import KafkaError, KcoreError, raise_partition_errors
from kcore.node._sync.backend import gather
from kcore.node._sync.calls import Calls
from kcore.node._sync.transactional_producer import TransactionalProducer
from kcore.node.arguments import (
    TRANSACTION_STATES,
    check_numbers,
    check_span,
    check_texts,
    check_wait,
    filters,
    names_of,
)
from kcore.node.requests import by_topic
from kcore.node.types import (
    OPEN_TRANSACTION_STATES,
    Partition,
    ProducerState,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    as_partitions,
)
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kcore.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kcore.protocol.messages.list_transactions import ListTransactionsRequest
from kcore.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

NO_OFFSET = -1
ALL = -1  # ListTransactions: no filter by duration
IDLE_S = 900.0
"""Default of `idle`: the server's default of transaction.max.timeout.ms.

A running coordinator ends every transaction within this time.
"""
LONG_OPEN_S = 86_400.0
LONG_IDLE_S = 604_800.0
"""Longest plausible values of `longer_than` and `idle`, in seconds. A longer time causes a warning, because the caller
probably passed milliseconds."""


class Transactions:
    """The transactional ids of a node: `node.transactions`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"Transactions({str(self._calls.transport)!r})"

    def list(
        self,
        *,
        states: str | Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than: float | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Returns the transactional ids that match all filters, from all brokers, sorted by id.

        Args:
            states: only ids whose transaction is in one of these states, for example "Ongoing"; empty: all.
            producer_ids: only ids that belong to one of these producer ids; empty: all.
            longer_than: only ids whose transaction has been open for more than this many seconds; None: all.
            pattern: only ids that match this regular expression (RE2) completely; None: all.

        Raises:
            ConfigError: one of `states` is not a state of transactions, or `pattern` is too long.
            InvalidRegularExpressionError: the server refused the pattern.
            TypeError, ValueError: an argument has a wrong type, or a producer id is too large.
        """
        check_texts(pattern=pattern)
        check_wait("longer_than", longer_than, LONG_OPEN_S)
        request = ListTransactionsRequest(
            state_filters=filters("states", states, TRANSACTION_STATES),
            producer_id_filters=check_numbers("producer_ids", producer_ids),
            duration_filter=ALL if longer_than is None else round(longer_than * 1000),
            transactional_id_pattern=pattern,
        )
        brokers = self._calls.brokers()
        listed = gather(self._calls.call(request, _listings, broker=broker) for broker in brokers)
        return sorted((row for rows in listed for row in rows), key=lambda row: row.transactional_id)

    def describe(self, transactional_ids: str | Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        """Returns the state of each transactional id, or the error of an id that cannot be described.

        Args:
            transactional_ids: one id or several.

        Raises:
            MalformedResponseError: a response lacks an id.
        """
        transactional_ids = names_of("transactional_ids", transactional_ids)
        described: dict[str, TransactionDescription | KafkaError] = {}
        for broker, own in (self._by_coordinator(transactional_ids)).items():
            request = DescribeTransactionsRequest(transactional_ids=own)
            described |= self._calls.call(request, _descriptions)
            lacking = next((each for each in own if each not in described), None)
            if lacking is not None:
                raise malformed(broker, request, f"the response lacks the transactional id {lacking!r}")
        return described

    def _by_coordinator(self, transactional_ids: Iterable[str]) -> Mapping[Broker, Sequence[str]]:
        grouped: dict[Broker, Any] = {}
        for transactional_id in transactional_ids:
            broker = self._calls.coordinator(TRANSACTION, transactional_id)
            grouped.setdefault(broker, []).append(transactional_id)
        return grouped

    def producers(self, partitions: Iterable[Partition]) -> Sequence[ProducerState]:
        """Returns the states of all producers in partitions, sorted by partition and producer id.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
        """
        states: Any = []
        for broker, own in self._calls.transport.by_leader(as_partitions(partitions)):
            topics = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic(own).items()]
            states += self._calls.call(DescribeProducersRequest(topics=topics), _producers, broker=broker)
        return sorted(states, key=lambda state: (state.partition, state.producer_id))

    def hanging(self, partitions: Iterable[Partition], *, idle: float = IDLE_S) -> Sequence[ProducerState]:
        """Returns the producers with hanging transactions: open transactions that no coordinator will end.

        A hanging transaction holds `read_committed` readers back until `abort` ends it (KIP-664).

        Run the search as a user that may describe all transactional ids. The search reports open transactions of other
        ids as hanging, because it does not get their state from the coordinators.

        Args:
            partitions: the partitions to search.
            idle: only transactions whose producer has not written for this many seconds. Use at least the time of the
                server's transaction.max.timeout.ms.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
        """
        check_span("idle", idle, LONG_IDLE_S)
        since_ms = self._calls.now_ms() - round(idle * 1000)
        idle_producers = [
            each
            for each in self.producers(partitions)
            if each.transaction_start is not None and each.last_timestamp_ms <= since_ms
        ]
        if not idle_producers:
            return []
        coordinated = self._coordinated(each.producer_id for each in idle_producers)
        hanging = [each for each in idle_producers if (each.producer_id, each.partition) not in coordinated]
        # A transaction that ended between the two lookups has no coordinator either, but is no longer open.
        still_open = set(self.producers({each.partition for each in hanging})) if hanging else set()
        return [each for each in hanging if each in still_open]

    def _coordinated(self, producer_ids: Iterable[int]) -> dict[tuple[int, TopicPartition], str]:
        """Returns the open transactions that a coordinator still has, and will therefore end.

        Returns:
            Mapping from (producer id, partition) to the transactional id.
        """
        listed = self.list(producer_ids=sorted({*producer_ids}))
        coordinated: dict[tuple[int, TopicPartition], str] = {}
        for transactional_id, state in (self.describe([row.transactional_id for row in listed])).items():
            if isinstance(state, TransactionDescription) and state.state in OPEN_TRANSACTION_STATES:
                coordinated |= {(state.producer_id, partition): transactional_id for partition in state.partitions}
        return coordinated

    def terminate(self, transactional_id: str) -> None:
        """Requests a new producer epoch of an id, so that the coordinator aborts the id's open transaction.

        The request fences the current producer of the id: the next request of this producer fails.

        Args:
            transactional_id: an existing id.

        Raises:
            KafkaError: the id does not exist, or the coordinator refused the request.
        """
        state = (self.describe([transactional_id]))[transactional_id]
        if isinstance(state, KafkaError):
            raise state
        TransactionalProducer(self._calls, transactional_id, state.timeout).prepare()

    def abort(self, producer: ProducerState, *, force: bool = False) -> None:
        """Writes an abort marker for a producer's open transaction into one partition, without the coordinator.

        Use this method for a hanging transaction. No coordinator has the transaction any more, so it would hold
        `read_committed` readers back permanently.

        Args:
            producer: an element of the result of `hanging` or `producers`.
            force: True to abort the transaction in this partition even if a coordinator still has it. The transaction
                then continues in the other partitions, and its commit lacks the records of this partition.

        Raises:
            KcoreError: the coordinator has the transaction, and `force` is False.
            KafkaError: the partition refused the marker.
            TypeError: `producer` has another type.
        """
        if not isinstance(producer, ProducerState):
            raise TypeError(f"producer: {producer!r}; valid: an element of the result of `hanging` or `producers`")
        if not force:
            coordinated = self._coordinated([producer.producer_id])
            transactional_id = coordinated.get((producer.producer_id, producer.partition))
            if transactional_id is not None:
                raise KcoreError(
                    "the transaction is not hanging: its coordinator has it, with transactional id "
                    f"{transactional_id!r}. End the transaction with `kcore transactions terminate`, "
                    "node.transactions.terminate or `kafka-transactions.sh forceTerminateTransaction`. With force, "
                    "only its records in this partition are aborted, and the transaction continues"
                )
        ((broker, _),) = self._calls.transport.by_leader([producer.partition])
        topic = WritableTxnMarkerTopic(name=producer.partition.topic, partition_indexes=[producer.partition.partition])
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            coordinator_epoch=max(producer.coordinator_epoch, 0),
            topics=[topic],
        )

        def read(response: Any) -> None:
            code = response.markers[0].topics[0].partitions[0].error_code
            if code:
                message = f"the marker of producer {producer.producer_id} was refused"
                raise KafkaError.of(code, message, [producer.partition])

        self._calls.call(WriteTxnMarkersRequest(markers=[marker]), read, broker=broker)


def _listings(response: Any) -> Sequence[TransactionListing]:
    if response.error_code:
        raise KafkaError.of(response.error_code)
    if response.unknown_state_filters:
        unknown = " or ".join(response.unknown_state_filters)
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"the server does not know the transaction states {unknown}")
    return [
        TransactionListing(row.transactional_id, row.producer_id, row.transaction_state)
        for row in response.transaction_states
    ]


def _descriptions(response: Any) -> dict[str, TransactionDescription | KafkaError]:
    described: dict[str, TransactionDescription | KafkaError] = {}
    for row in response.transaction_states:
        if row.error_code:
            error = KafkaError.of(row.error_code, f"transactional id {row.transactional_id!r}")
            if error.retriable:  # the coordinator of the id is loading or has moved: the call repeats the request
                raise error
            described[row.transactional_id] = error
            continue
        # A coordinator keeps the start of a transaction that has ended.
        start_ms = row.transaction_start_time_ms if row.transaction_state in OPEN_TRANSACTION_STATES else 0
        described[row.transactional_id] = TransactionDescription(
            row.transactional_id,
            row.producer_id,
            row.producer_epoch,
            row.transaction_state,
            row.transaction_timeout_ms / 1000,
            datetime.fromtimestamp(start_ms / 1000, UTC) if start_ms > 0 else None,
            tuple(sorted(TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions)),
        )
    return described


def _producers(response: Any) -> Sequence[ProducerState]:
    rows = [
        (TopicPartition(topic.name, row.partition_index), row) for topic in response.topics for row in topic.partitions
    ]
    codes = {partition: (row.error_code, row.error_message) for partition, row in rows}
    raise_partition_errors("description of producers", codes, len(rows))
    return [
        ProducerState(
            partition,
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_timestamp,
            state.coordinator_epoch,
            None if state.current_txn_start_offset == NO_OFFSET else state.current_txn_start_offset,
        )
        for partition, row in rows
        for state in row.active_producers
    ]
