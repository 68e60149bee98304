"""`kcore serve --cluster` and the processes of `--processes`: the lines that a node prints."""

from __future__ import annotations

import asyncio
import re

import pytest

from kcore.cli.serve_cluster import Stop, serve_node
from kcore.clock import SystemClock
from kcore.cluster.memory_store import MemoryCluster, MemoryClusterStore
from kcore.config.node import Config
from tests.cluster.test_open import CLUSTER_ID, settings


def test_a_node_prints_its_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    """The line about the console has the port that port 0 has selected."""
    cluster = MemoryCluster(CLUSTER_ID, SystemClock().monotonic_ms)
    config = Config.of({**settings(1), "kcore.http.listen": "127.0.0.1:0"})

    async def run() -> int:
        stop = Stop()
        stop.hand_over = False
        return await serve_node(config, lambda: MemoryClusterStore(cluster), stop, stop.requested.set)

    assert asyncio.run(run()) == 0
    port = config.listeners[0].rpartition(":")[2]
    out = capsys.readouterr().out
    assert re.fullmatch(
        r"kcore: node 1: console at (http://127\.0\.0\.1:[1-9]\d*/), metrics at \1metrics\n"
        rf"kcore: node 1: PLAINTEXT listening on 127\.0\.0\.1:{port}\n",
        out,
    ), out
