"""Planted defects of clusters: leases, fencing, failover, unknown outcomes, and requests between nodes."""

from __future__ import annotations

from typing import Any

from kcore.broker.cluster import balance, controller, membership
from kcore.broker.cluster import producer_ids as shared_producer_ids
from kcore.broker.data import shared_partitions
from kcore.cluster import memory_store
from kcore.transaction import shared_markers
from kcore_ext.runtime.lease import LocalLease
from tools.simulate.mutants.mutant import Mutant, Patch

LATE_MS = 60_000


def _serves_without_lease() -> list[Patch]:

    class StoppedClock:
        def monotonic_ms(self) -> int:
            return 0

    def endless_lease(clock: object, deadline_ms: int) -> LocalLease:
        return LocalLease(StoppedClock(), deadline_ms)

    return [(membership, "LocalLease", endless_lease)]


def _long_lease() -> list[Patch]:
    original = membership.Membership._renewed

    def renewed(self: Any, result: Any, sent_ms: int) -> None:
        original(self, result, sent_ms + LATE_MS)

    return [(membership.Membership, "_renewed", renewed)]


def _fence_unchecked() -> list[Patch]:
    return [
        (memory_store.MemoryCluster, "require_unfenced", lambda self, node_id, session: None),
        (memory_store.MemoryCluster, "require_leader", lambda self, node_id, partitions: None),
    ]


def _no_failover() -> list[Patch]:
    return [(balance.Placement, "leaderless", lambda self, alive: iter(()))]


def _early_registration() -> list[Patch]:
    original = controller.Controller._decide

    def decide(self: Any, nodes: Any) -> Any:
        machine = self._shard.machine
        records = self._joined(machine, nodes, set())
        return machine.outcome(records) if records else original(self, nodes)

    return [(controller.Controller, "_decide", decide)]


def _resolved_as(durable: bool) -> list[Patch]:
    def resolve_write(self: Any) -> None:
        if self._unknown is not None:
            self._intercept("resolve_write")
            self._unknown[0].is_durable = durable
            self._unknown = None

    return [(memory_store.MemorySharedStorage, "resolve_write", resolve_write)]


def _remote_markers_lost() -> list[Patch]:
    return [(shared_markers._RemoteMarkers, "committed", lambda self: None)]


def _producer_block_shared() -> list[Patch]:
    original = shared_producer_ids.producer_ids_record  # type: ignore[attr-defined]

    def record(node_id: int, next_producer_id: int) -> Any:
        return original(node_id, max(next_producer_id - shared_producer_ids.BLOCK_SIZE, 0))  # type: ignore[attr-defined]

    return [(shared_producer_ids, "producer_ids_record", record)]


def _still_served() -> list[Patch]:
    return [(shared_partitions.SharedPartitions, "resign", lambda self, key: None)]


CLUSTER_MUTANTS = (
    Mutant("no-lease", "a node serves although its lease has expired", _serves_without_lease, True, ("cut store",)),
    Mutant("long-lease", "a node computes the end of its lease a minute too late", _long_lease, True, ("cut store",)),
    Mutant(
        "fence-unchecked", "the store accepts writes of fenced nodes and of earlier leaders", _fence_unchecked, True
    ),
    Mutant("no-failover", "partitions of dead nodes get no new leader", _no_failover, True),
    Mutant(
        "early-registration", "a new incarnation is registered while it leads partitions", _early_registration, True
    ),
    Mutant("unknown-as-failed", "a write with an unknown result counts as failed", lambda: _resolved_as(False), True),
    Mutant("unknown-as-durable", "a write with an unknown result counts as durable", lambda: _resolved_as(True), True),
    Mutant("remote-markers-lost", "markers for partitions of other nodes are not sent", _remote_markers_lost, True),
    Mutant(
        "producer-block-shared",
        "the controller gives one block of producer ids to all nodes",
        _producer_block_shared,
        True,
    ),
    Mutant("still-served", "a node serves partitions that it does not lead any more", _still_served, True),
)
