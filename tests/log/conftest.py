from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcore.log import LmdbLogEngine, LogEngine, MemoryLogEngine, MemoryStorage
from kcore.log.faults import FaultInjectingEngine


class Store:
    """A folder or memory in which a test opens one engine after another. `engine` is the open engine."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self.path = path
        self.memory = MemoryStorage()
        self.engine = self.open()

    def open(self) -> LogEngine:
        if "memory" in self.kind:
            engine: LogEngine = MemoryLogEngine(self.memory)
        elif self.kind == "lmdb-no-tail":
            engine = LmdbLogEngine(self.path, "os", tail_size_bytes=0)
        elif self.kind == "lmdb-small-map":
            engine = LmdbLogEngine(self.path, "os", map_size_bytes=1 << 16)
        else:
            engine = LmdbLogEngine(self.path, self.kind.removeprefix("lmdb-"))
        if "faulty" in self.kind:
            engine = FaultInjectingEngine(engine)
        self.engine = engine
        return engine

    def reopen(self) -> LogEngine:
        self.engine.close()
        return self.open()


@pytest.fixture(params=["memory", "faulty-memory", "lmdb-fsync", "lmdb-os", "lmdb-no-tail", "lmdb-small-map"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Yields a store of each kind: every engine, durability and layout."""
    made = Store(request.param, tmp_path / "data")
    yield made
    made.engine.close()


@pytest.fixture
def engine(store: Store) -> LogEngine:
    return store.engine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mounts a file system of 6 MiB."""
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(where)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)
