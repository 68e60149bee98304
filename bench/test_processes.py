"""Two connections with 64 outstanding requests each, against one and two processes of `kcore serve --processes`.

A figure is for 128 requests. With two processes, the two connections belong to different processes. The ratio of the
two rows is the speed-up by the second process, for a client on the same machine. `python -m bench.scaling` measures the
CPU time of the servers, which does not depend on the number of free cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.scaling import KINDS, SETTINGS, Seats
from bench.tcp import Pipeline
from tests.processes.supervised import Supervised

DEPTH = 64
CONNECTIONS = 2


@pytest.fixture(scope="module", params=[1, 2], ids=["one-process", "two-processes"])
def seats(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seats]:
    folder: Path = tmp_path_factory.mktemp("bench")
    with Supervised(folder, request.param, SETTINGS) as cluster:
        yield Seats(cluster.ports, CONNECTIONS // request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_requests(benchmark: BenchmarkFixture, seats: Seats, kind: str) -> None:
    requests = getattr(seats, kind)()
    pipelines = [
        Pipeline(port, request, version, DEPTH) for port, (request, version) in zip(seats.ports, requests, strict=True)
    ]
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        benchmark(lambda: list(threads.map(Pipeline.round, pipelines)))
    for pipeline in pipelines:
        pipeline.close()
