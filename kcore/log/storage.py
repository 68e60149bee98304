"""What an engine needs of the place where committed rounds end up.

All methods but `write` and `reclaim` may be called by any thread at any time; those two exclude each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.write_set import StoredPartition, WriteSet


class ReclaimTask(NamedTuple):
    """Space to give back in the partition with this number.

    Batches that end at or below `below_offset` (None: all batches), snapshots whose offset is not in `keep_snapshots`
    (None: leave all snapshots alone). `forget`: the partition was dropped; when nothing is left, so is its tombstone.
    """

    number: int
    below_offset: int | None
    keep_snapshots: tuple[int, ...] | None
    forget: bool


class Storage(ABC):
    """A committed store of batches, snapshot chunks and metadata."""

    __slots__ = ()

    node_epoch: int
    """How often this store has been opened before."""

    @abstractmethod
    def load(self) -> tuple[list[StoredPartition], list[int], int]:
        """All partitions in order of number, numbers dropped and not yet reclaimed, the next free number."""

    @abstractmethod
    def write(self, write_set: WriteSet) -> None:
        """Make the round durable and set `write_set.is_durable`; raises LogError and stores nothing otherwise."""

    @abstractmethod
    def slice(self, number: int, offset: int, limit: int, max_bytes: int, max_batches: int) -> list[tuple[int, bytes]]:
        """(base offset, batch) from the batch that contains `offset` on (else the first after it), base below `limit`.

        Ends after `max_batches`, or with the batch that reaches `max_bytes`.
        """

    @abstractmethod
    def summaries(self, number: int, offset: int, limit: int, max_batches: int) -> list[BatchSummary]:
        """As `slice`, headers only."""

    @abstractmethod
    def snapshot_chunk(self, number: int, offset: int, index: int) -> bytes | None:
        """One chunk of a snapshot."""

    @abstractmethod
    def get_meta(self, name: str) -> bytes | None:
        """A named value."""

    @abstractmethod
    def meta_names(self, prefix: str) -> list[str]:
        """Names of values, sorted."""

    @abstractmethod
    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Delete at most `max_entries` batches and chunks in one transaction; returns how many tasks are done."""

    @abstractmethod
    def stray_entries(self, known: dict[int, PartitionKey]) -> list[Finding]:
        """Batches or chunks of partition numbers that are neither known nor dropped."""

    @abstractmethod
    def sync(self) -> None:
        """Force what is committed to the device."""

    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Bytes of the file, bytes of it in use at most."""

    @abstractmethod
    def close(self) -> None:
        """Flush and release."""
