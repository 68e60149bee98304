"""Virtual segments: the segments that a partition's log would have in Kafka, for retention and compaction.

The log itself has no segments. But Kafka deletes whole segments, and never compacts the last (*active*) segment.
Records therefore stay for longer than the settings require, and clients rely on that. Segments are found by reading the
headers of batches when retention or compaction is due, so appends cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition

BATCHES_A_SLICE = 1_000


class Segment:
    """A contiguous part of a log.

    Attributes:
        base_offset: the offset of the segment's first batch.
        end_offset: the offset after the segment's last batch.
        first_ms: the largest timestamp of the segment's first batch.
        max_ms: the largest timestamp; -1: no batch has one.
        size_bytes: the size of the segment's batches.
    """

    __slots__ = ("base_offset", "end_offset", "first_ms", "max_ms", "size_bytes")

    def __init__(self, base_offset: int, first_ms: int) -> None:
        self.base_offset = self.end_offset = base_offset
        self.first_ms = first_ms
        self.max_ms = -1
        self.size_bytes = 0


class Segments:
    """The virtual segments of one partition.

    A segment ends before a batch that would make it larger than `segment.bytes`, or that is more than `segment.ms`
    newer than the segment's first batch. It also ends where the last compaction ended, because a compaction in Kafka
    ends with a segment. `update` applies the settings that are valid when it first reads a batch.
    After a restart or a compaction, it reads all batches again, and applies the settings at that time to all of them.
    """

    __slots__ = ("_cleaned_to", "_end", "_segments")

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._end = -1  # the offset after the last batch that was seen
        self._cleaned_to = -1

    @property
    def active_offset(self) -> int:
        """The first offset of the active segment."""
        return self._segments[-1].base_offset if self._segments else max(self._end, 0)

    def update(self, partition: Partition) -> Iterator[None]:
        """Reads the headers of new batches, in slices."""
        log = partition.log
        start = log.log_start_offset
        if log.cleaned_to != self._cleaned_to or self._end > log.high_watermark:
            self._segments, self._end, self._cleaned_to = [], -1, log.cleaned_to
        self._end = max(self._end, start)
        self._drop_before(start)
        while self._end < log.high_watermark:
            batches = log.summaries(self._end, BATCHES_A_SLICE)
            if not batches:
                break
            config = partition.config
            for batch in batches:
                self._add(
                    batch.base_offset, batch.max_timestamp_ms, batch.size_bytes, config.segment_bytes, config.segment_ms
                )
                self._segments[-1].end_offset = batch.last_offset + 1
            self._end = batches[-1].last_offset + 1
            if len(batches) == BATCHES_A_SLICE:
                yield
                if partition.closed:
                    return

    def _add(self, base_offset: int, timestamp_ms: int, size_bytes: int, max_bytes: int, max_ms: int) -> None:
        last = self._segments[-1] if self._segments else None
        if (
            last is None
            or last.base_offset < self._cleaned_to <= base_offset
            or last.size_bytes + size_bytes > max_bytes
            or (last.first_ms >= 0 and timestamp_ms - last.first_ms > max_ms)
        ):
            last = Segment(base_offset, timestamp_ms)
            self._segments.append(last)
        last.size_bytes += size_bytes
        last.max_ms = max(last.max_ms, timestamp_ms)

    def _drop_before(self, start: int) -> None:
        segments = self._segments
        count = 0
        while count + 1 < len(segments) and segments[count + 1].base_offset <= start:
            count += 1
        if segments and self._end <= start:
            count = len(segments)
        del segments[:count]

    def retained_from(self, oldest_ms: int | None, max_bytes: int) -> int:
        """Returns the offset after the last segment to delete, or 0 if every segment is kept.

        Compaction may have removed the first batches of the first segment that is kept. Readers may still continue at
        their offsets.

        Args:
            oldest_ms: segments without a newer record are deleted; None: retention is unlimited in time.
            max_bytes: the oldest segments are deleted while the remaining segments have at least this size; -1: size
                is unlimited.
        """
        count = 0
        if oldest_ms is not None:
            while count < len(self._segments) and self._segments[count].max_ms < oldest_ms:
                count += 1
        if max_bytes >= 0:
            excess_bytes = sum(segment.size_bytes for segment in self._segments[count:]) - max_bytes
            while count < len(self._segments) and excess_bytes >= self._segments[count].size_bytes:
                excess_bytes -= self._segments[count].size_bytes
                count += 1
        return self._segments[count - 1].end_offset if count else 0

    def closed_bytes(self, offset: int) -> int:
        """Returns the total size in bytes of the segments from `offset` on, without the active segment."""
        return sum(segment.size_bytes for segment in self._segments[:-1] if segment.base_offset >= offset)
