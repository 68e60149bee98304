"""pytest fixtures: a new kcore server for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kcore.testing.server import ServerProcess

QUICK = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}


@pytest.fixture
def kcore_server() -> Iterator[ServerProcess]:
    """Runs a server that keeps everything in memory and starts the first rebalance of a group without delay."""
    with ServerProcess(settings=QUICK) as server:
        yield server


@pytest.fixture
def kcore_bootstrap(kcore_server: ServerProcess) -> str:
    """Returns the server's HOST:PORT."""
    return kcore_server.bootstrap
