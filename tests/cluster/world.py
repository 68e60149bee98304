"""Several nodes of one process over one store, in virtual time."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from kcore.broker.cluster.membership import Timing
from kcore.clock import ManualClock
from kcore.cluster.memory_store import MemoryCluster, MemoryClusterStore
from kcore.cluster.store import Endpoint, NodeDescription
from kcore.cluster_engine import ClusterEngine
from kcore.config.node import Config
from kcore.runtime import Pending, RequestContext
from kcore.runtime.cluster import Leader
from tests.kit import QUICK
from tests.seeds import SEED

CLUSTER_ID = "memory-cluster-id-AAAA"
TIMING = Timing()
STEP_MS = 50
SETTINGS = {
    **QUICK,
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
}


class Node:
    """One node; `engine` is None while it is down."""

    def __init__(self, world: ClusterWorld, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.engine: ClusterEngine | None = None
        self.paused = False

    def start(self) -> ClusterEngine:
        """Registers a new incarnation and opens its engine."""
        store = MemoryClusterStore(self.world.store)
        taken_ms = self.world.clock.monotonic_ms()
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"node{self.node_id}.test", 9092)
        lease = store.register(self.node_id, NodeDescription((endpoint,), None), TIMING.ttl_ms)
        config = Config.of({**self.world.settings, "node.id": str(self.node_id)})
        self.engine = ClusterEngine(
            store, lease, taken_ms, config, self.world.clock, self.world.new_uuid, timing=TIMING
        )
        return self.engine

    def kill(self) -> None:
        """Ends the process without any farewell."""
        assert self.engine is not None
        self.engine.abandon()
        self.engine = None

    def stop(self) -> None:
        """Ends the process in an orderly way."""
        assert self.engine is not None
        self.engine.close()
        self.engine = None

    def run(self) -> None:
        """Runs due timers and long work, and commits."""
        engine = self.engine
        if engine is None or self.paused:
            return
        engine.turn()
        for _ in range(100):
            if not engine.pipeline.dirty:
                break
            engine.commit()
            engine.slices.finish()

    def send(self, request: Any, version: int | None = None) -> Any:
        """Returns the response, or the Pending of a parked request."""
        assert self.engine is not None
        served = self.engine.newest_version(request) if version is None else version
        response = self.engine.submit(RequestContext(served, "test"), request)
        if not self.paused:
            self.engine.commit()
            self.engine.slices.finish()
            self.engine.commit()
        if isinstance(response, Pending) and response.done:
            return response.response
        return response


class ClusterWorld:
    """A store, a clock and some nodes."""

    def __init__(self, nodes: int = 3, settings: dict[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.store = MemoryCluster(CLUSTER_ID, self.clock.monotonic_ms)
        self.settings = {**SETTINGS, **(settings or {})}
        self.new_uuid = partial(random.Random(SEED).randbytes, 16)
        self.nodes = {node_id: Node(self, node_id) for node_id in range(1, nodes + 1)}

    def start(self) -> None:
        """Starts every node, and lets the controller spread the leaders."""
        for node in self.nodes.values():
            node.start()
            self.advance(STEP_MS)
        self.advance(5_000)

    def advance(self, ms: int) -> None:
        """Lets time pass for all nodes, in steps."""
        for _ in range(ms // STEP_MS):
            self.clock.advance(STEP_MS)
            for node in self.nodes.values():
                node.run()

    @property
    def up(self) -> list[Node]:
        """The nodes that run."""
        return [node for node in self.nodes.values() if node.engine is not None]

    @property
    def controller(self) -> Node:
        """The node that decides."""
        [node] = [node for node in self.up if node.engine is not None and node.engine.decides()]
        return node

    def leader(self, topic: str, partition: int) -> Node:
        """The node that leads a partition, by the controller's metadata."""
        engine = self.controller.engine
        assert engine is not None
        leader = engine.cluster.leader(topic, partition)
        assert leader is not None, f"{topic}-{partition} has no leader"
        return self.nodes[leader.node_id]

    def close(self) -> None:
        for node in self.up:
            node.kill()


def leaders_of(engine: ClusterEngine, topic: str) -> list[Leader | None]:
    """The leaders of a topic's partitions as a node sees them."""
    info = engine.topics.by_name(topic)
    assert info is not None
    return [engine.cluster.leader(topic, index) for index in range(info.partitions)]
