"""Rewrites of a log by compaction: replaced batches, gaps that readers skip, the compaction mark, and failures."""

from __future__ import annotations

import pytest

from kcore.log import CorruptLogError, InvalidBatchError, LogEngine, LogError, OffsetOutOfRangeError, PartitionLog
from kcore.log.engine import StagedLogEngine
from kcore.log.faults import FaultInjectingEngine, SimulatedCrashError
from kcore.log.write_set import PartitionMeta
from tests.log.batches import batch, contents, fill, key, stamped
from tests.log.conftest import Store


def reaching(base_offset: int, end_offset: int, size_bytes: int = 20, max_timestamp_ms: int = 1000) -> bytes:
    """Makes a batch like those that compaction writes: it covers the offsets up to `end_offset`, even those of removed
    records.
    """
    data = batch(end_offset - base_offset, size_bytes, max_timestamp_ms, fill=7)
    return stamped(data, base_offset, 0)


def bases(log: PartitionLog) -> list[int]:
    return [base for base, _ in log.batches()]


def compacted(engine: LogEngine) -> tuple[PartitionLog, list[bytes]]:
    """Commits ten batches of two offsets each, and then replaces some of them as a compaction does.

    The batches of offsets [4, 10) are removed, those of [10, 14) become one batch, and the batch of [0, 2) becomes
    smaller.
    """
    log = engine.open(key())
    stored = fill(log, engine, 10, records=2)
    smaller, merged = reaching(0, 2, 3), reaching(10, 14)
    log.rewrite({0: smaller, 4: None, 6: None, 8: None, 10: merged, 12: None}, 14)
    assert contents(log) == stored, "a staged rewrite is visible before its commit"
    engine.commit()
    return log, [smaller, stored[1], merged, *stored[7:]]


def test_readers_see_the_rewritten_batches_and_skip_gaps(store: Store) -> None:
    log, kept = compacted(store.engine)
    for _ in range(2):
        assert contents(log) == kept
        assert (log.log_start_offset, log.end_offset, log.high_watermark, log.cleaned_to) == (0, 20, 20, 14)
        assert log.read(0, 1) == kept[:1]
        assert log.read(5, 1 << 20) == kept[2:], "a read at an offset in a gap begins after the gap"
        assert log.read(4, 1 << 20, 10) == []
        assert log.read(11, 1) == kept[2:3]
        assert [base for base, _ in log.batches(6, 16)] == [10, 14]
        assert [base for base, _ in log.batches(5, 8)] == []
        assert [one[:2] for one in log.summaries(3, 3)] == [(2, 3), (10, 13), (14, 15)]
        assert log.size_bytes() == sum(map(len, kept))
        assert store.engine.verify(deep=True) == []
        log = store.reopen().open(key())


def test_a_gap_above_the_compaction_mark_is_damage(store: Store) -> None:
    log, _ = compacted(store.engine)
    assert log.cleaned_to == 14
    inner = store.engine.inner if isinstance(store.engine, FaultInjectingEngine) else store.engine
    assert isinstance(inner, StagedLogEngine)
    handle = inner._logs[key()]
    handle._meta = handle._durable_meta = handle._meta._replace(cleaned_to=9)  # type: ignore[attr-defined]
    with pytest.raises(CorruptLogError, match="no batch contains"):
        list(log.batches())
    with pytest.raises(CorruptLogError, match="no batch contains"):
        log.read(5, 100)
    assert [(one.kind, one.offset) for one in store.engine.verify(deep=True)] == [("gap", 4)]


def test_a_staged_rewrite_is_discarded_by_a_rollback_and_by_a_failed_commit() -> None:
    store_engine = FaultInjectingEngine(Store("memory", None).engine)  # type: ignore[arg-type]
    log = store_engine.open(key())
    stored = fill(log, store_engine, 4)
    log.rewrite({1: None}, 3)
    store_engine.rollback()
    store_engine.commit()
    log.rewrite({1: None}, 3)
    store_engine.fail_commit()
    with pytest.raises(LogError):
        store_engine.commit()
    assert (contents(log), log.cleaned_to) == (stored, 0)
    log.append(batch(), 0)
    store_engine.commit()
    assert contents(log)[:4] == stored


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", ["memory", "lmdb-os"])
def test_a_crash_leaves_the_whole_rewrite_or_nothing(kind: str, after: bool, tmp_path: object) -> None:
    store = Store(kind, tmp_path / "data")  # type: ignore[operator]
    engine = FaultInjectingEngine(store.engine)
    log = engine.open(key())
    stored = fill(log, engine, 6)
    log.rewrite({0: None, 1: reaching(1, 4), 2: None, 3: None}, 4)
    appended = batch(fill=9)
    log.append(appended, 0)
    engine.crash_commit(after=after)
    with pytest.raises(SimulatedCrashError):
        engine.commit()
    log = store.reopen().open(key())
    last = stamped(appended, 6, 0)
    assert contents(log) == ([reaching(1, 4), *stored[4:], last] if after else stored)
    assert log.cleaned_to == (4 if after else 0)
    assert store.engine.verify(deep=True) == []
    store.engine.close()


def test_a_rewrite_of_the_last_batch_or_with_invalid_bytes_is_refused(engine: LogEngine) -> None:
    log = engine.open(key())
    fill(log, engine, 5, records=2)
    with pytest.raises(OffsetOutOfRangeError):
        log.rewrite({0: None}, 10)
    with pytest.raises(InvalidBatchError, match="base offset 2"):
        log.rewrite({4: reaching(2, 4)}, 8)
    with pytest.raises(InvalidBatchError, match="ends at 10"):
        log.rewrite({6: reaching(6, 10)}, 8)
    with pytest.raises(InvalidBatchError, match="too few"):
        log.rewrite({0: b"abc"}, 8)
    assert not engine.dirty


def test_retention_may_end_in_a_gap_and_overrides_a_rewrite(store: Store) -> None:
    log, kept = compacted(store.engine)
    log.delete_before(7)
    store.engine.commit()
    while store.engine.reclaim(1):
        pass
    log.rewrite({0: reaching(0, 2), 2: None}, 14)
    store.engine.commit()
    for _ in range(2):
        assert (log.log_start_offset, contents(log)) == (7, kept[2:])
        assert store.engine.verify(deep=True) == store.engine.verify() == []
        log = store.reopen().open(key())


def test_an_iteration_continues_while_the_log_is_compacted(engine: LogEngine) -> None:
    log = engine.open(key())
    fill(log, engine, 1200)
    iteration = log.batches()
    seen = [next(iteration)[0] for _ in range(700)]  # two slices of the storage have been read by now
    first_unread = 1024
    log.rewrite(dict.fromkeys(range(1190)) | {1020: reaching(1020, 1030)}, 1190)
    engine.commit()
    rest = [base for base, _ in iteration]
    assert seen == list(range(700))
    assert rest == [*range(700, first_unread), 1020, *range(1190, 1200)], "merged batches are read in their new form"
    assert bases(log) == [1020, *range(1190, 1200)]


def test_a_search_by_timestamp_reads_the_remaining_batches(engine: LogEngine) -> None:
    log = engine.open(key())
    for number in range(6):
        log.append(batch(max_timestamp_ms=100 * (number + 1)), 0)
    engine.commit()
    assert log.find_by_timestamp(150) == (1, 200)
    empty = bytearray(reaching(2, 4, 0, 900))
    empty[57:61] = bytes(4)  # no records, so there is no timestamp of one
    log.rewrite({1: None, 2: bytes(empty), 3: None}, 4)
    engine.commit()
    assert log.find_by_timestamp(150) == (4, 500)
    assert log.max_timestamp_batch() == (5, 600)


@pytest.mark.parametrize("cleaned_to", [0, 1, 1 << 40])
def test_metadata_round_trip_with_the_compaction_mark(cleaned_to: int) -> None:
    meta = PartitionMeta(3, 5, (), None, cleaned_to)
    assert PartitionMeta.decode(meta.encode()) == meta
    with pytest.raises(ValueError, match="unknown flags"):
        PartitionMeta.decode(meta.encode()[:12] + b"\x04" + meta.encode()[13:])
