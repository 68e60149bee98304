"""The aborted transactions of a partition, whose records a read_committed consumer must skip (KIP-98)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from typing import NamedTuple

from kcore_ext.broker.producers import AbortedCore


class AbortedTransaction(NamedTuple):
    """One aborted transaction of a partition.

    Attributes:
        producer_id: the producer's id.
        first_offset: the offset of its first batch.
        last_offset: the offset of its ABORT marker.
        last_stable_offset: the last stable offset after the marker was written. A search may stop at the first entry
            whose value is at or beyond the end of the searched range.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactionIndex(AbortedCore):
    """Aborted transactions in the order of their markers.

    The index is not durable: recovery rebuilds it from the log.
    """

    __slots__ = ("_last_offsets",)

    _entries: list[AbortedTransaction]

    def __init__(self) -> None:
        self._last_offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> list[AbortedTransaction]:
        """A copy of all entries, ascending by marker offset."""
        return list(self._entries)

    def add(self, entry: AbortedTransaction) -> None:
        """Appends an entry; its marker must be after all earlier markers."""
        assert not self._last_offsets or self._last_offsets[-1] < entry.last_offset, "markers come in offset order"
        self._entries.append(entry)
        self._last_offsets.append(entry.last_offset)

    def between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Finds the aborted transactions that overlap [start_offset, end_offset)."""
        found = []
        for entry in self._entries[bisect_left(self._last_offsets, start_offset) :]:
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                break
        return found

    def truncate(self, end_offset: int) -> None:
        """Removes the entries whose markers are at or beyond `end_offset`: their append failed."""
        keep = bisect_left(self._last_offsets, end_offset)
        del self._entries[keep:], self._last_offsets[keep:]

    def forget(self, last_offsets: Container[int]) -> None:
        """Removes the entries with these markers, which compaction removed after the records of their transactions.

        A reader that knows of an aborted transaction drops all records of its producer up to the marker. Without the
        marker, it would also drop the producer's later records.
        """
        self._entries = [entry for entry in self._entries if entry.last_offset not in last_offsets]
        self._last_offsets = [entry.last_offset for entry in self._entries]

    def delete_before(self, log_start_offset: int) -> None:
        """Removes the entries whose markers the log has deleted."""
        drop = bisect_left(self._last_offsets, log_start_offset)
        if drop:
            del self._entries[:drop], self._last_offsets[:drop]
