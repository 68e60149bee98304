"""The time from the start to the first response, of `kcore serve` on a new folder and of an embedded engine."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

import kcore
from kcore.client import Connection
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.testing import ServerProcess


def test_serve_answers(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    numbers = count()
    servers: list[ServerProcess] = []

    def start() -> int:
        server = ServerProcess(tmp_path / f"data-{next(numbers)}")
        servers.append(server)
        server.start()
        with Connection.to(server.bootstrap) as client:
            return len(client.send(MetadataRequest(topics=[])).brokers)

    def stop() -> None:
        while servers:
            servers.pop().kill()

    assert benchmark.pedantic(start, rounds=5, setup=stop) == 1
    stop()


def test_open_embedded(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    numbers = count()

    def start() -> str:
        with kcore.open(tmp_path / f"data-{next(numbers)}") as engine:
            return engine.send(MetadataRequest(topics=[])).cluster_id or ""

    assert len(benchmark.pedantic(start, rounds=10)) == 22
