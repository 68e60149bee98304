"""Compares the function that combines state batches with a simple model, which is a dictionary of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kcore.share.batches import Batch, Batches, combine

OFFSETS = st.integers(0, 40)
BATCH = st.tuples(OFFSETS, st.integers(0, 8), st.sampled_from([0, 2, 4]), st.integers(1, 4)).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1], drawn[2], drawn[3])
)


def by_offset(batches: list[Batch], start_offset: int) -> dict[int, tuple[int, int]]:
    """Returns (count, state) of each offset: the highest pair of all batches that contain the offset."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(max(first, start_offset), last + 1):
            found[offset] = max(found.get(offset, (count, state)), (count, state))
    return found


def expand(batches: Batches) -> dict[int, tuple[int, int]]:
    """Returns (count, state) of each offset. Fails if the batches overlap or are not ascending."""
    found: dict[int, tuple[int, int]] = {}
    behind = -1
    for first, last, state, count in batches:
        assert behind < first <= last
        behind = last
        found.update(dict.fromkeys(range(first, last + 1), (count, state)))
    return found


@given(st.lists(st.lists(BATCH, max_size=6), max_size=6), st.lists(st.integers(-1, 45), min_size=6, max_size=6))
def test_each_offset_gets_the_highest_count_and_state(writes: list[list[Batch]], starts: list[int]) -> None:
    """Each write adds batches in any order, and may move the start offset."""
    current: Batches = ()
    written: list[Batch] = []
    start_offset = -1
    for batches, start in zip(writes, starts, strict=False):
        start_offset = max(start_offset, start)
        written += batches
        current = combine(current, batches, start_offset)
        expected = by_offset(written, start_offset)
        # A start offset that a later write has moved also cuts what an earlier one left below it.
        assert expand(current) == expected


@given(st.lists(BATCH, max_size=10))
def test_the_order_of_writes_does_not_matter(batches: list[Batch]) -> None:
    one: Batches = ()
    for batch in batches:
        one = combine(one, [batch], 0)
    assert expand(one) == expand(combine((), batches, 0)) == expand(combine((), batches[::-1], 0))


def test_each_relation_of_two_batches_has_its_combination() -> None:
    """Two state batches overlap, touch or contain each other. The test has a case for each possibility, described by a
    comment.
    """
    cases: list[tuple[Batches, Batch, Batches]] = [
        (((0, 4, 0, 1),), (5, 9, 0, 1), ((0, 9, 0, 1),)),  # adjacent and equal
        (((0, 4, 0, 1),), (5, 9, 0, 2), ((0, 4, 0, 1), (5, 9, 0, 2))),  # adjacent, not equal
        (((0, 10, 0, 1),), (5, 8, 2, 1), ((0, 4, 0, 1), (5, 8, 2, 1), (9, 10, 0, 1))),  # inside and higher
        (((5, 8, 2, 1),), (0, 10, 0, 1), ((0, 4, 0, 1), (5, 8, 2, 1), (9, 10, 0, 1))),  # around and lower
        (((0, 4, 2, 1),), (0, 4, 0, 2), ((0, 4, 0, 2),)),  # the same range: the higher count wins
        (((0, 4, 2, 2),), (0, 4, 4, 1), ((0, 4, 2, 2),)),  # the same range, lower
        (((0, 5, 0, 1),), (3, 9, 4, 1), ((0, 2, 0, 1), (3, 9, 4, 1))),  # past the end, higher
        (((0, 5, 0, 2),), (3, 9, 4, 1), ((0, 5, 0, 2), (6, 9, 4, 1))),  # past the end, lower
        (((0, 3, 2, 2),), (0, 9, 0, 1), ((0, 3, 2, 2), (4, 9, 0, 1))),  # the same start, longer, lower
        (((0, 9, 0, 1),), (0, 3, 2, 2), ((0, 3, 2, 2), (4, 9, 0, 1))),  # the same start, shorter, higher
        (((0, 9, 0, 1),), (6, 9, 2, 1), ((0, 5, 0, 1), (6, 9, 2, 1))),  # the same end, higher
        (((0, 9, 0, 2),), (6, 9, 2, 1), ((0, 9, 0, 2),)),  # the same end, lower
    ]
    for current, added, expected in cases:
        assert combine(current, [added], 0) == expected, (current, added)


def test_the_start_offset_cuts_batches() -> None:
    assert combine(((0, 4, 0, 1), (5, 9, 2, 1)), [(8, 12, 2, 2)], 7) == ((7, 7, 2, 1), (8, 12, 2, 2))
    assert combine(((0, 4, 0, 1),), [(2, 6, 4, 1)], 7) == ()
    assert combine(((0, 4, 0, 1),), [], -1) == ((0, 4, 0, 1),)


def test_single_offsets_leave_equal_neighbours_apart_as_in_kafka() -> None:
    """As in Kafka, equal states of adjacent offsets that were written one by one remain separate batches until a later
    write merges them.
    """
    current: Batches = ((0, 2, 0, 1), (3, 3, 2, 1))
    for offset in range(3):
        current = combine(current, [(offset, offset, 4, 2)], 0)
    assert current == ((0, 1, 4, 2), (2, 2, 4, 2), (3, 3, 2, 1))
    assert combine(current, [(3, 3, 2, 2)], 0) == ((0, 2, 4, 2), (3, 3, 2, 2))
