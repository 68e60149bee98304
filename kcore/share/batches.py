"""State batches: runs of offsets with one delivery state and count, and their combination (KIP-932)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Protocol


class StateBatch(Protocol):
    """A state batch of a message or record; each of them has a type of its own."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


Batch = tuple[int, int, int, int]
"""First offset, last offset, delivery state, delivery count."""

Batches = tuple[Batch, ...]
"""Ascending batches without overlaps; contiguous batches differ in state or count."""

_FIRST = itemgetter(0)
_LAST = itemgetter(1)


def batches_of(batches: Iterable[StateBatch]) -> list[Batch]:
    """Returns the batches of a message or record, in its order."""
    return [(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) for batch in batches]


def combine(current: Batches, added: Sequence[Batch], start_offset: int) -> Batches:
    """Combines batches: each offset gets the highest (delivery count, delivery state) of all batches that have it.

    So neither the order of writes nor their repetition matters.

    Args:
        current: the present batches.
        added: more batches, which may overlap and have any order; a batch that ends before it begins is ignored.
        start_offset: offsets below it are dropped; -1 drops none.
    """
    if start_offset >= 0:
        current = _from(current, start_offset)
    present = [batch if batch[0] >= start_offset else (start_offset, *batch[1:]) for batch in added]
    present = [batch for batch in present if batch[1] >= batch[0]]
    if not present:
        return current
    return _merge(current, _disjoint(present))


def _from(batches: Batches, start_offset: int) -> Batches:
    """Returns the part of the batches from an offset on."""
    at = bisect_left(batches, start_offset, key=_LAST)
    batches = batches[at:]
    if batches and batches[0][0] < start_offset:
        return ((start_offset, *batches[0][1:]), *batches[1:])
    return batches


def _disjoint(batches: list[Batch]) -> Batches:
    """Combines batches in any order."""
    if len(batches) == 1:
        return (batches[0],)
    if all(batches[i][1] < batches[i + 1][0] for i in range(len(batches) - 1)):
        joined: list[Batch] = []
        for batch in batches:
            _push(joined, batch)
        return tuple(joined)
    middle = len(batches) // 2
    return _merge(_disjoint(batches[:middle]), _disjoint(batches[middle:]))


def _merge(left: Batches, right: Batches) -> Batches:
    """Combines two sequences of ascending batches. The cost depends on the overlap, and on the length of `left`."""
    if not left:
        return right
    if not right:
        return left
    # Batches of `left` that neither overlap nor touch `right` stay as they are.
    low = bisect_left(left, right[0][0] - 1, key=_LAST)
    high = bisect_right(left, right[-1][1] + 1, key=_FIRST)
    merged: list[Batch] = []
    first, second = list(reversed(left[low:high])), list(reversed(right))
    while first and second:
        a, b = first[-1], second[-1]
        if a[1] < b[0]:
            _push(merged, first.pop())
        elif b[1] < a[0]:
            _push(merged, second.pop())
        elif a[0] < b[0]:
            _push(merged, (a[0], b[0] - 1, a[2], a[3]))
            first[-1] = (b[0], *a[1:])
        elif b[0] < a[0]:
            _push(merged, (b[0], a[0] - 1, b[2], b[3]))
            second[-1] = (a[0], *b[1:])
        else:
            higher = a if (a[3], a[2]) >= (b[3], b[2]) else b
            last = min(a[1], b[1])
            _push(merged, (a[0], last, higher[2], higher[3]))
            for stack, batch in ((first, a), (second, b)):
                stack.pop()
                if batch[1] > last:
                    stack.append((last + 1, *batch[1:]))
    for batch in reversed(first or second):
        _push(merged, batch)
    return (*left[:low], *merged, *left[high:])


def _push(batches: list[Batch], batch: Batch) -> None:
    """Appends a batch, or extends the last one if the new one continues it."""
    if batches:
        last = batches[-1]
        if last[1] + 1 == batch[0] and last[2] == batch[2] and last[3] == batch[3]:
            batches[-1] = (last[0], *batch[1:])
            return
    batches.append(batch)
