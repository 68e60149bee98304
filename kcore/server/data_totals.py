"""Sums over all topics and partitions of a node, counted in slices."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from kcore_ext.broker.topic_traffic import TopicTraffic

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.engine import Engine

LATE_TRANSACTION_MS: Final = 300_000
"""Time in ms, beyond `transaction.max.timeout.ms`, after which an open transaction counts as late, as in Kafka."""

SLICE_ITEMS: Final = 5_000
"""Number of topics and partitions that one slice examines."""


class DataTotals:
    """The sums over the topics and partitions of a node.

    Attributes:
        topics: number of topics, without internal topics.
        partitions: number of partitions, including partitions of internal topics.
        traffic: the traffic of all topics, including deleted topics.
        open_transactions: open transactions of all partitions; a transaction counts once for each of its partitions.
        late_partitions: number of partitions with a transaction that is late (`LATE_TRANSACTION_MS`).
    """

    __slots__ = ("late_partitions", "open_transactions", "partitions", "topics", "traffic")

    def __init__(self) -> None:
        self.topics = self.partitions = self.open_transactions = self.late_partitions = 0
        self.traffic = TopicTraffic()


def count_data(engine: Engine) -> Generator[None, None, DataTotals]:
    """Counts the topics and partitions of a node, their traffic and their open transactions."""
    totals = DataTotals()
    limit_ms = engine.clock.wall_ms() - engine.config.transaction_max_timeout_ms - LATE_TRANSACTION_MS
    # Not after the loop: otherwise a topic that is deleted during a pause would count twice, in the list and here. The
    # next scrape would count it once, but counters must not decrease.
    totals.traffic.add(engine.partitions.deleted_traffic)
    looked_at = 0
    for topic in list(engine.partitions.names.values()):
        totals.topics += not topic.internal
        totals.partitions += len(topic.partitions)
        totals.traffic.add(topic.traffic)
        looked_at += 1
        for first in range(0, len(topic.partitions), SLICE_ITEMS):
            for partition in topic.partitions[first : first + SLICE_ITEMS]:
                looked_at += 1
                if partition.producers.open_transactions:
                    totals.open_transactions += len(partition.producers.open_transactions)
                    totals.late_partitions += _has_open_since(partition, limit_ms)
            if looked_at >= SLICE_ITEMS:
                looked_at = 0
                yield
    return totals


def _has_open_since(partition: Partition, limit_ms: int) -> bool:
    producers = partition.producers
    for producer_id in producers.open_transactions:  # in the order of their first offsets
        entry = producers.entries.get(producer_id)
        return entry is not None and 0 <= entry.last_timestamp_ms < limit_ms
    return False
