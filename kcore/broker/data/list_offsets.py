"""Lookup of a partition's offsets by special timestamp or by time (KIP-79, KIP-734, KIP-405, KIP-1023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kcore.broker.data.decompression import CountedDecompression
from kcore.protocol.compression import decompress
from kcore_ext.batch import parse_header
from kcore_ext.batch.survey import find_by_timestamp

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.log.interface import TimestampedBatch

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Special timestamp -> the first request version that knows it."""

_WHOLE_BATCH = 1


class FoundOffset(NamedTuple):
    """Result of a lookup.

    Attributes:
        offset: the offset; -1 if there is none.
        timestamp_ms: timestamp of the record at the offset; -1 unless the lookup was by time.
        leader_epoch: the epoch in which the record was appended; -1 if unknown.
    """

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


NOT_FOUND = FoundOffset(-1)


def searches_log(timestamp: int) -> bool:
    """Returns True if the offset for a timestamp is not known without the index of the log."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def find_offset(
    partition: Partition, timestamp: int, limit: int, searched: CountedDecompression | None = None
) -> FoundOffset:
    """Finds the offset for a timestamp.

    Args:
        partition: the partition.
        timestamp: a special value, or ms since the epoch.
        limit: the high watermark or the last stable offset, by the reader's isolation level.
        searched: counts the bytes that the search reads; None: the caller does not need them.
    """
    if timestamp == LATEST:
        return FoundOffset(limit, leader_epoch=partition.leader_epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        start = partition.log_start_offset
        first = next(iter(partition.log.committed_epochs), None)
        if first is None:  # nothing was written yet: the leader's epoch begins at the start, as in Kafka
            return FoundOffset(start, leader_epoch=partition.leader_epoch)
        return FoundOffset(start, leader_epoch=first.epoch if first.start_offset <= start else -1)
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return NOT_FOUND
    if searched is None:
        searched = CountedDecompression(decompress)
    if timestamp == MAX_TIMESTAMP:
        found = _record_of_max_timestamp(partition, searched)
    else:
        found = _first_record_at(partition, timestamp, searched)
    return found if found.offset < limit else NOT_FOUND


def _record_of_max_timestamp(partition: Partition, searched: CountedDecompression) -> FoundOffset:
    place = partition.log.max_timestamp_batch()
    # A log without timestamps has -1 in every batch, and no record with the largest timestamp.
    if place is None or place.max_timestamp_ms < 0:
        return NOT_FOUND
    found = _record_in(partition, place, place.max_timestamp_ms, searched)
    if found.offset < 0:
        # The record is below the log's start, which cuts this batch: use the first record of the rest.
        found = _record_in(partition, place, 0, searched)
    return found


def _first_record_at(partition: Partition, timestamp_ms: int, searched: CountedDecompression) -> FoundOffset:
    place = partition.log.find_by_timestamp(timestamp_ms)
    if place is None:
        return NOT_FOUND
    found = _record_in(partition, place, timestamp_ms, searched)
    if found.offset < 0:
        # The log's start cuts the batch, and the matching record is below it: the next matching batch is whole.
        place = partition.log.find_by_timestamp(timestamp_ms, place.base_offset)
        if place is not None:
            found = _record_in(partition, place, timestamp_ms, searched)
    return found


def _record_in(
    partition: Partition, place: TimestampedBatch, timestamp_ms: int, searched: CountedDecompression
) -> FoundOffset:
    """Finds a batch's first record with at least this timestamp, not below the log's start."""
    start = partition.log_start_offset
    batches = partition.log.read(max(place.base_offset, start), _WHOLE_BATCH, None, True)
    if not batches:
        return NOT_FOUND
    header = parse_header(batches[0])
    epoch = header.partition_leader_epoch
    if header.is_log_append_time:
        return FoundOffset(max(header.base_offset, start), header.max_timestamp_ms, epoch)
    searched.size_bytes += len(batches[0])
    found = find_by_timestamp(batches[0], timestamp_ms, start, searched)
    return NOT_FOUND if found is None else FoundOffset(*found, epoch)
