"""The `SharedStorage` of one registered node of a cluster in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, LiteralString, TypeVar

from kcore.cluster.postgresql import statements as sql
from kcore.cluster.postgresql.rows import (
    read_batches,
    read_name,
    read_next_number,
    read_partition,
    read_summaries,
    read_value,
)
from kcore.cluster.postgresql.write_transactions import LAST_OFFSET, NodeIdentity
from kcore.cluster.postgresql.writer import TransactionWriter
from kcore.cluster.store import METADATA
from kcore.log.errors import FencedWriteError, LogClosedError
from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.storage import Leadership, ReclaimTask, SharedStorage
from kcore.log.write_set import StoredPartition

if TYPE_CHECKING:
    from kcore.cluster.postgresql.sessions import Row, Session, Sessions, Statement
    from kcore.log.write_set import WriteSet

T = TypeVar("T")


class PostgresStorage(SharedStorage):
    """A SharedStorage over PostgreSQL.

    Commits have a separate connection (`TransactionWriter`), so they never wait for reads or for reclaiming.

    Args:
        sessions: the connections of the node. The caller closes them.
        identity: the registered incarnation.
        token: the session token with which the incarnation has registered.
    """

    __slots__ = ("_closed", "_confirmed", "_identity", "_keys", "_sessions", "_writer", "node_epoch")

    def __init__(self, sessions: Sessions, identity: NodeIdentity, token: int) -> None:
        self._sessions = sessions
        self._identity = identity
        self._writer = TransactionWriter(sessions, identity, token)
        self._confirmed: dict[PartitionKey, StoredPartition] = {}
        self._keys: dict[int, PartitionKey] = {}  # of the partitions that were looked up, by number
        self._closed = False
        self.node_epoch = identity.epoch

    def load(self) -> tuple[list[StoredPartition], list[int], int]:
        """Implements `SharedStorage.load`: a node begins with no partition."""
        return [], [], 0

    # -- writing

    def write(self, write_set: WriteSet) -> None:
        """Implements `SharedStorage.write`."""
        self._require_open()
        self._writer.write(write_set)

    def resolve_write(self) -> None:
        """Implements `SharedStorage.resolve_write`."""
        self._writer.resolve_write()

    def sync(self) -> None:
        """Implements `Storage.sync` by a synchronous commit, which makes all earlier commits durable, too."""

        def work(session: Session) -> None:
            session.transact([(sql.READ_BARRIER, (self._identity.node_id,))])

        self._run(work, "making commits durable")

    # -- leadership

    def adopt(self, partitions: Sequence[Leadership]) -> list[StoredPartition]:
        """Implements `SharedStorage.adopt`."""
        node_id, epoch = self._identity
        statements: list[Statement] = [
            (sql.UNFENCED_NODE, (node_id, epoch)),
            (sql.LOOK_UP, _key_columns([key for key, _ in partitions])),
            (sql.READ_BARRIER, (node_id,)),
        ]

        def work(session: Session) -> tuple[list[Row], list[Row]]:
            node, looked_up, _ = session.transact(statements)
            return node.fetchall(), looked_up.fetchall()

        nodes, rows = self._run(work, "adopting partitions")
        if not nodes:
            raise FencedWriteError(f"node {node_id} is fenced", node=True)
        stored: dict[PartitionKey, StoredPartition] = {}
        for row in rows:
            partition = self._partition(row)
            leader, leader_epoch, node_epoch = row[3:6]
            if (leader, node_epoch) == (node_id, epoch) and Leadership(partition.key, leader_epoch) in partitions:
                stored[partition.key] = partition
        refused = [key for key, _ in partitions if key not in stored]
        if refused:
            raise FencedWriteError(f"node {node_id} does not lead {', '.join(map(repr, refused[:5]))}", refused)
        return [stored[key] for key, _ in partitions]

    def look_up(self, key: PartitionKey) -> StoredPartition | None:
        """Implements `SharedStorage.look_up`. Runs `READ_BARRIER` if the partition has changed since the last call."""
        rows = self._run(lambda session: session.execute(sql.LOOK_UP, _key_columns([key])).fetchall(), "reading an end")
        if rows and self._partition(rows[0]) == self._confirmed.get(key):
            return self._confirmed[key]

        def work(session: Session) -> list[Row]:
            cursor, _ = session.transact(
                [(sql.LOOK_UP, _key_columns([key])), (sql.READ_BARRIER, (self._identity.node_id,))]
            )
            return cursor.fetchall()

        rows = self._run(work, "reading an end")
        if not rows:
            self._confirmed.pop(key, None)
            return None
        partition = self._confirmed[key] = self._partition(rows[0])
        return partition

    def removed_numbers(self) -> tuple[list[int], int]:
        """Implements `SharedStorage.removed_numbers`."""
        ((next_number, removed),) = self._run(
            lambda session: session.execute(sql.REMOVED).fetchall(), "reading removed partitions"
        )
        return list(removed), read_next_number(next_number)

    def _partition(self, row: Row) -> StoredPartition:
        partition = read_partition(row)
        self._keys[partition.meta.number] = partition.key
        return partition

    # -- reading

    def _key(self, number: int) -> object:
        """Returns the name of a partition, for errors."""
        return self._keys.get(number, f"partition number {number}")

    def slice(self, number: int, offset: int, limit: int, max_bytes: int, max_batches: int) -> list[tuple[int, bytes]]:
        """Implements `Storage.slice`."""
        parameters = {"number": number, "offset": offset, "limit": limit, "bytes": max_bytes, "count": max_batches}
        rows = self._run(
            lambda session: session.execute(sql.SLICE, parameters).fetchall(),
            f"reading batches of {self._key(number)} from offset {offset}",
        )
        return read_batches(self._key(number), rows)

    def summaries(self, number: int, offset: int, limit: int, max_batches: int) -> list[BatchSummary]:
        """Implements `Storage.summaries`."""
        parameters = {"number": number, "offset": offset, "limit": limit, "count": max_batches}
        rows = self._run(
            lambda session: session.execute(sql.SUMMARIES, parameters).fetchall(),
            f"reading the headers of batches of {self._key(number)} from offset {offset}",
        )
        return read_summaries(self._key(number), rows)

    def snapshot_chunk(self, number: int, offset: int, index: int) -> bytes | None:
        """Implements `Storage.snapshot_chunk`."""
        row = self._run(
            lambda session: session.execute(sql.CHUNK, (number, offset, index)).fetchone(),
            f"reading the snapshot of {self._key(number)} at offset {offset}",
        )
        return None if row is None else row[0]

    def get_meta(self, name: str) -> bytes | None:
        """Implements `Storage.get_meta`."""
        row = self._run(lambda session: session.execute(sql.VALUE, (name.encode(),)).fetchone(), "reading a value")
        return None if row is None else read_value("named_values", f"name {name!r}", row[0])

    def meta_names(self, prefix: str) -> list[str]:
        """Implements `Storage.meta_names`."""
        begin = prefix.encode()
        rows = self._run(
            lambda session: session.execute(sql.VALUE_NAMES, (len(begin), begin)).fetchall(), "reading names"
        )
        return sorted(map(read_name, rows))

    def stray_entries(self, known: dict[int, PartitionKey]) -> list[Finding]:
        """Implements `Storage.stray_entries`.

        This storage knows the partitions of all nodes, not only the partitions in `known`.
        """
        rows = self._run(lambda session: session.execute(sql.STRAY).fetchall(), "looking for stray batches")
        return [Finding(None, None, "orphan", f"entries of unknown partition number {number}") for (number,) in rows]

    def sizes(self) -> tuple[int, int]:
        """Implements `Storage.sizes`, for the batches and snapshots of all nodes, with their indexes."""
        ((size_bytes,),) = self._run(lambda session: session.execute(sql.SIZES).fetchall(), "reading sizes")
        return size_bytes, size_bytes

    # -- reclaiming

    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Implements `SharedStorage.reclaim`."""

        def work(session: Session) -> int:
            with session.transaction():
                self._check_tasks(session, tasks)
                return _reclaim(session, tasks, max_entries)

        try:
            return self._run(work, "freeing the space of deleted batches")
        except _NotLedError as error:
            raise FencedWriteError(str(error), error.partitions) from None

    def _check_tasks(self, session: Session, tasks: list[ReclaimTask]) -> None:
        """Locks the partitions in which `tasks` free space, so that no other node takes over a partition meanwhile.

        An old leader must not delete snapshots of a new leader.
        """
        node_id, epoch = self._identity
        rows = session.execute(
            "SELECT number, topic_id, partition, leader_epoch, leader = %b AND node_epoch = %b FROM partitions"
            " WHERE number = ANY(%b::bigint[]) ORDER BY number FOR SHARE",
            (node_id, epoch, [0, *(task.number for task in tasks if not task.forget)]),
        ).fetchall()
        led = {number: (leader_epoch if owned else None) for number, _, _, leader_epoch, owned in rows}
        keys = {number: PartitionKey(bytes(topic_id), partition) for number, topic_id, partition, _, _ in rows}
        refused = []
        for task in tasks:
            number = 0 if task.forget else task.number
            if led.get(number) != task.leader_epoch:
                refused.append(keys.get(number, METADATA))
        if refused:
            raise _NotLedError(node_id, refused)

    # -- the end

    def _run(self, work: Callable[[Session], T], doing: str) -> T:
        self._require_open()
        return self._sessions.run(work, doing)

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosedError("the store of the cluster is closed")

    def close(self) -> None:
        """Implements `Storage.close`. It changes nothing in the database."""
        self._closed = True
        self._writer.close()


class _NotLedError(Exception):
    """A task of `reclaim` has a partition that the node does not lead. The error rolls the transaction back."""

    def __init__(self, node_id: int, partitions: list[PartitionKey]) -> None:
        super().__init__(f"node {node_id} does not lead {', '.join(map(repr, partitions[:5]))}")
        self.partitions = partitions


def _key_columns(keys: Sequence[PartitionKey]) -> tuple[list[bytes], list[int]]:
    return [key.topic_id for key in keys], [key.partition for key in keys]


def _reclaim(session: Session, tasks: list[ReclaimTask], max_entries: int) -> int:
    """Deletes at most `max_entries` batches and snapshot chunks; returns the number of tasks that are finished."""
    left = max_entries
    for done, task in enumerate(tasks):
        below = LAST_OFFSET if task.below_offset is None else task.below_offset
        parameters: dict[str, object] = {"number": task.number, "below": below, "left": left}
        left -= session.execute(sql.RECLAIM_BATCHES, parameters).rowcount
        if left == 0 and _is_true(session, sql.HAS_BATCHES, parameters):
            return done
        if task.keep_snapshots is not None:
            parameters = {"number": task.number, "keep": list(task.keep_snapshots), "left": left}
            left -= session.execute(sql.RECLAIM_CHUNKS, parameters).rowcount
            if left == 0 and _is_true(session, sql.HAS_CHUNKS, parameters):
                return done
        if task.forget:
            session.execute(sql.FORGET, (task.number,))
    return len(tasks)


def _is_true(session: Session, text: LiteralString, parameters: dict[str, object]) -> bool:
    row = session.execute(text, parameters).fetchone()
    return row is not None and bool(row[0])
