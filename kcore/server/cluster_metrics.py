"""The metrics that only a node of a cluster has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kcore.metrics import Metric, MetricKind

if TYPE_CHECKING:
    from kcore.cluster_engine import ClusterEngine

COUNTER, GAUGE, HISTOGRAM = MetricKind

Samples = Iterable[tuple[tuple[str, ...], Any]]
Collect = Callable[[Any], Samples]


def _of(observer: Any) -> ClusterEngine | None:
    """Returns the engine if it is a node of a cluster, else None.

    This module does not import the engine's class, because nodes outside a cluster do not need it.
    """
    engine: ClusterEngine | None = observer.engine if hasattr(observer.engine, "membership") else None
    return engine


def _one(read: Callable[[ClusterEngine], Any]) -> Collect:
    """Returns a function that reads a value from the engine of a cluster node.

    For any other engine, the function returns no samples.
    """

    def collect(observer: Any) -> Samples:
        engine = _of(observer)
        return [] if engine is None else [((), read(engine))]

    return collect


def _lease_s(engine: ClusterEngine) -> float:
    left_ms = engine.membership.local.deadline_ms - engine.clock.monotonic_ms()
    return 0.0 if engine.membership.fenced else max(0, left_ms) / 1_000


def _nodes(observer: Any) -> Samples:
    engine = _of(observer)
    if engine is None:
        return []
    states = {"alive": 0, "draining": 0, "fenced": 0}
    for broker in engine.topics.image.brokers.values():
        states["fenced" if broker.fenced else "draining" if broker.draining else "alive"] += 1
    return [((state,), count) for state, count in states.items()]


def _under_way(engine: ClusterEngine) -> int:
    return sum(map(len, engine.topics.image.successors.values()))


def _leaderless(engine: ClusterEngine) -> int:
    image = engine.topics.image
    return sum(leader.node_id < 0 for leaders in image.leaders.values() for leader in leaders.values())


CLUSTER_METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "kcore_cluster_lease_remaining_seconds", GAUGE,
        "Time until the lease of this node ends. The node renews it; without a lease, it stops serving.",
        _one(_lease_s),
    ),
    Metric(
        "kcore_cluster_controller", GAUGE, "1 if this node is the controller, else 0.",
        _one(lambda e: int(e.decides())), (), "KafkaController: ActiveControllerCount",
    ),
    Metric("kcore_cluster_nodes", GAUGE, "Registered nodes by state, as this node sees them.", _nodes, ("state",)),
    Metric(
        "kcore_cluster_leaders", GAUGE, "Partitions that this node leads, including internal ones.",
        _one(lambda e: len(e.leadership.led)), (), "ReplicaManager: LeaderCount",
    ),
    Metric(
        "kcore_cluster_leaderless_partitions", GAUGE, "Partitions that no node leads.", _one(_leaderless), (),
        "KafkaController: OfflinePartitionsCount",
    ),
    Metric(
        "kcore_cluster_moves_in_progress", GAUGE,
        "Planned moves of partitions to another leader that are in progress.", _one(_under_way), (),
        "ReplicaManager: ReassigningPartitions",
    ),
    Metric(
        "kcore_cluster_leader_changes_total", COUNTER,
        "Changes of leadership: a partition counts once when this node begins to lead it, and once when it ceases.",
        _one(lambda e: e.leadership.moves),
    ),
    Metric(
        "kcore_cluster_planned_moves_total", COUNTER,
        "Moves that this node has planned as the controller: for balance, or because a node drains or stops.",
        _one(lambda e: e.controller.balanced),
    ),
    Metric(
        "kcore_cluster_failovers_total", COUNTER,
        "Partitions that this node, as the controller, gave to another node because their leader was not alive.",
        _one(lambda e: e.controller.failovers), (), "ControllerStats: LeaderElectionRateAndTimeMs",
    ),
    Metric(
        "kcore_cluster_fenced_commits_total", COUNTER,
        "Commits that the store refused because this node no longer led one of their partitions.",
        _one(lambda e: e.leadership.fenced_commits),
    ),
    Metric(
        "kcore_cluster_store_call_duration_seconds", HISTOGRAM,
        "Duration of calls to the store about leases or the state of the cluster; commits are not included.",
        _one(lambda e: e.store_time),
    ),
    Metric(
        "kcore_cluster_handover_duration_seconds", HISTOGRAM,
        "Time from the release of a partition by this node until its next leader has replayed the log.",
        _one(lambda e: e.releases.times),
    ),
)  # fmt: skip
"""The metrics of a node of a cluster, in the order of a scrape."""
