"""The rules of compaction, one by one."""

from __future__ import annotations

import random
from collections.abc import Generator
from itertools import chain

import pytest

from kcore.broker.compaction import cleaner, rewrite
from kcore.broker.compaction.cleaner import MERGED_BATCH_BYTES, CompactionPass, CompactionRules
from kcore.broker.data.segments import Segments
from kcore.log.errors import CorruptLogError
from kcore.protocol import compression
from kcore.protocol.compression import decompress
from kcore_ext.batch import iter_records, parse_header, validate
from tests.broker.compaction.world import RETENTION_MS, World, check, read_committed
from tests.reference.compaction import with_records


def batches(world: World) -> list[tuple[int, int, int]]:
    """Returns (base offset, last offset, records) of every batch."""
    headers = [parse_header(batch) for _, batch in world.log.batches()]
    return [(one.base_offset, one.last_offset, one.record_count) for one in headers]


def offsets(world: World) -> list[int]:
    check(world)
    return [one.offset for one in world.stored() if one.marker is None]


def markers(world: World) -> list[int]:
    return [one.offset for one in world.stored() if one.marker is not None]


def append_last_batch(world: World) -> None:
    """Appends one more batch to the log. It becomes the last batch, which no pass changes."""
    world.write([(b"last", b"")])
    assert world.commit()


def test_the_last_record_of_a_key_stays_where_it_was() -> None:
    world = World()
    world.write([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    world.write([(b"b", b"2"), (b"c", b"1")])
    world.write([(b"c", b"2")])
    append_last_batch(world)
    work = world.compact()
    assert (work.done, work.end_offset, world.log.cleaned_to) == (True, 6, 6)
    assert offsets(world) == [2, 3, 5, 6]
    assert (world.log.log_start_offset, world.log.end_offset) == (0, 7)
    world.restart()
    assert offsets(world) == [2, 3, 5, 6]


def test_the_last_batch_is_never_touched() -> None:
    world = World()
    world.write([(b"a", b"1"), (b"a", b"2")])
    world.commit()
    world.compact()
    assert offsets(world) == [0, 1]
    world = World()
    assert world.compact().done, "an empty log has nothing to compact"


@pytest.mark.parametrize(
    ("limit_offset", "kept"),
    [(None, [6, 7]), (6, [5, 6, 7]), (4, [3, 4, 5, 6, 7]), (0, list(range(8)))],
)
def test_the_active_segment_is_never_touched(limit_offset: int | None, kept: list[int]) -> None:
    """A key's last record before the active segment stays, because a pass does not read that segment."""
    world = World()
    for number in range(7):
        world.write([(b"k", b"%d" % number)])
    append_last_batch(world)
    work = world.compact(limit_offset)
    assert (work.done, world.log.cleaned_to) == (True, 7 if limit_offset is None else limit_offset)
    assert offsets(world) == kept
    world.restart()
    assert offsets(world) == kept
    world.compact(7)
    assert offsets(world) == [6, 7], "when the segment is closed, a later pass removes its old records"


def test_the_last_segment_is_the_active_one() -> None:
    """Segments end at 1,000 bytes or after one second. Only closed segments count as dirty, and the last segment is not
    closed.
    """
    segments = Segments()
    for offset, timestamp_ms, size_bytes in ((0, 0, 600), (1, 10, 400), (2, 20, 1), (3, 1_020, 1), (4, 1_021, 1)):
        segments._add(offset, timestamp_ms, size_bytes, 1_000, 1_000)
    assert [segment.base_offset for segment in segments._segments] == [0, 2, 4]
    assert segments.active_offset == 4
    assert (segments.closed_bytes(0), segments.closed_bytes(2), segments.closed_bytes(4)) == (1_002, 2, 0)


def test_small_batches_become_one_and_large_ones_stay() -> None:
    world = World(slice_records=1_000)
    for number in range(20):
        world.write([(b"%d" % number, b"x" * 10)])
    world.write([(b"large", b"y" * MERGED_BATCH_BYTES)])
    world.write([(b"from", b"")], producer_id=7)
    append_last_batch(world)
    large = world.log.read(20, 1)[0]
    world.compact()
    assert batches(world) == [(0, 19, 20), (20, 20, 1), (21, 21, 1), (22, 22, 1)]
    assert offsets(world) == list(range(23))
    assert world.log.read(20, 1)[0] == large, "the batch is unchanged, byte for byte"


def test_batches_of_two_leader_epochs_are_not_merged() -> None:
    world = World(slice_records=1_000)
    world.write([(b"a", b"")])
    world.write([(b"b", b"")])
    world.commit()
    world.restart()
    world.write([(b"c", b"")])
    world.write([(b"d", b"")])
    append_last_batch(world)
    world.compact()
    assert batches(world) == [(0, 1, 2), (2, 3, 2), (4, 4, 1)]
    check(world)


def test_a_tombstone_stays_for_delete_retention_ms_after_a_pass_saw_it_first() -> None:
    world = World()
    world.write([(b"a", b"1")])
    world.write([(b"a", None), (b"b", b"1")])
    append_last_batch(world)
    world.wall_ms += 10 * RETENTION_MS  # the age of the batch itself does not count
    work = world.compact()
    assert (offsets(world), work.next_horizon_ms) == ([1, 2, 3], world.wall_ms + RETENTION_MS)
    world.wall_ms += RETENTION_MS - 1
    assert world.compact().next_horizon_ms == world.wall_ms + 1
    assert offsets(world) == [1, 2, 3]
    world.wall_ms += 1
    assert world.compact().next_horizon_ms == -1
    assert offsets(world) == [2, 3]


@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_remaining_records_keep_timestamp_headers_and_codec(codec: int, append_time: bool) -> None:
    world = World()
    headers = (("h", b"1"), ("none", None))
    entries = [(b"a" * 50, b"old"), (b"b", b"1" * 50), (b"c", None)]
    world.write(entries, codec=codec, append_time=append_time, headers=headers)  # type: ignore[arg-type]
    world.write([(b"a" * 50, b"new" * 30)], codec=codec, append_time=append_time, headers=headers)
    append_last_batch(world)
    world.wall_ms += 7
    world.compact()
    assert offsets(world) == [1, 2, 3, 4]
    header = parse_header(world.log.read(0, 1)[0])
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 2)
    assert (header.is_log_append_time, header.delete_horizon_ms) == (append_time, world.wall_ms + RETENTION_MS)
    world.wall_ms += RETENTION_MS
    world.compact()
    assert offsets(world) == [1, 3, 4]
    assert parse_header(world.log.read(0, 1)[0]).delete_horizon_ms == -1


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_large_compressed_batch_is_rewritten_in_slices(
    monkeypatch: pytest.MonkeyPatch, codec: int, stopped: bool
) -> None:
    """Rewriting 700,000 records in one slice would take 1.3 s. If a pass ends between two slices, the batch is
    unchanged.
    """
    monkeypatch.setattr(cleaner, "SLICE_RECORDS", 10)
    monkeypatch.setattr(rewrite, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(compression, "PIECE_BYTES", 1_000)
    world = World()
    headers = (("h", b"1"), ("none", None))
    world.write([(b"%d" % number, b"%d" % number * 50) for number in range(40)], codec=codec, headers=headers)  # type: ignore[arg-type]
    world.write([(b"%d" % number, b"new") for number in range(0, 40, 2)])
    append_last_batch(world)
    before = world.log.read(0, 1)[0]
    world.begin()
    steps = 0
    while world.step():
        steps += 1
        if stopped and steps == 5:
            world.partition.loading += 1
    assert steps > 5 if not stopped else steps in (5, 6)
    after = world.log.read(0, 1)[0]
    if stopped:
        assert after == before
        return
    check(world)
    expected = [one for one in iter_records(before, decompress=decompress) if one.offset % 2]
    assert list(iter_records(after, decompress=decompress)) == expected
    validate(after, decompress=decompress)
    assert parse_header(after).compression == codec


@pytest.mark.parametrize("codec", [1, 2])
@pytest.mark.parametrize("kept", ["half", "all"])
def test_a_large_compressed_batch_is_decompressed_in_slices(
    monkeypatch: pytest.MonkeyPatch, codec: int, kept: str
) -> None:
    """Decompressing 16 MB in one slice would take 45 to 80 ms, and a pass decompresses a batch up to three times."""
    monkeypatch.setattr(compression, "STEP_BYTES", 50_000)
    world = World()
    count = 400
    # The begin of each value cannot be compressed, so that the batch is large enough to be decompressed in slices.
    values = [random.Random(number).randbytes(20) + bytes(2_000) for number in range(count)]
    world.write([(b"%d" % number, value) for number, value in enumerate(values)], codec=codec)
    if kept == "half":
        world.write([(b"%d" % number, b"new") for number in range(0, count, 2)])
    append_last_batch(world)
    counts = {"slice": 0, "worst": 0, "all": 0}

    def counted(codec: int, data: bytes, limit: int) -> Generator[int, None, bytes]:
        for cost in compression.decompress_in_steps(codec, data, limit):
            counts["slice"] += cost
            counts["all"] += cost
            counts["worst"] = max(counts["worst"], counts["slice"])
            yield cost
        return decompress(codec, data, limit)

    monkeypatch.setattr(cleaner, "decompress_in_steps", counted)
    world.begin()
    while world.step():
        counts["slice"] = 0
    size_bytes = count * 2_000
    assert size_bytes * 1.8 < counts["all"] < size_bytes * 2.2, "each half of the pass decompresses the records once"
    assert counts["worst"] < 2 * compression.STEP_BYTES
    check(world)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("horizon_ms", [-1, 1_700_000_000_500])
@pytest.mark.parametrize("value", [b"", b"v" * 100], ids=["does not shrink", "shrinks"])
def test_a_compressed_batch_is_rewritten_like_its_records(
    codec: int, append_time: bool, horizon_ms: int, value: bytes
) -> None:
    world = World()
    world.write([(b"a", value), (b"b", value), (b"c", value)], codec=codec, append_time=append_time, producer_id=7)
    world.commit()
    batch = world.log.read(0, 1)[0]
    packed = batch if parse_header(batch).compression else with_codec(batch, codec)
    header, records = parse_header(packed), list(iter_records(packed, decompress=decompress))
    work = rewrite.repacked(header, packed, b"\x01\x00\x01", horizon_ms)
    with pytest.raises(StopIteration) as end:
        next(work)
    assert end.value.value == with_records(header, [records[0], records[2]], horizon_ms)


def with_codec(batch: bytes, codec: int) -> bytes:
    """Compresses the records of a batch, even if that makes the batch longer."""
    packed = bytearray(batch[:61] + compression.compress(codec, batch[61:]))
    rewrite._set_codec(packed, codec)
    return rewrite._seal(packed)


def test_a_record_without_a_key_is_removed() -> None:
    world = World()
    world.write([(None, b"1"), (b"a", b"1")])
    append_last_batch(world)
    world.compact()
    assert offsets(world) == [1, 2]


def test_records_from_an_open_transaction_on_stay() -> None:
    world = World()
    world.write([(b"a", b"1")])
    world.write([(b"a", b"2")])
    world.write([(b"a", b"3")], producer_id=1, transactional=True)
    world.write([(b"a", b"4")])
    world.write([(b"a", b"5")])
    append_last_batch(world)
    work = world.compact()
    assert (work.end_offset, offsets(world)) == (2, [1, 2, 3, 4, 5])
    world.end(1, True)
    append_last_batch(world)
    world.compact()
    assert offsets(world) == [4, 5, 7], "a later non-transactional record has the same key as the transactional one"


def test_a_transaction_that_ends_beyond_the_limit_is_judged_by_its_end() -> None:
    world = World()
    world.write([(b"a", b"1")])
    world.write([(b"a", b"2")], producer_id=1, transactional=True)
    world.write([(b"z", b"")], producer_id=2, transactional=True)
    world.end(1, False)
    append_last_batch(world)
    work = world.compact()
    assert work.end_offset == 2
    assert offsets(world) == [0, 2, 4], "the last record was aborted, so the older one stays"


def test_aborted_records_are_removed_and_supersede_nothing() -> None:
    world = World()
    world.write([(b"a", b"1")])
    world.write([(b"a", b"2"), (b"b", None)], producer_id=1, transactional=True)
    world.end(1, False)
    append_last_batch(world)
    world.compact()
    assert offsets(world) == [0, 4]
    assert batches(world) == [(0, 0, 1), (1, 2, 0), (3, 3, 1), (4, 4, 1)], (
        "the last batch of the producer stays for its sequence, and so does its marker"
    )


def test_a_marker_stays_while_its_transaction_has_batches() -> None:
    world = World()
    world.write([(b"a", b"1")], producer_id=1, transactional=True)
    world.end(1, True)
    append_last_batch(world)
    for _ in range(3):
        world.wall_ms += 2 * RETENTION_MS
        world.compact()
    assert (offsets(world), markers(world)) == ([0, 2], [1])
    world.restart()
    assert world.partition.last_stable_offset == 3


def test_a_marker_is_removed_later_than_its_transaction() -> None:
    world = World()
    world.write([(b"a", b"1")], producer_id=1, transactional=True)
    world.end(1, True)
    world.write([(b"a", b"2")], producer_id=1, transactional=True)
    world.end(1, True)
    append_last_batch(world)
    world.compact()
    assert (offsets(world), markers(world)) == ([2, 4], [1, 3])
    assert world.compact().next_horizon_ms == world.wall_ms + RETENTION_MS
    assert markers(world) == [1, 3]
    world.wall_ms += RETENTION_MS
    world.compact()
    assert (offsets(world), markers(world)) == ([2, 4], [3])


def test_fetch_omits_an_aborted_transaction_without_a_marker() -> None:
    """Compaction has removed the abort marker. If a response listed this transaction as aborted, readers would drop the
    producer's later records up to its next marker.
    """
    world = World()
    world.write([(b"a", b"1")], producer_id=1, transactional=True)
    world.end(1, False)
    world.write([(b"b", b"2")], producer_id=1, transactional=True)
    world.end(1, True)
    append_last_batch(world)
    world.partition.snapshot_producers(1)
    world.commit()
    for _ in range(2):
        world.compact()
        world.wall_ms += RETENTION_MS
    world.compact()
    for _ in range(2):
        assert markers(world) == [3]
        assert world.partition.producers.aborted.entries == []
        assert [one.value for one in read_committed(world, 0)] == [b"2", b""]
        world.restart()


def test_the_batches_that_a_producer_may_repeat_survive_their_records() -> None:
    """Compaction removes all records of the producer's last five batches. After a restart, the partition still
    recognises each of these batches.
    """
    world = World()
    for value in (b"1", b"2", b"3", b"4", b"5", b"6"):
        world.write([(b"a", value), (b"b", value)], producer_id=5)
    world.write([(b"a", b"7"), (b"b", b"7")])
    append_last_batch(world)
    known = world.partition.producers.entries[5].batches
    world.compact()
    assert batches(world) == [*((base, base + 1, 0) for base in (2, 4, 6, 8, 10)), (12, 13, 2), (14, 14, 1)]
    world.restart()
    entry = world.partition.producers.entries[5]
    assert (entry.epoch, entry.last_sequence, entry.batches) == (0, 11, known)
    assert [batch.base_offset for batch in known] == [2, 4, 6, 8, 10]
    del world.partition.producers.entries[5]  # as if the producer had expired
    world.compact()
    assert batches(world) == [(12, 13, 2), (14, 14, 1)]


def test_only_the_last_batch_of_ended_transactions_survives_its_records() -> None:
    world = World()
    for value in (b"1", b"2"):
        world.write([(b"a", value)], producer_id=5, transactional=True)
        world.end(5, True)
    world.write([(b"a", b"3")])
    append_last_batch(world)
    for _ in range(2):
        world.compact()
        world.wall_ms += RETENTION_MS
    world.compact()
    assert batches(world) == [(2, 2, 0), (3, 3, 1), (4, 4, 1), (5, 5, 1)]
    world.restart()
    entry = world.partition.producers.entries[5]
    assert (entry.epoch, entry.last_sequence) == (0, 1)


def test_the_epoch_of_a_producer_survives_as_its_last_marker() -> None:
    """With transaction.version 2, a marker raises the producer epoch (KIP-890). The marker may be the only batch with
    the new epoch.
    """
    world = World()
    world.write([(b"a", b"1")], producer_id=5, transactional=True)
    world.end(5, True, epoch=1)
    world.write([(b"a", b"2")])
    append_last_batch(world)
    for _ in range(3):
        world.compact()
        world.wall_ms += RETENTION_MS
    assert (offsets(world), markers(world)) == ([2, 3], [1])
    world.restart()
    assert world.partition.producers.entries[5].epoch == 1


def test_a_record_waits_for_min_compaction_lag_ms() -> None:
    world = World()
    world.write([(b"a", b"1")])
    world.write([(b"a", b"2")])
    world.commit()
    world.wall_ms += 100
    world.write([(b"a", b"3")])
    append_last_batch(world)
    work = CompactionPass(world.partition, CompactionRules(world.wall_ms, RETENTION_MS, 50))
    for _ in work.run():
        pass
    assert (work.end_offset, offsets(world)) == (2, [1, 2, 3])


@pytest.mark.parametrize("slice_records", [1, 3])
def test_a_full_map_ends_the_pass_and_the_next_pass_continues(slice_records: int) -> None:
    """If the map of keys becomes full in the middle of a batch, the pass still covers the whole batch."""
    world = World(map_bytes=1, slice_records=slice_records)
    for number in range(6):
        world.write([(b"a", b"1"), (b"k%d" % number, b"2")])
    append_last_batch(world)
    ends = [world.compact().end_offset for _ in range(7)]
    assert ends == [2, 4, 6, 8, 10, 12, 12]
    assert offsets(world) == [1, 3, 5, 7, 9, 10, 11, 12]


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("producer_id", [-1, 7])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_large_batch_is_read_in_slices(codec: int, producer_id: int, transactional: bool) -> None:
    """Reading 700,000 keys in one slice would take 200 ms, and a pass reads each batch two or three times."""
    world = World(slice_records=10)
    who = 8 if transactional else producer_id
    for keys in (range(100), range(0, 100, 2)):
        world.write(
            [(b"%d" % key, b"v") for key in keys], codec=codec, producer_id=who, transactional=transactional
        )  # fmt: skip
        if transactional:
            world.end(who, True)
    append_last_batch(world)
    world.begin()
    slices = 0
    while world.step():
        slices += 1
        world.write([(b"request", b"%d" % slices)])
        assert world.commit()
        check(world)
    assert slices >= 2 * (150 // 10)
    remaining = [one.key for one in world.stored() if one.marker is None and one.offset < 160]
    assert sorted(key for key in remaining if key in {b"%d" % number for number in range(100)}) == sorted(
        b"%d" % number for number in range(100)
    )


def test_a_slice_reads_a_bounded_number_of_records() -> None:
    world = World(slice_records=10)
    for number in range(100):
        world.write([(b"%d" % (number % 7), b"v%d" % number)])
    append_last_batch(world)
    world.begin()
    commits = world.engine.commit_count
    slices = 0
    while world.step():
        slices += 1
        # Requests are served between any two slices.
        world.write([(b"request", b"%d" % slices)])
        assert world.commit()
        check(world)
    assert slices >= 2 * (100 // 10)
    assert world.engine.commit_count - commits <= 2 * slices + 2


def test_a_damaged_batch_stops_the_pass_and_is_not_given_a_new_checksum() -> None:
    world = World()
    for number in range(8):
        world.write([(b"a", b"%d" % number)])
    append_last_batch(world)
    _, stored = world.storage._partitions[0].lists
    broken = stored[3][:-3] + b"?" + stored[3][-2:]
    stored[3] = broken
    with pytest.raises(CorruptLogError):
        world.compact()
    assert stored[3] == broken
    assert [(one.kind, one.offset) for one in world.engine.verify(deep=True)] == [("crc", 3)]


def test_a_load_under_way_stops_the_pass() -> None:
    """While a coordinator loads the log, the pass stops. A load that has read a record must also read the tombstone
    that deletes this record.
    """
    world = World()
    for number in range(30):
        world.write([(b"a", b"%d" % number)])
    append_last_batch(world)
    load = world.partition.runs()
    first = next(load)
    assert not world.compact().done
    assert len([*first, *chain.from_iterable(load)]) == 31
    assert world.compact().done
    assert offsets(world) == [29, 30]


def test_a_snapshot_of_producers_from_before_a_pass_does_not_open_a_transaction_again() -> None:
    """The transaction was open at the time of the snapshot. Since then, compaction has removed its records and its
    marker.
    """
    world = World()
    world.write([(b"a", b"1")], producer_id=1, transactional=True)
    world.commit()
    assert world.partition.snapshot_producers(1)
    world.commit()
    world.end(1, True)
    world.write([(b"a", b"2")], producer_id=1)
    append_last_batch(world)
    for _ in range(2):
        world.compact()
        world.wall_ms += RETENTION_MS
    world.compact()
    assert (offsets(world), markers(world)) == ([2, 3], [])
    world.restart()
    assert world.partition.producers.open_transactions == {}
    assert world.partition.last_stable_offset == 4
    assert world.partition.snapshot_producers(4), "the old snapshot does not count, so the next one is due"


def test_an_old_value_in_the_batch_that_the_start_cuts_does_not_outlive_its_tombstone() -> None:
    world = World()
    world.write([(b"gone", b""), (b"a", b"old"), (b"b", b"stays")])
    world.commit()
    world.partition.delete_before(1)
    world.commit()
    world.compact()
    assert offsets(world) == [1, 2], "the second pass finds nothing new"
    world.write([(b"a", None)])
    append_last_batch(world)
    world.compact()
    assert offsets(world) == [2, 3, 4]
    world.wall_ms += RETENTION_MS
    world.write([(b"c", b"")])
    append_last_batch(world)
    world.compact()
    assert offsets(world) == [2, 4, 5, 6], "the tombstone and the record that it deleted are removed"


def test_the_start_of_the_log_may_move_during_a_pass() -> None:
    world = World(slice_records=1, unread_batches=1)
    for number in range(6):
        world.write([(b"%d" % (number % 3), b"")])
    append_last_batch(world)
    world.begin()
    assert world.step(), "the pass has begun to read the new part of the log"
    world.partition.delete_before(4)
    world.commit()
    while world.step():
        pass
    world.compact()
    assert offsets(world) == [4, 5, 6]
