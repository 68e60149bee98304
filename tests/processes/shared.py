"""The fixture that runs the tests of `tests/cluster` over a data folder that several nodes share."""

from __future__ import annotations

from pathlib import Path

from kcore.clock import ManualClock
from kcore.cluster.local import LocalClusterStore
from kcore.cluster.local.prepare import prepare
from kcore.cluster.store import METADATA, ClusterStore, Lease
from kcore.log import LmdbLogEngine
from kcore.log.data_folder import DataFolder
from kcore.log.interface import PartitionKey
from kcore.log.shared_engine import SharedLogEngine
from tests.cluster.conftest import CLUSTER_ID, TTL_MS, description

CLUSTER_ID_META = "cluster.id"


class LocalShared:
    """A data folder in use by a cluster, in virtual time. All its nodes run in this process."""

    def __init__(self, path: Path, clock: ManualClock | None = None) -> None:
        self.path = path / "data"
        self.clock = clock or ManualClock()
        engine = LmdbLogEngine(self.path, "os")
        engine.open(METADATA)
        engine.put_meta(CLUSTER_ID_META, CLUSTER_ID.encode())
        engine.commit()
        engine.close()
        prepare(str(self.path), {}, 0)
        self._opened: list[LocalClusterStore] = []
        self.lock: DataFolder | None = None  # the lock of a test, if its commands need one

    def advance(self, ms: int) -> None:
        """Advances the store's clock."""
        self.clock.advance(ms)

    def open(self) -> LocalClusterStore:
        store = LocalClusterStore(str(self.path), "os", self.clock.monotonic_ms)
        self._opened.append(store)
        return store

    def node(self, node_id: int) -> tuple[ClusterStore, Lease, SharedLogEngine]:
        """Registers a node and opens its log engine."""
        store = self.open()
        lease = store.register(node_id, description(node_id), TTL_MS)
        return store, lease, SharedLogEngine(store.storage())

    def stored_end(self, key: PartitionKey) -> int | None:
        """Returns the end offset of a partition, or None if the partition does not exist."""
        store = self.open()
        store.register(99, description(99), TTL_MS)
        found = store.storage().look_up(key)
        return None if found is None else found.end_offset

    def close(self) -> None:
        for store in self._opened:
            store.close()
        if self.lock is not None:
            self.lock.release()

    def closed_engine(self) -> LmdbLogEngine:
        """Closes all nodes without their regular end. Returns a log engine of a single process over the same folder."""
        self.close()
        return LmdbLogEngine(self.path, "os")
