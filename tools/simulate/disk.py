"""A simulated disk under a real data folder: unsynced writes are lost, torn or reordered, and operations fail.

The folder's files are the page cache. The device is a second copy in memory. The journal's writes reach the device
at the journal's next flush. An LMDB transaction flushes its pages before it writes its meta page. So the pages that
differ from the device after a commit are the pages that the transaction wrote.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import lmdb

from kcore.log import journal, journal_file, lmdb_environment
from kcore.log.data_folder import DATA_NAME, LOCK_NAME
from kcore.log.faults import SimulatedCrashError
from kcore.log.journal_file import JOURNAL_NAME

PAGE: Final = 4096
SECTOR: Final = 512
META_PAGES: Final = 2
JOURNAL_ENTRIES: Final = 40
"""Number of entries in an area of the simulated journal. It is low, so that areas become full and are moved often."""

FAILURES: Final = ("flush", "write", "torn write", "commit", "commit landed")
"""Kinds of failures that a disk can have: failures of the journal, and of LMDB's transactions."""
CRASHES: Final = ("before", "during", "after")
"""Times at which a crash can happen, relative to a write."""


def _disk_error(code: int) -> Any:
    error: Any = lmdb.DiskError("simulated disk")
    error.code = code
    return error


class _Transaction:
    """A write transaction of LMDB whose commit goes through the simulated disk."""

    def __init__(self, disk: Disk, txn: Any) -> None:
        self._disk = disk
        self._txn = txn

    def commit(self) -> None:
        self._disk.commit(self._txn)

    def __enter__(self) -> _Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self._disk.commit(self._txn)
        else:
            self._txn.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)


class _Environment:
    """An environment of LMDB whose write transactions go through the simulated disk."""

    def __init__(self, disk: Disk, env: lmdb.Environment) -> None:
        self._disk = disk
        self._env = env

    def begin(self, *arguments: Any, **options: Any) -> Any:
        self._disk.require_alive()
        if not options.get("write"):
            self._disk.read()
        txn = self._env.begin(*arguments, **options)
        return _Transaction(self._disk, txn) if options.get("write") else txn

    def open_db(self, name: bytes, *, txn: Any = None, **options: Any) -> Any:
        inner = txn._txn if isinstance(txn, _Transaction) else txn
        return self._env.open_db(name, txn=inner, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class Disk:
    """The disk of one data folder.

    Args:
        path: the path of the data folder.
        choice: the random number generator that selects the surviving sectors.

    Attributes:
        dead: True from a crash until `restart`: every operation raises SimulatedCrashError.
        full: True while every write that needs space fails.
        failure: the kind of the next failure, from `FAILURES`, or None.
        failed: True if an operation has failed since the folder was opened.
        readable: the number of reads that still succeed before reads begin to fail.
        unreadable: the number of reads that then fail.
        crash: the crash in the next write: a moment from `CRASHES`, and True for a power failure. None: no crash.
    """

    def __init__(self, path: str, choice: random.Random) -> None:
        self.path = path
        self.choice = choice
        self.dead = False
        self.full = False
        self.failure: str | None = None
        self.failed = False
        self.readable = self.unreadable = 0
        self.crash: tuple[str, bool] | None = None
        self._data = b""  # on the device
        self._journal = bytearray()
        self._pending: list[tuple[int, bytes]] = []  # writes to the journal that were not flushed
        self._image: tuple[bytes, bytes] | None = None  # the files after the restart; None: the files of the folder

    def require_alive(self) -> None:
        """Raises SimulatedCrashError after a crash."""
        if self.dead:
            raise SimulatedCrashError("the process has crashed")

    def _file(self, name: str) -> bytes:
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def _fails(self, *kinds: str) -> str | None:
        if self.failure in kinds:
            failure, self.failure = self.failure, None
            self.failed = True
            return failure
        return None

    def _crashes(self, *moments: str) -> bool:
        return self.crash is not None and self.crash[0] in moments

    def read(self) -> None:
        """Begins a read transaction, or fails."""
        if self.readable:
            self.readable -= 1
        elif self.unreadable:
            self.unreadable -= 1
            self.failed = True
            raise _disk_error(errno.EIO)

    # ---- the journal

    def write(self, fd: int, data: bytes, at: int, original: Callable[[int, bytes, int], None]) -> None:
        """Writes an entry of the journal to the page cache."""
        self.require_alive()
        if self._crashes("before"):
            self.die()
        if self._fails("write"):
            raise OSError(errno.EIO, "simulated: the write failed")
        if self._fails("torn write"):
            size = self.choice.randrange(len(data))
            original(fd, data[:size], at)
            self._pending.append((at, data[:size]))
            raise OSError(errno.EIO, "simulated: the write ended early")
        original(fd, data, at)
        self._pending.append((at, data))

    def flush(self, fd: int, synchronize: Callable[[int], None]) -> None:
        """Flushes the journal to the device."""
        self.require_alive()
        if self._crashes("during"):
            self.die()
        if self._fails("flush"):
            # As on Linux: the page cache is clean after a failed flush, whatever has reached the device.
            self._journal = self._torn(self._journal, self._pending)
            self._pending = []
            raise OSError(errno.EIO, "simulated: the flush failed")
        for at, data in self._pending:
            _put(self._journal, at, data)
        self._pending = []
        if self._crashes("after"):
            self.die()

    def _torn(self, base: bytearray, writes: list[tuple[int, bytes]]) -> bytearray:
        """Returns the content after a random subset of the written sectors has reached the device."""
        result = bytearray(base)
        for at, data in writes:
            start = at
            while start < at + len(data):
                end = min((start // SECTOR + 1) * SECTOR, at + len(data))
                if self.choice.random() < 0.5:
                    _put(result, start, data[start - at : end - at])
                start = end
        return result

    # ---- LMDB

    def commit(self, txn: Any) -> None:
        """Commits a write transaction of LMDB, unless the disk fails or the process crashes."""
        self.require_alive()
        if self._crashes("before"):
            txn.abort()
            self.die()
        if self.full:
            txn.abort()
            self.failed = True
            raise _disk_error(errno.ENOSPC)
        failure = self._fails("commit", "commit landed")
        if failure == "commit":
            txn.abort()
            raise _disk_error(errno.EIO)
        txn.commit()
        after = self._file(DATA_NAME)
        if self._crashes("during"):
            self._image = self._partial(after), self._journal_image()
            self.die()
        if failure is not None:
            # The pages are flushed; the write of the meta page failed, so the device may have the old one.
            metas = after[: META_PAGES * PAGE] if self.choice.random() < 0.5 else self._data[: META_PAGES * PAGE]
            self._data = metas + after[META_PAGES * PAGE :]
            raise _disk_error(errno.EIO)
        self._data = after
        if self._crashes("after"):
            self.die()

    def _partial(self, after: bytes) -> bytes:
        """Returns the data file after a crash between the first page of a transaction and its meta page."""
        before = self._data
        result = bytearray(before)
        for start in range(META_PAGES * PAGE, len(after), PAGE):
            page = after[start : start + PAGE]
            if page != before[start : start + PAGE]:
                for at in range(0, len(page), SECTOR):
                    if self.choice.random() < 0.5:
                        _put(result, start + at, page[at : at + SECTOR])
        return bytes(result)

    def _journal_image(self) -> bytes:
        if self.crash is not None and self.crash[1]:
            return bytes(self._torn(self._journal, self._pending))
        return self._file(JOURNAL_NAME)

    # ---- crashes

    def die(self) -> None:
        """Ends the process at this moment. Raises SimulatedCrashError."""
        if self._image is None and self.crash is not None and self.crash[1]:
            self._image = self._data, self._journal_image()
        self.crash = None
        self.dead = True
        raise SimulatedCrashError("simulated crash")

    def kill(self, power: bool) -> None:
        """Ends the process between two operations."""
        if not self.dead:
            self.crash = ("now", power)
            try:
                self.die()
            except SimulatedCrashError:
                return

    def restart(self) -> None:
        """Restores the folder to the content that the crash has left. The log must be closed."""
        if self._image is not None:
            data, journal = self._image
            if data:
                _replace(os.path.join(self.path, DATA_NAME), data)
            if journal:
                _replace(os.path.join(self.path, JOURNAL_NAME), journal)
        if os.path.exists(os.path.join(self.path, LOCK_NAME)):
            _replace(os.path.join(self.path, LOCK_NAME), b"")  # a crashed process notes no clean close
        self._image = None
        self._pending = []
        self.dead = False
        self.failure = self.crash = None
        self.note_files()

    def note_files(self) -> None:
        """Copies the files of the closed folder as the content of the device."""
        self.failed = False
        self._data = self._file(DATA_NAME)
        self._journal = bytearray(self._file(JOURNAL_NAME))

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Makes every log that is opened in the block use this disk."""
        original_write, original_sync, original_lmdb = (
            journal_file._write_all,
            journal_file._sync,
            lmdb_environment.lmdb,  # type: ignore[attr-defined]
        )

        def sync(fd: int, synchronize: Callable[[int], None]) -> None:
            self.flush(fd, synchronize)

        class Module:
            """A replacement of the module `lmdb` whose environments are on the simulated disk."""

            def __getattr__(self, name: str) -> Any:
                return getattr(original_lmdb, name)

            @staticmethod
            def open(*arguments: Any, **options: Any) -> Any:
                return _Environment(self, original_lmdb.open(*arguments, **{**options, "sync": False}))

        journal_file._write_all = lambda fd, data, at: self.write(fd, data, at, original_write)
        journal_file._sync = sync
        lmdb_environment.lmdb = Module()  # type: ignore[assignment, attr-defined]
        original, journal.MAX_ENTRIES = journal.MAX_ENTRIES, JOURNAL_ENTRIES  # type: ignore[misc]
        try:
            yield
        finally:
            journal.MAX_ENTRIES = original  # type: ignore[misc]
            journal_file._write_all, journal_file._sync = original_write, original_sync
            lmdb_environment.lmdb = original_lmdb  # type: ignore[attr-defined]


def _put(target: bytearray, at: int, data: bytes) -> None:
    if len(target) < at:
        target.extend(bytes(at - len(target)))
    target[at : at + len(data)] = data


def _replace(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
