"""The durable engine: one LMDB environment a data folder, one write transaction and one flush a commit."""

from __future__ import annotations

import os

from kcore.log.data_folder import DATA_NAME, DataFolder
from kcore.log.engine import TAIL_SIZE_BYTES, StagedLogEngine
from kcore.log.interface import Finding, LogEngine
from kcore.log.lmdb_environment import DEFAULT_MAP_SIZE_BYTES, MAX_MAP_SIZE_BYTES
from kcore.log.lmdb_pages import check_pages
from kcore.log.lmdb_storage import LmdbStorage
from kcore.log.memory_engine import MemoryLogEngine

RECLAIM_BATCHES = 5000
"""Batches deleted in one transaction when nobody waits."""


class LmdbLogEngine(StagedLogEngine):
    """A LogEngine over a data folder that this process has to itself.

    `path`: the folder; created if absent (unless `create` is False), refused if it holds anything but a kcore log.
    `durability`:

    * `fsync`: a commit returns when it is on the device. Survives kill -9 and power loss. Two flushes a commit.
    * `os`: a commit returns when the operating system has it. Survives kill -9, not power loss: the last commits may
      be missing then, and because ext4 and xfs may write LMDB's meta page before the pages it refers to, the folder
      may be damaged (found on opening or by `verify`, not always) and need to be restored. `sync()` and `close()`
      make everything before them safe, as long as nothing is committed after.

    `map_size_bytes`: the first memory map, doubled whenever it is full, up to `max_size_bytes`, which is the bound of
    the file. `tail_size_bytes`: newest batches kept in memory for readers at the end, all partitions together.
    `allow_orphans`: open a folder with batches of numbers that no partition has: for `verify`, which finds them.
    Raises DataFolderError when the folder is refused: it says what was found and where.

    LMDB's file is not to be opened by anything else while this runs, nor to lie on a network file system. Not usable
    across fork: in the child everything raises LogClosedError.
    """

    __slots__ = ("durability", "path")

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: str = "fsync",
        *,
        create: bool = True,
        map_size_bytes: int = DEFAULT_MAP_SIZE_BYTES,
        max_size_bytes: int = MAX_MAP_SIZE_BYTES,
        tail_size_bytes: int = TAIL_SIZE_BYTES,
        allow_orphans: bool = False,
    ) -> None:
        if durability not in ("fsync", "os"):
            raise ValueError(f"durability is 'fsync' or 'os' here (open_engine knows 'memory' too): {durability!r}")
        self.durability = durability
        storage = LmdbStorage(
            path, create, durability == "fsync", map_size_bytes, max_size_bytes, allow_orphans=allow_orphans
        )
        self.path = storage.path
        super().__init__(storage, tail_size_bytes)


def open_engine(path: str | os.PathLike[str] | None, durability: str = "fsync") -> LogEngine:
    """The engine for a durability: `fsync` and `os` need a `path`, `memory` leaves it alone."""
    if durability == "memory":
        return MemoryLogEngine()
    if path is None:
        raise ValueError(f"durability {durability!r} needs a path")
    return LmdbLogEngine(path, durability)


def compact(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Shrink the file of a folder that nobody has open; returns its size in bytes before and after.

    LMDB's file never shrinks by itself: deleted space is reused. This gives back what is reclaimable, then copies
    what is left, and puts the copy in the file's place atomically. Needs room for the copy. Raises DataFolderError
    when the folder is refused, LogError when copying fails; the folder is as it was then.
    """
    check_folder(path)
    storage = LmdbStorage(path, False, True, DEFAULT_MAP_SIZE_BYTES, MAX_MAP_SIZE_BYTES)
    engine = StagedLogEngine(storage, 0)
    try:
        before = storage.sizes()[0]
        while engine.reclaim(RECLAIM_BATCHES):
            pass
        storage.compact_and_close()
    except BaseException:
        engine.close()
        raise
    engine._shut("the folder was compacted")
    return before, os.path.getsize(os.path.join(storage.path, "data.mdb"))


def check_folder(path: str | os.PathLike[str]) -> None:
    """Check every page of a folder that nobody has open, whatever its last close was; raises DataFolderError.

    For whatever reads the whole file afterwards: LMDB aborts the process at a damaged page.
    """
    folder = DataFolder(path, create=False)
    try:
        check_pages(folder.path, DATA_NAME)
        folder.mark_closed()  # the next opening need not read the leaves again
    finally:
        folder.release()


def verify_folder(path: str | os.PathLike[str], deep: bool = True) -> list[Finding]:
    """Open a folder that nobody has open, verify it and close it; see `LogEngine.verify`.

    Deep also walks LMDB's own pages, before LMDB does. Raises DataFolderError when the folder is refused.
    """
    if deep:
        check_folder(path)
    engine = LmdbLogEngine(path, create=False, allow_orphans=True)
    try:
        return engine.verify(deep)
    finally:
        engine.close()
