"""Appends that are staged, committed or failed: offsets, epochs and metadata before and after. Runs with each log
engine.
"""

from __future__ import annotations

import pytest

from kcore.log import (
    EpochEntry,
    FencedLeaderEpochError,
    InvalidBatchError,
    LogClosedError,
    LogEngine,
    LogError,
    OffsetOutOfRangeError,
    PartitionDroppedError,
)
from tests.log.batches import batch, contents, fill, key, stamped
from tests.log.conftest import Store


def fail_round(engine: LogEngine) -> None:
    """Fails the round, as a driver does if `write` raises."""
    engine.fail(engine.seal(), LogError("no"))


def test_append_stamps_offset_and_epoch_in_place_and_outside_the_crc(engine: LogEngine) -> None:
    log = engine.open(key())
    first, second = batch(3), batch(2, fill=7)
    before = bytes(second)
    assert (log.append(first, 4), log.append(second, 4)) == (0, 3)
    assert bytes(second) == stamped(before, 3, 4)
    engine.commit()
    assert contents(log) == [stamped(first, 0, 4), stamped(before, 3, 4)]
    assert engine.verify(deep=True) == []


def test_staged_batches_are_counted_but_not_readable(engine: LogEngine) -> None:
    log = engine.open(key())
    engine.commit()
    log.append(batch(3), 0)
    assert (log.log_start_offset, log.high_watermark, log.end_offset) == (0, 0, 3)
    assert log.read(0, 1 << 20) == []
    assert list(log.batches()) == []
    engine.commit()
    assert (log.log_start_offset, log.high_watermark, log.end_offset) == (0, 3, 3)
    assert len(log.read(0, 1 << 20)) == 1


def test_the_callers_buffer_may_be_reused(engine: LogEngine) -> None:
    log = engine.open(key())
    data = batch(fill=1)
    log.append(data, 0)
    expected = bytes(data)
    data[:] = bytes(len(data))
    engine.commit()
    assert contents(log) == [expected]


@pytest.mark.parametrize(
    "data",
    [b"", batch()[:60], batch() + b"x", batch()[:-1], batch()[:16] + b"\x01" + batch()[17:], batch(records=0)],
    ids=["empty", "short", "long", "cut", "magic 1", "negative delta"],
)
def test_bytes_that_are_not_exactly_one_batch_are_refused_and_change_nothing(engine: LogEngine, data: bytes) -> None:
    log = engine.open(key())
    engine.commit()
    with pytest.raises(InvalidBatchError):
        log.append(bytearray(data), 5)
    assert (log.end_offset, log.leader_epoch, engine.dirty) == (0, -1, False)


def test_an_older_epoch_is_fenced_and_a_newer_one_is_recorded_with_its_start_offset(store: Store) -> None:
    log = store.engine.open(key())
    fill(log, store.engine, 2, leader_epoch=3, records=5)
    log.append(batch(), 7)
    with pytest.raises(FencedLeaderEpochError) as fenced:
        log.append(batch(), 6)
    assert (fenced.value.leader_epoch, fenced.value.current_epoch) == (6, 7)
    assert (log.leader_epoch, log.end_offset) == (7, 11)
    store.engine.commit()
    again = store.reopen().open(key())
    assert again.epoch_entries == [EpochEntry(3, 0), EpochEntry(7, 10)]
    assert again.leader_epoch == 7


def test_a_failed_round_discards_everything_staged(engine: LogEngine) -> None:
    kept, other = engine.open(key(0)), engine.open(key(1))
    stored = fill(kept, engine, 2, leader_epoch=1)
    engine.put_meta("name", b"old")
    engine.commit()
    kept.append(batch(), 9)
    kept.delete_before(1)
    engine.put_meta("name", b"new")
    engine.put_meta("more", b"x")
    created = engine.open(key(2))
    created.append(batch(), 0)
    engine.drop(key(1))
    fail_round(engine)
    assert (kept.log_start_offset, kept.high_watermark, kept.end_offset, kept.leader_epoch) == (0, 2, 2, 1)
    assert kept.epoch_entries == [EpochEntry(1, 0)]
    assert contents(kept) == stored
    assert engine.get_meta("name") == b"old"
    assert engine.meta_names() == ["name"]
    assert engine.partitions() == [key(0), key(1)]
    assert engine.get(key(2)) is None
    assert engine.open(key(1)) is other
    assert other.append(batch(), 0) == 0
    assert not created.end_offset


def test_appends_staged_after_a_failing_round_are_discarded_with_it(engine: LogEngine) -> None:
    log = engine.open(key())
    fill(log, engine, 1)
    log.append(batch(2), 1)
    engine.put_meta("a", b"1")
    sealed = engine.seal()
    assert log.append(batch(3), 2) == 3
    engine.put_meta("a", b"2")
    assert engine.get_meta("a") == b"2"
    engine.fail(sealed, LogError("no"))
    assert (log.high_watermark, log.end_offset, log.leader_epoch) == (1, 1, 0)
    assert engine.get_meta("a") is None
    assert not engine.dirty
    assert log.append(batch(), 0) == 1


def test_appends_during_the_write_of_a_round_belong_to_the_next_round(store: Store) -> None:
    engine = store.engine
    log = engine.open(key())
    log.append(batch(2), 0)
    sealed = engine.seal()
    assert log.append(batch(3), 1) == 2
    engine.write(sealed)
    assert log.high_watermark == 0
    engine.finish(sealed)
    assert (log.high_watermark, log.end_offset) == (2, 5)
    assert engine.dirty
    engine.commit()
    assert log.high_watermark == 5
    again = store.reopen().open(key())
    assert (again.end_offset, again.epoch_entries) == (5, [EpochEntry(0, 0), EpochEntry(1, 2)])


def test_rollback_does_not_affect_the_round_that_is_being_written(engine: LogEngine) -> None:
    log = engine.open(key())
    log.append(batch(2), 3)
    sealed = engine.seal()
    log.append(batch(2), 4)
    engine.rollback()
    assert (log.end_offset, log.leader_epoch) == (2, 3)
    engine.write(sealed)
    engine.finish(sealed)
    assert (log.high_watermark, log.end_offset) == (2, 2)


def test_a_second_round_is_refused_until_the_first_one_ends(engine: LogEngine) -> None:
    engine.open(key())
    sealed = engine.seal()
    with pytest.raises(LogError, match="neither finished nor failed"):
        engine.seal()
    engine.write(sealed)
    engine.finish(sealed)
    engine.commit()


def test_a_handle_whose_creation_failed_creates_the_partition_with_its_next_append(store: Store) -> None:
    engine = store.engine
    log = engine.open(key(), log_start_offset=40)
    fail_round(engine)
    assert engine.partitions() == []
    assert log.append(batch(), 2) == 40
    assert engine.partitions() == [key()]
    engine.commit()
    again = store.reopen().get(key())
    assert again is not None
    assert (again.log_start_offset, again.end_offset, again.leader_epoch) == (40, 41, 2)


def test_a_dropped_partition_is_absent_at_once_and_after_a_restart(store: Store) -> None:
    engine = store.engine
    log = engine.open(key())
    fill(log, engine, 3)
    engine.drop(key())
    for use in (lambda: log.append(batch(), 0), lambda: log.read(0, 100), lambda: list(log.batches())):
        with pytest.raises(PartitionDroppedError):
            use()
    assert engine.partitions() == []
    engine.commit()
    engine = store.reopen()
    assert engine.get(key()) is None
    again = engine.open(key())
    assert (again.end_offset, again.epoch_entries, contents(again)) == (0, [], [])
    fill(again, engine, 1, fill=9)
    assert len(contents(store.reopen().open(key()))) == 1


def test_a_partition_dropped_and_created_in_one_round_has_only_new_records(store: Store) -> None:
    engine = store.engine
    fill(engine.open(key()), engine, 3)
    engine.drop(key())
    stored = fill(engine.open(key()), engine, 1, fill=5)
    assert contents(store.reopen().open(key())) == stored


def test_a_failed_drop_restores_the_old_handle_and_closes_the_new_one(engine: LogEngine) -> None:
    old = engine.open(key())
    stored = fill(old, engine, 2)
    engine.drop(key())
    new = engine.open(key())
    new.append(batch(), 0)
    fail_round(engine)
    assert engine.get(key()) is old
    assert contents(old) == stored
    with pytest.raises(PartitionDroppedError):
        new.append(batch(), 0)


def test_dropping_a_partition_that_was_never_committed_needs_no_commit(engine: LogEngine) -> None:
    engine.open(key())
    engine.drop(key())
    assert not engine.dirty
    engine.drop(key(99))
    assert engine.partitions() == []


def test_delete_before_keeps_the_batch_that_contains_the_offset_and_moves_the_epochs(store: Store) -> None:
    engine = store.engine
    log = engine.open(key())
    stored = [*fill(log, engine, 2, leader_epoch=1, records=10), *fill(log, engine, 2, leader_epoch=4, records=10)]
    log.delete_before(15)
    assert log.log_start_offset == 0
    engine.commit()
    assert (log.log_start_offset, log.epoch_entries) == (15, [EpochEntry(1, 15), EpochEntry(4, 20)])
    assert contents(log) == stored[1:]
    log.delete_before(9)
    assert not engine.dirty
    log.delete_before(40)
    engine.commit()
    assert (contents(log), log.epoch_entries) == ([], [EpochEntry(4, 40)])
    again = store.reopen().open(key())
    assert (again.log_start_offset, again.end_offset, again.leader_epoch) == (40, 40, 4)
    assert store.engine.verify(deep=True) == []
    with pytest.raises(OffsetOutOfRangeError):
        again.delete_before(41)
    with pytest.raises(OffsetOutOfRangeError):
        again.read(39, 100)


def test_named_values_survive_a_restart_once_they_are_committed(store: Store) -> None:
    engine = store.engine
    engine.put_meta("b/1", b"one")
    engine.put_meta("b/2", b"")
    engine.put_meta("a", b"x")
    assert engine.get_meta("b/1") == b"one"
    assert engine.meta_names("b/") == ["b/1", "b/2"]
    engine.commit()
    engine.put_meta("a", None)
    assert engine.get_meta("a") is None
    assert engine.meta_names() == ["b/1", "b/2"]
    engine.commit()
    engine = store.reopen()
    assert [(name, engine.get_meta(name)) for name in engine.meta_names()] == [("b/1", b"one"), ("b/2", b"")]
    for name in ("", "x" * 501):
        with pytest.raises(ValueError, match="is not a valid name"):
            engine.put_meta(name, b"")


def test_changes_staged_when_the_engine_closes_are_lost(store: Store) -> None:
    log = store.engine.open(key())
    stored = fill(log, store.engine, 1)
    log.append(batch(), 0)
    store.engine.put_meta("a", b"1")
    engine = store.reopen()
    assert contents(engine.open(key())) == stored
    assert engine.get_meta("a") is None
    with pytest.raises(LogClosedError):
        log.append(batch(), 0)


def test_a_closed_engine_refuses_everything(store: Store) -> None:
    engine = store.engine
    log = engine.open(key())
    fill(log, engine, 1)
    engine.close()
    engine.close()
    uses = [
        lambda: engine.open(key()),
        engine.partitions,
        engine.commit,
        engine.seal,
        lambda: engine.get_meta("a"),
        lambda: engine.reclaim(1),
        engine.verify,
        lambda: log.read(0, 10),
        log.size_bytes,
    ]
    for use in uses:
        with pytest.raises(LogClosedError):
            use()


def test_the_node_epoch_increases_with_every_opening(store: Store) -> None:
    assert [store.engine.node_epoch, store.reopen().node_epoch, store.reopen().node_epoch] == [0, 1, 2]


def test_one_round_writes_many_partitions_staged_in_any_order(store: Store) -> None:
    engine = store.engine
    logs = [engine.open(key(number)) for number in range(20)]
    expected: dict[int, list[bytes]] = {number: [] for number in range(20)}
    for turn in range(3):
        for number in reversed(range(turn, 20)):
            data = batch(number + 1, fill=turn)
            expected[number].append(stamped(data, logs[number].append(data, turn), turn))
        engine.commit()
    engine = store.reopen()
    assert engine.partitions() == [key(number) for number in range(20)]
    assert {number: contents(engine.open(key(number))) for number in range(20)} == expected
    assert engine.verify(deep=True) == []


def test_keys_that_name_no_partition_are_refused(engine: LogEngine) -> None:
    for bad in (key(-1), key(1 << 31), key(0, b"short")):
        with pytest.raises(ValueError, match="topic id"):
            engine.open(bad)
