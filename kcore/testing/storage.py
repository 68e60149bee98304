"""Disk faults of a test broker: a full disk, and a power failure that loses the records not written to the disk."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from kcore.log import MemoryLogEngine
from kcore.log.errors import FailureReason, LogError
from kcore.log.faults import FaultInjectingEngine
from kcore.log.memory_engine import MemoryStorage

if TYPE_CHECKING:
    from kcore.log.write_set import WriteSet


class FaultyLog(FaultInjectingEngine):
    """A log whose disk can be full.

    Attributes:
        full: True while every commit fails for lack of space.
    """

    __slots__ = ("full",)

    def __init__(self, inner: MemoryLogEngine) -> None:
        super().__init__(inner)
        self.full = False

    def write(self, write_set: WriteSet) -> None:
        """Implements `LogEngine.write`; fails while the disk is full."""
        if self.full:
            raise LogError("injected: no space left on device", FailureReason.DISK_FULL)
        super().write(write_set)


class Disk:
    """The storage of a test broker. It outlives the broker's engines, so that a restart finds the records."""

    def __init__(self) -> None:
        self._storage = MemoryStorage()
        self._synced: MemoryStorage | None = None
        self.log: FaultyLog | None = None

    def load(self, storage: MemoryStorage) -> None:
        """Replaces the contents of the disk by `storage`. Call it before the first `open`."""
        self._storage = storage

    def open(self) -> FaultyLog:
        """Opens the log."""
        full = self.log is not None and self.log.full
        self.log = FaultyLog(MemoryLogEngine(self._storage))
        self.log.full = full
        return self.log

    def stop_syncing(self) -> None:
        """Keeps a copy of the present contents, to which `fail_power` returns. Call it between commits."""
        if self._synced is None:
            self._synced = _copied(self._storage)

    def sync(self) -> None:
        """Makes all records that were written so far survive a power failure."""
        self._synced = None

    def fail_power(self) -> None:
        """Loses all records that were written since `stop_syncing`. Without `stop_syncing`, loses no record."""
        if self._synced is not None:
            self._storage, self._synced = self._synced, None


def _copied(storage: MemoryStorage) -> MemoryStorage:
    """Copies a storage. The copy shares the immutable batches, and has its own lock."""
    other = MemoryStorage()
    for name in MemoryStorage.__slots__:
        if name not in {"_lock", "_partitions"}:
            setattr(other, name, copy.copy(getattr(storage, name)))
    for number, partition in storage._partitions.items():
        twin = copy.copy(partition)
        offsets, batches = partition.lists
        twin.lists = (list(offsets), list(batches))
        twin.chunks = dict(partition.chunks)
        other._partitions[number] = twin
    return other
