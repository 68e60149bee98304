"""The metrics of topics, partitions, transactions, fetch sessions, compaction, quotas and authentications.

Topics and partitions are labels, whose number is bounded: the first `kcore.metrics.max.partitions` have series of their
own, in the order of creation. So a partition keeps its series as long as it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from kcore.metrics import Metric, MetricKind, Sample
from kcore.transaction.states import NAMES, TransactionStatus
from kcore_ext.broker.topic_traffic import TopicTraffic

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import TopicPartitions
    from kcore.engine import Engine
    from kcore.server.observe import Observer

COUNTER, GAUGE, _ = MetricKind

LATE_MS: Final = 300_000
"""Time above `transaction.max.timeout.ms` after which an open transaction is late, as in Kafka."""

STATES: Final = tuple(
    status
    for status in TransactionStatus
    if status not in {TransactionStatus.DEAD, TransactionStatus.PREPARE_EPOCH_FENCE}
)
"""The states in which a transactional id can be."""


def topics(engine: Engine) -> Iterator[TopicPartitions]:
    """Iterates over the topics that have series of their own; internal topics have no client traffic."""
    own = (topic for topic in list(engine.partitions.names.values()) if not topic.internal)
    return islice(own, engine.config.kcore_metrics_max_partitions)


def partitions(engine: Engine) -> Iterator[Partition]:
    """Iterates over the partitions that have series of their own."""
    return islice(engine.partitions, engine.config.kcore_metrics_max_partitions)


def omitted(engine: Engine) -> Iterator[Sample]:
    """Yields the number of topics and partitions without series of their own."""
    limit = engine.config.kcore_metrics_max_partitions
    names = engine.partitions.names.values()
    for kind, count in (
        ("topic", sum(not topic.internal for topic in names)),
        ("partition", sum(len(topic.partitions) for topic in names)),
    ):
        yield (kind,), max(count - limit, 0)


def total_traffic(engine: Engine) -> TopicTraffic:
    """Sums the traffic of all topics, deleted ones included."""
    total = TopicTraffic()
    total.add(engine.partitions.deleted_traffic)
    for topic in engine.partitions.names.values():
        total.add(topic.traffic)
    return total


def late_partitions(engine: Engine) -> int:
    """Counts the partitions with a transaction open for `LATE_MS` longer than `transaction.max.timeout.ms`."""
    limit_ms = engine.clock.wall_ms() - engine.config.transaction_max_timeout_ms - LATE_MS
    return sum(_has_open_since(partition, limit_ms) for partition in engine.partitions)


def _has_open_since(partition: Partition, limit_ms: int) -> bool:
    producers = partition.producers
    for producer_id in producers.open_transactions:  # in the order of their first offsets
        entry = producers.entries.get(producer_id)
        return entry is not None and 0 <= entry.last_timestamp_ms < limit_ms
    return False


def open_transactions(engine: Engine) -> int:
    """Counts the open transactions of all partitions, each once for each partition."""
    return sum(len(partition.producers.open_transactions) for partition in engine.partitions)


def transactional_ids(engine: Engine) -> Iterator[Sample]:
    """Yields the number of transactional ids in each state."""
    machines = [shard.machine for shard in engine.transactions.shards or ()]
    for status in STATES:
        yield (NAMES[status],), sum(machine.count(status) for machine in machines)


def ended_transactions(engine: Engine) -> Iterator[Sample]:
    """Yields the number of ended transactions by result."""
    counters = [shard.machine.counters for shard in engine.transactions.shards or ()]
    yield ("commit",), sum(each.commits for each in counters)
    yield ("abort",), sum(each.aborts for each in counters)


def timed_out_transactions(engine: Engine) -> int:
    """Counts the transactions that were aborted because they exceeded their timeout."""
    return sum(shard.machine.counters.timeouts for shard in engine.transactions.shards or ())


def _one(read: Callable[[Engine], float]) -> Callable[[Observer], Iterable[Sample]]:
    return lambda observer: (((), read(observer.engine)),)


def _each(read: Callable[[Engine], Iterator[Sample]]) -> Callable[[Observer], Iterable[Sample]]:
    return lambda observer: read(observer.engine)


def _of_topics(field: str) -> Callable[[Observer], Iterable[Sample]]:
    return lambda observer: (((topic.name,), getattr(topic.traffic, field)) for topic in topics(observer.engine))


def _of_partitions(read: Callable[[Partition], float]) -> Callable[[Observer], Iterable[Sample]]:
    return lambda observer: (
        ((partition.topic, str(partition.index)), read(partition)) for partition in partitions(observer.engine)
    )


TOPIC: Final = ("topic",)
PARTITION: Final = ("topic", "partition")

DATA_METRICS: Final[tuple[Metric, ...]] = (
    # ---- topics
    Metric(
        "kcore_received_records_total", COUNTER, "Records that producers appended, to all topics.",
        _one(lambda e: total_traffic(e).received_records), (), "BrokerTopicMetrics: MessagesInPerSec",
    ),
    Metric(
        "kcore_received_record_bytes_total", COUNTER, "Bytes of the batches that producers appended, to all topics.",
        _one(lambda e: total_traffic(e).received_bytes), (), "BrokerTopicMetrics: BytesInPerSec",
    ),
    Metric(
        "kcore_sent_records_total", COUNTER, "Records in responses to Fetch and ShareFetch, of all topics.",
        _one(lambda e: total_traffic(e).sent_records),
    ),
    Metric(
        "kcore_sent_record_bytes_total", COUNTER, "Bytes of batches in responses to Fetch and ShareFetch, all topics.",
        _one(lambda e: total_traffic(e).sent_bytes), (), "BrokerTopicMetrics: BytesOutPerSec",
    ),
    Metric(
        "kcore_topic_received_records_total", COUNTER, "Records that producers appended.",
        _of_topics("received_records"), TOPIC, "BrokerTopicMetrics: MessagesInPerSec, by topic",
    ),
    Metric(
        "kcore_topic_received_bytes_total", COUNTER, "Bytes of the batches that producers appended.",
        _of_topics("received_bytes"), TOPIC, "BrokerTopicMetrics: BytesInPerSec, by topic",
    ),
    Metric(
        "kcore_topic_sent_records_total", COUNTER, "Records in responses to Fetch and ShareFetch.",
        _of_topics("sent_records"), TOPIC,
    ),
    Metric(
        "kcore_topic_sent_bytes_total", COUNTER, "Bytes of the batches in responses to Fetch and ShareFetch.",
        _of_topics("sent_bytes"), TOPIC, "BrokerTopicMetrics: BytesOutPerSec, by topic",
    ),
    # ---- partitions
    Metric(
        "kcore_partition_log_start_offset", GAUGE, "First offset of the partition.",
        _of_partitions(lambda partition: partition.log_start_offset), PARTITION, "Log: LogStartOffset",
    ),
    Metric(
        "kcore_partition_log_end_offset", GAUGE, "Committed end of the partition, its high watermark.",
        _of_partitions(lambda partition: partition.high_watermark), PARTITION, "Log: LogEndOffset",
    ),
    Metric(
        "kcore_partition_last_stable_offset_lag", GAUGE,
        "Offsets that read_committed consumers cannot read yet, because a transaction is open.",
        _of_partitions(lambda partition: partition.high_watermark - partition.last_stable_offset), PARTITION,
        "Partition: LastStableOffsetLag",
    ),
    Metric(
        "kcore_metrics_omitted", GAUGE,
        "Topics and partitions without series of their own, because of kcore.metrics.max.partitions.",
        _each(omitted), ("kind",),
    ),
    # ---- transactions
    Metric(
        "kcore_transactional_ids", GAUGE, "Transactional ids.", _each(transactional_ids), ("state",),
    ),
    Metric(
        "kcore_transactions_ended_total", COUNTER, "Transactions whose end was decided.",
        _each(ended_transactions), ("result",),
    ),
    Metric(
        "kcore_transaction_timeouts_total", COUNTER, "Transactions that were aborted after their timeout.",
        _one(timed_out_transactions),
    ),
    Metric(
        "kcore_open_transactions", GAUGE, "Open transactions, counted once for each of their partitions.",
        _one(open_transactions),
    ),
    Metric(
        "kcore_late_transaction_partitions", GAUGE,
        "Partitions with a transaction that should have ended 5 minutes ago: it blocks their read_committed consumers.",
        _one(late_partitions), (), "ReplicaManager: PartitionsWithLateTransactionsCount",
    ),
    # ---- fetch sessions
    Metric(
        "kcore_fetch_sessions", GAUGE, "Incremental fetch sessions.",
        _one(lambda e: len(e.fetch_sessions)), (), "FetchSessionCache: NumIncrementalFetchSessions",
    ),
    Metric(
        "kcore_fetch_session_partitions", GAUGE, "Partitions in fetch sessions.",
        _one(lambda e: e.fetch_sessions.partitions), (),
        "FetchSessionCache: NumIncrementalFetchPartitionsCached",
    ),
    Metric(
        "kcore_fetch_session_evictions_total", COUNTER, "Fetch sessions that new sessions have replaced.",
        _one(lambda e: e.fetch_sessions.evictions), (),
        "FetchSessionCache: IncrementalFetchSessionEvictionsPerSec",
    ),
    # ---- compaction
    Metric(
        "kcore_cleaner_passes_total", COUNTER, "Completed compactions of a partition.",
        _one(lambda e: e.housekeeping.cleaner.passes),
    ),
    Metric(
        "kcore_cleaner_failures_total", COUNTER, "Compactions of a partition that failed and will be repeated.",
        _one(lambda e: e.housekeeping.cleaner.failures), (), "LogCleanerManager: uncleanable-partitions-count",
    ),
    Metric(
        "kcore_cleaner_max_dirty_ratio", GAUGE, "Largest uncompacted share of the partitions of compacted topics.",
        _one(lambda e: e.housekeeping.cleaner.max_dirty_ratio()), (), "LogCleanerManager: max-dirty-percent",
    ),
    Metric(
        "kcore_cleaner_time_since_last_run_seconds", GAUGE, "Time since all partitions were last checked.",
        _one(lambda e: (e.clock.monotonic_ms() - e.housekeeping.cleaner.last_run_ms) / 1_000), (),
        "LogCleanerManager: time-since-last-run-ms",
    ),
    # ---- quotas and authentication
    Metric(
        "kcore_throttled_requests_total", COUNTER, "Requests and connections of clients above a quota.",
        lambda o: (((name,), count) for name, count in o.engine.client_quotas.throttled.items()), ("quota",),
    ),
    Metric(
        "kcore_throttle_time_seconds_total", COUNTER, "Time for which clients above a quota were throttled.",
        lambda o: (((name,), ms / 1_000) for name, ms in o.engine.client_quotas.throttled_ms.items()), ("quota",),
        "Produce, Fetch, Request: throttle-time",
    ),
    Metric(
        "kcore_authentications_total", COUNTER,
        "SASL authentications. One by a client that is already authenticated counts as a reauthentication.",
        lambda o: o.server.authentications.results.items(), ("mechanism", "kind", "result"),
        "socket-server-metrics: successful-, failed-authentication-total, -reauthentication-total",
    ),
    Metric(
        "kcore_expired_sessions_total", COUNTER,
        "Connections closed because their SASL session expired.",
        lambda o: (((), o.server.authentications.expired),), (),
        "socket-server-metrics: ExpiredConnectionsKilledCount",
    ),
)  # fmt: skip
"""Metrics of the data that a node holds and of its limits, in the order of a scrape."""
