"""Lookup of a partition's offsets by special timestamp or by time (KIP-79, KIP-734, KIP-405, KIP-1023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kcore.broker.data.decompression import BYTES_A_MICROSECOND, in_steps
from kcore.protocol.batch_layout import HEADER_BYTES
from kcore.protocol.compression import CompressionError, decompress, prepared
from kcore_ext.batch import DEFAULT_MAX_DECOMPRESSED_BYTES, parse_header
from kcore_ext.batch.survey import find_by_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kcore.broker.data.partition import Partition
    from kcore.log.interface import TimestampedBatch
    from kcore.protocol.compression import Buffer

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
"""Special timestamp -> the first request version that supports it."""

_WHOLE_BATCH = 1

SEARCHED_BYTES = 8_000
"""Minimum size of a batch's records for which the search of the batch counts as a separate step."""


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
    """Returns True if the search for a timestamp needs the index of the log."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def find_offset_in_steps(partition: Partition, timestamp: int, limit: int) -> Generator[int, None, FoundOffset]:
    """Finds the offset for a timestamp.

    Args:
        partition: the partition to search.
        timestamp: a special value, or ms since the epoch.
        limit: the high watermark or the last stable offset, by the reader's isolation level.

    Yields:
        The cost of each step in microseconds, if a search reads a large batch.
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
    if timestamp == MAX_TIMESTAMP:
        found = yield from _record_of_max_timestamp(partition)
    else:
        found = yield from _first_record_at(partition, timestamp)
    return found if found.offset < limit else NOT_FOUND


def _record_of_max_timestamp(partition: Partition) -> Generator[int, None, FoundOffset]:
    candidate = partition.log.max_timestamp_batch()
    if candidate is None:
        return NOT_FOUND
    # In a log without timestamps every batch has -1: the largest timestamp is that of the first record.
    found = yield from _record_in(partition, candidate, candidate.max_timestamp_ms)
    if found.offset < 0:
        # The record is below the log's start, which cuts this batch: use the first record of the rest.
        found = yield from _record_in(partition, candidate, min(candidate.max_timestamp_ms, 0))
    return found


def _first_record_at(partition: Partition, timestamp_ms: int) -> Generator[int, None, FoundOffset]:
    candidate = partition.log.find_by_timestamp(timestamp_ms)
    if candidate is None:
        return NOT_FOUND
    found = yield from _record_in(partition, candidate, timestamp_ms)
    if found.offset < 0:
        # The log's start cuts the batch, and the matching record is below it: the next matching batch is whole.
        candidate = partition.log.find_by_timestamp(timestamp_ms, candidate.base_offset)
        if candidate is not None:
            found = yield from _record_in(partition, candidate, timestamp_ms)
    return found


def _record_in(
    partition: Partition, candidate: TimestampedBatch, timestamp_ms: int
) -> Generator[int, None, FoundOffset]:
    """Finds a batch's first record with at least this timestamp, not below the log's start."""
    start = partition.log_start_offset
    batches = partition.log.read(max(candidate.base_offset, start), _WHOLE_BATCH)
    if not batches:
        return NOT_FOUND
    batch = batches[0]
    header = parse_header(batch)
    epoch = header.partition_leader_epoch
    if header.is_log_append_time:
        return FoundOffset(max(header.base_offset, start), header.max_timestamp_ms, epoch)
    unpack: Callable[[int, Buffer, int], bytes] = decompress
    size_bytes = len(batch)
    if header.compression:
        packed = memoryview(batch)[HEADER_BYTES : header.size_bytes]
        try:
            records = yield from in_steps(header.compression, packed, DEFAULT_MAX_DECOMPRESSED_BYTES)
        except CompressionError:
            pass  # the reader of the batch reports the damage
        else:
            size_bytes += len(records)
            unpack = prepared(records)
    if size_bytes >= SEARCHED_BYTES:
        yield size_bytes // BYTES_A_MICROSECOND
    found = find_by_timestamp(batch, timestamp_ms, start, unpack)
    return NOT_FOUND if found is None else FoundOffset(*found, epoch)
