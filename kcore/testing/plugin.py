"""pytest fixtures: a fresh kcore server for each test that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kcore.testing.server import ServerProcess

QUICK = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}


@pytest.fixture
def kcore_server() -> Iterator[ServerProcess]:
    """A running server that keeps everything in memory, with groups that do not wait before their first rebalance."""
    with ServerProcess(settings=QUICK) as server:
        yield server


@pytest.fixture
def kcore_bootstrap(kcore_server: ServerProcess) -> str:
    """Its HOST:PORT."""
    return kcore_server.bootstrap
