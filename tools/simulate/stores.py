"""Logs that survive a crash of their node: in memory, and LMDB over a simulated disk. A crash loses the same data as on
a real disk.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress

from kcore.log import LmdbLogEngine, LogEngine, MemoryLogEngine, MemoryStorage
from kcore.log.errors import FailureReason, LogError
from kcore.log.faults import FaultInjectingEngine, SimulatedCrashError
from kcore.log.write_set import WriteSet
from kcore.testing.storage import _copied
from tools.simulate.disk import Disk


class Store(ABC):
    """The durable state of a node.

    Attributes:
        log: the open log, or None.
    """

    log: LogEngine | None = None

    @abstractmethod
    def open(self) -> LogEngine:
        """Opens the log, as a process does when it starts."""

    @abstractmethod
    def arm(self, kind: str) -> None:
        """Makes the next operation fail."""

    @abstractmethod
    def arm_crash(self, moment: str, power: bool) -> None:
        """Makes the process crash at its next write. `moment` is "before", "during" or "after" the write."""

    @abstractmethod
    def crash(self, power: bool) -> None:
        """Ends the process now, unless it has crashed already, and closes the log."""

    @property
    @abstractmethod
    def disturbed(self) -> bool:
        """True if the disk has failed since the last start, so that the next start may fail."""

    @abstractmethod
    def set_full(self, full: bool) -> None:
        """Fills the disk, or frees space."""

    @abstractmethod
    def fail_reads(self, count: int, after: int = 0) -> None:
        """Makes `count` reads fail after `after` successful reads. A `count` of 0 ends the failures."""

    @abstractmethod
    def copy(self) -> LogEngine:
        """Opens an independent copy of all durable data, for the checkers. The caller must close the copy."""

    @abstractmethod
    def close(self) -> None:
        """Closes the store at the end of the simulation."""


class _MemoryLog(FaultInjectingEngine):
    """A log in memory with a disk that can be full."""

    __slots__ = ("full",)

    def __init__(self, inner: MemoryLogEngine) -> None:
        super().__init__(inner)
        self.full = False

    def write(self, write_set: WriteSet) -> None:
        """Implements `LogEngine.write`; fails while the disk is full."""
        if self.full:
            raise LogError("simulated: no space left on device", FailureReason.DISK_FULL)
        super().write(write_set)


class MemoryStore(Store):
    """The log of durability `memory`, whose storage outlives the engine."""

    def __init__(self) -> None:
        self._storage = MemoryStorage()
        self._full = False

    def open(self) -> LogEngine:
        """Implements `Store.open`."""
        log = self.log = _MemoryLog(MemoryLogEngine(self._storage))
        log.full = self._full
        return log

    def _log(self) -> _MemoryLog:
        assert isinstance(self.log, _MemoryLog), "the log is open"
        return self.log

    def arm(self, kind: str) -> None:
        """Implements `Store.arm`; every kind is a failed commit."""
        self._log().fail_commit()

    def arm_crash(self, moment: str, power: bool) -> None:
        """Implements `Store.arm_crash`."""
        self._log().crash_commit(1, after=moment == "after")

    def crash(self, power: bool) -> None:
        """Implements `Store.crash`."""
        if self.log is not None:
            self.log.close()
            self.log = None

    @property
    def disturbed(self) -> bool:
        """Implements `Store.disturbed`."""
        return self._full

    def set_full(self, full: bool) -> None:
        """Implements `Store.set_full`."""
        self._full = full
        if self.log is not None:
            self._log().full = full

    def fail_reads(self, count: int, after: int = 0) -> None:
        """Implements `Store.fail_reads`; memory is always readable."""

    def copy(self) -> LogEngine:
        """Implements `Store.copy`."""
        return MemoryLogEngine(_copied(self._storage))

    def close(self) -> None:
        """Implements `Store.close`."""
        self.crash(False)


class LmdbStore(Store):
    """A data folder with durability `fsync` over a simulated disk.

    Args:
        choice: decides which unsynced sectors survive a power failure.
    """

    def __init__(self, choice: random.Random) -> None:
        shm = "/dev/shm"
        self._root = tempfile.mkdtemp(prefix="kcore-simulate-", dir=shm if os.access(shm, os.W_OK) else None)
        self._path = os.path.join(self._root, "data")
        self.disk = Disk(self._path, choice)
        self._installed = ExitStack()
        self._installed.enter_context(self.disk.installed())

    def open(self) -> LogEngine:
        """Implements `Store.open`."""
        self.disk.note_files()
        log = self.log = LmdbLogEngine(self._path, "fsync", map_size_bytes=1 << 22)
        return log

    def arm(self, kind: str) -> None:
        """Implements `Store.arm`."""
        self.disk.failure = kind

    def arm_crash(self, moment: str, power: bool) -> None:
        """Implements `Store.arm_crash`."""
        self.disk.crash = (moment, power)

    def crash(self, power: bool) -> None:
        """Implements `Store.crash`."""
        if self.log is None:
            return
        self.disk.kill(power)
        with suppress(SimulatedCrashError, LogError):
            self.log.close()
        self.log = None
        self.disk.restart()

    @property
    def disturbed(self) -> bool:
        """Implements `Store.disturbed`."""
        return self.disk.failed

    def set_full(self, full: bool) -> None:
        """Implements `Store.set_full`."""
        self.disk.full = full

    def fail_reads(self, count: int, after: int = 0) -> None:
        """Implements `Store.fail_reads`."""
        self.disk.unreadable, self.disk.readable = count, after

    def copy(self) -> LogEngine:
        """Implements `Store.copy`; the copy is opened without the simulated disk."""
        path = os.path.join(self._root, "copy")
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path)
        for name in ("data.mdb", "journal"):
            source = os.path.join(self._path, name)
            if os.path.exists(source):
                shutil.copyfile(source, os.path.join(path, name))
        self._installed.close()
        try:
            return LmdbLogEngine(path, "os", map_size_bytes=1 << 22)
        finally:
            self._installed.enter_context(self.disk.installed())

    def close(self) -> None:
        """Implements `Store.close`."""
        self.crash(False)
        self._installed.close()
        shutil.rmtree(self._root, ignore_errors=True)
