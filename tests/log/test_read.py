"""Reads by limit, position, timestamp and size, from the tail cache and from the storage."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kcore.log import LmdbLogEngine, LogEngine, OffsetOutOfRangeError, TimestampedBatch
from kcore.log import partition as partition_module
from kcore.log.lmdb_reader import LmdbReader
from kcore_ext.log.tail_cache import BATCH_OVERHEAD, TRIM_THRESHOLD, PartitionTail, TailCache
from tests.log.batches import batch, contents, fill, key, stamped
from tests.log.conftest import Store


def test_read_begins_with_the_batch_that_contains_the_offset(engine: LogEngine) -> None:
    log = engine.open(key())
    stored = fill(log, engine, 3, records=4)
    for offset in range(12):
        assert log.read(offset, 1 << 20) == stored[offset // 4 :], offset
    assert log.read(12, 1 << 20) == []


@pytest.mark.parametrize(
    ("max_bytes", "at_least_one", "count"),
    [(0, True, 1), (0, False, 0), (80, False, 0), (81, False, 1), (161, True, 1), (162, True, 2), (10_000, True, 3)],
)
def test_max_bytes_counts_whole_batches(engine: LogEngine, max_bytes: int, at_least_one: bool, count: int) -> None:
    log = engine.open(key())
    stored = fill(log, engine, 3, size_bytes=20)
    assert len(stored[0]) == 81
    assert log.read(0, max_bytes, at_least_one=at_least_one) == stored[:count]


@pytest.mark.parametrize(("upto", "count"), [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (12, 3), (99, 3), (None, 3)])
def test_upto_offset_cuts_before_the_batch_that_reaches_it(engine: LogEngine, upto: int | None, count: int) -> None:
    log = engine.open(key())
    stored = fill(log, engine, 3, records=4)
    assert log.read(0, 1 << 20, upto) == stored[:count]


def test_offsets_outside_the_log_are_refused(engine: LogEngine) -> None:
    log = engine.open(key(), log_start_offset=10)
    fill(log, engine, 1)
    log.append(batch(), 0)
    for offset in (9, 13):
        with pytest.raises(OffsetOutOfRangeError) as error:
            log.read(offset, 10)
        assert (error.value.offset, error.value.log_start_offset, error.value.end_offset) == (offset, 10, 12)
        with pytest.raises(OffsetOutOfRangeError):
            log.batches(offset)
    assert log.read(11, 10) == log.read(12, 10) == []


def test_batches_contains_only_the_batches_between_two_offsets(engine: LogEngine) -> None:
    log = engine.open(key())
    stored = fill(log, engine, 4, records=3)
    assert list(log.batches(4, 9)) == [(3, stored[1]), (6, stored[2])]
    assert list(log.batches(4, 7)) == [(3, stored[1]), (6, stored[2])]
    assert list(log.batches(12)) == []
    assert list(log.batches(0, 0)) == []


def test_a_long_iteration_crosses_slices_and_sees_nothing_appended_since(
    engine: LogEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_module, "SLICE_BATCHES", 7)
    log = engine.open(key())
    stored = fill(log, engine, 50, records=2)
    iteration = log.batches()
    seen = [next(iteration)[1] for _ in range(10)]
    fill(log, engine, 5)
    seen.extend(data for _, data in iteration)
    assert seen == stored


def test_retention_that_overtakes_an_iteration_is_reported(engine: LogEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "SLICE_BATCHES", 4)
    log = engine.open(key())
    fill(log, engine, 20)
    iteration = log.batches()
    next(iteration)
    log.delete_before(18)
    engine.commit()
    while engine.reclaim(5):
        pass
    with pytest.raises(OffsetOutOfRangeError):
        list(iteration)


def test_a_read_contains_no_batches_of_neighbouring_partitions(engine: LogEngine) -> None:
    logs = [engine.open(key(number)) for number in range(3)]
    engine.commit()
    outer = [fill(logs[0], engine, 2), fill(logs[2], engine, 2)]
    assert contents(logs[1]) == []
    middle = fill(logs[1], engine, 1)
    assert [contents(log) for log in logs] == [outer[0], middle, outer[1]]
    assert logs[1].find_by_timestamp(0) == TimestampedBatch(0, 1000)
    assert [log.size_bytes() for log in logs] == [162, 81, 162]


def test_a_search_by_timestamp_finds_the_first_batch_that_reaches_it(engine: LogEngine) -> None:
    log = engine.open(key())
    assert log.find_by_timestamp(0) is None
    assert log.max_timestamp_batch() is None
    stamps = [(number * 37) % 211 for number in range(300)]
    for stamp in stamps:
        log.append(batch(2, max_timestamp_ms=stamp), 0)
    engine.commit()

    def expected(timestamp_ms: int, start: int = 0) -> TimestampedBatch | None:
        hits = [(at * 2, stamp) for at, stamp in enumerate(stamps) if stamp >= timestamp_ms and at * 2 + 1 >= start]
        return TimestampedBatch(*hits[0]) if hits else None

    for timestamp_ms in (-5, 0, 1, 100, 209, 210, 211):
        assert log.find_by_timestamp(timestamp_ms) == expected(timestamp_ms)
    assert log.max_timestamp_batch() == expected(210)
    assert log.size_bytes() == 300 * 81
    for start in (1, 63, 128, 131, 400, 599):
        log.delete_before(start)
        engine.commit()
        for timestamp_ms in (0, 100, 205, 210):
            assert log.find_by_timestamp(timestamp_ms) == expected(timestamp_ms, start), (start, timestamp_ms)
        assert log.size_bytes() == (300 - start // 2) * 81
    stamps.append(5000)
    log.append(batch(2, max_timestamp_ms=5000), 0)
    engine.commit()
    assert log.max_timestamp_batch() == TimestampedBatch(600, 5000)


def test_readers_on_other_threads_see_whole_prefixes_while_the_owner_commits(store: Store) -> None:
    """While a writer commits, the map grows and retention deletes, a reader sees contiguous whole batches below the
    high watermark.
    """
    engine = store.engine
    log = engine.open(key())
    fill(log, engine, 1)
    stop = threading.Event()
    failures: list[str] = []
    rounds = [0]

    def read() -> None:
        while not stop.is_set():
            low, high = log.log_start_offset, log.high_watermark
            try:
                bases = [base for base, _ in log.batches(low, high)]
                tail = log.read(max(high - 3, low), 1 << 20, high)
            except OffsetOutOfRangeError:
                continue
            if bases != list(range(bases[0], high)) or bases[0] > low or not tail:
                failures.append(f"{low} {high} {bases[:3]} {len(bases)} {len(tail)}")
            rounds[0] += 1

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        turn = 0
        while turn < 150 or rounds[0] < 20:
            fill(log, engine, 3, size_bytes=1000)
            if turn % 10 == 9:
                log.delete_before(log.high_watermark - 10)
                engine.commit()
                engine.reclaim(20)
            turn += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert engine.verify(deep=True) == []


def test_a_round_written_on_another_thread_is_readable_after_it_is_finished(store: Store) -> None:
    engine = store.engine
    log = engine.open(key())
    expected = []
    for turn in range(50):
        data = batch(fill=turn)
        expected.append(stamped(data, log.append(data, 0), 0))
        sealed = engine.seal()
        thread = threading.Thread(target=engine.write, args=(sealed,))
        thread.start()
        data = batch(fill=turn)
        expected.append(stamped(data, log.append(data, 0), 0))
        assert contents(log) == expected[: log.high_watermark]
        thread.join()
        engine.finish(sealed)
    engine.commit()
    assert contents(store.reopen().open(key())) == expected


def test_the_tail_holds_the_newest_batches_within_its_bound() -> None:
    cache, first, second = TailCache((81 + BATCH_OVERHEAD) * 10), PartitionTail(), PartitionTail()
    stored = [stamped(batch(2), 2 * at, 0) for at in range(12)]
    cache.add(first, stored[:4])
    cache.add(second, stored[:8])
    assert cache.size_bytes == (81 + BATCH_OVERHEAD) * 10
    assert first.read(3, 8, 1 << 20, True) is None
    assert first.read(4, 8, 1 << 20, True) == stored[2:4]
    assert first.read(4, 7, 1 << 20, True) == stored[2:3]
    assert second.read(0, 16, 1 << 20, True) == stored[:8]


def test_the_tail_holds_no_references_to_evicted_batches() -> None:
    cache, tail = TailCache((81 + BATCH_OVERHEAD) * 4), PartitionTail()
    count = TRIM_THRESHOLD * 3
    for at in range(count):
        cache.add(tail, [stamped(batch(), at, 0)])
    assert len(tail) == 4
    assert tail.read(count - 4, count, 1 << 20, True) == [stamped(batch(), at, 0) for at in range(count - 4, count)]
    assert tail.read(count - 5, count, 1 << 20, True) is None
    cache.add(tail, [stamped(batch(size_bytes=1000), count, 0)])
    assert cache.size_bytes == 0


def test_the_tail_refuses_bytes_without_a_batch_header() -> None:
    cache, tail = TailCache(1 << 20), PartitionTail()
    with pytest.raises(ValueError, match=r"^a batch has at least 61 bytes, not 60$"):
        cache.add(tail, [bytes(60)])
    assert (len(tail), cache.size_bytes) == (0, 0)


def test_a_stored_batch_that_does_not_fit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read whose limit is smaller than the first batch does not copy this batch from the storage.

    Otherwise a request that lists a partition 20,000 times with a small limit would copy 1 MB each time.
    """
    engine = LmdbLogEngine(tmp_path / "data", "os", tail_size_bytes=0)
    log = engine.open(key())
    stored = fill(log, engine, 2, size_bytes=20)
    reads = []
    original = LmdbReader.slice
    monkeypatch.setattr(LmdbReader, "slice", lambda *arguments: reads.append(arguments) or original(*arguments))
    assert log.read(0, 80, at_least_one=False) == []
    assert reads == []
    assert log.read(0, 81, at_least_one=False) == stored[:1]
    assert log.read(0, 80) == stored[:1]
    assert len(reads) == 2
    engine.close()


def test_one_read_returns_a_bounded_number_of_batches() -> None:
    tail, cache = PartitionTail(), TailCache(1 << 30)
    count = 15_010
    cache.add(tail, [stamped(batch(1), at, 0) for at in range(count)])
    assert [len(tail.read(start, count, 1 << 30, True) or ()) for start in (0, 9, 10, 15_000)] == [
        15_000, 15_000, 15_000, 10,
    ]  # fmt: skip
