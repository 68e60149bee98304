"""Whole nodes, in virtual time, over a data folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kcore.cluster.store import ClusterStore
from tests.cluster.world import ClusterWorld
from tests.processes.shared import LocalShared


class LocalWorld(ClusterWorld):
    """Nodes in this process over one data folder, in which the time is the virtual time of the world."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.shared = LocalShared(path, self.clock)

    def open_store(self) -> ClusterStore:
        """Opens the store for one incarnation of a node, or for a command."""
        return self.shared.open()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path)
    world.start()
    yield world
    world.close()
    world.shared.close()
