"""The offsets of aborted transactions. A share group with read_committed does not deliver the records at these offsets
(KIP-932).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore_ext.batch import parse_control, parse_header

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition


def aborted_ranges(
    partition: Partition, batches: list[bytes], first_offset: int, end_offset: int
) -> list[tuple[int, int]]:
    """Returns the first and last offsets of the batches that belong to aborted transactions.

    Args:
        partition: the partition of the batches.
        batches: contiguous log batches below the last stable offset.
        first_offset: the first offset of interest.
        end_offset: the offset after the last batch.
    """
    transactions = sorted(
        partition.producers.aborted.of_batches(batches, first_offset, end_offset), key=lambda one: one.first_offset
    )
    aborted: set[int] = set()
    ranges: list[tuple[int, int]] = []
    at = 0
    for batch in batches:
        header = parse_header(batch)
        while at < len(transactions) and transactions[at].first_offset <= header.last_offset:
            aborted.add(transactions[at].producer_id)
            at += 1
        if header.is_control:
            if header.record_count and parse_control(batch).is_end_marker:
                aborted.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborted:
            ranges.append((header.base_offset, header.last_offset))
    return ranges
