"""The `SharedStorage` of one registered node of a cluster of processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kcore.cluster.local.environment import SharedEnvironment
from kcore.cluster.local.locks import FileLock
from kcore.cluster.local.rows import Rows
from kcore.cluster.local.wake import notify
from kcore.cluster.store import METADATA
from kcore.log.batch_header import base_offset, last_offset
from kcore.log.errors import CorruptLogError, FencedWriteError, LogClosedError, LogError, UnknownOutcomeError
from kcore.log.interface import Finding, PartitionKey
from kcore.log.journal import NO_IDENTITY, Journal
from kcore.log.journal_file import Reference
from kcore.log.lmdb_environment import file_error
from kcore.log.lmdb_put import put_batches, put_metas
from kcore.log.lmdb_reader import LmdbReader
from kcore.log.lmdb_reclaim import reclaim_tasks
from kcore.log.lmdb_recovery import load_numbers, load_partition, load_partitions, stray_numbers, wrong_keys
from kcore.log.lmdb_rows import get_row
from kcore.log.lmdb_values import find_batch
from kcore.log.node_journals import LOCK_NAME, move_node_journal, node_folder, node_journal_key
from kcore.log.storage import Leadership, ReclaimTask, SharedStorage
from kcore.log.write_set import StoredPartition, WriteSet
from kcore_ext.util.lock import Lock

T = TypeVar("T")

TOKEN_BYTES: Final = 16
NODE_LIMIT_S: Final = 5.0
"""Maximum time in seconds for which a caller waits for the lock of a node."""
NO_NODE: Final = -1
STALE: Final = -1
"""A revision number that is never stored. A storage with this revision reads again which partitions its node leads."""


class UncertainWrite(NamedTuple):
    """A write whose result is not known.

    Attributes:
        write_set: the write set; None for a transaction without a write set.
        token: the token of the write's transaction; empty for an entry of the journal.
    """

    write_set: WriteSet | None
    token: bytes


class NodeLocks:
    """The locks of the nodes of a data folder. Only one thread at a time may use the object.

    The lock of a node protects its journal and its leadership of partitions. A process holds the lock while it takes a
    partition from the node, fences the node or registers it again. A process takes several locks in order of node id,
    and takes the writer's lock last.

    Args:
        path: the data folder.
    """

    __slots__ = ("_locks", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._locks: dict[int, FileLock] = {}

    def acquire(self, *node_ids: int) -> None:
        """Takes the locks of nodes; raises StoreUnavailableError if one is not free in time."""
        for node_id in sorted(set(node_ids)):
            self._lock(node_id).acquire()

    def release(self) -> None:
        """Releases all locks that this object holds."""
        for lock in list(self._locks.values()):
            lock.release()

    def _lock(self, node_id: int) -> FileLock:
        lock = self._locks.get(node_id)
        if lock is None:
            path = os.path.join(node_folder(self._path, node_id), LOCK_NAME)
            lock = self._locks.setdefault(node_id, FileLock(path, NODE_LIMIT_S))
        return lock

    def close(self) -> None:
        """Closes all files."""
        for lock in list(self._locks.values()):
            lock.close()


class LocalStorage(LmdbReader, SharedStorage):
    """A SharedStorage over one LMDB file and a journal for each node.

    If a write set only appends a few batches, the storage writes it as an entry of the node's journal. Such a write
    needs no lock that all processes share. The storage writes other write sets in an LMDB transaction. The storage
    holds the node's lock during each write. Another process that takes a partition from this node holds the same lock.
    In its transaction, that process moves the node's journal to the log, and increases the node's revision. So an
    unchanged revision under the lock proves that this node still leads all its partitions.

    After an exception, `resolve_write` determines whether the write is stored. A transaction is stored if the database
    has its token. For an entry, `resolve_write` reads the journal's identity, which shows whether another process has
    moved the journal meanwhile. If so, it looks for the entry in the log.

    Args:
        environment: the shared environment. The caller closes it.
        node_id: this node.
        epoch: the epoch of this node's incarnation.
        sync: True to flush each commit.
    """

    __slots__ = (
        "_closed",
        "_led",
        "_lock",
        "_locks",
        "_node_id",
        "_revision",
        "_uncertain_write",
        "node_epoch",
    )

    _environment: SharedEnvironment

    def __init__(self, environment: SharedEnvironment, node_id: int, epoch: int, *, sync: bool) -> None:
        self._environment = environment
        self._locks = NodeLocks(environment.path)
        self._node_id = node_id
        self._lock = Lock()
        self._closed = False
        self._revision = STALE
        self._led: dict[PartitionKey, int] = {}  # the leader epochs that the store had at this revision
        self._uncertain_write: UncertainWrite | None = None
        self.node_epoch = epoch
        self._journal = Journal(node_folder(environment.path, node_id), sync, node_journal_key(node_id))

    def prepare(self) -> None:
        """Opens the node's journal, before the first write.

        Raises:
            LogError: the journal cannot be opened.
        """
        try:
            self._journal.prepare()
        except OSError as error:
            raise file_error(error, "preparing the journal") from error

    def load(self) -> tuple[list[StoredPartition], list[int], int]:
        """Implements `SharedStorage.load`: a node begins with no partition."""
        return [], [], 0

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosedError("the store of the cluster is closed")

    # -- leadership, under the node's lock

    def _require_alive(self, rows: Rows) -> None:
        """Refuses a fenced incarnation. Removes from `_led` the partitions that another process has taken.

        Raises:
            FencedWriteError: this incarnation has ended.
        """
        row = rows.node(self._node_id)
        if row is None or row.fenced or row.epoch != self.node_epoch:
            raise FencedWriteError(f"node {self._node_id} is fenced", node=True)
        if row.revision != self._revision:
            self._follow_journal(rows)
            self._led = {key: epoch for key, epoch in self._led.items() if self._leads(rows, key, epoch)}
            self._revision = row.revision

    def _leads(self, rows: Rows, key: PartitionKey, epoch: int) -> bool:
        row = rows.leader(key)
        return row is not None and row[1:] == (self._node_id, epoch, self.node_epoch)

    def _follow_journal(self, rows: Rows) -> None:
        """Removes from memory the batches that another process has moved from this node's journal to the log."""
        identity = self._stored_identity(rows)
        if identity != self._journal.identity:
            self._journal.next_identity = identity
            self._journal.moved()

    def _stored_identity(self, rows: Rows) -> bytes:
        stored = get_row(rows.txn, self._environment.meta_db, node_journal_key(self._node_id))
        return NO_IDENTITY if stored is None else Reference.decode(stored).identity

    def _require_led(self, partitions: Sequence[Leadership]) -> None:
        """Refuses an operation on partitions that this node does not lead. The caller holds the node's lock.

        Raises:
            FencedWriteError: the node is fenced, or does not lead the named partitions.
        """
        self._environment.read(
            lambda txn: self._require_alive(Rows(txn, self._environment)), "reading the state of the node"
        )
        self._refuse([key for key, epoch in partitions if self._led.get(key) != epoch])

    def _refuse(self, keys: list[PartitionKey]) -> None:
        """Raises FencedWriteError if there are partitions that this node does not lead."""
        if keys:
            names = ", ".join(map(repr, keys[:5]))
            raise FencedWriteError(f"node {self._node_id} does not lead {names}", keys)

    def _exclusively(self, work: Callable[[], T], *node_ids: int) -> T:
        """Runs `work` under the locks of `node_ids`; raises StoreUnavailableError if a lock is not free in time."""
        with self._lock:
            try:
                self._locks.acquire(*node_ids)
                return work()
            finally:
                self._locks.release()

    def adopt(self, partitions: Sequence[Leadership]) -> list[StoredPartition]:
        """Implements `SharedStorage.adopt`."""
        self._require_open()

        def work(txn: Any) -> list[StoredPartition]:
            rows = Rows(txn, self._environment)
            self._require_alive(rows)
            self._refuse([key for key, epoch in partitions if not self._leads(rows, key, epoch)])
            stored = [self._load(txn, key) for key, _ in partitions]
            self._led.update(partitions)
            return stored

        return self._exclusively(lambda: self._environment.read(work, "adopting partitions"), self._node_id)

    def _load(self, txn: Any, key: PartitionKey) -> StoredPartition:
        """Reads a partition, with the batches that are still in this node's journal."""
        partition = load_partition(txn, self._environment, self._environment.path, key)
        if partition is None:
            raise CorruptLogError(key, None, "the store has a leader of the partition, but not the partition")
        for waiting in self._journal.waiting():
            batches = waiting.get(partition.meta.number)
            if batches:
                partition = partition._replace(end_offset=max(partition.end_offset, last_offset(batches[-1][1]) + 1))
        return partition

    def look_up(self, key: PartitionKey) -> StoredPartition | None:
        """Implements `SharedStorage.look_up`.

        The metadata log is never in a journal. For any other partition, the method first moves the leader's journal to
        the log.
        """
        self._require_open()
        environment = self._environment

        def work(txn: Any) -> StoredPartition | int | None:
            rows = Rows(txn, environment)
            if rows.leader(key) is None:
                return None
            leader = -1 if key == METADATA else rows.live_leader(key)
            return self._load(txn, key) if leader in (-1, self._node_id) else leader

        result = environment.read(work, "reading an end")
        if not isinstance(result, int):
            return result
        leader = result

        def move(txn: Any) -> None:
            if move_node_journal(txn, environment, environment.path, leader, end=False):
                self._increment_revision(txn, leader)

        self._exclusively(lambda: environment.transact(move, "moving the journal of another node"), leader)
        return environment.read(lambda txn: self._load(txn, key), "reading an end")

    def removed_numbers(self) -> tuple[list[int], int]:
        """Implements `SharedStorage.removed_numbers`."""
        self._require_open()
        environment = self._environment
        return environment.read(lambda txn: load_numbers(txn, environment, environment.path), "reading removed numbers")

    # -- writing

    def write(self, write_set: WriteSet) -> None:
        """Implements `SharedStorage.write`."""
        self._require_open()
        owned = [Leadership(sealed.key, sealed.log.owned_epoch) for sealed in write_set.partitions]
        changes = write_set.cluster
        if changes is None:
            self._exclusively(lambda: self._write_own(write_set, owned), self._node_id)
        else:
            owned.append(Leadership(METADATA, changes.controller_epoch))
            losers: set[int] = set()
            # Repeats until it holds the locks of all nodes that lose partitions.
            while not self._exclusively(
                lambda: self._write_changes(write_set, owned, losers),
                *(self._node_id, *losers),
            ):
                continue
        if changes is not None or any(key == METADATA for key, _ in owned):
            notify(self._environment.path)

    def _require_resolved(self) -> None:
        if self._uncertain_write is not None:
            raise UnknownOutcomeError("the outcome of the previous commit is not known yet")

    def _write_own(self, write_set: WriteSet, owned: list[Leadership]) -> None:
        """Writes a write set that changes no leader, and creates or removes no partition."""
        self._require_resolved()
        self._require_led(owned)
        if not self._write_entry(write_set):
            self._write_transaction(write_set, ())

    def _write_entry(self, write_set: WriteSet) -> bool:
        """Writes a write set to the journal; returns False if only an LMDB transaction can write it.

        Batches of the metadata log need a transaction, because other nodes read them immediately.
        """
        journal = self._journal
        if any(sealed.key == METADATA for sealed in write_set.partitions):
            return False
        entry = journal.entry_of(write_set)
        if entry is None:
            return False
        self._uncertain_write = UncertainWrite(write_set, b"")
        try:
            journal.append(write_set, entry)
        except OSError as error:
            raise file_error(error, "commit failed: writing the journal") from error
        self._uncertain_write = None
        return True

    def _write_changes(self, write_set: WriteSet, owned: list[Leadership], losers: set[int]) -> bool:
        """Writes a write set whose changes may take partitions from other nodes.

        Args:
            write_set: the batches and changes to store.
            owned: the partitions that this node must lead.
            losers: the other nodes whose locks the caller holds. The method adds nodes whose locks are missing.

        Returns:
            False if locks are missing; in this case, the method has written no change.
        """
        self._require_resolved()
        self._require_led(owned)
        needed = self._losers(write_set)
        if not needed <= losers:
            losers |= needed
            return False
        self._write_transaction(write_set, needed)
        return True

    def _losers(self, write_set: WriteSet) -> set[int]:
        """Returns the other nodes that may still write partitions that a write set moves or removes."""
        changes = write_set.cluster
        assert changes is not None, "the write set has changes of the cluster"
        keys = [*changes.removed, *(change.key for change in changes.moved)]

        def work(txn: Any) -> set[int]:
            rows = Rows(txn, self._environment)
            return {rows.live_leader(key) for key in keys} - {-1, self._node_id}

        return self._environment.read(work, "reading the leaders")

    def _write_transaction(self, write_set: WriteSet, losers: Sequence[int] | set[int]) -> None:
        changes = write_set.cluster

        def work(txn: Any) -> None:
            rows = Rows(txn, self._environment)
            if changes is not None:
                rows.check(changes)
            self._journal.move(txn, self._environment, begin=True)
            for node_id in losers:
                self._revoke(txn, node_id)
            if changes is not None:
                rows.apply(changes)
            put_batches(txn, self._environment, write_set)
            put_metas(txn, self._environment, write_set)

        self._transact(write_set, work, "commit failed")
        if changes is not None:
            self._revision = STALE  # the changes may have taken partitions from this node

    def _revoke(self, txn: Any, node_id: int) -> None:
        """Moves the journal of another node to the log, and makes that node reload its partitions."""
        move_node_journal(txn, self._environment, self._environment.path, node_id, end=False)
        self._increment_revision(txn, node_id)

    def _increment_revision(self, txn: Any, node_id: int) -> None:
        """Makes another node reload its partitions and its journal."""
        rows = Rows(txn, self._environment)
        row = rows.node(node_id)
        assert row is not None, "a leader is registered"
        rows.put_node(node_id, row._replace(revision=row.revision + 1))

    def _transact(self, write_set: WriteSet | None, work: Callable[[Any], None], doing: str) -> None:
        """Runs `work` in a transaction. `work` may move this node's journal. The caller holds the node's lock."""
        token = os.urandom(TOKEN_BYTES)
        uncertain_write = UncertainWrite(write_set, token)
        self._uncertain_write = uncertain_write
        environment = self._environment

        def tokened(txn: Any) -> None:
            work(txn)
            Rows(txn, environment).put_last_token(self._node_id, self.node_epoch, token)

        environment.transact(tokened, doing)
        if write_set is not None:
            write_set.is_durable = True
        self._journal.moved()
        self._uncertain_write = None

    # -- unknown results

    def resolve_write(self) -> None:
        """Implements `SharedStorage.resolve_write`."""
        if self._uncertain_write is not None:
            self._exclusively(self._resolve_locked, self._node_id)

    def _resolve_locked(self) -> None:
        uncertain_write = self._uncertain_write
        if uncertain_write is None:
            return
        self._resolve(uncertain_write)
        self._revision = STALE
        self._uncertain_write = None

    def _resolve(self, uncertain_write: UncertainWrite) -> None:
        write_set, token = uncertain_write

        def work(txn: Any) -> tuple[bytes, bool]:
            rows = Rows(txn, self._environment)
            if token:
                stored = rows.last_token(self._node_id, self.node_epoch) == token
            else:
                stored = write_set is not None and (write_set.is_durable or self._is_in_log(txn, write_set))
            return self._stored_identity(rows), stored

        identity, stored = self._environment.read(work, "reading the outcome of a commit")
        journal = self._journal
        if write_set is not None:
            write_set.is_durable = write_set.is_durable or stored
        if token:
            if identity != journal.identity:
                journal.next_identity = identity
                journal.moved()
            if stored:
                self._confirm()
        elif identity == journal.identity:
            # No other process has moved the journal: this process has the acknowledged batches in memory, and the
            # uncertain entry becomes invalid.
            if write_set is not None and write_set.is_durable:
                journal.restore()
            self._environment.transact(
                lambda txn: journal.move(txn, self._environment, begin=True, trusted=True), "leaving the journal"
            )
            journal.moved()
        else:
            journal.next_identity = identity
            journal.moved()

    def _is_in_log(self, txn: Any, write_set: WriteSet) -> bool:
        """Returns True if another process has moved the entry of a write set to the log."""
        sealed = next(one for one in write_set.partitions if one.batches)
        with txn.cursor(self._environment.log_db) as cursor:
            return find_batch(cursor, sealed.number, base_offset(sealed.batches[0])) == sealed.batches[0]

    def _confirm(self) -> None:
        """Commits once more, so that both meta pages of LMDB include a transaction whose result was unknown."""
        token = os.urandom(TOKEN_BYTES)
        self._environment.transact(
            lambda txn: Rows(txn, self._environment).put_last_token(self._node_id, self.node_epoch, token),
            "confirming a commit",
        )

    # -- housekeeping

    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Implements `SharedStorage.reclaim`."""
        self._require_open()
        environment, journal = self._environment, self._journal
        done = 0

        def work(txn: Any) -> None:
            nonlocal done
            journal.move(txn, environment, begin=journal.in_use)
            done = reclaim_tasks(txn, environment, tasks, max_entries)

        def owned(txn: Any) -> list[Leadership]:
            rows = Rows(txn, environment)
            keys = [None if task.forget else rows.key_of(task.number) for task in tasks]
            return [Leadership(key or METADATA, task.leader_epoch) for key, task in zip(keys, tasks, strict=True)]

        def exclusive() -> None:
            self._require_resolved()
            self._require_led(environment.read(owned, "reading the leaders"))
            self._transact(None, work, "freeing the space of deleted batches")

        self._exclusively(exclusive, self._node_id)
        return done

    def stray_entries(self, known: dict[int, PartitionKey]) -> list[Finding]:
        """Implements `Storage.stray_entries`.

        This storage knows the partitions of all nodes, not only the partitions in `known`.
        """
        environment = self._environment

        def work(txn: Any) -> list[Finding]:
            stored, _, _ = load_partitions(txn, environment, environment.path, True)
            found = stray_numbers(txn, environment, {partition.meta.number: partition.key for partition in stored})
            return found + [finding for finding in wrong_keys(txn, environment) if finding not in found]

        return environment.read(work, "looking for stray batches")

    def sync(self) -> None:
        """Implements `Storage.sync`."""
        self._require_open()
        try:
            self._journal.flush()
        except OSError as error:
            raise LogError(f"flushing the log: {error}") from error
        self._environment.flush("flushing the log")

    def sizes(self) -> tuple[int, int]:
        """Implements `Storage.sizes`, for the file of all nodes."""
        return self._environment.sizes()

    def close(self) -> None:
        """Implements `Storage.close`. It changes nothing in the store."""
        if not self._closed:
            self._closed = True
            with self._lock:
                self._journal.close()
                self._locks.close()


class LocalReader(LocalStorage):
    """The logs of all nodes, for a command that has not registered."""

    __slots__ = ()

    def __init__(self, environment: SharedEnvironment) -> None:
        super().__init__(environment, NO_NODE, 0, sync=False)

    def write(self, write_set: WriteSet) -> None:
        """Raises FencedWriteError, because only a registered node can write."""
        raise FencedWriteError("a reader of the logs cannot write", node=True)

    def adopt(self, partitions: Sequence[Leadership]) -> list[StoredPartition]:
        """Raises FencedWriteError, because only a node can take over a partition."""
        raise FencedWriteError("a reader of the logs cannot lead a partition", node=True)

    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Raises FencedWriteError, because only a registered node can delete entries."""
        raise FencedWriteError("a reader of the logs cannot delete batches", node=True)
