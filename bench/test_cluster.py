"""Commits of a cluster's node over PostgreSQL, beside a bare `INSERT … COMMIT` of the same bytes.

Commits and INSERTs alternate, so that the load of the machine affects both. `bare` is one statement in autocommit
without any check, the lower limit for a commit. `BEGIN` is this statement with separate round trips for BEGIN and
COMMIT.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from bench.test_log import BATCH_BYTES, make_batch
from kcore.cluster.postgresql import PostgresClusterStore, initialise
from kcore.cluster.store import METADATA, Endpoint, NodeDescription
from kcore.log import PartitionKey
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from tests.postgresql.servers import Servers

TOPIC = bytes(range(16))
ROUNDS = 500
TTL_MS = 3_600_000
INSERT = b"INSERT INTO bare SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    servers = Servers()
    try:
        server = servers.server("bench").create(shared_buffers="128MB")
        initialise(server.url())
        server.query("CREATE TABLE bare (LIKE kcore.batches INCLUDING ALL)")
        yield server.url()
    finally:
        servers.close()


class Node:
    """A node that leads some partitions."""

    def __init__(self, url: str, partitions: int) -> None:
        self.store = PostgresClusterStore(url)
        description = NodeDescription((Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092),))
        lease = self.store.register(partitions, description, TTL_MS)
        controller = self.store.take_controller(lease, TTL_MS)
        assert controller is not None
        self.engine = SharedLogEngine(self.store.storage())
        self.engine.adopt([Leadership(METADATA, controller.epoch)])
        keys = [PartitionKey(TOPIC, partitions * 1_000 + number) for number in range(partitions)]
        self.engine.open(METADATA).append(make_batch(), controller.epoch)
        for key in keys:
            self.engine.create(key, partitions, 0)
        self.engine.commit()
        self.logs = self.engine.adopt([Leadership(key, 0) for key in keys])
        self.data = make_batch()

    def commit(self) -> None:
        for log in self.logs:
            log.append(self.data, 0)
        self.engine.commit()

    def close(self) -> None:
        self.store.release_controller(self.store.controller())  # type: ignore[arg-type]
        self.store.close()


class Bare:
    """Inserts of the same bytes with psycopg, without kcore."""

    def __init__(self, url: str, partitions: int, first: int) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.partitions = partitions
        self.offset = 0
        self.data = bytes(make_batch())
        self.first = first

    def _insert(self) -> None:
        count, offset = self.partitions, self.offset
        numbers = [1 << 40 | self.first + number for number in range(count)]
        self.connection.execute(
            INSERT, (numbers, [offset] * count, [offset] * count, [1 << 40] * count, [self.data] * count), prepare=True
        )
        self.offset += 1

    def autocommit(self) -> None:
        self._insert()

    def begin_commit(self) -> None:
        self.connection.execute("BEGIN")
        self._insert()
        self.connection.execute("COMMIT")


def quantiles(times: list[float]) -> str:
    """Formats the median and the 99th percentile in ms."""
    return f"{statistics.median(times) * 1e3:.2f} / {statistics.quantiles(times, n=100)[98] * 1e3:.2f} ms"


@pytest.mark.parametrize("partitions", [1, 10, 50])
def test_commit_over_postgresql(benchmark: Any, url: str, partitions: int) -> None:
    benchmark.group = f"cluster commit of {partitions} x {BATCH_BYTES} B"
    node = Node(url, partitions)
    bare, begin = Bare(url, partitions, partitions * 10_000), Bare(url, partitions, partitions * 10_000 + 1_000)
    cases: dict[str, Callable[[], None]] = {
        "kcore": node.commit,
        "bare": bare.autocommit,
        "BEGIN": begin.begin_commit,
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for count in range(ROUNDS):
        for name, work in cases.items():
            begin_s = time.perf_counter()
            work()
            if count >= ROUNDS // 10:  # the first ones prepare their statements
                times[name].append(time.perf_counter() - begin_s)
    ratio = statistics.median(times["kcore"]) / statistics.median(times["bare"])
    benchmark.extra_info.update({name: quantiles(values) for name, values in times.items()})
    benchmark.extra_info["kcore / bare"] = round(ratio, 2)
    benchmark.pedantic(node.commit, rounds=200, warmup_rounds=20)
    node.close()
