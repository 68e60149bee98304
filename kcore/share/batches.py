"""State batches: runs of offsets with one delivery state and count, and their combination (KIP-932)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Protocol


class StateBatch(Protocol):
    """The attributes of state batches. Each type of message or record has its own class of state batches."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


Batch = tuple[int, int, int, int]
"""A batch of records with equal state: first offset, last offset, delivery state, delivery count."""

Batches = tuple[Batch, ...]
"""State batches in ascending order of offsets, without overlaps."""

MAX_BATCHES = 20_000
"""Maximum number of state batches of one share partition.

A partition leader tracks at most 10,000 offsets. A snapshot has all batches in one record of at most 1 MB.
"""

_FIRST = itemgetter(0)
_LAST = itemgetter(1)


def batches_of(batches: Iterable[StateBatch]) -> list[Batch]:
    """Returns the batches of a message or record, in its order."""
    return [(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) for batch in batches]


def combine(current: Batches, added: Sequence[Batch], start_offset: int) -> Batches:
    """Combines batches: each offset has the highest (delivery count, delivery state) of all batches that have it.

    The result therefore depends neither on the order of writes nor on their repetition. The steps are the same as in
    Kafka. The steps may leave two adjacent batches with equal state and count separate; reads return both batches.
    Kafka joins such batches at the next write of the share partition; kcore joins them only at a write that overlaps or
    adjoins them.

    Args:
        current: the current batches.
        added: more batches, which may overlap and have any order; a batch that ends before it begins is ignored.
        start_offset: offsets below it are dropped; -1 drops none.
    """
    if start_offset >= 0:
        current = _from(current, start_offset)
    present = [batch if batch[0] >= start_offset else (start_offset, *batch[1:]) for batch in added]
    present = [batch for batch in present if batch[1] >= batch[0]]
    if not present:
        return current
    # Batches of `current` that neither overlap nor adjoin an added batch stay unchanged.
    low = bisect_left(current, min(batch[0] for batch in present) - 1, key=_LAST)
    high = bisect_right(current, max(batch[1] for batch in present) + 1, key=_FIRST)
    while 0 < low < len(current) and _continues(current[low - 1], current[low]):
        low -= 1
    if low >= high and len(present) == 1:
        return (*current[:low], present[0], *current[high:])
    return (*current[:low], *_pairwise([*current[low:high], *present]), *current[high:])


def _from(batches: Batches, start_offset: int) -> Batches:
    """Returns the part of the batches from an offset on."""
    at = bisect_left(batches, start_offset, key=_LAST)
    batches = batches[at:]
    if batches and batches[0][0] < start_offset:
        return ((start_offset, *batches[0][1:]), *batches[1:])
    return batches


def _continues(left: Batch, right: Batch) -> bool:
    """Returns True if `right` begins where `left` ends, with the same delivery state and delivery count."""
    return left[1] + 1 == right[0] and left[2:] == right[2:]


def _pairwise(batches: list[Batch]) -> list[Batch]:
    """Combines batches that need not be sorted.

    As in Kafka, each step combines the first two batches that overlap or are adjacent.
    """
    # Ordered by first offset, last offset, count and state.
    heap = [(first, last, count, state) for first, last, state, count in batches]
    heapify(heap)
    combined: list[Batch] = []
    while heap:
        first, last, count, state = earlier = heappop(heap)
        if not heap or heap[0][0] > last + 1 or (heap[0][0] == last + 1 and heap[0][2:] != earlier[2:]):
            combined.append((first, last, state, count))
            continue
        for piece in _resolve(earlier, heappop(heap)):
            heappush(heap, piece)
    return combined


def _resolve(earlier: Batch, later: Batch) -> list[Batch]:
    """Returns the batches that replace two overlapping batches, or two adjacent batches with equal count and state.

    Here, a batch is (first offset, last offset, count, state). `earlier` sorts before `later`.
    """
    first, last = earlier[:2]
    if earlier[2:] == later[2:]:
        return [(first, max(last, later[1]), *earlier[2:])]
    later_wins = later[2:] >= earlier[2:]
    if first == later[0]:
        if last == later[1] or later_wins:
            return [later]
        return [earlier, (last + 1, *later[1:])]
    if not later_wins:
        return [earlier] if later[1] <= last else [earlier, (last + 1, *later[1:])]
    pieces: list[Batch] = [(first, later[0] - 1, *earlier[2:]), later]
    if later[1] < last:
        pieces.append((later[1] + 1, last, *earlier[2:]))
    return pieces
