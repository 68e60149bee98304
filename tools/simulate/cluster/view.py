"""Adapters that present a cluster as a single node to the checkers.

Each partition or coordinator shard is read from the node that leads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kcore.cluster_engine import ClusterEngine
from kcore.log import MemoryLogEngine
from kcore.log.interface import LogEngine, PartitionKey
from kcore.protocol.records import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.testing.storage import _copied
from tools.simulate.cluster.node import ClusterSimNode
from tools.simulate.node import NodeClock

if TYPE_CHECKING:
    from tools.simulate.cluster.world import ClusterWorld


class _Shards:
    def __init__(self, shards: list[Any]) -> None:
        self.shards = shards


class _NoShards:
    shards = None


class EngineView:
    """The state of the whole cluster, with the attributes of an engine that checkers read."""

    share = _NoShards()

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    def _leads(self, node: ClusterSimNode, key: PartitionKey) -> bool:
        """Returns True if a node leads a partition according to both the store and its own memory."""
        row = self._world.cluster.rows.get(key)
        led = node.engine.leadership.led.get(key) if node.running else None
        return row is not None and led is not None and (row.leader, row.leader_epoch) == (node.node_id, led[1])

    @property
    def topics(self) -> Any:
        """The topics as the controller knows them; without a controller, as another running node knows them."""
        running = [node.engine for node in self._world.nodes.values() if node.running]
        deciding: list[ClusterEngine] = [engine for engine in running if engine.decides()]
        return (deciding or running)[0].topics

    @property
    def partitions(self) -> Iterator[Any]:
        """The partitions of all running nodes, each read from its leader."""
        for node in self._world.nodes.values():
            if not node.running:
                continue
            for key in list(node.engine.leadership.led):
                partition = node.engine.partitions.led(key) if self._leads(node, key) else None
                if partition is not None:
                    yield partition

    def _led_shards(self, topic: str) -> list[Any]:
        shards = []
        for node in self._world.nodes.values():
            if not node.running:
                continue
            info = node.engine.topics.by_name(topic)
            owned: Any = node.engine.groups if topic == CONSUMER_OFFSETS else node.engine.transactions.shards
            if info is not None and owned is not None:
                shards += [each for each in owned if self._leads(node, PartitionKey(info.topic_id, each.index))]
        return shards

    @property
    def groups(self) -> list[Any]:
        """The group shards of the cluster. Each one is read from the running node that leads its partition."""
        return self._led_shards(CONSUMER_OFFSETS)

    @property
    def transactions(self) -> _Shards:
        """The transaction shards of the cluster. Each one is read from the running node that leads its partition."""
        return _Shards(self._led_shards(TRANSACTION_STATE))


class NodesView:
    """The whole cluster, with the attributes of a `Node` that checkers and clients read."""

    def __init__(self, world: ClusterWorld, clock: NodeClock) -> None:
        self._world = world
        self.clock = clock
        self.engine = EngineView(world)

    @property
    def running(self) -> bool:
        """True while any node runs."""
        return any(node.running for node in self._world.nodes.values())

    @property
    def uncertain_ms(self) -> int:
        """The last time in ms at which a node did not know the result of a write."""
        return max(node.uncertain_ms for node in self._world.nodes.values())

    @property
    def starts(self) -> int:
        """The number of starts of all nodes."""
        return sum(node.starts for node in self._world.nodes.values())

    def stop(self) -> None:
        """Ends all nodes."""
        for node in self._world.nodes.values():
            node.stop()


class SharedStore:
    """The durable state of the cluster, for the checkers."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    def copy(self) -> LogEngine:
        """Opens an independent copy of all logs."""
        return MemoryLogEngine(_copied(self._world.cluster.data))

    def close(self) -> None:
        """Ends all nodes at the end of the simulation."""
        self._world.over = True
        for node in self._world.nodes.values():
            node.abandon()
