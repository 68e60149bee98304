"""A sparse index of batches by timestamp, built at the first search and extended by later searches.

Appends do not change the index. An entry describes a group of GROUP_BATCHES batches: (first base offset, end offset,
largest timestamp, size).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from kcore.log.interface import BatchSummary, TimestampedBatch
from kcore.log.storage import Storage
from kcore_ext.util.lock import Lock

GROUP_BATCHES = 64
WALK_GROUPS = 16
"""Number of groups of batches that one read transaction reads."""
INDEX_STEP_COST_US = GROUP_BATCHES * WALK_GROUPS
"""The cost of reading the headers of `WALK_GROUPS` groups, in microseconds."""


class _Group(NamedTuple):
    first_offset: int
    end_offset: int
    max_timestamp_ms: int
    size_bytes: int


class TimeIndex:
    """The time index of one partition. Any thread may search; a lock admits one thread at a time."""

    __slots__ = ("_groups", "_lock", "_number", "_storage")

    def __init__(self, storage: Storage, number: int) -> None:
        self._storage = storage
        self._number = number
        self._groups: list[_Group] = []
        self._lock = Lock()

    def _walk(self, offset: int, limit: int, groups: int = 1) -> list[BatchSummary]:
        return self._storage.summaries(self._number, offset, limit, GROUP_BATCHES * groups)

    def _bring_up_to_date(self, log_start_offset: int, high_watermark: int) -> Iterator[BatchSummary]:
        """Drops groups below the log start, and adds full groups up to the end.

        Returns the batches after the last full group.
        """
        groups = self._groups
        if groups and groups[0].end_offset <= log_start_offset:
            ends = [group.end_offset for group in groups]
            del groups[: bisect_right(ends, log_start_offset)]
        if groups and groups[0].first_offset < log_start_offset:
            # The log start has moved into the first group, so its entry is built again.
            offset, end = log_start_offset, groups[0].end_offset
            rest = [batch for batch in self._walk(offset, end) if batch.last_offset >= log_start_offset]
            # The list of batches is empty if retention moved the log start while the headers were read.
            groups[:1] = [self._group(rest)] if rest else []
        while True:
            loose, more = self._extend(log_start_offset, high_watermark)
            if not more:
                return iter(loose)

    def _extend(self, log_start_offset: int, high_watermark: int) -> tuple[list[BatchSummary], bool]:
        """Adds groups of the next batches.

        Returns the batches after the last full group, and True if more batches may follow.
        """
        groups = self._groups
        offset = groups[-1].end_offset if groups else log_start_offset
        if offset >= high_watermark:
            return [], False
        batches = self._walk(offset, high_watermark, WALK_GROUPS)
        full = len(batches) // GROUP_BATCHES * GROUP_BATCHES
        for at in range(0, full, GROUP_BATCHES):
            groups.append(self._group(batches[at : at + GROUP_BATCHES]))
        return batches[full:], len(batches) == GROUP_BATCHES * WALK_GROUPS

    def extend(self, log_start_offset: int, high_watermark: int) -> bool:
        """Adds the next 1,024 batches to the index, so that a later search reads fewer headers.

        Returns False at the end of the log.
        """
        with self._lock:
            return self._extend(log_start_offset, high_watermark)[1]

    @staticmethod
    def _group(batches: list[BatchSummary]) -> _Group:
        return _Group(
            batches[0].base_offset,
            batches[-1].last_offset + 1,
            max(batch.max_timestamp_ms for batch in batches),
            sum(batch.size_bytes for batch in batches),
        )

    def find(
        self, timestamp_ms: int, log_start_offset: int, high_watermark: int, after_offset: int = -1
    ) -> TimestampedBatch | None:
        """Returns the first batch whose largest timestamp is at or after `timestamp_ms`, or None.

        Args:
            timestamp_ms: the timestamp to find.
            log_start_offset: the start of the log.
            high_watermark: the end of the log.
            after_offset: only batches with a higher base offset count.
        """
        with self._lock:
            rest = self._bring_up_to_date(log_start_offset, high_watermark)
            found = (
                batch
                for group in self._groups
                if group.max_timestamp_ms >= timestamp_ms and group.end_offset > after_offset
                for batch in self._walk(max(group.first_offset, log_start_offset), group.end_offset)
            )
            for batch in chain(found, rest):
                if batch.max_timestamp_ms >= timestamp_ms and batch.base_offset > after_offset:
                    return TimestampedBatch(batch.base_offset, batch.max_timestamp_ms)
            return None

    def find_max(self, log_start_offset: int, high_watermark: int) -> TimestampedBatch | None:
        """Returns the first batch with the largest timestamp of all, or None."""
        with self._lock:
            rest = list(self._bring_up_to_date(log_start_offset, high_watermark))
            best = max((group.max_timestamp_ms for group in self._groups), default=None)
            loose = max((batch.max_timestamp_ms for batch in rest), default=None)
        largest = loose if best is None else best if loose is None else max(best, loose)
        return None if largest is None else self.find(largest, log_start_offset, high_watermark)

    def size_bytes(self, log_start_offset: int, high_watermark: int) -> int:
        """Returns the size of all batches."""
        with self._lock:
            rest = self._bring_up_to_date(log_start_offset, high_watermark)
            return sum(batch.size_bytes for batch in rest) + sum(group.size_bytes for group in self._groups)
