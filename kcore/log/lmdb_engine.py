"""The durable log engine: one LMDB environment and one journal file for each data folder."""

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
"""Number of batches that a compaction of the file deletes in one transaction.

It may be large, because no requests are served during a compaction.
"""


class LmdbLogEngine(StagedLogEngine):
    """A LogEngine over a data folder, which this process locks exclusively.

    `path`: the folder; created if missing (unless `create` is False), refused if it contains anything but a kcore log.
    `durability`:

    * `fsync`: a commit returns when it is on the device. Survives kill -9 and power loss. A commit of small batches
      takes one flush, any other commit takes two.
    * `os`: a commit returns when it is in the page cache of the operating system. Survives kill -9, but not power loss.
      After a power loss the last commits may be missing. The folder may also be damaged and need to be restored,
      because ext4 and xfs may write LMDB's meta page before the pages it refers to. An opening or `verify` finds most
      of this damage, but not all. After `sync()` or `close()`, all earlier commits survive a power loss, unless another
      commit follows.

    `map_size_bytes`: the initial size of the memory map; it is doubled whenever it is full, up to `max_size_bytes`, the
    maximum size of the file. `tail_size_bytes`: the maximum size, over all partitions together, of the newest batches
    that the engine keeps in memory for readers at the end of a log. `allow_orphans`: True to open a folder with batches
    that belong to no partition, for `verify`, which finds them. Raises DataFolderError with the problem and its
    position if the folder is refused.

    No other program may open LMDB's file while the engine runs, and the file must not be on a network file system. The
    engine does not work across fork: in the child every call raises LogClosedError.
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
            raise ValueError(f"durability={durability!r}; valid: 'fsync' or 'os' (only open_engine accepts 'memory')")
        self.durability = durability
        storage = LmdbStorage(
            path,
            create=create,
            sync=durability == "fsync",
            map_size_bytes=map_size_bytes,
            max_size_bytes=max_size_bytes,
            allow_orphans=allow_orphans,
        )
        self.path = storage.path
        super().__init__(storage, tail_size_bytes)

    @property
    def name(self) -> str:
        """Implements `LogEngine.name`."""
        return self.path


def open_engine(
    path: str | os.PathLike[str] | None,
    durability: str = "fsync",
    *,
    create: bool = True,
    map_size_bytes: int = DEFAULT_MAP_SIZE_BYTES,
) -> LogEngine:
    """Returns an engine with the given durability.

    The arguments are those of `LmdbLogEngine`. `fsync` and `os` need a `path`; `memory` ignores the other arguments.
    """
    if durability == "memory":
        return MemoryLogEngine(tail_size_bytes=TAIL_SIZE_BYTES)
    if path is None:
        raise ValueError(f"durability {durability!r} needs a path")
    return LmdbLogEngine(path, durability, create=create, map_size_bytes=map_size_bytes)


def compact(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Shrinks the file of a folder that no process has open; returns its size in bytes before and after.

    LMDB never shrinks its file, but reuses deleted space. The function deletes all reclaimable batches, copies the
    remaining data, and replaces the file by the copy atomically. It needs space for the copy. Raises DataFolderError if
    the folder is refused, LogError if copying fails; the folder is then unchanged.
    """
    check_folder(path)
    storage = LmdbStorage(
        path, create=False, sync=True, map_size_bytes=DEFAULT_MAP_SIZE_BYTES, max_size_bytes=MAX_MAP_SIZE_BYTES
    )
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
    """Checks every page of a folder that no process has open, even after a clean close; raises DataFolderError.

    Call it before reading the whole file, because LMDB aborts the process at a damaged page.
    """
    folder = DataFolder(path, create=False)
    try:
        check_pages(folder.path, DATA_NAME)
        folder.mark_closed()  # the next opening need not read all leaves again
    finally:
        folder.release()


def verify_folder(path: str | os.PathLike[str], deep: bool = True) -> list[Finding]:
    """Opens a folder that no process has open, verifies it by `LogEngine.verify` and closes it.

    If `deep` is True, it first checks LMDB's own pages. Raises DataFolderError if the folder is refused.
    """
    if deep:
        check_folder(path)
    engine = LmdbLogEngine(path, create=False, allow_orphans=True)
    try:
        return engine.verify(deep)
    finally:
        engine.close()
