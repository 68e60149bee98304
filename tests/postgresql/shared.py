"""The fixture that runs the tests of `tests/cluster` over PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from kcore.cluster.postgresql import PostgresClusterStore, schema
from kcore.cluster.postgresql.schema import SCHEMA
from kcore.cluster.postgresql.sessions import SETTINGS, Sessions
from kcore.cluster.store import ClusterStore, Lease
from kcore.log.interface import PartitionKey
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.write_set import PartitionMeta
from tests.cluster.conftest import CLUSTER_ID, TTL_MS, description


def initialise(url: str) -> None:
    """Creates the schema, as `kcore cluster init` does."""
    sessions = Sessions(url)
    session = sessions.connect("init", check_schema=False)
    schema.create(session.connection)
    sessions.discard(session)
    sessions.close()


CLOCK = (
    "CREATE TABLE IF NOT EXISTS test_clock (now timestamptz NOT NULL)",
    "DELETE FROM test_clock",
    "INSERT INTO test_clock VALUES (pg_catalog.statement_timestamp())",
    "CREATE OR REPLACE FUNCTION statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE"
    " AS 'SELECT now FROM kcore.test_clock'",
)
"""Statements that replace PostgreSQL's `statement_timestamp()` by a clock that stands still. They take effect in
sessions whose search path has `kcore` before `pg_catalog`.
"""


class PostgresShared:
    """A shared store in a database, with virtual time if `monkeypatch` is given."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        self.url = url
        initialise(url)
        if monkeypatch is not None:
            monkeypatch.setitem(SETTINGS, "search_path", f"{SCHEMA}, pg_catalog")
            for statement in CLOCK:
                self.execute(statement)
        self.execute("UPDATE cluster SET cluster_id = %s", CLUSTER_ID)
        self._opened: list[PostgresClusterStore] = []
        self.reset()

    def execute(self, text: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Runs a statement on a separate connection."""
        with psycopg.connect(self.url, autocommit=True, options=f"-c search_path={SCHEMA}") as connection:
            cursor = connection.execute(text.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []

    def advance(self, ms: int) -> None:
        """Advances the store's clock."""
        self.execute("UPDATE test_clock SET now = now + %s * interval '1 ms'", ms)

    def open(self, url: str | None = None) -> PostgresClusterStore:
        store = PostgresClusterStore(url or self.url)
        self._opened.append(store)
        return store

    def node(self, node_id: int, url: str | None = None) -> tuple[ClusterStore, Lease, SharedLogEngine]:
        """Registers a node and opens its log engine."""
        store = self.open(url)
        lease = store.register(node_id, description(node_id), TTL_MS)
        return store, lease, SharedLogEngine(store.storage())

    def stored_end(self, key: PartitionKey) -> int | None:
        """Returns the end offset of a partition, or None if the partition does not exist."""
        rows = self.execute(
            "SELECT coalesce((SELECT max(last_offset) + 1 FROM batches b WHERE b.number = p.number), 0)"
            " FROM partitions p WHERE topic_id = %s AND partition = %s",
            key.topic_id,
            key.partition,
        )
        return rows[0][0] if rows else None

    def reset(self) -> None:
        """Empties the store, so that it is as after `kcore cluster init`."""
        for table in ("batches", "snapshot_chunks", "named_values", "leases", "nodes", "removed_partitions"):
            self.execute(f"DELETE FROM {table}")
        self.execute("DELETE FROM partitions WHERE number > 0")
        meta = PartitionMeta(0, 0, (), None).encode()
        self.execute("UPDATE partitions SET leader = -1, leader_epoch = 0, node_epoch = 0, meta = %s", meta)
        self.execute("UPDATE cluster SET next_number = 1")

    def close(self) -> None:
        for store in self._opened:
            store.close()
