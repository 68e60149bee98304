"""The offset that retention by size gives for a partition."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition


def first_offset_within(partition: Partition, excess_bytes: int, slice_batches: int) -> Generator[None, None, int]:
    """Finds the first batch to keep when at most `excess_bytes` are removed from the start; returns its offset.

    Args:
        partition: the partition.
        excess_bytes: the limit of removed bytes; only whole batches within it are removed.
        slice_batches: number of batches read between two pauses.
    """
    start_offset = partition.log_start_offset
    until_pause = slice_batches
    for base_offset, batch in partition.log.batches(check_crc=False):
        start_offset = max(base_offset, partition.log_start_offset)
        excess_bytes -= len(batch)
        if excess_bytes < 0:
            return start_offset
        until_pause -= 1
        if not until_pause:
            until_pause = slice_batches
            yield
    return partition.high_watermark
