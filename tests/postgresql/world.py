"""Whole nodes, in virtual time, over PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from kcore.cluster.store import ClusterStore
from tests.cluster.world import STEP_MS, ClusterWorld
from tests.postgresql.shared import PostgresShared


class PostgresWorld(ClusterWorld):
    """Nodes over one database, in which the time is the virtual time of the world."""

    def __init__(self, shared: PostgresShared) -> None:
        super().__init__()
        self.shared = shared
        self._connection = psycopg.connect(shared.url, autocommit=True)
        self._command = shared.open()

    def open_store(self) -> ClusterStore:
        """Opens the store for one incarnation of a node, or for a command."""
        return self.shared.open()

    def advance(self, ms: int) -> None:
        """Advances the time of the database and of all nodes, in steps."""
        for _ in range(ms // STEP_MS):
            self._connection.execute("UPDATE kcore.test_clock SET now = now + %s * interval '1 ms'", (STEP_MS,))
            super().advance(STEP_MS)

    def close(self) -> None:
        super().close()
        self._connection.close()


@pytest.fixture
def world(reused_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresWorld]:
    shared = PostgresShared(reused_url, monkeypatch)
    world = PostgresWorld(shared)
    world.start()
    yield world
    world.close()
    shared.close()
