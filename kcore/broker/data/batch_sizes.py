"""How far into a partition a number of bytes reaches."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition


def first_offset_within(partition: Partition, excess_bytes: int, slice_batches: int) -> Generator[None, None, int]:
    """The offset of the first batch that stays when at most `excess_bytes` are to go, whole batches from the start.

    Args:
        partition: which.
        excess_bytes: how many bytes are too many; the batch that would make it more stays.
        slice_batches: how many batches are looked at between two pauses.
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
