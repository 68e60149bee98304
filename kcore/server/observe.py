"""The metrics of a node: one table says which there are and where each is read.

What is counted is counted where it happens, as plain integers; a scrape reads them. Nothing here looks through groups,
members, offsets or connections: their numbers are kept as they change (`kcore.group.table`, `OffsetStore`).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.group.classic.states import GroupState as ClassicState
from kcore.group.consumer.states import GroupState as ConsumerState
from kcore.group.group import GroupType
from kcore.metrics import Histogram, Metric, MetricKind, Sample, exposition
from kcore.protocol.api_keys import ApiKey
from kcore.runtime import ShardState
from kcore.server.errors import error_name

if TYPE_CHECKING:
    from kcore.drivers.event_loop import AsyncDriver
    from kcore.engine import Engine
    from kcore.runtime import Shard
    from kcore.server.server import Server

PROBE_S: Final = 1.0  # how often the wait in the event loop's queue is measured
COUNTER, GAUGE, HISTOGRAM = MetricKind

GROUP_STATES: Final[dict[GroupType, tuple[str, ...]]] = {
    GroupType.CLASSIC: tuple(state.value for state in ClassicState),
    GroupType.CONSUMER: tuple(state.value for state in ConsumerState),
}
"""The states of each kind of group; a state without groups is shown with a 0."""

SHOWN: Final = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)
"""The states that shards are counted in; those of a shard that is not this node's are not."""


class ShardTotals:
    """What shards counted, over all their loads: a shard that is loaded again begins at 0, a metric must not."""

    __slots__ = ("commits", "consumer_rebalances", "deletions", "expirations", "rebalances")

    def __init__(self) -> None:
        self.commits = 0
        self.expirations = 0
        self.deletions = 0
        self.rebalances = 0
        self.consumer_rebalances = 0

    def add(self, machine: Any) -> None:
        """Adds what one load of a shard counted."""
        self.commits += machine.offsets.commits
        self.expirations += machine.offsets.expirations
        self.deletions += machine.offsets.deletions
        self.rebalances += machine.completed_rebalances
        self.consumer_rebalances += machine.consumer_rebalances


class Observer:
    """Reads a node when somebody asks.

    Args:
        engine: the node's engine.
        driver: what runs it; its rounds are measured from now on.
        server: its server; its answers' error codes are counted from now on.
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
        server.dispatch.count_errors()
        for shard in engine.groups:
            if shard.state is ShardState.ACTIVE:
                self.load_time.observe(shard.report.elapsed_ms / 1000)
            shard.when_state_changes(self._shard_changed)
        self._probe_due_s = driver.loop.time() + PROBE_S
        self._probe = driver.loop.call_at(self._probe_due_s, self._look)

    def _shard_changed(self, shard: Shard[Any]) -> None:
        if shard.state is ShardState.ACTIVE:
            self.load_time.observe(shard.report.elapsed_ms / 1000)
        elif shard.state is not ShardState.LOADING:
            self._earlier.add(shard.machine)

    def _look(self) -> None:
        """How much later than due this runs is how long anything waits before the loop gets to it."""
        loop = self.driver.loop
        now_s = loop.time()
        self.queue_time.observe(max(0.0, now_s - self._probe_due_s))
        self._probe_due_s = now_s + PROBE_S
        self._probe = loop.call_at(self._probe_due_s, self._look)

    def close(self) -> None:
        """Looks no more."""
        self._probe.cancel()

    @property
    def round_is_open(self) -> bool:
        """Whether something was decided that is not durable yet."""
        return self.engine.pipeline.has_uncommitted

    def settle(self) -> None:
        """Waits for a round that is written beside others, and ends the one behind it. Scrapes are rare: one may hold
        the loop up for that long.
        """
        if self.round_is_open:
            self.engine.commit()

    def text(self) -> str:
        """Everything, in Prometheus' text format."""
        return exposition(METRICS, self)

    def not_ready(self) -> dict[tuple[str, str], int]:
        """Which shards cannot serve, as (topic, state) -> how many; empty: the node is ready."""
        missing: dict[tuple[str, str], int] = {}
        for shard in self.shards():
            if shard.state is not ShardState.ACTIVE:
                place = (shard.topic, shard.state.value)
                missing[place] = missing.get(place, 0) + 1
        return missing

    # ---- what the table reads

    def shards(self) -> Iterator[Shard[Any]]:
        """Every coordinator partition of this node."""
        yield from self.engine.groups
        yield from self.engine.transactions.shards or ()

    def machines(self) -> Iterator[Any]:
        """The state machines of the group shards that are loaded."""
        return (shard.machine for shard in self.engine.groups if shard.state is ShardState.ACTIVE)

    def totals(self) -> ShardTotals:
        """What all shards counted since the node was opened."""
        totals = ShardTotals()
        earlier = self._earlier
        for name in ShardTotals.__slots__:
            setattr(totals, name, getattr(earlier, name))
        for machine in self.machines():
            totals.add(machine)
        return totals

    def group_counts(self) -> dict[tuple[str, str], int]:
        """How many groups there are, by (kind, state)."""
        counts = {(kind.value, state): 0 for kind, states in GROUP_STATES.items() for state in states}
        for machine in self.machines():
            for place, count in machine.groups.counts.items():
                counts[place] = counts.get(place, 0) + count
        return counts

    def shard_states(self) -> Iterator[Sample]:
        """How many shards of each internal topic are loading, active and failed."""
        states: dict[tuple[str, ...], int] = {}
        for shard in self.shards():
            if (shard.topic, ShardState.ACTIVE.value) not in states:
                states.update({(shard.topic, state.value): 0 for state in SHOWN})
            if shard.state in SHOWN:
                states[shard.topic, shard.state.value] += 1
        return iter(states.items())

    def groups_by_kind(self) -> Iterable[Sample]:
        """How many groups of each kind there are."""
        kinds: dict[str, int] = {}
        for (kind, _), count in self.group_counts().items():
            kinds[kind] = kinds.get(kind, 0) + count
        return (((kind,), count) for kind, count in kinds.items())

    def groups_by_state(self, kind: GroupType) -> Iterable[Sample]:
        """How many groups of a kind are in each state."""
        return (((state,), count) for (of, state), count in self.group_counts().items() if of == kind.value)

    def requests(self) -> Iterator[Sample]:
        """Requests by API."""
        return (((_api_name(key),), count) for key, count in self.server.dispatch.requests())

    def errors(self) -> Iterator[Sample]:
        """Error codes in answers, by API."""
        for served in self.server.dispatch:
            names: dict[str, int] = {}
            for code, count in served.errors.items():
                names[error_name(code)] = names.get(error_name(code), 0) + count
            for name, count in names.items():
                yield (_api_name(served.key), name), count

    def resident_bytes(self) -> Iterator[Sample]:
        """Memory of the process; nothing where the system does not say."""
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                yield (), int(file.read().split()[1]) * resource.getpagesize()
        except OSError:
            return


def _api_name(key: int) -> str:
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))


def _one(value: float) -> tuple[tuple[tuple[str, ...], Any], ...]:
    return (((), value),)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


GROUP = "group-coordinator-metrics: "

METRICS: Final[tuple[Metric, ...]] = (
    # ---- groups
    Metric(
        "kcore_group_count", GAUGE, "Groups.", Observer.groups_by_kind, ("protocol",), GROUP + "group-count"
    ),
    Metric(
        "kcore_classic_group_count", GAUGE, "Groups of the classic protocol, and simple ones.",
        lambda o: o.groups_by_state(GroupType.CLASSIC), ("state",), GROUP + "classic-group-count",
    ),
    Metric(
        "kcore_consumer_group_count", GAUGE, "Groups of the consumer protocol (KIP-848).",
        lambda o: o.groups_by_state(GroupType.CONSUMER), ("state",), GROUP + "consumer-group-count",
    ),
    Metric(
        "kcore_group_completed_rebalances_total", COUNTER,
        "Rebalances of classic groups that ended with an assignment.",
        lambda o: _one(o.totals().rebalances), (), GROUP + "group-completed-rebalance-count",
    ),
    Metric(
        "kcore_consumer_group_rebalances_total", COUNTER, "New epochs of consumer groups.",
        lambda o: _one(o.totals().consumer_rebalances), (), GROUP + "consumer-group-rebalance-count",
    ),
    # ---- offsets
    Metric(
        "kcore_offset_count", GAUGE, "Committed offsets that are held.",
        lambda o: _one(sum(machine.offsets.offset_count for machine in o.machines())), (), GROUP + "offset-count",
    ),
    Metric(
        "kcore_offset_commits_total", COUNTER, "Offsets that were committed.",
        lambda o: _one(o.totals().commits), (), GROUP + "offset-commit-count",
    ),
    Metric(
        "kcore_offset_expirations_total", COUNTER, "Offsets that expired.",
        lambda o: _one(o.totals().expirations), (), GROUP + "offset-expiration-count",
    ),
    Metric(
        "kcore_offset_deletions_total", COUNTER, "Offsets that were deleted by OffsetDelete.",
        lambda o: _one(o.totals().deletions), (), GROUP + "offset-deletion-count",
    ),
    # ---- the runtime
    Metric(
        "kcore_partitions", GAUGE, "Coordinator partitions of this node.",
        Observer.shard_states, ("topic", "state"), GROUP + "num-partitions",
    ),
    Metric(
        "kcore_partition_load_time_seconds", HISTOGRAM, "How long partitions of groups took to load.",
        lambda o: _one(o.load_time), (), GROUP + "partition-load-time-max, -avg",
    ),
    Metric(
        "kcore_event_queue_time_seconds", HISTOGRAM,
        "How long an event waits for the event loop; probed once a second.",
        lambda o: _one(o.queue_time), (), GROUP + "event-queue-time-ms",
    ),
    Metric(
        "kcore_event_processing_time_seconds", HISTOGRAM,
        "From the first request of a round to its end: all its requests are decoded and decided.",
        lambda o: _one(o.times.processing), (), GROUP + "event-processing-time-ms",
    ),
    Metric(
        "kcore_event_purgatory_time_seconds", HISTOGRAM,
        "From the start of a round to its commit, once for each answer that waited for it.",
        lambda o: _one(o.times.purgatory), (), GROUP + "event-purgatory-time-ms",
    ),
    Metric(
        "kcore_batch_flush_time_seconds", HISTOGRAM, "How long commits took, all partitions of a round in one.",
        lambda o: _one(o.times.flush), (), GROUP + "batch-flush-time-ms",
    ),
    Metric(
        "kcore_batch_flushes_total", COUNTER, "Commits that succeeded.",
        lambda o: _one(o.engine.pipeline.rounds), (), GROUP + "batch-flush-rate",
    ),
    Metric(
        "kcore_batch_flush_failures_total", COUNTER, "Commits that failed: nothing of them was stored or acknowledged.",
        lambda o: _one(o.engine.pipeline.failures),
    ),
    Metric(
        "kcore_parked_requests", GAUGE, "Joins, syncs and the like that wait for others or for a timeout.",
        lambda o: _one(sum(shard.parked for shard in o.shards())), (),
        "DelayedOperationPurgatory: PurgatorySize",
    ),
    Metric(
        "kcore_timers", GAUGE, "Timers that are armed.", lambda o: _one(len(o.engine.wheel)),
    ),
    Metric(
        "kcore_background_work", GAUGE, "Long work under way: loads, expiry, compaction.",
        lambda o: _one(len(o.engine.slices)),
    ),
    # ---- the network
    Metric(
        "kcore_connections", GAUGE, "Connections of clients.",
        lambda o: _one(len(o.server.connections)), (), "socket-server-metrics: connection-count",
    ),
    Metric(
        "kcore_accepted_connections_total", COUNTER, "Connections that were accepted.",
        lambda o: _one(o.server.accepted_connections), (), "socket-server-metrics: connection-creation-total",
    ),
    Metric(
        "kcore_refused_connections_total", COUNTER, "Connections closed because of max.connections.per.ip.",
        lambda o: _one(sum(acceptor.refused for acceptor in o.server.acceptors)),
    ),
    Metric(
        "kcore_tls_handshakes", GAUGE, "TLS handshakes under way.",
        lambda o: _one(sum(len(acceptor.handshakes) for acceptor in o.server.acceptors)),
    ),
    Metric(
        "kcore_failed_tls_handshakes_total", COUNTER, "TLS handshakes that failed, took too long or were given up.",
        lambda o: _one(sum(acceptor.failed_handshakes for acceptor in o.server.acceptors)),
    ),
    Metric(
        "kcore_requests_total", COUNTER, "Requests.",
        Observer.requests, ("api",), "RequestMetrics: RequestsPerSec",
    ),
    Metric(
        "kcore_request_errors_total", COUNTER,
        "Error codes in answers, at the top and for each topic, partition, group and member.",
        Observer.errors, ("api", "error"), "RequestMetrics: ErrorsPerSec",
    ),
    Metric(
        "kcore_refused_requests_total", COUNTER, "Requests that closed their connection: unknown, or not to be read.",
        lambda o: _one(o.server.refused_requests),
    ),
    Metric(
        "kcore_received_bytes_total", COUNTER, "Bytes that clients sent.",
        lambda o: _one(o.server.received_bytes), (), "socket-server-metrics: incoming-byte-total",
    ),
    Metric(
        "kcore_sent_bytes_total", COUNTER, "Bytes that clients were answered.",
        lambda o: _one(o.server.sent_bytes), (), "socket-server-metrics: outgoing-byte-total",
    ),
    Metric(
        "kcore_unread_response_bytes", GAUGE, "Answers that peers have left unread; 0 where nothing bounds them.",
        lambda o: _one(0 if o.server.responses is None else o.server.responses.held_bytes),
    ),
    Metric(
        "kcore_stalled_connections_total", COUNTER, "Connections closed because nothing was read of their answers.",
        lambda o: _one(0 if o.server.responses is None else o.server.responses.stalled_connections),
    ),
    # ---- the log
    Metric(
        "kcore_log_file_bytes", GAUGE, "Size of the log's file.", lambda o: _one(o.engine.log.stats().file_size_bytes),
    ),
    Metric(
        "kcore_log_used_bytes", GAUGE, "What of the log's file is in use, at most.",
        lambda o: _one(o.engine.log.stats().used_bytes), (), "Log: Size, over all partitions",
    ),
    Metric(
        "kcore_log_tail_bytes", GAUGE, "Newest batches kept in memory for readers.",
        lambda o: _one(o.engine.log.stats().tail_size_bytes),
    ),
    Metric(
        "kcore_log_partitions", GAUGE, "Partitions in the log, internal ones included.",
        lambda o: _one(o.engine.log.stats().partition_count), (), "ReplicaManager: PartitionCount",
    ),
    # ---- the process
    Metric(
        "process_resident_memory_bytes", GAUGE, "Memory of the process.", Observer.resident_bytes,
    ),
    Metric(
        "process_cpu_seconds_total", COUNTER, "Processor time of the process.", lambda o: _one(_cpu_seconds()),
    ),
    Metric(
        "process_start_time_seconds", GAUGE, "When it began to serve, in seconds since the epoch.",
        lambda o: _one(o.started_s),
    ),
)  # fmt: skip
"""Every metric, in the order of a scrape."""
