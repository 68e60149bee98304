from __future__ import annotations

from collections.abc import Iterator

import pytest

from kcore.clock import ManualClock
from kcore.cluster.memory_store import MemoryCluster, MemoryClusterStore
from kcore.cluster.store import ClusterStore, Endpoint, Lease, NodeDescription
from kcore.log.interface import PartitionKey
from kcore.log.shared_engine import SharedLogEngine

TTL_MS = 6_000
CLUSTER_ID = "memory-cluster-id-AAAA"


def description(node_id: int = 1, rack: str | None = None) -> NodeDescription:
    return NodeDescription((Endpoint("PLAINTEXT", "PLAINTEXT", f"node{node_id}", 9092),), rack)


class SharedStore:
    """A shared store with virtual time; opens one `ClusterStore` per node or command."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryCluster(CLUSTER_ID, self.clock.monotonic_ms)
        self._opened: list[ClusterStore] = []

    def advance(self, ms: int) -> None:
        """Advances the store's clock."""
        self.clock.advance(ms)

    def open(self) -> ClusterStore:
        store = MemoryClusterStore(self.memory)
        self._opened.append(store)
        return store

    def node(self, node_id: int) -> tuple[ClusterStore, Lease, SharedLogEngine]:
        """Registers a node and opens its log engine."""
        store = self.open()
        lease = store.register(node_id, description(node_id), TTL_MS)
        return store, lease, SharedLogEngine(store.storage())

    def stored_end(self, key: PartitionKey) -> int | None:
        """Returns the end offset of a partition, or None if the partition does not exist."""
        found = self.memory.data.look_up(key)
        return None if found is None else found.end_offset

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
def shared() -> Iterator[SharedStore]:
    store = SharedStore()
    yield store
    store.close()
