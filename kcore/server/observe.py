"""The metrics of a node. One table lists all metrics and the source of each.

The components count events as plain integers; a scrape reads these. No scrape iterates over groups, members, offsets
or connections: their counts are maintained as they change (`kcore.group.table`, `OffsetStore`). A scrape iterates over
topics and partitions; `kcore.server.data_metrics` has their metrics.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.group.classic.states import GroupState as ClassicState
from kcore.group.consumer.states import GroupState as ConsumerState
from kcore.group.group import GroupType
from kcore.group.share.states import GroupState as ShareState
from kcore.group.streams.states import GroupState as StreamsState
from kcore.metrics import Histogram, Metric, MetricKind, Sample, exposition
from kcore.protocol.api_keys import api_name
from kcore.runtime import ShardState
from kcore.server.cluster_metrics import CLUSTER_METRICS
from kcore.server.data_metrics import DATA_METRICS
from kcore.server.data_totals import DataTotals, count_data
from kcore.server.errors import error_name
from kcore_ext.server.api_times import BOUNDS_S

if TYPE_CHECKING:
    from kcore.broker.share.counters import ShareCounters
    from kcore.drivers.event_loop import AsyncDriver
    from kcore.engine import Engine
    from kcore.log import EngineStats
    from kcore.runtime import Shard
    from kcore.server.handshake import Handshakes
    from kcore.server.server import Server

PROBE_S: Final = 1.0  # interval at which the delay of the event loop is measured
COUNTER, GAUGE, HISTOGRAM = MetricKind

RECORDING_S: Final = 300.0
"""Time after a scrape in which the server measures the times of requests. Without scrapes, it does not measure them."""

GROUP_STATES: Final[dict[GroupType, tuple[str, ...]]] = {
    GroupType.CLASSIC: tuple(state.value for state in ClassicState),
    GroupType.CONSUMER: tuple(state.value for state in ConsumerState),
    GroupType.SHARE: tuple(state.value for state in ShareState),
    GroupType.STREAMS: tuple(state.kafka_name for state in StreamsState),
}
"""Group type -> the states of its groups. The metrics report every state, with the value 0 if no group is in it."""

ACK_TYPES: Final = ("gap", "accept", "release", "reject", "renew")
"""Names of the acknowledgement types of share groups, in the order of their numbers on the wire."""

SHOWN: Final = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)
"""States of shards that the metrics count. The metrics omit shards that other nodes coordinate."""


class ShardTotals:
    """The sums of the counters of shards over all loads of each shard.

    The counters of a reloaded shard restart at 0, but a metric must not decrease.
    """

    __slots__ = (
        "commits",
        "deletions",
        "expirations",
        "rebalances",
    )

    def __init__(self) -> None:
        self.commits = 0
        self.expirations = 0
        self.deletions = 0
        self.rebalances = 0

    def add(self, machine: Any) -> None:
        """Adds the counters of one load of a shard."""
        self.commits += machine.offsets.commits
        self.expirations += machine.offsets.expirations
        self.deletions += machine.offsets.deletions
        self.rebalances += machine.completed_rebalances


class Observer:
    """The reader of a node's metrics.

    Args:
        engine: the node's engine.
        driver: the engine's driver; its rounds are measured from now on.
        server: the node's server; the error codes of its responses are counted from now on.

    Attributes:
        data: the sums over all topics and partitions, as of the last scrape.
        log_stats: the sizes of the log, as of the last scrape. The attribute does not exist before the first scrape.
    """

    def __init__(self, engine: Engine, driver: AsyncDriver, server: Server) -> None:
        self.engine = engine
        self.driver = driver
        self.server = server
        self.times = driver.measure()
        self.queue_time = Histogram()
        self.load_time = Histogram()
        self.started_s = time.time()
        self._earlier = ShardTotals()
        self.data = DataTotals()
        self.log_stats: EngineStats  # counting partitions takes too long for a start without a scrape
        server.dispatch.count_errors()
        for shard in engine.groups:
            if shard.state is ShardState.ACTIVE:
                self.load_time.observe(shard.report.elapsed_ms / 1000)
            shard.when_state_changes(self._shard_changed)
        engine.groups.on_made = self._shard_made
        self._record_until_s = -1.0  # the server measures the times of requests until then; negative: not at all
        self._probe_due_s = driver.loop.time() + PROBE_S
        self._probe = driver.loop.call_at(self._probe_due_s, self._measure_delay)

    def _shard_made(self, shard: Shard[Any]) -> None:
        """Observes a shard that this node leads from now on."""
        shard.when_state_changes(self._shard_changed)

    def _shard_changed(self, shard: Shard[Any]) -> None:
        if shard.state is ShardState.ACTIVE:
            self.load_time.observe(shard.report.elapsed_ms / 1000)
        elif shard.state is not ShardState.LOADING:
            self._earlier.add(shard.machine)

    def _measure_delay(self) -> None:
        """Measures how late the event loop calls this method. Any other event waits equally long for the event loop."""
        loop = self.driver.loop
        now_s = loop.time()
        self.queue_time.observe(max(0.0, now_s - self._probe_due_s))
        if 0 <= self._record_until_s < now_s:
            self._record_until_s = -1.0
            self.server.dispatch.time_requests(False)
        self._probe_due_s = now_s + PROBE_S
        self._probe = loop.call_at(self._probe_due_s, self._measure_delay)

    def close(self) -> None:
        """Stops the measurement of the event loop's delay."""
        self._probe.cancel()

    @property
    def round_is_open(self) -> bool:
        """True if the current round has records that are not durable yet."""
        return self.engine.pipeline.has_uncommitted

    def settle(self) -> None:
        """Waits for a background commit, then commits the open round.

        Scrapes are rare, so a scrape may block the loop until the commit is written.
        """
        if self.round_is_open:
            self.engine.commit()

    def scrape(self) -> Generator[None, None, list[bytes]]:
        """Renders all metrics in Prometheus' text format, in slices.

        After the call, the server measures the times of requests for `RECORDING_S`.
        """
        if self._record_until_s < 0:
            self.server.dispatch.time_requests(True)
        self._record_until_s = self.driver.loop.time() + RECORDING_S
        self.data = yield from count_data(self.engine)
        self.log_stats = self.engine.log.stats()
        yield
        return (yield from exposition(METRICS, self))

    def not_ready(self) -> dict[tuple[str, str], int]:
        """Counts the shards that cannot serve, by (topic, state); empty if the node is ready."""
        missing: dict[tuple[str, str], int] = {}
        for shard in self.shards():
            if shard.state is not ShardState.ACTIVE:
                key = (shard.topic, shard.state.value)
                missing[key] = missing.get(key, 0) + 1
        return missing

    # ---- read by the table

    def shards(self) -> Iterator[Shard[Any]]:
        """Iterates over every coordinator partition of this node."""
        yield from self.engine.groups
        yield from self.engine.transactions.shards or ()
        yield from self.engine.share.shards or ()

    def machines(self) -> Iterator[Any]:
        """Iterates over the state machines of the loaded group shards."""
        return (shard.machine for shard in self.engine.groups if shard.state is ShardState.ACTIVE)

    def totals(self) -> ShardTotals:
        """Sums the counters of all shards since the node was opened."""
        totals = ShardTotals()
        earlier = self._earlier
        for name in ShardTotals.__slots__:
            setattr(totals, name, getattr(earlier, name))
        for machine in self.machines():
            totals.add(machine)
        return totals

    def group_counts(self) -> dict[tuple[str, str], int]:
        """Counts groups by (kind, state)."""
        counts = {(kind.value, state): 0 for kind, states in GROUP_STATES.items() for state in states}
        for machine in self.machines():
            for key, count in machine.groups.counts.items():
                counts[key] = counts.get(key, 0) + count
        return counts

    def shard_states(self) -> Iterator[Sample]:
        """Yields the number of loading, active and failed shards of each internal topic."""
        states: dict[tuple[str, ...], int] = {}
        for shard in self.shards():
            if (shard.topic, ShardState.ACTIVE.value) not in states:
                states.update({(shard.topic, state.value): 0 for state in SHOWN})
            if shard.state in SHOWN:
                states[shard.topic, shard.state.value] += 1
        return iter(states.items())

    def groups_by_kind(self) -> Iterable[Sample]:
        """Yields the number of groups of each kind."""
        kinds: dict[str, int] = {}
        for (kind, _), count in self.group_counts().items():
            kinds[kind] = kinds.get(kind, 0) + count
        return (((kind,), count) for kind, count in kinds.items())

    def groups_by_state(self, kind: GroupType) -> Iterable[Sample]:
        """Yields the number of groups of a kind in each state."""
        return (((state,), count) for (of, state), count in self.group_counts().items() if of == kind.value)

    def handshakes(self) -> Iterator[Handshakes]:
        """Iterates over the TLS handshakes of the listeners that have TLS."""
        for acceptor in self.server.acceptors:
            if acceptor.handshakes is not None:
                yield acceptor.handshakes

    def share_states(self) -> int:
        """Counts the share partitions with a durable state."""
        return sum(len(shard.machine.states) for shard in self.engine.share.shards or ())

    def share_acknowledgements(self) -> Iterable[Sample]:
        """Yields the number of acknowledged records by type."""
        return (((name,), count) for name, count in zip(ACK_TYPES, self.share_counters.acknowledgements, strict=True))

    @property
    def share_counters(self) -> ShareCounters:
        """The counters of the delivery of records to share groups."""
        return self.engine.share_partitions.counters

    def requests(self) -> Iterator[Sample]:
        """Yields the number of requests by API."""
        return (((api_name(key),), count) for key, count in self.server.dispatch.requests())

    def errors(self) -> Iterator[Sample]:
        """Yields the error codes in responses by API."""
        for served in self.server.dispatch:
            names: dict[str, int] = {}
            for code, count in served.errors.items():
                names[error_name(code)] = names.get(error_name(code), 0) + count
            for name, count in names.items():
                yield (api_name(served.key), name), count

    def request_times(self) -> Iterator[tuple[tuple[str, ...], Histogram]]:
        """Yields the times of the measured requests by API."""
        for served in self.server.dispatch:
            times = served.all_times
            if times.count:
                yield (api_name(served.key),), Histogram.of(BOUNDS_S, times.buckets(), times.total_ns / 1e9)

    def processing_times(self) -> Iterator[Sample]:
        """Yields the time for which the event loop worked on the measured requests, by API."""
        for served in self.server.dispatch:
            if served.all_times.count:
                yield (api_name(served.key),), served.all_times.processing_ns / 1e9

    def resident_bytes(self) -> Iterator[Sample]:
        """Yields the resident memory of the process, or no value if the system does not report it."""
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                yield (), int(file.read().split()[1]) * resource.getpagesize()
        except OSError:
            return


def _one(value: float) -> tuple[tuple[tuple[str, ...], Any], ...]:
    return (((), value),)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


GROUP = "group-coordinator-metrics: "

METRICS: Final[tuple[Metric, ...]] = (
    # ---- groups
    Metric(
        "kcore_groups", GAUGE, "Groups by protocol.", Observer.groups_by_kind, ("protocol",), GROUP + "group-count"
    ),
    Metric(
        "kcore_classic_groups", GAUGE, "Groups of the classic protocol, including simple groups.",
        lambda o: o.groups_by_state(GroupType.CLASSIC), ("state",), GROUP + "classic-group-count",
    ),
    Metric(
        "kcore_consumer_groups", GAUGE, "Groups of the consumer protocol (KIP-848).",
        lambda o: o.groups_by_state(GroupType.CONSUMER), ("state",), GROUP + "consumer-group-count",
    ),
    Metric(
        "kcore_streams_groups", GAUGE, "Groups of Kafka Streams applications (KIP-1071).",
        lambda o: o.groups_by_state(GroupType.STREAMS), ("state",), GROUP + "streams-group-count",
    ),
    Metric(
        "kcore_group_completed_rebalances_total", COUNTER,
        "Rebalances of classic groups that ended with an assignment.",
        lambda o: _one(o.totals().rebalances), (), GROUP + "group-completed-rebalance-count",
    ),
    Metric(
        "kcore_consumer_group_rebalances_total", COUNTER, "New epochs of consumer groups.",
        lambda o: _one(o.engine.group_meters.new_epochs["consumer"]), (), GROUP + "consumer-group-rebalance-count",
    ),
    Metric(
        "kcore_share_groups", GAUGE, "Share groups (KIP-932).",
        lambda o: o.groups_by_state(GroupType.SHARE), ("state",), GROUP + "share-group-count",
    ),
    Metric(
        "kcore_share_group_rebalances_total", COUNTER, "New epochs of share groups.",
        lambda o: _one(o.engine.group_meters.new_epochs["share"]), (), GROUP + "share-group-rebalance-count",
    ),
    Metric(
        "kcore_streams_group_rebalances_total", COUNTER, "New epochs of streams groups.",
        lambda o: _one(o.engine.group_meters.new_epochs["streams"]), (), GROUP + "streams-group-rebalance-count",
    ),
    Metric(
        "kcore_group_member_joins_total", COUNTER, "New members of groups.",
        lambda o: (((kind,), count) for kind, count in o.engine.group_meters.joins.items()), ("protocol",),
    ),
    Metric(
        "kcore_group_member_leaves_total", COUNTER, "Members that left groups or were removed.",
        lambda o: (((kind,), count) for kind, count in o.engine.group_meters.leaves.items()), ("protocol",),
    ),
    Metric(
        "kcore_group_member_expirations_total", COUNTER,
        "Members that the coordinator removed because their session or rebalance timeout ended.",
        lambda o: (((kind,), count) for kind, count in o.engine.group_meters.expirations.items()), ("protocol",),
    ),
    Metric(
        "kcore_group_rebalance_time_seconds", HISTOGRAM,
        "Time from the change that begins a rebalance until every member has its assignment.",
        lambda o: (((kind,), times) for kind, times in o.engine.group_meters.rebalance_times.items()), ("protocol",),
    ),
    # ---- share groups
    Metric(
        "kcore_share_partitions", GAUGE, "Share partitions with a durable state.",
        lambda o: _one(o.share_states()),
    ),
    Metric(
        "kcore_share_partitions_loaded", GAUGE, "Share partitions in memory. Only these deliver records.",
        lambda o: _one(len(o.engine.share_partitions)),
    ),
    Metric(
        "kcore_share_records_in_flight", GAUGE,
        "Offsets between the start and the end offset of a share partition, summed over share partitions in memory.",
        lambda o: _one(sum(part.tracked for part in o.engine.share_partitions)), (),
        "SharePartitionMetrics: InFlightMessageCount",
    ),
    Metric(
        "kcore_share_sessions", GAUGE, "Share sessions.",
        lambda o: _one(len(o.engine.share_partitions.sessions)), (), "ShareSessionCache: ShareSessionsCount",
    ),
    Metric(
        "kcore_share_session_partitions", GAUGE, "Partitions in share sessions.",
        lambda o: _one(o.engine.share_partitions.sessions.partitions), (), "ShareSessionCache: SharePartitionsCount",
    ),
    Metric(
        "kcore_share_records_delivered_total", COUNTER, "Records that were delivered to share groups.",
        lambda o: _one(o.share_counters.deliveries),
    ),
    Metric(
        "kcore_share_records_redelivered_total", COUNTER,
        "Records that were delivered to share groups again, after an earlier delivery.",
        lambda o: _one(o.share_counters.redeliveries),
    ),
    Metric(
        "kcore_share_acknowledgements_total", COUNTER,
        "Records of share groups that were acknowledged, by type of acknowledgement.",
        Observer.share_acknowledgements, ("type",), "ShareGroupMetrics: RecordAcknowledgementsPerSec",
    ),
    Metric(
        "kcore_share_locks_expired_total", COUNTER, "Records of share groups whose acquisition lock expired.",
        lambda o: _one(o.share_counters.expired_locks), (), "SharePartitionMetrics: AcquisitionLockTimeoutPerSec",
    ),
    Metric(
        "kcore_share_records_archived_by_expiry_total", COUNTER,
        "Records of share groups that were archived because the lock of their last allowed delivery expired.",
        lambda o: _one(o.share_counters.archived_by_expiry),
    ),
    # ---- offsets
    Metric(
        "kcore_offsets", GAUGE, "Committed offsets in memory.",
        lambda o: _one(sum(machine.offsets.offset_count for machine in o.machines())), (), GROUP + "offset-count",
    ),
    Metric(
        "kcore_offset_commits_total", COUNTER, "Offsets that groups have committed.",
        lambda o: _one(o.totals().commits), (), GROUP + "offset-commit-count",
    ),
    Metric(
        "kcore_offset_expirations_total", COUNTER, "Committed offsets that were deleted because they expired.",
        lambda o: _one(o.totals().expirations), (), GROUP + "offset-expiration-count",
    ),
    Metric(
        "kcore_offset_deletions_total", COUNTER, "Committed offsets that OffsetDelete requests deleted.",
        lambda o: _one(o.totals().deletions), (), GROUP + "offset-deletion-count",
    ),
    # ---- the runtime
    Metric(
        "kcore_partitions", GAUGE, "Partitions of internal topics whose coordinator is this node.",
        Observer.shard_states, ("topic", "state"), GROUP + "num-partitions",
    ),
    Metric(
        "kcore_partition_load_time_seconds", HISTOGRAM, "Time to load one partition of __consumer_offsets.",
        lambda o: _one(o.load_time), (), GROUP + "partition-load-time-max, -avg",
    ),
    Metric(
        "kcore_event_queue_time_seconds", HISTOGRAM,
        "Delay of a timer in the event loop, measured once a second. Other events have the same delay.",
        lambda o: _one(o.queue_time), (), GROUP + "event-queue-time-ms",
    ),
    Metric(
        "kcore_event_processing_time_seconds", HISTOGRAM,
        "Time from a round's first request until all its requests are decoded and decided.",
        lambda o: _one(o.times.processing), (), GROUP + "event-processing-time-ms",
    ),
    Metric(
        "kcore_event_purgatory_time_seconds", HISTOGRAM,
        "Time from the start of a round to the end of its commit, for each response that waited for that commit.",
        lambda o: _one(o.times.purgatory), (), GROUP + "event-purgatory-time-ms",
    ),
    Metric(
        "kcore_batch_flush_time_seconds", HISTOGRAM,
        "Duration of commits; one commit covers all partitions of a round.",
        lambda o: _one(o.times.flush), (), GROUP + "batch-flush-time-ms",
    ),
    Metric(
        "kcore_batch_flushes_total", COUNTER, "Successful commits.",
        lambda o: _one(o.engine.pipeline.rounds), (), GROUP + "batch-flush-rate",
    ),
    Metric(
        "kcore_batch_flush_failures_total", COUNTER,
        "Failed commits. None of their records was stored or acknowledged.",
        lambda o: _one(o.engine.pipeline.failures),
    ),
    Metric(
        "kcore_parked_requests", GAUGE,
        "Parked requests of coordinators, such as joins and syncs: they wait for other members or a timeout.",
        lambda o: _one(sum(shard.parked for shard in o.shards())), (),
        "DelayedOperationPurgatory: PurgatorySize",
    ),
    Metric(
        "kcore_timers", GAUGE, "Armed timers.", lambda o: _one(len(o.engine.wheel)),
    ),
    Metric(
        "kcore_background_work", GAUGE, "Long operations that run in slices, such as loads, expiry and compaction.",
        lambda o: _one(len(o.engine.slices)),
    ),
    # ---- the network
    Metric(
        "kcore_connections", GAUGE, "Open client connections.",
        lambda o: _one(len(o.server.connections)), (), "socket-server-metrics: connection-count",
    ),
    Metric(
        "kcore_accepted_connections_total", COUNTER, "Accepted connections.",
        lambda o: _one(o.server.accepted_connections), (), "socket-server-metrics: connection-creation-total",
    ),
    Metric(
        "kcore_refused_connections_total", COUNTER, "Connections closed because of max.connections.per.ip.",
        lambda o: _one(sum(acceptor.refused for acceptor in o.server.acceptors)),
    ),
    Metric(
        "kcore_tls_handshakes", GAUGE, "Connections whose TLS handshake is not finished.",
        lambda o: _one(sum(map(len, o.handshakes()))),
    ),
    Metric(
        "kcore_failed_tls_handshakes_total", COUNTER, "TLS handshakes that failed, timed out or were aborted.",
        lambda o: _one(sum(handshakes.failed for handshakes in o.handshakes())),
    ),
    Metric(
        "kcore_requests_total", COUNTER, "Requests.",
        Observer.requests, ("api",), "RequestMetrics: RequestsPerSec",
    ),
    Metric(
        "kcore_request_time_seconds", HISTOGRAM,
        "Time from the arrival of a request until its response is encoded, including waits for commits, members and "
        "records. kcore measures it only for 5 minutes after each scrape.",
        Observer.request_times, ("api",), "RequestMetrics: TotalTimeMs",
    ),
    Metric(
        "kcore_request_processing_seconds_total", COUNTER,
        "Time that the event loop spent on the requests of kcore_request_time_seconds: to decode, decide and encode.",
        Observer.processing_times, ("api",), "RequestMetrics: LocalTimeMs",
    ),
    Metric(
        "kcore_request_errors_total", COUNTER,
        "Error codes in responses, at the top level and per topic, partition, group and member.",
        Observer.errors, ("api", "error"), "RequestMetrics: ErrorsPerSec",
    ),
    Metric(
        "kcore_refused_requests_total", COUNTER,
        "Requests after which the server closed the connection, because they were unsupported or malformed.",
        lambda o: _one(o.server.refused_requests),
    ),
    Metric(
        "kcore_received_bytes_total", COUNTER, "Bytes received from clients.",
        lambda o: _one(o.server.traffic.received_bytes), (), "socket-server-metrics: incoming-byte-total",
    ),
    Metric(
        "kcore_sent_bytes_total", COUNTER, "Bytes sent to clients.",
        lambda o: _one(o.server.traffic.sent_bytes), (), "socket-server-metrics: outgoing-byte-total",
    ),
    Metric(
        "kcore_unread_response_bytes", GAUGE,
        "Bytes of responses that clients have not read; 0 if kcore.max.response.memory.bytes is -1.",
        lambda o: _one(0 if o.server.responses is None else o.server.responses.held_bytes),
    ),
    Metric(
        "kcore_stalled_connections_total", COUNTER, "Connections closed because the client did not read its responses.",
        lambda o: _one(0 if o.server.responses is None else o.server.responses.stalled_connections),
    ),
    # ---- the log
    Metric(
        "kcore_log_file_bytes", GAUGE, "Size of the log file.", lambda o: _one(o.log_stats.file_size_bytes),
    ),
    Metric(
        "kcore_log_used_bytes", GAUGE, "Upper bound of the used bytes in the log file.",
        lambda o: _one(o.log_stats.used_bytes), (), "Log: Size, over all partitions",
    ),
    Metric(
        "kcore_log_tail_bytes", GAUGE, "Bytes of the newest batches, which kcore keeps in memory for fetches.",
        lambda o: _one(o.log_stats.tail_size_bytes),
    ),
    Metric(
        "kcore_log_partitions", GAUGE, "Partitions in the log, including internal ones.",
        lambda o: _one(o.log_stats.partition_count), (), "ReplicaManager: PartitionCount",
    ),
    # ---- topics, partitions, transactions, compaction, quotas, authentication
    *DATA_METRICS,
    # ---- the cluster
    *CLUSTER_METRICS,
    # ---- the process
    Metric(
        "process_resident_memory_bytes", GAUGE, "Resident memory of the process.", Observer.resident_bytes,
    ),
    Metric(
        "process_cpu_seconds_total", COUNTER, "Processor time of the process.", lambda o: _one(_cpu_seconds()),
    ),
    Metric(
        "process_start_time_seconds", GAUGE, "Start time of the process in seconds since the epoch.",
        lambda o: _one(o.started_s),
    ),
)  # fmt: skip
"""All metrics, in the order in which a scrape returns them."""
