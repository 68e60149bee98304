"""Compares the in-memory cache of the newest batches (the tail) with a model of plain lists."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kcore.log import open_engine
from kcore_ext.log.journal import journal_entry, log_pairs, sort_batches
from kcore_ext.log.tail_cache import BATCH_OVERHEAD, PartitionTail, TailCache
from tests.log.batches import batch, fill, key, stamped
from tests.log.conftest import Store

BOUND = 4_000
TAILS = 3


class ReferenceTail:
    """A model of one partition's tail: (base offset, end offset, bytes) of its batches, oldest first."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, bytes]] = []

    def read(self, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> list[bytes] | None:
        first = bisect_right([base for base, _, _ in self.entries], offset) - 1
        if first < 0:
            return None
        found: list[bytes] = []
        size = 0
        for index in range(first, len(self.entries)):
            end = self.entries[index + 1][0] if index + 1 < len(self.entries) else self.entries[index][1]
            data = self.entries[index][2]
            size += len(data)
            if end > limit or (size > max_bytes and (found or not at_least_one)):
                break
            found.append(data)
        return found


class ReferenceCache:
    """A reference cache of several tails. When it is full, it removes the batch that was added first, unless the batch
    was removed before.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.order: deque[tuple[ReferenceTail, tuple[int, int, bytes]]] = deque()

    @property
    def size_bytes(self) -> int:
        return sum(len(data) + BATCH_OVERHEAD for _, (_, _, data) in self.order)

    def add(self, tail: ReferenceTail, entries: list[tuple[int, int, bytes]]) -> None:
        tail.entries.extend(entries)
        self.order.extend((tail, entry) for entry in entries)
        while self.size_bytes > self.max_bytes:
            oldest, entry = self.order.popleft()
            if entry in oldest.entries:
                oldest.entries.remove(entry)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, TAILS - 1), st.lists(st.integers(0, 300), max_size=4)),
        st.tuples(st.just("drop"), st.integers(0, TAILS - 1), st.integers(0, 60)),
        st.tuples(st.just("delete"), st.integers(0, TAILS - 1), st.integers(0, 60)),
        st.tuples(st.just("clear"), st.integers(0, TAILS - 1), st.none()),
        st.tuples(
            st.just("read"),
            st.integers(0, TAILS - 1),
            st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 900), st.booleans()),
        ),
    ),
    max_size=60,
)


@given(steps)
def test_the_tail_equals_its_reference_implementation(steps: list[tuple[str, int, object]]) -> None:
    cache, reference_cache = TailCache(BOUND), ReferenceCache(BOUND)
    tails = [PartitionTail() for _ in range(TAILS)]
    plain = [ReferenceTail() for _ in range(TAILS)]
    ends = [0] * TAILS
    for step, at, argument in steps:
        if step == "add":
            assert isinstance(argument, list)
            entries = []
            for size_bytes in argument:
                records = 1 + size_bytes % 3
                entries.append(
                    (ends[at], ends[at] + records, stamped(batch(records, size_bytes=size_bytes), ends[at], 0))
                )
                ends[at] += records
            cache.add(tails[at], [data for _, _, data in entries])
            reference_cache.add(plain[at], entries)
            assert cache.size_bytes == reference_cache.size_bytes
        elif step == "drop":
            assert isinstance(argument, int)
            tails[at].drop_below(argument)
            plain[at].entries = [entry for entry in plain[at].entries if entry[0] >= argument]
        elif step == "delete":
            assert isinstance(argument, int)
            tails[at].drop_deleted(argument)
            plain[at].entries = [entry for entry in plain[at].entries if entry[1] > argument]
        elif step == "clear":
            tails[at].clear()
            plain[at].entries = []
        else:
            assert isinstance(argument, tuple)
            assert tails[at].read(*argument) == plain[at].read(*argument), argument
        assert [len(tail) for tail in tails] == [len(tail.entries) for tail in plain]


@pytest.mark.parametrize("release", ["drop_below", "drop_deleted", "clear"])
def test_released_batches_do_not_make_the_cache_release_newer_ones(release: str) -> None:
    """A partition whose retention deletes batches early keeps as many of its newest batches as any other partition."""
    one = stamped(batch(), 0, 0)
    cache, tail = TailCache(1_000 * (len(one) + BATCH_OVERHEAD)), PartitionTail()
    for end in range(1, 5_000):
        cache.add(tail, [stamped(batch(), end - 1, 0)])
        if end % 100 == 0:
            getattr(tail, release)(*([] if release == "clear" else [end - 10]))
    kept = 99 if release == "clear" else 109
    assert len(tail) == kept
    assert tail.read(4_999 - kept, 4_999, 1 << 20, True) == [
        stamped(batch(), offset, 0) for offset in range(4_999 - kept, 4_999)
    ]


def test_rounds_in_the_journal_are_sorted_by_partition_and_offset(store: Store) -> None:
    engine = store.engine
    names = [key(partition=partition) for partition in range(3)]
    logs = [engine.open(name) for name in names]
    engine.commit()
    entries = []
    appended: list[list[tuple[int, bytes]]] = [[], [], []]
    for turn in range(4):
        for number, log in enumerate(logs[turn % 2 :], turn % 2):
            data = batch(1 + turn, fill=turn)
            base = log.append(data, 0)
            appended[number].append((base, stamped(data, base, 0)))
        sealed = engine.seal()
        identity = bytes(range(100, 116))
        entry = journal_entry(sealed.partitions, 1 << 20, identity, turn, 1)
        batches = b"".join(
            part.number.to_bytes(4, "big") + data[:8] + len(data).to_bytes(4, "big") + data
            for part in sealed.partitions
            for data in part.batches
        )
        rest = len(batches).to_bytes(4, "big") + turn.to_bytes(4, "big") + (1).to_bytes(4, "big") + identity + batches
        # The first round begins the partitions' epochs, whose metadata the journal cannot store.
        assert entry == (crc32c(rest).to_bytes(4, "big") + rest if turn else None)
        size = sum(len(data) for part in sealed.partitions for data in part.batches)
        assert journal_entry(sealed.partitions, size, identity, turn, 1) == entry
        assert journal_entry(sealed.partitions, size - 1, identity, turn, 1) is None
        with pytest.raises(ValueError, match="an identity has 16 bytes"):
            journal_entry(sealed.partitions, size, identity[1:], turn, 1)
        entries.append(bytes(32) + batches)
        engine.write(sealed)
        engine.finish(sealed)
    by_number: dict[int, list[tuple[int, bytes]]] = {}
    sort_batches(entries[:2], by_number)
    sort_batches(entries[2:], by_number)
    numbers = {log.key: log._number for log in logs}
    assert by_number == {numbers[name]: appended[at] for at, name in enumerate(names)}
    pairs = [
        (number.to_bytes(4, "big") + batches[0][0].to_bytes(8, "big"), b"".join(data for _, data in batches))
        for number, batches in sorted(by_number.items())
    ]
    firsts = [(number, batches[0][0]) for number, batches in sorted(by_number.items())]
    assert log_pairs(entries) == (pairs, firsts, sum(16 + len(data) for batches in appended for _, data in batches))
    before = {number: list(batches) for number, batches in by_number.items()}
    sort_batches(entries, by_number)
    assert by_number == before, "a repeated call adds nothing"


def test_a_log_in_memory_frees_deleted_batches() -> None:
    """The tail cache has the objects of the storage, so a deletion must release them in both."""
    engine = open_engine(None, "memory")
    log = engine.open(key())
    fill(log, engine, 3, records=2)
    first, second, third = log.read(0, 1 << 20)
    held = sys.getrefcount(first)
    assert sys.getrefcount(second) == sys.getrefcount(third) == held
    log.delete_before(3)  # the second of the two offsets of the second batch
    engine.commit()
    engine.reclaim(100)
    assert sys.getrefcount(first) == held - 2  # the storage and the cache have released it
    assert log.read(3, 1 << 20) == [second, third]
    engine.drop(key())
    engine.commit()
    engine.reclaim(100)
    assert sys.getrefcount(second) == sys.getrefcount(third) == held - 2
