"""A store that several nodes of one process share, in memory: for simulations, tests and demonstrations.

Fencing works as in a database: the store checks and stores a write set under one lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kcore.cluster.store import (
    CONTROLLER_LEASE,
    METADATA,
    METADATA_NUMBER,
    ClusterStore,
    Lease,
    NodeDescription,
    PartitionLeader,
    RegisteredNode,
    node_lease,
)
from kcore.log.errors import CorruptLogError, FencedWriteError, LogClosedError, NodeAliveError, UnknownOutcomeError
from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.memory_engine import MemoryStorage
from kcore.log.storage import Leadership, ReclaimTask, SharedStorage
from kcore.log.write_set import PartitionMeta, StoredPartition, WriteSet
from kcore_ext.util.lock import RLock

if TYPE_CHECKING:
    from kcore.log.write_set import ClusterChanges

NO_LEADER: Final = -1


class Interceptor(Protocol):
    """A function of a test that the store calls before and after every operation."""

    def __call__(self, operation: str, node_id: int, stored: bool) -> None:
        """Raises an error to simulate a lost request (`stored` is False) or a lost response (`stored` is True).

        Args:
            operation: the name of the method of `ClusterStore` or `SharedStorage`.
            node_id: the node that calls the method; -1 before the node has registered.
            stored: False before the operation has an effect, True after it.
        """
        ...


class _Lease:
    """A lease. Its end, `expires_ms`, is a time in ms on the store's clock."""

    __slots__ = ("epoch", "expires_ms", "holder", "name")

    def __init__(self, name: str, holder: int) -> None:
        self.name = name
        self.holder = holder
        self.epoch = 0
        self.expires_ms = 0


class _Node:
    __slots__ = ("description", "draining", "lease", "session")

    def __init__(self, node_id: int, description: NodeDescription) -> None:
        self.description = description
        self.draining = False
        self.lease = _Lease(node_lease(node_id), node_id)
        self.session = 0  # the incarnation that may write; 0: none


class _Row:
    """The leader of a partition."""

    __slots__ = ("leader", "leader_epoch", "number")

    def __init__(self, number: int, leader: int, leader_epoch: int) -> None:
        self.number = number
        self.leader = leader
        self.leader_epoch = leader_epoch


class MemoryCluster:
    """The contents of the store. Each node opens a `MemoryClusterStore` on it.

    Args:
        cluster_id: the cluster's id, 22 characters.
        clock_ms: returns the store's time in ms; it never goes back.

    Attributes:
        intercept: a test's function that the store calls before and after every operation; None: no operation fails.
        fenced_writes: the number of write sets that were refused.
    """

    def __init__(self, cluster_id: str, clock_ms: Callable[[], int]) -> None:
        self.cluster_id = cluster_id
        self.clock_ms = clock_ms
        self.intercept: Interceptor | None = None
        self.fenced_writes = 0
        self.lock = RLock()
        self.data = MemoryStorage()
        self.nodes: dict[int, _Node] = {}
        self.controller: _Lease | None = None
        self.rows: dict[PartitionKey, _Row] = {METADATA: _Row(METADATA_NUMBER, NO_LEADER, 0)}
        self.listeners: dict[MemoryClusterStore, Callable[[], None]] = {}
        self.data.create(METADATA, PartitionMeta(METADATA_NUMBER, 0, (), None))

    def lease(self, lease: _Lease) -> Lease:
        """Returns a lease as the store has it now."""
        return Lease(lease.name, lease.holder, lease.epoch, max(0, lease.expires_ms - self.clock_ms()))

    def is_held(self, lease: Lease, row: _Lease | None) -> bool:
        """Returns True if the lease still belongs to this node and incarnation, and the incarnation was not fenced."""
        return row is not None and row.holder == lease.holder and row.epoch == lease.epoch

    def notify(self) -> None:
        """Calls the functions of all listeners."""
        for callback in list(self.listeners.values()):
            callback()

    def require_unfenced(self, node_id: int, session: int) -> None:
        """Refuses a fenced incarnation.

        Raises:
            FencedWriteError: the incarnation has ended.
        """
        node = self.nodes.get(node_id)
        if node is None or node.session != session:
            self.fenced_writes += 1
            raise FencedWriteError(f"node {node_id} is fenced", node=True)

    def require_leader(self, node_id: int, partitions: Sequence[Leadership]) -> None:
        """Refuses an operation on partitions that a node does not lead.

        Raises:
            FencedWriteError: the node does not lead some of the partitions in these epochs. The error names them.
        """
        refused = []
        for key, epoch in partitions:
            row = self.rows.get(key)
            if row is None or row.leader != node_id or row.leader_epoch != epoch:
                refused.append(key)
        if refused:
            self.fenced_writes += 1
            raise FencedWriteError(f"node {node_id} does not lead {', '.join(map(repr, refused[:5]))}", refused)

    def apply(self, changes: ClusterChanges) -> None:
        """Applies the controller's changes of partitions, which `check` has accepted."""
        for key in changes.removed:
            if self.rows.pop(key, None) is not None:
                self.data.forget(key)
        for new in changes.created:
            self.rows[new.key] = _Row(new.meta.number, new.leader, new.leader_epoch)
            self.data.create(new.key, new.meta)
        for change in changes.moved:
            row = self.rows[change.key]
            row.leader, row.leader_epoch = change.leader, change.leader_epoch

    def check(self, changes: ClusterChanges) -> None:
        """Checks the controller's changes against the stored leaders, before `apply`.

        Raises:
            CorruptLogError: the changes contradict the stored leaders, so the metadata log and the store differ.
        """
        for new in changes.created:
            if new.key in self.rows and new.key not in changes.removed:
                raise CorruptLogError(new.key, None, "a new partition already exists in the store")
        created = {new.key for new in changes.created}
        for change in changes.moved:
            row = self.rows.get(change.key)
            if change.key in created or row is None or row.leader_epoch != change.previous_epoch:
                raise CorruptLogError(change.key, None, f"the leader epoch in the store is not {change.previous_epoch}")


class MemorySharedStorage(SharedStorage):
    """The logs of a `MemoryCluster` for one incarnation of a node."""

    __slots__ = ("_closed", "_cluster", "_node_id", "_session", "_unknown", "node_epoch")

    def __init__(self, cluster: MemoryCluster, node_id: int, session: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._session = session
        self._closed = False
        self._unknown: tuple[WriteSet, bool] | None = None  # an interrupted write set, and whether it is stored
        self.node_epoch = session

    def _intercept(self, operation: str, stored: bool = False) -> None:
        if self._closed:
            raise LogClosedError("the store is closed")
        if self._cluster.intercept is not None:
            self._cluster.intercept(operation, self._node_id, stored)

    def load(self) -> tuple[list[StoredPartition], list[int], int]:
        """Implements `SharedStorage.load`: a node begins with no partition."""
        return [], [], 0

    def write(self, write_set: WriteSet) -> None:
        """Implements `SharedStorage.write`."""
        try:
            self._intercept("write")
        except UnknownOutcomeError:
            self._unknown = (write_set, False)
            raise
        cluster = self._cluster
        with cluster.lock:
            self._check(write_set)
            cluster.data.write(write_set)
            if write_set.cluster is not None:
                cluster.apply(write_set.cluster)
        try:
            self._intercept("write", stored=True)
        except UnknownOutcomeError:
            write_set.is_durable = False
            self._unknown = (write_set, True)
            raise
        if write_set.cluster is not None or any(sealed.key == METADATA for sealed in write_set.partitions):
            cluster.notify()

    def _check(self, write_set: WriteSet) -> None:
        """Refuses the write set of a fenced node, a write set for partitions that the node does not lead, and invalid
        changes.
        """
        cluster = self._cluster
        cluster.require_unfenced(self._node_id, self._session)
        owned = [Leadership(sealed.key, sealed.log.owned_epoch) for sealed in write_set.partitions]
        changes = write_set.cluster
        if changes is not None:
            owned.append(Leadership(METADATA, changes.controller_epoch))
        cluster.require_leader(self._node_id, owned)
        if changes is not None:
            cluster.check(changes)

    def resolve_write(self) -> None:
        """Implements `SharedStorage.resolve_write`."""
        if self._unknown is not None:
            self._intercept("resolve_write")
            write_set, stored = self._unknown
            write_set.is_durable = stored
            self._unknown = None

    def adopt(self, partitions: Sequence[Leadership]) -> list[StoredPartition]:
        """Implements `SharedStorage.adopt`."""
        self._intercept("adopt")
        cluster = self._cluster
        with cluster.lock:
            cluster.require_unfenced(self._node_id, self._session)
            cluster.require_leader(self._node_id, partitions)
            return [found for key, _ in partitions if (found := cluster.data.look_up(key)) is not None]

    def look_up(self, key: PartitionKey) -> StoredPartition | None:
        """Implements `SharedStorage.look_up`."""
        self._intercept("look_up")
        with self._cluster.lock:
            return self._cluster.data.look_up(key)

    def removed_numbers(self) -> tuple[list[int], int]:
        """Implements `SharedStorage.removed_numbers`."""
        self._intercept("removed_numbers")
        with self._cluster.lock:
            return self._cluster.data.removed_numbers()

    def slice(self, number: int, offset: int, limit: int, max_bytes: int, max_batches: int) -> list[tuple[int, bytes]]:
        """Implements `Storage.slice`."""
        self._intercept("slice")
        with self._cluster.lock:
            return self._cluster.data.slice(number, offset, limit, max_bytes, max_batches)

    def summaries(self, number: int, offset: int, limit: int, max_batches: int) -> list[BatchSummary]:
        """Implements `Storage.summaries`."""
        self._intercept("summaries")
        with self._cluster.lock:
            return self._cluster.data.summaries(number, offset, limit, max_batches)

    def snapshot_chunk(self, number: int, offset: int, index: int) -> bytes | None:
        """Implements `Storage.snapshot_chunk`."""
        self._intercept("snapshot_chunk")
        with self._cluster.lock:
            return self._cluster.data.snapshot_chunk(number, offset, index)

    def get_meta(self, name: str) -> bytes | None:
        """Implements `Storage.get_meta`."""
        self._intercept("get_meta")
        with self._cluster.lock:
            return self._cluster.data.get_meta(name)

    def meta_names(self, prefix: str) -> list[str]:
        """Implements `Storage.meta_names`."""
        self._intercept("meta_names")
        with self._cluster.lock:
            return self._cluster.data.meta_names(prefix)

    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Implements `SharedStorage.reclaim`."""
        self._intercept("reclaim")
        cluster = self._cluster
        with cluster.lock:
            cluster.require_unfenced(self._node_id, self._session)
            keys = cluster.data.keys_by_number()
            cluster.require_leader(
                self._node_id,
                [Leadership(keys.get(task.number, METADATA), task.leader_epoch) for task in tasks],
            )
            return cluster.data.reclaim(tasks, max_entries)

    def stray_entries(self, known: dict[int, PartitionKey]) -> list[Finding]:
        """Implements `Storage.stray_entries`.

        The result is empty, because `known` lacks the partitions of other nodes.
        """
        return []

    def sync(self) -> None:
        """Implements `Storage.sync`. It does nothing, since there is no device."""

    def sizes(self) -> tuple[int, int]:
        """Implements `Storage.sizes`, for the whole store."""
        return self._cluster.data.sizes()

    def close(self) -> None:
        """Implements `Storage.close`. The state stays for the other nodes."""
        self._closed = True


class MemoryClusterStore(ClusterStore):
    """The `ClusterStore` of a `MemoryCluster` for one node or command."""

    __slots__ = ("_cluster", "_node_id", "_storage")

    renews_concurrently = True

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._node_id = -1
        self._storage: MemorySharedStorage | None = None

    def _intercept(self, operation: str, stored: bool = False) -> None:
        if self._cluster.intercept is not None:
            self._cluster.intercept(operation, self._node_id, stored)

    def cluster_id(self) -> str:
        """Implements `ClusterStore.cluster_id`."""
        self._intercept("cluster_id")
        return self._cluster.cluster_id

    def register(self, node_id: int, description: NodeDescription, ttl_ms: int) -> Lease:
        """Implements `ClusterStore.register`."""
        self._intercept("register")
        cluster = self._cluster
        with cluster.lock:
            node = cluster.nodes.get(node_id)
            if node is None:
                node = cluster.nodes[node_id] = _Node(node_id, description)
            left_ms = node.lease.expires_ms - cluster.clock_ms()
            repeated = self._node_id == node_id and node.session == node.lease.epoch > 0
            if left_ms > 0 and not repeated:
                raise NodeAliveError(node_id, left_ms)
            node.description = description
            node.lease.epoch += 1
            node.lease.expires_ms = cluster.clock_ms() + ttl_ms
            node.session = node.lease.epoch
            self._node_id = node_id
            self._storage = MemorySharedStorage(cluster, node_id, node.session)
            lease = cluster.lease(node.lease)
        self._intercept("register", stored=True)
        cluster.notify()
        return lease

    def storage(self) -> SharedStorage:
        """Implements `ClusterStore.storage`."""
        assert self._storage is not None, "register first"
        return self._storage

    def reader(self) -> SharedStorage:
        """Implements `ClusterStore.reader`."""
        return MemorySharedStorage(self._cluster, -1, 0)

    def renew(self, leases: Sequence[Lease], ttl_ms: int) -> list[bool]:
        """Implements `ClusterStore.renew`."""
        self._intercept("renew")
        cluster = self._cluster
        renewed = []
        with cluster.lock:
            for lease in leases:
                row = self._row(lease)
                renewed.append(row is not None)
                if row is not None:
                    row.expires_ms = cluster.clock_ms() + ttl_ms
        self._intercept("renew", stored=True)
        return renewed

    def _row(self, lease: Lease) -> _Lease | None:
        """Returns the row of a lease; None if another node or incarnation has it."""
        if lease.name == CONTROLLER_LEASE:
            row = self._cluster.controller
        else:
            node = self._cluster.nodes.get(lease.holder)
            row = None if node is None else node.lease
        return row if self._cluster.is_held(lease, row) else None

    def unregister(self, lease: Lease) -> None:
        """Implements `ClusterStore.unregister`."""
        self._intercept("unregister")
        cluster = self._cluster
        with cluster.lock:
            row = self._row(lease)
            if row is None:
                return
            row.expires_ms = min(row.expires_ms, cluster.clock_ms())
            cluster.nodes[lease.holder].session = 0
            controller = cluster.controller
            if controller is not None and controller.holder == lease.holder:
                controller.expires_ms = min(controller.expires_ms, cluster.clock_ms())
        cluster.notify()

    def take_controller(self, node: Lease, ttl_ms: int) -> Lease | None:
        """Implements `ClusterStore.take_controller`."""
        self._intercept("take_controller")
        cluster = self._cluster
        with cluster.lock:
            cluster.require_unfenced(node.holder, node.epoch)
            row = cluster.controller
            if row is None:
                row = cluster.controller = _Lease(CONTROLLER_LEASE, node.holder)
            elif row.expires_ms > cluster.clock_ms():
                return None
            row.holder = node.holder
            row.epoch += 1
            row.expires_ms = cluster.clock_ms() + ttl_ms
            metadata = cluster.rows[METADATA]
            metadata.leader, metadata.leader_epoch = node.holder, row.epoch
            lease = cluster.lease(row)
        self._intercept("take_controller", stored=True)
        cluster.notify()
        return lease

    def release_controller(self, lease: Lease) -> None:
        """Implements `ClusterStore.release_controller`."""
        self._intercept("release_controller")
        with self._cluster.lock:
            row = self._row(lease)
            if row is not None:
                row.expires_ms = min(row.expires_ms, self._cluster.clock_ms())
        self._cluster.notify()

    def nodes(self) -> list[RegisteredNode]:
        """Implements `ClusterStore.nodes`."""
        self._intercept("nodes")
        cluster = self._cluster
        with cluster.lock:
            return [
                RegisteredNode(node_id, cluster.lease(node.lease), node.session == 0, node.draining, node.description)
                for node_id, node in sorted(cluster.nodes.items())
            ]

    def controller(self) -> Lease | None:
        """Implements `ClusterStore.controller`."""
        self._intercept("controller")
        with self._cluster.lock:
            row = self._cluster.controller
            return None if row is None else self._cluster.lease(row)

    def fence(self, node: Lease, controller: Lease | None, force: bool = False) -> bool:
        """Implements `ClusterStore.fence`."""
        self._intercept("fence")
        cluster = self._cluster
        with cluster.lock:
            if controller is not None and (self._row(controller) is None or self._expired(cluster.controller)):
                raise FencedWriteError("this node is not the controller any more", (METADATA,))
            row = self._row(node)
            if row is None or (not force and not self._expired(row)):
                return False
            row.epoch += 1
            row.expires_ms = min(row.expires_ms, cluster.clock_ms())
            cluster.nodes[node.holder].session = 0
        self._intercept("fence", stored=True)
        cluster.notify()
        return True

    def _expired(self, row: _Lease | None) -> bool:
        return row is None or row.expires_ms <= self._cluster.clock_ms()

    def set_draining(self, node_id: int, draining: bool) -> bool:
        """Implements `ClusterStore.set_draining`."""
        self._intercept("set_draining")
        with self._cluster.lock:
            node = self._cluster.nodes.get(node_id)
            if node is None:
                return False
            node.draining = draining
        self._cluster.notify()
        return True

    def leaders(self) -> list[PartitionLeader]:
        """Implements `ClusterStore.leaders`."""
        self._intercept("leaders")
        with self._cluster.lock:
            rows = [
                PartitionLeader(row.number, key, row.leader, row.leader_epoch)
                for key, row in self._cluster.rows.items()
            ]
        return sorted(rows)

    def listen(self, callback: Callable[[], None]) -> None:
        """Implements `ClusterStore.listen`."""
        self._cluster.listeners[self] = callback

    def close(self) -> None:
        """Implements `ClusterStore.close`."""
        self._cluster.listeners.pop(self, None)
        if self._storage is not None:
            self._storage.close()


_CLUSTERS: dict[str, MemoryCluster] = {}


def open_store(url: str, durability: str = "memory") -> MemoryClusterStore:
    """Opens the cluster `NAME` of a URL `memory://NAME` in this process; the first call creates it."""
    name = url.partition("://")[2]
    cluster = _CLUSTERS.get(name)
    if cluster is None:
        cluster = _CLUSTERS[name] = MemoryCluster(name.rjust(22, "A")[:22], lambda: time.monotonic_ns() // 1_000_000)
    return MemoryClusterStore(cluster)
