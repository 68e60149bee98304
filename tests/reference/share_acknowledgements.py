"""Reference implementation of the checks and counts of acknowledgement batches."""

from __future__ import annotations

from collections.abc import Sequence

from kcore.broker.share.acknowledgements import AcknowledgementBatch

FIRST_VERSION_WITH_RENEW = 2
REJECT = 3
RENEW = 4


def valid(batches: Sequence[AcknowledgementBatch], version: int, renews: bool) -> bool:
    """Returns True if the batches of a partition are well-formed and in order."""
    highest = RENEW if version >= FIRST_VERSION_WITH_RENEW else REJECT
    previous = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        count = len(types)
        if first > last or first < previous or not count or (count > 1 and count != last - first + 1):
            return False
        if min(types) < 0 or max(types) > highest or (RENEW in types and not renews):
            return False
        previous = last
    return True


def count_types(batches: Sequence[AcknowledgementBatch], totals: list[int]) -> None:
    """Adds the number of acknowledged offsets of each type to `totals`."""
    for batch in batches:
        types = batch.acknowledge_types
        if len(types) == 1:
            totals[types[0]] += batch.last_offset - batch.first_offset + 1
        else:
            for kind in types:
                totals[kind] += 1
