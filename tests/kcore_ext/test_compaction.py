"""The compiled parts of compaction, compared with dictionaries and with batches made record by record."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.protocol.compression import compress, decompress
from kcore_ext.batch import BatchBuilder, build_control_batch, iter_records, parse_header, stamp, validate
from kcore_ext.broker.compaction import Sweep, filtered, merged
from kcore_ext.broker.compaction_map import ENTRY_BYTES, OffsetMap, Sizes, sizes
from tests.reference import compaction as reference
from tests.reference.compaction import with_records

DAY_MS = 86_400_000
KEYS = st.one_of(st.none(), st.binary(max_size=2), st.sampled_from([b"k", b"k" * 9_000]))
VALUES = st.one_of(st.none(), st.binary(max_size=5))
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2)
TIMES = st.one_of(st.integers(0, 2**40), st.sampled_from([-1, 2**63 - 1, -(2**63)]))
RECORDS = st.lists(st.tuples(TIMES, KEYS, VALUES, HEADERS), min_size=1, max_size=8)


def batch_of(base_offset: int, records: list[tuple[int, bytes | None, bytes | None, object]], **kinds: object) -> bytes:
    builder = BatchBuilder(1 << 24, base_timestamp_ms=records[0][0], **kinds)  # type: ignore[arg-type]
    for timestamp_ms, key, value, headers in records:
        assert builder.append(timestamp_ms, key, value, headers)  # type: ignore[arg-type]
    data = bytearray(builder.build())
    stamp(data, base_offset, 3)
    return bytes(data)


def keyed(base_offset: int, *keys: bytes | None, **kinds: object) -> bytes:
    return batch_of(base_offset, [(5, key, b"v", ()) for key in keys], **kinds)


@settings(deadline=None)
@given(st.lists(st.lists(KEYS, min_size=1, max_size=5), max_size=40))
def test_the_map_equals_a_dictionary_and_counts_the_remaining_records_of_each_batch(
    batches: list[list[bytes | None]],
) -> None:
    found = OffsetMap(1 << 40)
    latest: dict[bytes, int] = {}
    run, offset = [], 0
    for keys in batches:
        run.append((offset, keyed(offset, *keys)))
        latest.update({key: offset + at for at, key in enumerate(keys) if key is not None})
        offset += len(keys)
    assert found.survey(run, 0, 0, 100, 1 << 40, decompress)[0] == len(run)
    assert {key: found.offset_of(key) for key in latest} == latest
    assert found.offset_of(b"another") == -1
    live = [
        any(key is not None and latest[key] == base + at for at, key in enumerate(keys))
        for (base, _), keys in zip(run, batches, strict=True)
    ]
    assert found.count == len(run)
    at, goes = 0, []
    while at < found.count:
        stop, gone = found.next_sequence(at, 1)
        assert stop > at
        goes += [not gone] * (stop - at)
        at = stop
    assert goes == live
    changes: dict[int, bytes | None] = {}
    found.remove(1, 3, changes)
    assert changes == {base: None for base, _ in run[1:3]}


def test_many_keys_are_distinguished() -> None:
    found = OffsetMap(1 << 40)
    for first in range(0, 200_000, 1_000):
        run = [(first, keyed(first, *(b"%d" % number for number in range(first, first + 1_000))))]
        assert found.survey(run, 0, 0, 100, 1 << 40, decompress)[0] == 1
    assert all(found.offset_of(b"%d" % number) == number for number in range(200_000))
    assert found.offset_of(b"200000") == -1


def test_short_runs_of_removed_batches_are_read_with_their_neighbours() -> None:
    found = OffsetMap(1 << 20)
    keys = [b"a", b"x", b"a", b"a", b"y", b"a", b"a", b"a", b"z", b"a"]
    found.survey([(at, keyed(at, key)) for at, key in enumerate(keys)], 0, 0, 100, 1 << 40, decompress)

    def sequences(shortest: int) -> list[tuple[int, bool]]:
        at, found_sequences = 0, []
        while at < found.count:
            found_sequences.append(found.next_sequence(at, shortest))
            at = found_sequences[-1][0]
        return found_sequences

    assert sequences(1) == [(1, True), (2, False), (4, True), (5, False), (8, True), (10, False)]
    assert sequences(2) == [(2, False), (4, True), (5, False), (8, True), (10, False)]
    assert sequences(3) == [(5, False), (8, True), (10, False)]
    assert sequences(4) == [(10, False)]


def test_a_survey_ends_at_its_limits() -> None:
    run = [(at, keyed(at, b"%d" % at)) for at in range(4)]
    marker = bytearray(build_control_batch(1, 0, producer_id=7, producer_epoch=0, timestamp_ms=5))
    stamp(marker, 4, 3)
    run += [(4, bytes(marker)), (5, keyed(5, b"5"))]
    assert OffsetMap(1 << 20).survey(run, 0, 0, 100, 1 << 20, decompress) == (4, (1 << 20) - 8)
    assert OffsetMap(1 << 20).survey(run, 0, 0, 4, 1 << 20, decompress) == (0, 1 << 20), "too young"
    assert OffsetMap(1 << 20).survey(run, 1, 0, 100, 3, decompress) == (3, -1), "enough for a slice"
    small = OffsetMap(ENTRY_BYTES + 20)
    assert (small.survey(run, 0, 0, 100, 1 << 20, decompress)[0], small.full) == (2, True)
    transaction = [(0, keyed(0, b"a", producer_id=7, producer_epoch=0, transactional=True))]
    assert OffsetMap(1 << 20).survey(transaction, 0, 0, 100, 9, decompress) == (0, 9)
    assert OffsetMap(1 << 20).survey([(0, b"short")], 0, 0, 100, 9, decompress) == (0, 9)


@pytest.mark.parametrize("work", [1, 2, 3, 7])
def test_a_large_batch_is_surveyed_and_judged_in_parts(work: int) -> None:
    """A call reads at most `work` records of a batch, and the next call continues. The result is the same as that of a
    single call.
    """
    keys = [b"a", b"b", None, b"a", b"c"]
    run = [(0, keyed(0, *keys)), (5, keyed(5, b"c"))]
    whole, parts = OffsetMap(1 << 20), OffsetMap(1 << 20)
    whole.survey(run, 0, 0, 100, 1 << 20, decompress)
    index = calls = 0
    while index < 2:
        index, _ = parts.survey(run, index, 0, 100, work, decompress)
        calls += 1
    assert calls >= len(keys) // work
    assert not parts.within_batch
    for key in (b"a", b"b", b"c"):
        assert parts.offset_of(key) == whole.offset_of(key)
    assert parts.next_sequence(0, 1) == whole.next_sequence(0, 1)
    sweep = Sweep(whole, {}, 1_000, DAY_MS, 1 << 16)
    judged = [sweep.remaining_records(run[0][1], decompress, work) for _ in range(-(-len(keys) // work))]
    assert judged == [None] * (len(judged) - 1) + [(2, 0, b"\x00\x01\x00\x01\x00")]
    added = OffsetMap(1 << 20)
    assert added.add(run[0][1], decompress, work) <= max(work - 1, 0)
    assert added.within_batch == (work < len(keys))
    while added.within_batch:
        added.add(run[0][1], decompress, work)
    assert (added.offset_of(b"a"), added.count) == (3, 1)


def test_batches_of_producers_and_batches_cut_by_the_log_start_are_read() -> None:
    found = OffsetMap(1 << 20)
    run = [(0, keyed(0, b"a", b"a")), (2, keyed(2, b"a", producer_id=7, producer_epoch=0)), (3, keyed(3, b"a"))]
    found.survey(run, 0, 1, 100, 1 << 20, decompress)
    found.step_over(4)
    found.add(keyed(5, b"a"), decompress)
    found.survey([(6, keyed(6, b"a"))], 0, 1, 100, 1 << 20, decompress)
    assert [found.next_sequence(at, 1) for at in range(3)] == [(2, False), (2, False), (3, True)]
    assert found.next_sequence(3, 1) == (6, False)
    assert [found.base_offset(at) for at in range(6)] == [0, 2, 3, 4, 5, 6]
    with pytest.raises(IndexError, match="no batch 6 among 6"):
        found.base_offset(6)


def test_sizes_are_counted_below_and_above_the_compaction_point() -> None:
    run = [(at, keyed(at, b"k" * (at + 1))) for at in range(4)]
    first, *_, last = (len(batch) for _, batch in run)
    empty = run[0][1][:57] + bytes(4)
    assert sizes(run[:1], 1) == Sizes(first, 0, -1, 1)
    assert sizes(run, 3) == Sizes(sum(len(batch) for _, batch in run[:3]), last, 5, 4)
    assert sizes([(0, empty)], 0) == Sizes(0, len(empty), -1, 1)
    assert sizes([], 3) == Sizes(0, 0, -1, -1)
    with pytest.raises(ValueError, match="5 bytes"):
        sizes([(0, b"short")], 0)


@settings(deadline=None)
@given(
    records=RECORDS,
    chosen=st.lists(st.booleans(), min_size=8, max_size=8),
    producer=st.booleans(),
    append_time=st.booleans(),
    horizon_ms=st.sampled_from([-1, 0, 10, 2**41]),
    again_ms=st.sampled_from([-1, 10, 2**41]),
)
def test_a_batch_with_fewer_records_equals_one_made_record_by_record(
    records: list[tuple[int, bytes | None, bytes | None, object]],
    chosen: list[bool],
    producer: bool,
    append_time: bool,
    horizon_ms: int,
    again_ms: int,
) -> None:
    """Removes records from a batch, and then removes records from the result. The second time, the batch has a delete
    horizon and may have gaps.
    """
    kinds = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 4, "transactional": True} if producer else {}
    batch = batch_of(7, records, log_append_time=append_time, **kinds)
    stays = bytes(chosen[: len(records)])
    if not any(stays):
        stays = stays[:-1] + b"\x01"
    for requested_ms in (horizon_ms, again_ms):
        kept = [one for one, stay in zip(iter_records(batch), stays, strict=True) if stay]
        found = filtered(batch, stays, requested_ms)
        assert found == with_records(parse_header(batch), kept, requested_ms)
        assert list(iter_records(found)) == kept
        assert validate(found).delete_horizon_ms == requested_ms
        batch, stays = found, bytes([1]) + bytes(chosen[: len(kept) - 1])


@settings(deadline=None)
@given(batches=st.lists(RECORDS, min_size=1, max_size=5), gap=st.integers(0, 3))
def test_several_batches_become_one(
    batches: list[list[tuple[int, bytes | None, bytes | None, object]]], gap: int
) -> None:
    made, offset = [], 11
    for records in batches:
        made.append(batch_of(offset, records))
        offset += len(records) + gap
    found = merged(made)
    assert found == reference.merged(made)
    assert list(iter_records(found)) == [one for batch in made for one in iter_records(batch)]
    validate(found)


def test_a_batch_that_cannot_be_filtered_or_merged_is_refused() -> None:
    batch = keyed(0, b"a", b"b")
    packed = keyed(0, b"a" * 500, compression=1, compress=compress)
    with pytest.raises(ValueError, match="1 flags do not match the 2 records"):
        filtered(batch, b"\x01", -1)
    with pytest.raises(ValueError, match=r"no record of the batch at offset [0-9]+ remains"):
        filtered(batch, bytes(2), -1)
    with pytest.raises(ValueError, match="compressed"):
        filtered(packed, b"\x01", -1)
    with pytest.raises(ValueError, match="only complete batches without producer and attributes"):
        merged([batch, packed])


def test_a_sweep_stops_at_a_batch_that_python_must_decide() -> None:
    offsets = OffsetMap(1 << 20)
    offsets.survey([(90, keyed(90, b"a"))], 0, 0, 100, 1 << 20, decompress)
    changes: dict[int, bytes | None] = {}
    sweep = Sweep(offsets, changes, 1_000, DAY_MS, 1 << 16)
    packed = [(0, b"a" * 500, b"", ()), (0, b"b" * 500, b"", ()), (0, b"a", b"", ())]
    run = [
        (0, keyed(0, b"a", b"b")),
        (2, keyed(2, b"a")),
        (3, keyed(3, b"a", producer_id=7, producer_epoch=0)),
        (4, batch_of(4, packed, compression=1, compress=compress)),
        (7, keyed(7, b"c", producer_id=7, producer_epoch=0, transactional=True)),
        (8, keyed(8, b"c")),
    ]
    work = 1 << 20
    assert sweep.sweep(run, 0, 1, work, decompress)[:2] == (0, 1), "the log begins at 1"
    assert sweep.sweep(run, 1, 2, work, decompress)[:2] == (2, 3)
    assert sweep.remaining_records(run[2][1], decompress) == (0, 0, b"\x00")
    assert sweep.sweep(run, 3, 4, work, decompress)[:2] == (3, 4)
    assert sweep.remaining_records(run[3][1], decompress) == (2, 0, b"\x01\x01\x00")
    assert sweep.sweep(run, 4, 7, work, decompress)[:2] == (4, 7)
    assert sweep.sweep(run, 5, 8, work, decompress)[:2] == (6, 9)
    sweep.flush()
    assert (changes, sweep.size_bytes) == ({2: None}, len(run[5][1]))
    tombstones = [(0, b"c", None, ()), (0, b"d", b"", ())]
    assert (sweep.next_horizon_ms, sweep.horizon(-1), sweep.horizon(7)) == (-1, 1_000 + DAY_MS, 7)
    assert sweep.sweep([(9, batch_of(9, tombstones))], 0, 9, work, decompress)[:2] == (1, 11)
    sweep.flush()
    assert parse_header(changes[9] or b"").delete_horizon_ms == 1_000 + DAY_MS
    assert sweep.next_horizon_ms == 7
    assert struct.unpack_from(">h", changes[9] or b"", 21) == (0x40,)
