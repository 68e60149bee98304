"""The interface between the log engine and its storage.

Any thread may call any method at any time, except that `write` and `reclaim` exclude each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.write_set import StoredPartition, WriteSet


class ReclaimTask(NamedTuple):
    """The entries to delete in the partition with this number.

    Deletes batches that end at or below `below_offset` (None: all batches), and snapshots whose offset is not in
    `keep_snapshots` (None: no snapshots). `forget`: the partition was dropped; its tombstone is deleted last.
    """

    number: int
    below_offset: int | None
    keep_snapshots: tuple[int, ...] | None
    forget: bool


class Storage(ABC):
    """A committed store of batches, snapshot chunks and metadata."""

    __slots__ = ()

    node_epoch: int
    """The number of earlier openings of this store."""

    @abstractmethod
    def load(self) -> tuple[list[StoredPartition], list[int], int]:
        """Returns all partitions in order of number, the dropped numbers not yet reclaimed, the next free number."""

    @abstractmethod
    def write(self, write_set: WriteSet) -> None:
        """Makes the write set durable and sets `write_set.is_durable`. If it raises, `settle` determines the result."""

    @abstractmethod
    def settle(self) -> None:
        """Determines the result of a `write` that an exception interrupted, and sets `WriteSet.is_durable`.

        It does nothing if no result is unknown.

        Raises:
            LogError: the result cannot be determined now; the next call tries again.
        """

    @abstractmethod
    def slice(self, number: int, offset: int, limit: int, max_bytes: int, max_batches: int) -> list[tuple[int, bytes]]:
        """Returns (base offset, batch) pairs with base offsets below `limit`.

        It begins with the batch that contains `offset`, or else with the first one after it. It ends after
        `max_batches`, or with the batch that reaches `max_bytes`.
        """

    @abstractmethod
    def summaries(self, number: int, offset: int, limit: int, max_batches: int) -> list[BatchSummary]:
        """Returns the headers of the batches that `slice` would return, without a limit of bytes."""

    @abstractmethod
    def snapshot_chunk(self, number: int, offset: int, index: int) -> bytes | None:
        """Returns one chunk of a snapshot, or None."""

    @abstractmethod
    def get_meta(self, name: str) -> bytes | None:
        """Returns a named value, or None."""

    @abstractmethod
    def meta_names(self, prefix: str) -> list[str]:
        """Returns the names of values that begin with `prefix`, sorted."""

    @abstractmethod
    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Deletes at most `max_entries` batches and chunks in one transaction; returns the number of finished tasks."""

    @abstractmethod
    def stray_entries(self, known: dict[int, PartitionKey]) -> list[Finding]:
        """Finds batches or chunks of partition numbers that are neither known nor dropped."""

    @abstractmethod
    def sync(self) -> None:
        """Forces all committed data to the device."""

    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Returns the size of the file, and the size of its used part at most."""

    @abstractmethod
    def close(self) -> None:
        """Flushes the data and releases the store."""
