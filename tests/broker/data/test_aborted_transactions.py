"""The index of a partition's aborted transactions: searches, removals, and the cost of a search among many entries."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kcore.broker.data import aborted_transactions
from kcore.broker.data.aborted_transactions import MAX_COMPLETE_LIST, AbortedTransaction, AbortedTransactionIndex
from kcore.broker.data.producer_state import ENDED_BEFORE_COPY, BatchMetadata, ProducerStates
from tests.broker.data.context import batch_of


def filled(count: int, producers: int) -> AbortedTransactionIndex:
    """Makes an index of `count` aborted transactions. Each has one record, and a marker `producers` offsets later."""
    index = AbortedTransactionIndex()
    for number in range(count):
        round_, producer_id = divmod(number, producers)
        first = 2 * producers * round_ + producer_id
        index.add(AbortedTransaction(producer_id, first, first + producers, 0))
    return index


def batches_of(*producer_ids: int) -> list[bytes]:
    return [batch_of(b"v", producer=(producer_id, 0), sequence=0) for producer_id in producer_ids]


def firsts(found: list[AbortedTransaction]) -> list[tuple[int, int]]:
    return [(entry.producer_id, entry.first_offset) for entry in found]


def test_few_entries_are_found_by_their_range_alone() -> None:
    """With few entries, a search returns all aborted transactions in the range of offsets. As in Kafka, their producers
    need not have a batch in the range.
    """
    index = filled(MAX_COMPLETE_LIST, 10)
    assert firsts(index.of_batches([], 3, 12)) == [(number, number) for number in range(10)]


def test_the_aborts_of_the_read_producers_are_found_among_many() -> None:
    index = filled(MAX_COMPLETE_LIST + 10, 10)
    assert firsts(index.of_batches(batches_of(7, 3, 7, 99), 3, 12)) == [(3, 3), (7, 7)]
    assert firsts(index.of_batches(batches_of(3), 3, 24)) == [(3, 3), (3, 23)]
    assert index.of_batches(batches_of(3), 14, 23) == []
    assert index.of_batches([], 0, 1_000) == []


def test_a_search_among_many_entries_examines_only_its_producers() -> None:
    """A client may fetch 2,000 partitions, each with hundreds of thousands of aborted transactions. A search examines
    only transactions of the producers in the fetched batches.
    """
    index = filled(2_000, 1_000)

    class Guarded(list[AbortedTransaction]):
        def __getitem__(self, key: Any) -> Any:
            raise AssertionError("a search looked at entries of other producers")

        __iter__ = __getitem__

    index._entries[:] = []
    index._entries.extend([AbortedTransaction(0, 0, 0, 0)] * 2_000)
    for producer_id in range(1_000):
        if producer_id != 5:
            index._by_producer[producer_id] = Guarded()
    assert firsts(index.of_batches(batches_of(5), 0, 4_000)) == [(5, 5), (5, 2_005)]


@pytest.mark.parametrize("seed", range(3))
def test_removals_leave_the_entries_of_a_plain_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_transactions, "MAX_DELETED", 40)
    rng = random.Random(seed)
    index, expected = filled(400, 20), filled(400, 20).entries
    while expected:
        match rng.randrange(3):
            case 0:
                start = expected[min(rng.randrange(50), len(expected) - 1)].last_offset
                gone = [entry for entry in expected if entry.last_offset < start][:40]
                index.delete_before(start)
            case 1:
                end = expected[max(len(expected) - rng.randrange(1, 30), 0)].last_offset
                gone = [entry for entry in expected if entry.last_offset >= end]
                index.truncate(end)
            case _:
                gone = rng.sample(expected, min(rng.randrange(30), len(expected)))
                index.forget({entry.last_offset for entry in gone} | {10**9})
        expected = [entry for entry in expected if entry not in gone]
        assert index.entries == expected
        assert index._last_offsets == [entry.last_offset for entry in expected]
        own = {entry.producer_id: [e for e in expected if e.producer_id == entry.producer_id] for entry in expected}
        assert index._by_producer == own, "the index has no producers without entries"
        for _ in range(5):
            producer_id, offset = rng.randrange(20), rng.randrange(900)
            covering = [e for e in own.get(producer_id, []) if e.first_offset <= offset <= e.last_offset]
            assert index.covers(producer_id, offset) is bool(covering)


def test_the_first_open_transaction_is_found_at_once_after_many_ended() -> None:
    """Iterating over a dictionary visits the slots of removed entries. A recovery of 100,000 markers would visit
    billions of such slots.
    """
    states = ProducerStates()
    count = 3 * ENDED_BEFORE_COPY
    for producer_id in range(count):
        states.add_data(producer_id, 0, BatchMetadata(0, 0, producer_id, producer_id, 0), True)
    dictionaries = {id(states.open_transactions): states.open_transactions}
    for producer_id in range(count - 1):
        states.add_marker(producer_id, 0, count + producer_id, 0, 0, False)
        dictionaries[id(states.open_transactions)] = states.open_transactions
    assert len(dictionaries) == 3, "after each 1,000 ends the dictionary is copied without its empty slots"
    assert states.open_transactions == {count - 1: count - 1}
    assert states.aborted.entries[-1].last_stable_offset == count - 1
