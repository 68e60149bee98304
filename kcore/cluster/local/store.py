"""Registration, leases, the controller and fencing of a cluster of processes on one machine."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from kcore.cluster.local.deadlines import Deadline
from kcore.cluster.local.environment import close_environment, open_environment
from kcore.cluster.local.locks import LifeLock, is_alive, remove_dead, try_lock
from kcore.cluster.local.rows import ControllerRow, LeaderRow, NodeRow, Rows
from kcore.cluster.local.storage import LocalReader, LocalStorage, NodeLocks
from kcore.cluster.local.wake import Listener, notify
from kcore.cluster.store import (
    CONTROLLER_LEASE,
    METADATA,
    ClusterStore,
    Lease,
    NodeDescription,
    PartitionLeader,
    RegisteredNode,
    node_lease,
)
from kcore.log.data_folder import FOLDER_MODE, LOCK_NAME, DataFolder
from kcore.log.errors import FailureReason, FencedWriteError, LogError, NodeAliveError
from kcore.log.interface import Finding
from kcore.log.lmdb_environment import file_error
from kcore.log.lmdb_layout import USER_PREFIX, partition_of_row, row_name
from kcore.log.lmdb_rows import damaged_rows, get_row
from kcore.log.node_journals import CLUSTER_FOLDER, move_node_journal, node_folder
from kcore.log.storage import SharedStorage

T = TypeVar("T")

CLUSTER_ID_KEY: Final = USER_PREFIX + b"cluster.id"


def monotonic_ms() -> int:
    """Returns the time of the machine's monotonic clock in ms. All processes share this clock."""
    return time.monotonic_ns() // 1_000_000


class LocalClusterStore(ClusterStore):
    """The `ClusterStore` of a data folder that several processes serve. Each node and each command opens its own
    `LocalClusterStore`.

    A lease ends at its deadline, or with its process. The kernel releases the lock of a process that dies, so other
    processes need not wait for the deadline. Only a stopped (paused) process keeps its lease until the deadline.

    Args:
        path: the data folder. The process that has called `kcore.cluster.local.prepare.prepare` still holds the lock of
            the folder.
        durability: `fsync` or `os`; the same for all processes.
        clock_ms: returns the time in ms by which leases end; all processes use the same clock.
    """

    __slots__ = (
        "_clock_ms",
        "_closed",
        "_controller",
        "_deadlines",
        "_environment",
        "_epoch",
        "_life",
        "_listener",
        "_locks",
        "_node_id",
        "_path",
        "_storage",
        "_sync",
    )

    def __init__(self, path: str, durability: str = "fsync", clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._sync = durability == "fsync"
        self._environment = open_environment(path, self._sync)
        self._path = self._environment.path
        self._clock_ms = clock_ms
        self._locks = NodeLocks(self._path)
        self._deadlines: dict[int, Deadline] = {}
        self._controller = Deadline(os.path.join(self._path, CLUSTER_FOLDER, "controller"))
        self._node_id = -1
        self._epoch = 0
        self._life: LifeLock | None = None
        self._storage: LocalStorage | None = None
        self._listener: Listener | None = None
        self._closed = False

    # -- transactions

    def _read(self, work: Callable[[Rows], T], doing: str) -> T:
        return self._environment.read(lambda txn: work(Rows(txn, self._environment)), doing)

    def _transact(self, work: Callable[[Rows], T], doing: str) -> T:
        def with_rows(txn: Any) -> T:
            return work(Rows(txn, self._environment))

        return self._environment.transact(with_rows, doing)

    def _under(self, node_ids: Sequence[int], deadlines: Sequence[Deadline], work: Callable[[], T]) -> T:
        """Runs `work` under the locks of nodes and of deadlines, taken in this order."""
        try:
            self._locks.acquire(*node_ids)
            for deadline in deadlines:
                deadline.acquire()
            return work()
        finally:
            for deadline in deadlines:
                deadline.release()
            self._locks.release()

    def _deadline(self, node_id: int) -> Deadline:
        deadline = self._deadlines.get(node_id)
        if deadline is None:
            deadline = self._deadlines.setdefault(node_id, Deadline.of_node(self._path, node_id))
        return deadline

    def _remaining_ms(self, node_id: int, row: NodeRow | None) -> int:
        """Returns the time until the lease of a node ends; 0 if the lease has ended, or the node's process is dead."""
        if row is None or row.fenced or not is_alive(node_folder(self._path, node_id), row.epoch):
            return 0
        return max(0, self._deadline(node_id).read_ms() - self._clock_ms())

    def _controller_lease(self, rows: Rows) -> Lease | None:
        row = rows.controller()
        if row is None:
            return None
        node = rows.node(row.holder)
        remaining_ms = 0
        if node is not None and node.epoch == row.node_epoch and self._is_process_alive(row.holder, node):
            remaining_ms = max(0, self._controller.read_ms() - self._clock_ms())
        return Lease(CONTROLLER_LEASE, row.holder, row.epoch, remaining_ms)

    def _is_process_alive(self, node_id: int, row: NodeRow) -> bool:
        return not row.fenced and is_alive(node_folder(self._path, node_id), row.epoch)

    def cluster_id(self) -> str:
        """Implements `ClusterStore.cluster_id`."""
        environment = self._environment
        value = environment.read(
            lambda txn: get_row(txn, environment.meta_db, CLUSTER_ID_KEY), "reading the cluster's id"
        )
        if value is None:
            raise LogError("the data folder has no cluster id", FailureReason.CORRUPT)
        return value.decode()

    # -- this node

    def register(self, node_id: int, description: NodeDescription, ttl_ms: int) -> Lease:
        """Implements `ClusterStore.register`."""
        folder = node_folder(self._path, node_id)
        try:
            os.makedirs(folder, FOLDER_MODE, exist_ok=True)
            DataFolder.sync_folder(os.path.dirname(folder))
        except OSError as error:
            raise file_error(error, "registering the node") from error
        lives: list[LifeLock] = []

        def work(rows: Rows) -> int:
            row = rows.node(node_id)
            is_own = row is not None and (node_id, row.epoch) == (self._node_id, self._epoch)
            remaining_ms = self._remaining_ms(node_id, row)
            if remaining_ms and not is_own:
                raise NodeAliveError(node_id, remaining_ms)
            epoch = max(rows.base(), 0 if row is None else row.epoch) + 1
            while lives:
                lives.pop().end()
            lives.append(LifeLock(folder, epoch))
            self._deadline(node_id).write_ms(self._clock_ms() + ttl_ms)
            move_node_journal(rows.txn, self._environment, self._path, node_id, end=True)
            revision = 0 if row is None else row.revision + 1
            draining = row is not None and row.draining
            rows.put_node(node_id, NodeRow(epoch, False, draining, revision, description.encode()))
            return epoch

        try:
            epoch = self._under(
                [node_id], [self._deadline(node_id)], lambda: self._transact(work, "registering the node")
            )
        except BaseException as error:
            # The transaction may be stored nevertheless: the next attempt then finds a dead process.
            for life in lives:
                life.end()
            if isinstance(error, OSError):
                raise file_error(error, "registering the node") from error
            raise
        self._began(node_id, epoch, lives[0])
        notify(self._path)
        return Lease(node_lease(node_id), node_id, epoch, ttl_ms)

    def _began(self, node_id: int, epoch: int, life: LifeLock) -> None:
        """Switches this object from the node's previous incarnation to the next one.

        `register` has already stored the next incarnation in the database.

        Args:
            node_id: the id of the node.
            epoch: the epoch of the next incarnation.
            life: the lock of the next incarnation.
        """
        self._end_life()
        if self._storage is not None:
            self._storage.close()
        self._node_id, self._epoch, self._life = node_id, epoch, life
        self._storage = LocalStorage(self._environment, node_id, epoch, sync=self._sync)
        self._storage.prepare()
        folder = node_folder(self._path, node_id)
        remove_dead(folder, epoch)
        DataFolder.sync_folder(folder)

    def _end_life(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.end()

    def storage(self) -> SharedStorage:
        """Implements `ClusterStore.storage`."""
        assert self._storage is not None, "register first"
        return self._storage

    def reader(self) -> SharedStorage:
        """Implements `ClusterStore.reader`. The reader moves journals to the log to read their batches."""
        return LocalReader(self._environment)

    def renew(self, leases: Sequence[Lease], ttl_ms: int) -> list[bool]:
        """Implements `ClusterStore.renew`. It takes no transaction, so a stopped process cannot delay a renewal."""
        return [self._renew(lease, ttl_ms) for lease in leases]

    def _renew(self, lease: Lease, ttl_ms: int) -> bool:
        deadline = self._controller if lease.name == CONTROLLER_LEASE else self._deadline(lease.holder)

        def work() -> bool:
            held = self._read(lambda rows: _is_held(rows, lease), "renewing a lease")
            if held:
                deadline.write_ms(self._clock_ms() + ttl_ms)
            return held

        return self._under([], [deadline], work)

    def unregister(self, lease: Lease) -> None:
        """Implements `ClusterStore.unregister`."""
        node_id = lease.holder

        def work(rows: Rows) -> bool:
            if not _is_held(rows, lease):
                return False
            self._end_incarnation(rows, node_id, 0)
            controller = rows.controller()
            return controller is not None and controller.holder == node_id

        def exclusive() -> None:
            if self._transact(work, "unregistering the node"):
                self._controller.write_ms(0)

        self._under([node_id], [self._deadline(node_id), self._controller], exclusive)
        if (node_id, lease.epoch) == (self._node_id, self._epoch):
            self._end_life()
        notify(self._path)

    def _end_incarnation(self, rows: Rows, node_id: int, later_epochs: int) -> None:
        """Fences a node: moves its journal to the log, and refuses its later writes.

        The caller holds the node's lock.
        """
        move_node_journal(rows.txn, self._environment, self._path, node_id, end=True)
        row = rows.node(node_id)
        assert row is not None, "the node is registered"
        rows.put_node(node_id, row._replace(epoch=row.epoch + later_epochs, fenced=True, revision=row.revision + 1))

    def take_controller(self, node: Lease, ttl_ms: int) -> Lease | None:
        """Implements `ClusterStore.take_controller`. The holder may take its own lease again, in a new epoch."""
        before = self._read(lambda rows: rows.live_leader(METADATA), "taking the controller lease")

        def work(rows: Rows) -> Lease | None:
            if rows.incarnation(node.holder) != node.epoch:
                raise FencedWriteError(f"node {node.holder} is fenced", node=True)
            held = self._controller_lease(rows)
            if held is not None and held.remaining_ms and held.holder != node.holder:
                return None
            metadata = rows.leader(METADATA)
            assert metadata is not None, "`prepare` has made the metadata log"
            if rows.live_leader(METADATA) not in (-1, before):
                return None  # another node took it meanwhile
            epoch = max(rows.base(), 0 if held is None else held.epoch) + 1
            rows.put_controller(ControllerRow(node.holder, epoch, node.epoch))
            rows.put_leader(METADATA, LeaderRow(metadata.number, node.holder, epoch, node.epoch))
            for loser in {before, node.holder} - {-1}:
                row = rows.node(loser)
                assert row is not None, "a leader is registered"
                rows.put_node(loser, row._replace(revision=row.revision + 1))
            return Lease(CONTROLLER_LEASE, node.holder, epoch, ttl_ms)

        def exclusive() -> Lease | None:
            taken = self._transact(work, "taking the controller lease")
            if taken is not None:
                self._controller.write_ms(self._clock_ms() + ttl_ms)
            return taken

        # The lock of the earlier leader: it must not write in the metadata log between its check and its transaction.
        taken = self._under([*({before, node.holder} - {-1})], [self._controller], exclusive)
        if taken is not None:
            notify(self._path)
        return taken

    def release_controller(self, lease: Lease) -> None:
        """Implements `ClusterStore.release_controller`."""

        def work() -> None:
            if self._read(lambda rows: _is_held(rows, lease), "releasing the controller lease"):
                self._controller.write_ms(0)

        self._under([], [self._controller], work)
        notify(self._path)

    # -- the cluster

    def nodes(self) -> list[RegisteredNode]:
        """Implements `ClusterStore.nodes`."""
        return [
            RegisteredNode(
                node_id,
                Lease(node_lease(node_id), node_id, row.epoch, self._remaining_ms(node_id, row)),
                row.fenced,
                row.draining,
                NodeDescription.decode(row.description),
            )
            for node_id, row in self._read(Rows.nodes, "reading the nodes")
        ]

    def controller(self) -> Lease | None:
        """Implements `ClusterStore.controller`."""
        return self._read(self._controller_lease, "reading the controller")

    def fence(self, node: Lease, controller: Lease | None, force: bool = False) -> bool:
        """Implements `ClusterStore.fence`."""
        node_id = node.holder

        def work(rows: Rows) -> bool:
            if controller is not None:
                held = self._controller_lease(rows)
                if held is None or held[1:3] != controller[1:3] or not held.remaining_ms:
                    raise FencedWriteError("this node is not the controller any more", (METADATA,))
            row = rows.node(node_id)
            if row is None or row.epoch != node.epoch:
                return False
            if self._remaining_ms(node_id, row) and not force:
                return False
            self._end_incarnation(rows, node_id, 1)
            return True

        if self._read(lambda rows: rows.node(node_id), "fencing a node") is None:
            return False
        deadlines = [self._deadline(node_id), *([] if controller is None else [self._controller])]
        is_fenced = self._under([node_id], deadlines, lambda: self._transact(work, "fencing a node"))
        if is_fenced:
            self._environment.forget_dead_readers()
            notify(self._path)
        return is_fenced

    def set_draining(self, node_id: int, draining: bool) -> bool:
        """Implements `ClusterStore.set_draining`."""

        def work(rows: Rows) -> bool:
            row = rows.node(node_id)
            if row is None:
                return False
            rows.put_node(node_id, row._replace(draining=draining))
            return True

        is_known = self._transact(work, "draining a node")
        if is_known:
            notify(self._path)
        return is_known

    def leaders(self) -> list[PartitionLeader]:
        """Implements `ClusterStore.leaders`."""
        rows = self._read(Rows.leaders, "reading the leaders")
        return sorted(PartitionLeader(row.number, key, row.leader, row.leader_epoch) for key, row in rows)

    def damaged_rows(self) -> list[Finding]:
        """Implements `ClusterStore.damaged_rows`."""
        environment = self._environment

        def work(txn: Any) -> list[Finding]:
            found = [Finding(None, None, "storage", text) for text in Rows(txn, environment).damaged()]
            for key, damage in damaged_rows(txn, environment.meta_db):
                found.append(Finding(partition_of_row(key), None, "storage", f"{row_name(key)}: {damage}"))
            return found

        return environment.read(work, "checking the rows")

    # -- notifications

    def listen(self, callback: Callable[[], None]) -> None:
        """Implements `ClusterStore.listen`. The caller must call `register` first."""
        if self._listener is not None:
            self._listener.stop()
        self._listener = Listener(node_folder(self._path, self._node_id), callback)

    def close(self) -> None:
        """Implements `ClusterStore.close`."""
        if self._closed:
            return
        self._closed = True
        if self._listener is not None:
            self._listener.stop()
        if self._storage is not None:
            self._storage.close()
        self._end_life()
        for deadline in (*self._deadlines.values(), self._controller):
            deadline.close()
        self._locks.close()
        close_environment(self._environment)


def _is_held(rows: Rows, lease: Lease) -> bool:
    """Returns True if the lease still belongs to this node and incarnation, and the incarnation was not fenced."""
    if lease.name == CONTROLLER_LEASE:
        row = rows.controller()
        return row is not None and row[:2] == (lease.holder, lease.epoch)
    node = rows.node(lease.holder)
    return node is not None and node.epoch == lease.epoch and not node.fenced


def open_store(url: str, durability: str = "fsync") -> LocalClusterStore:
    """Opens the store of a URL `local://FOLDER`, for commands. Processes must be serving the data folder.

    Raises:
        LogError: no process serves the folder.
    """
    path = url.partition("://")[2]
    try:
        fd = os.open(os.path.join(path, LOCK_NAME), os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise file_error(error, "opening the data folder") from error
    try:
        if try_lock(fd, fcntl.LOCK_SH):
            raise LogError(f"{path}: no process serves this folder")
    finally:
        os.close(fd)
    return LocalClusterStore(path, durability)
