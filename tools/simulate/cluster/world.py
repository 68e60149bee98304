"""One simulation of a cluster: several nodes over one store, with the clients and the checkers of a single node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kcore.cluster.memory_store import MemoryCluster
from kcore.cluster.store import METADATA, METADATA_NUMBER
from kcore.log import MemoryStorage
from kcore.log.write_set import PartitionMeta
from tools.simulate.channel import Channel
from tools.simulate.checkers.failure import SimulationFailure
from tools.simulate.checkers.heap import leaked
from tools.simulate.cluster.checks import ClusterChecks, ClusterObserver
from tools.simulate.cluster.faults import StoreFaults, inject_cluster_fault
from tools.simulate.cluster.node import ClusterSimNode
from tools.simulate.cluster.router import Router
from tools.simulate.cluster.view import NodesView, SharedStore
from tools.simulate.network import Network
from tools.simulate.node import NodeClock
from tools.simulate.plan import Fault
from tools.simulate.world import MAX_TIMERS, World

CLUSTER_ID: Final = "simulated-cluster-AAAA"
STARTED_MS: Final = 8_000
"""Time in ms within which all nodes of a new cluster serve requests and the leaders are distributed over the nodes."""


class CheckedStorage(MemoryStorage):
    """The logs of a cluster. A checker sees each write set before the storage stores it."""

    def __init__(self, check: Callable[[Any], None]) -> None:
        super().__init__()
        self._check = check
        self.create(METADATA, PartitionMeta(METADATA_NUMBER, 0, (), None))

    def write(self, write_set: Any) -> None:
        """Implements `Storage.write`."""
        self._check(write_set)
        super().write(write_set)


class ClusterWorld(World):
    """A simulation of a cluster.

    Attributes:
        nodes: the nodes by id.
        cluster: the contents of the cluster's store, which all nodes share.
        store_ms: the longest time that a call of the store takes in each direction.
        store_faults: makes calls of the store fail.
        routes: the random number generator with which clients choose a node.
        over: True once no node may start again.
    """

    node: Any
    store: Any

    def _make_nodes(self) -> None:
        self.over = False
        self.store_ms = 1
        self.cluster = MemoryCluster(CLUSTER_ID, lambda: self.kernel.now_ms)
        self.store_faults = StoreFaults(self)
        self.cluster.intercept = self.store_faults
        self.clock = NodeClock(self.kernel)
        self.routes = self.random("routes")
        self.nodes: dict[int, ClusterSimNode] = {}
        for node_id in range(1, self.plan.nodes + 1):
            network = Network(self.kernel, self.random(f"network {node_id}"), self.weather, self._trouble)
            choice = self.random(f"node {node_id}")
            self.nodes[node_id] = ClusterSimNode(self, node_id, network, self.plan.settings, choice, self.trace)
        self.network = self.nodes[1].network
        self.node = NodesView(self, self.clock)
        self.store = SharedStore(self)

    def _make_checks(self) -> None:
        self.observer = ClusterObserver(self)
        self.checks = self.cluster_checks = ClusterChecks(self)
        self.cluster.data = CheckedStorage(self.cluster_checks.check_write)

    def make_channel(self, name: str) -> Any:
        """Opens a client's connections to the nodes."""
        return Router(self, name)

    def _set_up(self) -> None:
        for number, node in enumerate(self.nodes.values()):
            self.kernel.at(number * 50, node.start)
        self.kernel.run(STARTED_MS, 1 << 62)
        serving = [node.node_id for node in self.nodes.values() if node.running]
        if len(serving) < len(self.nodes):
            raise SimulationFailure("setup", f"only the nodes {serving} serve")
        self.kernel.spawn(self._create_topics(self.make_channel("setup")))
        self.kernel.run(2 * STARTED_MS, 1 << 62)
        if set(self.topic_names.values()) != set(self.plan.topics):
            raise SimulationFailure("setup", f"topics: {sorted(self.topic_names.values())}")

    def _schedule_rounds(self, round_ms: int, background: float) -> None:
        for node in self.nodes.values():
            node.round_ms, node.background = round_ms, background

    def _inject(self, fault: Fault) -> None:
        inject_cluster_fault(self, fault)

    def _end_faults(self) -> None:
        self.store_faults.end()
        self.store_ms = 1
        for node in self.nodes.values():
            node.paused_until_ms = 0
        self._schedule_rounds(1, 0.0)

    def _unrest(self) -> str | None:
        """Describes a part of the cluster that has not recovered from the faults. Returns None if all parts have."""
        if not self.observer.at_rest():
            return "the nodes are not at rest"
        return self.cluster_checks.unrest() or super()._unrest()

    def _check_leaks(self) -> None:
        require = self.checks.require
        for node in self.nodes.values():
            engine, name = node.engine, f"node {node.node_id}"
            wires = [wire.wire.name for wire in node.connections.values() if not wire.wire.name.startswith("node")]
            require(not wires, "leaks", f"{name} has open connections: {wires}")
            require(engine.pipeline.waiting == 0, "leaks", f"{name}: {engine.pipeline.waiting} responses wait")
            require(len(engine.purgatory) == 0, "leaks", f"{name}: {len(engine.purgatory)} operations are delayed")
            require(len(engine.wheel) < MAX_TIMERS, "leaks", f"{name}: {len(engine.wheel)} timers are armed")
            objects = leaked(engine)
            require(not objects, "leaks", f"{name} still has {objects}")
        waiting = sum(channel.waiting for channel in self.channels if not self._is_of_nodes(channel))
        require(waiting == 0, "responses", f"{waiting} requests have no response")

    @staticmethod
    def _is_of_nodes(channel: Channel) -> bool:
        return channel.name.startswith("node")
