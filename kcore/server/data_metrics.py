"""The metrics of topics, partitions, transactions, fetch sessions, compaction, quotas and authentications.

Topics and partitions are labels of metrics. Only the first `kcore.metrics.max.partitions` topics and partitions, in the
order of creation, have their own series. So a partition keeps its series as long as it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from kcore.metrics import Metric, MetricKind, Sample
from kcore.transaction.states import NAMES, TransactionStatus

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import TopicPartitions
    from kcore.engine import Engine
    from kcore.server.data_totals import DataTotals
    from kcore.server.observe import Observer

COUNTER, GAUGE, _ = MetricKind

STATES: Final = tuple(
    status
    for status in TransactionStatus
    if status not in {TransactionStatus.DEAD, TransactionStatus.PREPARE_EPOCH_FENCE}
)
"""The transaction states that the metrics count: all states in which a transactional id can be."""


def topics(engine: Engine) -> Iterator[TopicPartitions]:
    """Iterates over the topics that have their own series. Leaves out internal topics, which have no client traffic.

    Topics and partitions may change between two items.
    """
    own = (topic for topic in list(engine.partitions.names.values()) if not topic.internal)
    return islice(own, engine.config.kcore_metrics_max_partitions)


def partitions(engine: Engine) -> Iterator[Partition]:
    """Iterates over the partitions that have their own series."""
    return islice(engine.partitions, engine.config.kcore_metrics_max_partitions)


def omitted(observer: Observer) -> Iterator[Sample]:
    """Yields how many topics, and how many partitions, do not have their own series."""
    limit = observer.engine.config.kcore_metrics_max_partitions
    yield ("topic",), max(observer.data.topics - limit, 0)
    yield ("partition",), max(observer.data.partitions - limit, 0)


def transactional_ids(engine: Engine) -> Iterator[Sample]:
    """Yields the number of transactional ids in each state."""
    machines = [shard.machine for shard in engine.transactions.shards or ()]
    for status in STATES:
        yield (NAMES[status],), sum(machine.count(status) for machine in machines)


def ended_transactions(engine: Engine) -> Iterator[Sample]:
    """Yields the number of ended transactions by result."""
    yield ("commit",), engine.transaction_counters.commits
    yield ("abort",), engine.transaction_counters.aborts


def timed_out_transactions(engine: Engine) -> int:
    """Counts the transactions that were aborted because they exceeded their timeout."""
    return engine.transaction_counters.timeouts


def _one(read: Callable[[Engine], float]) -> Callable[[Observer], Iterable[Sample]]:
    return lambda observer: (((), read(observer.engine)),)


def _total(read: Callable[[DataTotals], float]) -> Callable[[Observer], Iterable[Sample]]:
    return lambda observer: (((), read(observer.data)),)


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
        "kcore_received_records_total", COUNTER, "Records that producers appended to all topics.",
        _total(lambda data: data.traffic.received_records), (), "BrokerTopicMetrics: MessagesInPerSec",
    ),
    Metric(
        "kcore_received_record_bytes_total", COUNTER, "Bytes of the batches that producers appended to all topics.",
        _total(lambda data: data.traffic.received_bytes), (), "BrokerTopicMetrics: BytesInPerSec",
    ),
    Metric(
        "kcore_sent_records_total", COUNTER, "Records of all topics in responses to Fetch and ShareFetch.",
        _total(lambda data: data.traffic.sent_records),
    ),
    Metric(
        "kcore_sent_record_bytes_total", COUNTER,
        "Bytes of the batches of all topics in responses to Fetch and ShareFetch.",
        _total(lambda data: data.traffic.sent_bytes), (), "BrokerTopicMetrics: BytesOutPerSec",
    ),
    Metric(
        "kcore_topic_received_records_total", COUNTER, "Records that producers appended to the topic.",
        _of_topics("received_records"), TOPIC, "BrokerTopicMetrics: MessagesInPerSec, by topic", True,
    ),
    Metric(
        "kcore_topic_received_bytes_total", COUNTER, "Bytes of the batches that producers appended to the topic.",
        _of_topics("received_bytes"), TOPIC, "BrokerTopicMetrics: BytesInPerSec, by topic", True,
    ),
    Metric(
        "kcore_topic_sent_records_total", COUNTER, "Records of the topic in responses to Fetch and ShareFetch.",
        _of_topics("sent_records"), TOPIC, "", True,
    ),
    Metric(
        "kcore_topic_sent_bytes_total", COUNTER, "Bytes of the topic's batches in responses to Fetch and ShareFetch.",
        _of_topics("sent_bytes"), TOPIC, "BrokerTopicMetrics: BytesOutPerSec, by topic", True,
    ),
    # ---- partitions
    Metric(
        "kcore_partition_log_start_offset", GAUGE, "First offset of the partition.",
        _of_partitions(lambda partition: partition.log_start_offset), PARTITION, "Log: LogStartOffset", True,
    ),
    Metric(
        "kcore_partition_log_end_offset", GAUGE,
        "High watermark of the partition: the offset after its last committed record.",
        _of_partitions(lambda partition: partition.high_watermark), PARTITION, "Log: LogEndOffset", True,
    ),
    Metric(
        "kcore_partition_last_stable_offset_lag", GAUGE,
        "Offsets that read_committed consumers cannot read yet, because a transaction is open.",
        _of_partitions(lambda partition: partition.high_watermark - partition.last_stable_offset), PARTITION,
        "Partition: LastStableOffsetLag", True,
    ),
    Metric(
        "kcore_metrics_omitted", GAUGE,
        "Topics and partitions that have no metrics of their own, because of kcore.metrics.max.partitions.",
        omitted, ("kind",),
    ),
    # ---- transactions
    Metric(
        "kcore_transactional_ids", GAUGE, "Transactional ids.", _each(transactional_ids), ("state",),
    ),
    Metric(
        "kcore_transactions_ended_total", COUNTER, "Transactions whose commit or abort the coordinator has decided.",
        _each(ended_transactions), ("result",),
    ),
    Metric(
        "kcore_transaction_timeouts_total", COUNTER, "Transactions that were aborted after their timeout.",
        _one(timed_out_transactions),
    ),
    Metric(
        "kcore_open_transactions", GAUGE, "Open transactions. A transaction counts once for each of its partitions.",
        _total(lambda data: data.open_transactions),
    ),
    Metric(
        "kcore_late_transaction_partitions", GAUGE,
        "Partitions with a transaction that is open for 5 minutes longer than transaction.max.timeout.ms. "
        "Such a transaction blocks read_committed consumers.",
        _total(lambda data: data.late_partitions), (), "ReplicaManager: PartitionsWithLateTransactionsCount",
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
        "kcore_cleaner_failures_total", COUNTER,
        "Failed compactions of a partition. kcore repeats a failed compaction.",
        _one(lambda e: e.housekeeping.cleaner.failures), (), "LogCleanerManager: uncleanable-partitions-count",
    ),
    Metric(
        "kcore_cleaner_max_dirty_ratio", GAUGE,
        "Largest ratio of new bytes to all bytes, among the partitions of compacted topics.",
        _one(lambda e: e.housekeeping.cleaner.max_dirty_ratio()), (), "LogCleanerManager: max-dirty-percent",
    ),
    Metric(
        "kcore_cleaner_time_since_last_run_seconds", GAUGE, "Time since the cleaner last checked all partitions.",
        _one(lambda e: (e.clock.monotonic_ms() - e.housekeeping.cleaner.last_run_ms) / 1_000), (),
        "LogCleanerManager: time-since-last-run-ms",
    ),
    # ---- quotas and authentication
    Metric(
        "kcore_throttled_requests_total", COUNTER,
        "Requests and connections that were throttled because their client exceeded a quota.",
        lambda o: (((name,), count) for name, count in o.engine.client_quotas.throttled.items()), ("quota",),
    ),
    Metric(
        "kcore_throttle_time_seconds_total", COUNTER, "Time for which requests and connections were throttled.",
        lambda o: (((name,), ms / 1_000) for name, ms in o.engine.client_quotas.throttled_ms.items()), ("quota",),
        "Produce, Fetch, Request: throttle-time",
    ),
    Metric(
        "kcore_authentications_total", COUNTER,
        "SASL authentications. The authentication of a client that is already authenticated is a reauthentication.",
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
