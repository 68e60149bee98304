"""Registration, leases, the controller and fencing of a cluster in PostgreSQL."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import Connection

from kcore.cluster.postgresql import leases as sql
from kcore.cluster.postgresql.lease_calls import LeaseCalls
from kcore.cluster.postgresql.listener import Listener
from kcore.cluster.postgresql.rows import findings_of, read_leader, read_lease, read_name, read_next_number, read_node
from kcore.cluster.postgresql.sessions import END_BACKENDS, LOCK_TIMEOUT, Sessions
from kcore.cluster.postgresql.statements import NOTIFY
from kcore.cluster.postgresql.storage import PostgresStorage
from kcore.cluster.postgresql.write_transactions import NodeIdentity
from kcore.cluster.postgresql.writer import new_token
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
from kcore.log.errors import FencedWriteError, NodeAliveError, StoreUnavailableError
from kcore.log.interface import Finding

if TYPE_CHECKING:
    from kcore.log.storage import SharedStorage

logger = logging.getLogger(__name__)

T = TypeVar("T")
Sql = Connection[Any]


class PostgresClusterStore(ClusterStore):
    """The `ClusterStore` of a cluster in PostgreSQL. Each node or command opens its own.

    Args:
        url: the URL of the database.
        durability: `fsync` or `os`, for commits. Leases and leaders are always stored synchronously, because a node
            must not rely on a lease that a failover could lose.
    """

    __slots__ = ("_calls", "_listener", "_renewals", "_sessions", "_storage", "_tokens")

    renews_concurrently = True

    def __init__(self, url: str, durability: str = "fsync") -> None:
        self._sessions = Sessions(url, durability)
        self._calls = LeaseCalls(self._sessions, "leases")
        # Renewals have a connection of their own: they must not wait for a slow call, or the lease could end.
        self._renewals = LeaseCalls(self._sessions, "renewals")
        self._storage: PostgresStorage | None = None
        # Session tokens with which this object has tried to register its node: a repetition recognises its own row.
        self._tokens: list[int] = []
        self._listener: Listener | None = None

    @property
    def sessions(self) -> Sessions:
        """The connections, for commands and tests."""
        return self._sessions

    # -- calls

    def _call_fencing(self, node_id: int, work: Callable[[Sql], T], doing: str) -> T:
        """Runs a transaction that locks the row of a node.

        The backend of a dead node may keep the row locked while it waits for further statements of a write. If the row
        stays locked for too long, this method ends the backends of that node's writer, and repeats the transaction. It
        does no harm to end a backend during a commit: later readers wait until the commit is replicated
        (`READ_BARRIER`).
        """
        try:
            return self._call(work, doing)
        except StoreUnavailableError as error:
            cause = error.__cause__
            if not isinstance(cause, psycopg.Error) or cause.sqlstate != LOCK_TIMEOUT:
                raise
        logger.warning(
            "cluster: a database connection of node %s keeps the node's row in PostgreSQL locked; node %s ends the "
            "database connections of node %s, and tries again (%s)",
            node_id,
            self._sessions.node_id,
            node_id,
            doing,
        )
        self._call(lambda c: c.execute(END_BACKENDS, (f"kcore/{node_id}/writer", [])), doing)
        return self._call(work, doing)

    def _call(self, work: Callable[[Sql], T], doing: str) -> T:
        return self._calls.run(work, doing)

    def cluster_id(self) -> str:
        """Implements `ClusterStore.cluster_id`."""
        return str(self._call(lambda c: _one(c.execute(sql.CLUSTER_ID).fetchone()), "reading the cluster's id"))

    # -- this node

    def register(self, node_id: int, description: NodeDescription, ttl_ms: int) -> Lease:
        """Implements `ClusterStore.register`."""
        token = new_token()
        name = node_lease(node_id)

        def work(connection: Sql) -> tuple[int, int]:
            self._require_free(connection, node_id)
            # The node's row first, as in each transaction: it waits for a commit of the earlier incarnation.
            connection.execute(sql.LOCK_NODE, (node_id,))
            connection.execute(sql.LOCK_LEASE, (name,))
            self._require_free(connection, node_id)
            row = connection.execute(sql.SET_LEASE, {"name": name, "holder": node_id, "ttl": ttl_ms}).fetchone()
            assert row is not None, "RETURNING"
            connection.execute(
                sql.SET_NODE,
                {"node": node_id, "session": token, "epoch": row[0], "description": description.encode()},
            )
            connection.execute(NOTIFY)
            return row[0], row[1]

        self._sessions.node_id = node_id
        self._tokens.append(token)  # before the call: its outcome may remain unknown
        epoch, left_ms = self._call_fencing(node_id, work, "registering the node")
        if self._storage is not None:
            self._storage.close()
        self._storage = PostgresStorage(self._sessions, NodeIdentity(node_id, epoch), token)
        return Lease(name, node_id, epoch, left_ms)

    def _require_free(self, connection: Sql, node_id: int) -> None:
        """Refuses a node id whose lease another process holds."""
        row = connection.execute(sql.NODE_STATE, (node_id,)).fetchone()
        if row is not None and row[1] > 0 and row[0] not in self._tokens:
            raise NodeAliveError(node_id, row[1])

    def storage(self) -> SharedStorage:
        """Implements `ClusterStore.storage`."""
        assert self._storage is not None, "register first"
        return self._storage

    def reader(self) -> SharedStorage:
        """Implements `ClusterStore.reader`."""
        return PostgresStorage(self._sessions, NodeIdentity(-1, 0), new_token())

    def renew(self, leases: Sequence[Lease], ttl_ms: int) -> list[bool]:
        """Implements `ClusterStore.renew`."""
        parameters = {
            "ttl": ttl_ms,
            "names": [lease.name for lease in leases],
            "holders": [lease.holder for lease in leases],
            "epochs": [lease.epoch for lease in leases],
        }
        rows = self._renewals.run(lambda c: c.execute(sql.RENEW, parameters).fetchall(), "renewing leases")
        # Two leases of one name: at most one epoch is the present one.
        renewed = {name for (name,) in rows}
        epochs = {
            lease.name: max(current_lease.epoch for current_lease in leases if current_lease.name == lease.name)
            for lease in leases
        }
        return [lease.name in renewed and lease.epoch == epochs[lease.name] for lease in leases]

    def unregister(self, lease: Lease) -> None:
        """Implements `ClusterStore.unregister`."""

        def work(connection: Sql) -> None:
            node = connection.execute(sql.LOCK_NODE, (lease.holder,)).fetchone()
            if node is None or node[1] != lease.epoch:
                return
            connection.execute(sql.FENCE_NODE, (lease.holder,))
            connection.execute(sql.END_LEASE, (lease.name, lease.holder, lease.epoch))
            connection.execute(sql.END_CONTROLLER_OF, (lease.holder,))
            connection.execute(NOTIFY)

        self._call(work, "unregistering the node")

    def take_controller(self, node: Lease, ttl_ms: int) -> Lease | None:
        """Implements `ClusterStore.take_controller`. The holder may take its own lease again, in a new epoch."""

        def work(connection: Sql) -> Lease | None:
            row = connection.execute(sql.LOCK_NODE, (node.holder,)).fetchone()
            if row is None or row[0] == 0 or row[1] != node.epoch:
                raise FencedWriteError(f"node {node.holder} is fenced", node=True)
            current_lease = connection.execute(sql.LOCK_LEASE, (CONTROLLER_LEASE,)).fetchone()
            if current_lease is not None and current_lease[2] > 0 and current_lease[0] != node.holder:
                return None
            taken = connection.execute(
                sql.SET_LEASE, {"name": CONTROLLER_LEASE, "holder": node.holder, "ttl": ttl_ms}
            ).fetchone()
            assert taken is not None, "RETURNING"
            connection.execute(sql.LEAD_METADATA, (node.holder, taken[0], node.epoch))
            connection.execute(NOTIFY)
            return Lease(CONTROLLER_LEASE, node.holder, taken[0], taken[1])

        return self._call(work, "taking the controller lease")

    def release_controller(self, lease: Lease) -> None:
        """Implements `ClusterStore.release_controller`."""

        def work(connection: Sql) -> None:
            if connection.execute(sql.END_LEASE, (lease.name, lease.holder, lease.epoch)).rowcount:
                connection.execute(NOTIFY)

        self._call(work, "releasing the controller lease")

    # -- the cluster

    def nodes(self) -> list[RegisteredNode]:
        """Implements `ClusterStore.nodes`."""
        rows = self._call(lambda c: c.execute(sql.NODES).fetchall(), "reading the nodes")
        return list(map(read_node, rows))

    def controller(self) -> Lease | None:
        """Implements `ClusterStore.controller`."""
        row = self._call(lambda c: c.execute(sql.CONTROLLER).fetchone(), "reading the controller")
        return None if row is None else read_lease(row)

    def fence(self, node: Lease, controller: Lease | None, force: bool = False) -> bool:
        """Implements `ClusterStore.fence`."""

        def work(connection: Sql) -> bool:
            # Waits for a commit that is being stored; the clock is read after that wait.
            connection.execute(sql.LOCK_NODE, (node.holder,))
            if controller is not None:
                # A controller that was paused must not fence.
                current_lease = connection.execute(sql.LOCK_LEASE, (controller.name,)).fetchone()
                if (
                    current_lease is None
                    or current_lease[:2] != (controller.holder, controller.epoch)
                    or current_lease[2] == 0
                ):
                    raise FencedWriteError("this node is not the controller any more", (METADATA,))
            row = connection.execute(sql.LOCK_LEASE, (node.name,)).fetchone()
            if row is None or row[:2] != (node.holder, node.epoch) or (row[2] > 0 and not force):
                return False
            connection.execute(sql.FENCE_NODE, (node.holder,))
            connection.execute(sql.END_FENCED_LEASE, (node.name,))
            connection.execute(NOTIFY)
            return True

        return self._call_fencing(node.holder, work, "fencing a node")

    def set_draining(self, node_id: int, draining: bool) -> bool:
        """Implements `ClusterStore.set_draining`."""

        def work(connection: Sql) -> bool:
            is_known = connection.execute(sql.SET_DRAINING, (draining, node_id)).rowcount > 0
            if is_known:
                connection.execute(NOTIFY)
            return is_known

        return self._call(work, "draining a node")

    def leaders(self) -> list[PartitionLeader]:
        """Implements `ClusterStore.leaders`."""
        rows = self._call(lambda c: c.execute(sql.LEADERS).fetchall(), "reading the leaders")
        return list(map(read_leader, rows))

    def damaged_rows(self) -> list[Finding]:
        """Implements `ClusterStore.damaged_rows`."""
        findings: list[Finding] = []
        for statement, read in (
            (sql.LEADERS, read_leader),
            (sql.NODES, read_node),
            (sql.LEASES, read_lease),
            (sql.VALUE_NAMES, read_name),
        ):
            rows = self._call(lambda c, text=statement: c.execute(text).fetchall(), "checking rows")  # type: ignore[misc]
            findings += findings_of(rows, read)
        ((next_number, highest, values, leases),) = self._call(
            lambda c: c.execute(sql.COUNTS).fetchall(), "checking rows"
        )
        findings += findings_of([next_number], read_next_number)
        if highest is not None and isinstance(next_number, int) and highest >= next_number:
            detail = f"PostgreSQL, table kcore.cluster: next_number is {next_number}, and number {highest} exists"
            findings.append(Finding(None, None, "storage", detail))
        for count, message in (
            (values, "named_values: %d rows have no name or no value"),
            (leases, "leases: %d rows have no expires_at, and count as expired"),
        ):
            if count:
                findings.append(Finding(None, None, "storage", f"PostgreSQL, table kcore.{message % count}"))
        return findings

    # -- notifications

    def listen(self, callback: Callable[[], None]) -> None:
        """Implements `ClusterStore.listen`."""
        if self._listener is not None:
            self._listener.stop()
        self._listener = Listener(self._sessions, callback)

    def close(self) -> None:
        """Implements `ClusterStore.close`."""
        if self._storage is not None:
            self._storage.close()
        self._sessions.close()
        self._calls.drop()
        self._renewals.drop()
        if self._listener is not None:
            self._listener.stop()


def _one(row: tuple[Any, ...] | None) -> Any:
    assert row is not None, "the query returns one row"
    return row[0]
