"""Snapshots in chunks, and the release of disk space, with every engine."""

from __future__ import annotations

import pytest

from kcore.log import CorruptLogError, LogEngine, LogError, OffsetOutOfRangeError, SnapshotInfo
from tests.log.batches import batch, contents, fill, key
from tests.log.conftest import Store


def put(log, engine: LogEngine, offset: int, chunks: list[bytes]) -> None:
    for index, chunk in enumerate(chunks):
        log.put_snapshot_chunk(offset, index, chunk)
        engine.commit()


def test_a_snapshot_is_visible_once_its_switch_is_committed(store: Store) -> None:
    engine = store.engine
    log = engine.open(key())
    fill(log, engine, 5)
    put(log, engine, 3, [b"one", b"two"])
    assert log.snapshot is None
    log.commit_snapshot(3)
    assert log.snapshot is None
    assert list(log.read_snapshot()) == []
    engine.commit()
    assert log.snapshot == SnapshotInfo(3, 2, 6, log.snapshot.crc)
    again = store.reopen().open(key())
    assert list(again.read_snapshot()) == [b"one", b"two"]
    assert store.engine.verify(deep=True) == []


def test_the_previous_snapshot_is_readable_until_the_next_is_committed(store: Store) -> None:
    engine = store.engine
    log = engine.open(key())
    fill(log, engine, 9)
    put(log, engine, 3, [b"a"])
    log.commit_snapshot(3)
    engine.commit()
    put(log, engine, 7, [b"b", b"c"])
    log.drop_old_snapshots()
    while engine.reclaim(10):
        pass
    assert list(log.read_snapshot()) == [b"a"]
    log.commit_snapshot(7)
    engine.commit()
    log.drop_old_snapshots()
    while engine.reclaim(10):
        pass
    assert list(store.reopen().open(key()).read_snapshot()) == [b"b", b"c"]


def test_chunks_of_an_abandoned_snapshot_are_reclaimed_after_the_next_opening(store: Store) -> None:
    engine = store.engine
    log = engine.open(key())
    fill(log, engine, 9)
    for offset in (2, 5):
        put(log, engine, offset, [b"x" * 1000] * 4)
    log.commit_snapshot(5)
    engine.commit()
    put(log, engine, 7, [b"y" * 1000] * 3)
    engine = store.reopen()
    log = engine.open(key())
    assert list(log.read_snapshot()) == [b"x" * 1000] * 4
    calls = 1
    while engine.reclaim(2):
        calls += 1
    assert calls == 4
    storage = store.engine.inner._storage if "faulty" in store.kind else engine._storage
    assert [storage.snapshot_chunk(0, offset, 0) is None for offset in (2, 5, 7)] == [True, False, True]


def test_a_snapshot_begins_again_after_a_failed_commit(engine: LogEngine) -> None:
    log = engine.open(key())
    fill(log, engine, 3)
    put(log, engine, 2, [b"a"])
    log.put_snapshot_chunk(2, 1, b"b")
    engine.fail(engine.seal(), LogError("no"))
    with pytest.raises(LogError, match="chunk 0"):
        log.put_snapshot_chunk(2, 1, b"b")
    with pytest.raises(LogError, match="no chunk"):
        log.commit_snapshot(2)
    put(log, engine, 2, [b"c", b"d"])
    log.commit_snapshot(2)
    engine.commit()
    assert list(log.read_snapshot()) == [b"c", b"d"]


def test_chunks_are_accepted_only_in_order_and_at_committed_offsets(engine: LogEngine) -> None:
    log = engine.open(key())
    log.append(batch(5), 0)
    with pytest.raises(OffsetOutOfRangeError):
        log.put_snapshot_chunk(1, 0, b"")
    engine.commit()
    log.put_snapshot_chunk(5, 0, b"a")
    for offset, index in ((5, 2), (4, 1)):
        with pytest.raises(LogError, match="chunk 1 at offset 5"):
            log.put_snapshot_chunk(offset, index, b"b")
    with pytest.raises(LogError, match="no chunk"):
        log.commit_snapshot(4)


def test_a_snapshot_that_is_replaced_while_it_is_read_is_reported(engine: LogEngine) -> None:
    log = engine.open(key())
    fill(log, engine, 9)
    put(log, engine, 3, [b"a", b"b"])
    log.commit_snapshot(3)
    engine.commit()
    reading = log.read_snapshot()
    assert next(reading) == b"a"
    put(log, engine, 7, [b"c"])
    log.commit_snapshot(7)
    log.drop_old_snapshots()
    engine.commit()
    while engine.reclaim(10):
        pass
    with pytest.raises(CorruptLogError, match="chunk 1 of 2 is missing"):
        next(reading)


def test_reclaim_works_in_bounded_steps_and_only_below_the_log_start(store: Store) -> None:
    engine = store.engine
    log, gone, kept = (engine.open(key(number)) for number in range(3))
    stored = fill(log, engine, 10, records=2)
    fill(gone, engine, 7)
    whole = fill(kept, engine, 5)
    used = engine.stats().used_bytes
    assert engine.reclaim(100) is False
    log.delete_before(13)
    engine.drop(key(1))
    assert engine.reclaim(100) is False, "nothing is committed yet"
    engine.commit()
    steps = 1
    while engine.reclaim(4):
        steps += 1
        assert contents(log) == stored[6:]
    assert steps == 4, "6 deleted batches and 7 dropped ones, 4 at a time"
    assert (contents(log), contents(kept)) == (stored[6:], whole)
    assert store.kind not in ("memory", "faulty-memory") or engine.stats().used_bytes == used - 13 * 81
    engine = store.reopen()
    assert engine.reclaim(100) is False
    assert contents(engine.open(key(0))) == stored[6:]
    assert engine.verify(deep=True) == []


def test_reclaim_continues_after_a_restart(store: Store) -> None:
    engine = store.engine
    log, gone = engine.open(key(0)), engine.open(key(1))
    stored = fill(log, engine, 10)
    fill(gone, engine, 10)
    log.delete_before(10)
    engine.drop(key(1))
    engine.commit()
    assert engine.reclaim(3) is True
    engine = store.reopen()
    log = engine.open(key(0))
    assert (log.log_start_offset, log.end_offset, contents(log)) == (10, 10, [])
    steps = 1
    while engine.reclaim(3):
        steps += 1
    assert steps == 6, "17 left, 3 at a time"
    engine = store.reopen()
    assert engine.reclaim(3) is False
    log = engine.open(key(0))
    assert (log.log_start_offset, log.end_offset) == (10, 10)
    assert fill(log, engine, 1) != stored[:1]
    assert engine.verify(deep=True) == []


def test_deleted_space_is_used_again(store: Store) -> None:
    """The file does not grow while a queue is repeatedly filled and emptied."""
    if "lmdb" not in store.kind:
        pytest.skip("no file")
    engine = store.engine
    log = engine.open(key())
    sizes = []
    for _ in range(12):
        for _ in range(5):
            for _ in range(20):
                log.append(batch(size_bytes=1000), 0)
            engine.commit()
        log.delete_before(log.high_watermark)
        engine.commit()
        while engine.reclaim(50):
            pass
        sizes.append(engine.stats().used_bytes)
    assert sizes[-1] <= sizes[2] * 1.5


def test_reclaim_keeps_a_new_snapshot_at_the_offset_of_an_abandoned_one(store: Store) -> None:
    engine = store.engine
    fill(engine.open(key()), engine, 9)
    put(engine.open(key()), engine, 7, [b"old"] * 4)
    engine = store.reopen()
    log = engine.open(key())
    log.put_snapshot_chunk(7, 0, b"new 0")
    engine.commit()
    assert engine.reclaim(100) is False
    log.put_snapshot_chunk(7, 1, b"new 1")
    log.commit_snapshot(7)
    engine.commit()
    assert list(log.read_snapshot()) == [b"new 0", b"new 1"]
    assert list(store.reopen().open(key()).read_snapshot()) == [b"new 0", b"new 1"]
