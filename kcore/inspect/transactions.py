"""Open transactions, fetched by typed requests: state, start, partitions, and the offsets they hold back (KIP-664).

A read_committed reader sees a partition up to its *last stable offset*: the first record of the earliest open
transaction. Such a transaction holds back the offsets from there to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kcore.errors import KcoreError
from kcore.inspect.groups import LATEST, Target
from kcore.protocol.error_codes import code_name
from kcore.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kcore.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.protocol.messages.list_transactions import ListTransactionsRequest
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NO_OFFSET = -1
ENDING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""States in which a transaction may hold readers back."""

TopicPartition = tuple[str, int]


class StableOffset(NamedTuple):
    """The offsets up to which readers see a partition.

    Attributes:
        last_stable_offset: the limit of read_committed readers.
        high_watermark: the limit of all other readers.
    """

    last_stable_offset: int
    high_watermark: int

    @property
    def held_back(self) -> int:
        """The number of offsets that open transactions hide from read_committed readers."""
        return self.high_watermark - self.last_stable_offset


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition's log.

    Attributes:
        topic: the topic.
        partition: the partition.
        producer_id: its producer id.
        producer_epoch: its producer epoch.
        coordinator_epoch: epoch of the coordinator that ended the producer's last transaction here, -1 for none.
        start_offset: its first offset.
        last_timestamp_ms: time of the producer's last write here, in ms since the epoch.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


def list_transactions(
    server: Target,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> list[Any]:
    """Returns transactional ids with producer id and state, sorted by id; all filters must match.

    Args:
        server: serves the requests.
        states: only ids in one of these states.
        producer_ids: only ids of one of these producers.
        duration_ms: only ids whose transaction has been open for longer; -1: all.
        pattern: only ids that match this regular expression (RE2) completely.

    Raises:
        KcoreError: the server refused the request, or a state does not exist.
    """
    response = server.send(
        ListTransactionsRequest(
            state_filters=states,
            producer_id_filters=producer_ids,
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
    )
    if response.error_code:
        raise KcoreError(f"cannot list transactions: {code_name(response.error_code)}")
    if response.unknown_state_filters:
        raise KcoreError(f"unknown transaction state: {' or '.join(response.unknown_state_filters)}")
    return sorted(response.transaction_states, key=lambda state: str(state.transactional_id))


def describe_transactions(server: Target, transactional_ids: Sequence[str]) -> list[Any]:
    """Describes the state of each id; an unknown id has an error code."""
    if not transactional_ids:
        return []
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    return list(server.send(request).transaction_states)


def all_partitions(server: Target, topic: str | None = None, partition: int | None = None) -> list[TopicPartition]:
    """Returns every partition, or those of the named topic."""
    topics = server.send(MetadataRequest(topics=None)).topics
    return sorted(
        (found.name, part.partition_index)
        for found in topics
        if topic is None or found.name == topic
        for part in found.partitions
        if partition is None or part.partition_index == partition
    )


def stable_offsets(server: Target, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, StableOffset]:
    """Returns the offsets up to which readers see each existing partition."""
    by_topic = _by_topic(partitions)
    if not by_topic:
        return {}
    topics = [
        ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes]
        )
        for name, indexes in by_topic.items()
    ]
    ends: list[dict[TopicPartition, int]] = []
    for isolation_level in (READ_COMMITTED, READ_UNCOMMITTED):
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
        ends.append(
            {
                (topic.name, part.partition_index): part.offset
                for topic in server.send(request).topics
                for part in topic.partitions
                if not part.error_code
            }
        )
    stable, high = ends
    return {place: StableOffset(offset, high[place]) for place, offset in stable.items() if place in high}


def producers(server: Target, partitions: Iterable[TopicPartition]) -> list[tuple[str, int, Any]]:
    """Returns (topic, partition, producer) for each producer that the partitions know, sorted.

    Raises:
        KcoreError: a partition does not exist.
    """
    found = []
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in _by_topic(partitions).items()]
    )
    for topic in server.send(request).topics:
        for part in topic.partitions:
            if part.error_code:
                name = code_name(part.error_code)
                raise KcoreError(f"producers of {topic.name}-{part.partition_index}: {name}")
            found += [(topic.name, part.partition_index, producer) for producer in part.active_producers]
    return sorted(found, key=lambda row: (row[0], row[1], row[2].producer_id))


def open_transactions(server: Target, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
    """Returns every transaction that is open in the partitions' logs."""
    return [
        OpenTransaction(
            topic,
            partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
        )
        for topic, partition, producer in producers(server, partitions)
        if producer.current_txn_start_offset != NO_OFFSET
    ]


def hanging_transactions(
    server: Target, partitions: Iterable[TopicPartition], idle_since_ms: int
) -> list[OpenTransaction]:
    """Returns transactions that are open in a partition, but that no coordinator will ever end there (KIP-664).

    Args:
        server: serves the requests.
        partitions: the partitions to search.
        idle_since_ms: only transactions whose producer has not written since, in ms since the epoch.
    """
    candidates = [found for found in open_transactions(server, partitions) if found.last_timestamp_ms <= idle_since_ms]
    if not candidates:
        return []
    listed = list_transactions(server, producer_ids=sorted({found.producer_id for found in candidates}))
    known: set[tuple[int, str, int]] = set()
    for state in describe_transactions(server, [state.transactional_id for state in listed]):
        if not state.error_code and state.transaction_state in ENDING:
            known |= {(state.producer_id, topic.topic, index) for topic in state.topics for index in topic.partitions}
    return [found for found in candidates if (found.producer_id, found.topic, found.partition) not in known]


def abort_transaction(server: Target, found: OpenTransaction) -> None:
    """Writes an ABORT marker for a transaction into one partition's log, without involving the coordinator.

    Raises:
        KcoreError: the partition refused the marker.
    """
    marker = WritableTxnMarker(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_result=False,
        coordinator_epoch=max(found.coordinator_epoch, 0),
        topics=[WritableTxnMarkerTopic(name=found.topic, partition_indexes=[found.partition])],
    )
    response = server.send(WriteTxnMarkersRequest(markers=[marker]))
    code = response.markers[0].topics[0].partitions[0].error_code
    if code:
        raise KcoreError(
            f"{found.topic}-{found.partition} refused the marker of producer {found.producer_id}: {code_name(code)}"
        )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(set(partitions)):
        topics.setdefault(topic, []).append(index)
    return topics
