"""Compares compiled functions that check many stored batches at once with pure Python: `damage`, `parse_header`, and
the crc32c package.
"""

from __future__ import annotations

import random
import struct

import crc32c as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.log.batch_header import damage
from kcore_ext.batch import BatchBuilder, build_control_batch, parse_header, stamp
from kcore_ext.batch.crc32c import _crc32c_by_tables, crc32c
from kcore_ext.batch.run import SimpleRun, count_sound, gather, replay_producers, simple_run, spans


def plain(base_offset: int, records: int = 1, **kinds: object) -> bytes:
    builder = BatchBuilder(10_000, base_timestamp_ms=5, **kinds)  # type: ignore[arg-type]
    for number in range(records):
        assert builder.append(5 + number, b"key", b"value %d" % number)
    data = bytearray(builder.build())
    stamp(data, base_offset, 3)
    return bytes(data)


def with_attributes(batch: bytes, attributes: int) -> bytes:
    return batch[:21] + struct.pack(">h", attributes) + batch[23:]


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1), st.integers(0, 20))
def test_crc32c_equals_the_package(data: bytes, crc: int, start: int) -> None:
    """Compares both compiled methods (the CPU's instruction, and tables) with the package, at any alignment and from
    any initial checksum.
    """
    view = memoryview(data)[start:]
    assert crc32c(view, crc) == _crc32c_by_tables(view, crc) == reference.crc32c(bytes(view), crc)


@pytest.mark.parametrize("size", [383, 384, 385, 767, 768, 3071, 3072, 3073, 6144 + 3 * 384 + 17, 131_072])
def test_crc32c_of_many_bytes_equals_the_package(size: int) -> None:
    """For long inputs, the code computes three parts of 128 or 1024 bytes in parallel and combines them."""
    generator = random.Random(size)
    for start in (0, 1, 7):
        data, crc = generator.randbytes(start + size), generator.getrandbits(32)
        view = memoryview(data)[start:]
        assert crc32c(view, crc) == _crc32c_by_tables(view, crc) == reference.crc32c(data[start:], crc)


def test_crc32c_equals_the_examples_of_the_standard() -> None:
    """The examples are those of RFC 3720, appendix B.4."""
    for data, expected in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)):
        assert crc32c(data) == _crc32c_by_tables(data) == expected


@given(st.data())
def test_valid_batches_are_counted_up_to_the_first_invalid_one(data: st.DataObject) -> None:
    """Damages one of several batches: changed bytes, another length, another position, or a gap that compaction did not
    leave. The count of valid batches ends before the damaged one.
    """
    run, ends = [], []
    offset = data.draw(st.integers(0, 5))
    start = offset
    for _ in range(data.draw(st.integers(1, 6))):
        offset += data.draw(st.sampled_from([0, 0, 0, 4]))
        run.append((offset, plain(offset, data.draw(st.integers(1, 3)))))
        offset = parse_header(run[-1][1]).next_offset
        ends.append(offset)
    at = data.draw(st.integers(0, len(run) - 1))
    base, batch = run[at]
    kind = data.draw(st.sampled_from(["sound", "byte", "cut", "moved"]))
    if kind == "byte":
        position = data.draw(st.integers(0, len(batch) - 1))
        run[at] = (base, batch[:position] + bytes([batch[position] ^ 1]) + batch[position + 1 :])
    elif kind == "cut":
        run[at] = (base, batch[: data.draw(st.integers(0, len(batch) - 1))])
    elif kind == "moved":
        run[at] = (base + 1, batch)
    cleaned_to = data.draw(st.integers(0, offset))
    check_crc = data.draw(st.booleans())

    expected, next_offset = 0, start
    for base, batch in run:
        if damage(batch, base, check_crc) is not None or not (base == next_offset or next_offset < base <= cleaned_to):
            break
        next_offset = parse_header(batch).next_offset
        expected += 1
    assert count_sound(run, start, cleaned_to, check_crc) == expected


def test_batches_of_one_kind_end_at_the_first_of_another() -> None:
    plains = [plain(0), plain(1, 3), plain(4, 2, producer_id=7, producer_epoch=0, base_sequence=0)]
    marker = bytearray(build_control_batch(1, 0, producer_id=7, producer_epoch=0, timestamp_ms=5))
    stamp(marker, 6, 3)
    empty = plain(6)[:57] + bytes(4)
    others = [
        bytes(marker),
        plain(6, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        with_attributes(plain(6), 2),
        empty,
        b"too short",
    ]
    sizes = [len(batch) for batch in plains]
    for other in others:
        run = [(parse_header(batch).base_offset, batch) for batch in plains] + [(6, other), (7, plain(7))]
        assert simple_run(run, 0) == SimpleRun(3, 6, sum(sizes), 6)
        assert simple_run(run, 1) == SimpleRun(3, 5, sum(sizes[1:]), 6)
        assert simple_run(run, 3) == SimpleRun(3, 0, 0, -1)
        assert simple_run(run, 5) == SimpleRun(5, 0, 0, -1)


def test_producer_states_are_updated_for_their_batches_alone() -> None:
    with_producer = plain(1, producer_id=0, producer_epoch=0, base_sequence=0)
    marker = bytes(build_control_batch(1, 0, producer_id=9, producer_epoch=0, timestamp_ms=5))
    seen: list[bytes] = []
    replay_producers([(0, plain(0)), (1, with_producer), (2, plain(2)), (3, marker), (4, b"short")], seen.append)
    assert seen == [with_producer, marker]


def test_entries_are_taken_up_to_each_bound() -> None:
    def entry(number: int, base: int) -> tuple[bytes, bytes]:
        return struct.pack(">Iq", number, base), b"x" * 10

    entries = [entry(2**32 - 1, base) for base in range(5)] + [entry(3, 5)]
    every = [(base, b"x" * 10) for base in range(5)]
    assert gather(iter(entries), 2**32 - 1, 0, 100, 1000, 1000) == every
    assert gather(iter(entries), 2**32 - 1, 0, 3, 1000, 1000) == every[:3]
    assert gather(iter(entries), 2**32 - 1, 0, 100, 11, 1000) == every[:2]
    assert gather(iter(entries), 2**32 - 1, 0, 100, 1000, 4) == every[:4]
    assert gather(iter(entries), 1, 0, 100, 1000, 4) == []
    with pytest.raises(ValueError, match="12 bytes, not 3"):
        gather(iter([(b"abc", b"")]), 1, 0, 1, 1, 1)


def values_of(data: st.DataObject) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """Draws consecutive batches. Returns them, and values of one or more of them, each with its base offset."""
    batches: list[tuple[int, bytes]] = []
    values: list[tuple[int, bytes]] = []
    base = data.draw(st.sampled_from([0, 1, 2**31, 2**62]))
    for count in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)):
        value = b""
        first = base
        for records in data.draw(st.lists(st.integers(1, 5), min_size=count, max_size=count)):
            batch = plain(base, records)
            batches.append((base, batch))
            value += batch
            base += records
        values.append((first, value))
    return batches, values


@given(st.data())
def test_batches_that_share_values_are_found_like_single_ones(data: st.DataObject) -> None:
    batches, values = values_of(data)
    assert [
        (base, value[start:stop]) for first, value in values for base, start, stop in spans(first, value)
    ] == batches
    end = batches[-1][0] + 10
    offset, limit = data.draw(st.integers(batches[0][0], end)), data.draw(st.integers(batches[0][0], end))
    max_bytes, max_batches = data.draw(st.integers(1, 2_000)), data.draw(st.integers(1, 20))
    # The storage seeks to the value that contains the offset, or else to the first later value.
    later = [(first, value) for first, value in values if last_offset(spans(first, value), value) >= offset]
    expected: list[tuple[int, bytes]] = []
    for base, batch in batches:
        if last_offset([(base, 0, len(batch))], batch) < offset:
            continue
        if base >= limit or sum(len(each) for _, each in expected) >= max_bytes or len(expected) >= max_batches:
            break
        expected.append((base, batch))
    entries = [(struct.pack(">Iq", 7, first), value) for first, value in later]
    assert gather(iter(entries), 7, offset, limit, max_bytes, max_batches) == expected


def last_offset(found: list[tuple[int, int, int]], value: bytes) -> int:
    base, start, _ = found[-1]
    return base + parse_header(value[start:]).last_offset_delta


@given(st.data())
def test_one_damaged_byte_hides_only_its_batch(data: st.DataObject) -> None:
    _, values = values_of(data)
    first, value = data.draw(st.sampled_from(values))
    whole = spans(first, value)
    at = data.draw(st.integers(0, len(value) - 1))
    damaged = bytearray(value)
    damaged[at] ^= data.draw(st.integers(1, 255))
    found = spans(first, damaged)
    assert [0, *(stop for _, _, stop in found)] == [*(start for _, start, _ in found), len(value)], "nothing is skipped"
    assert [span for span in whole if not span[1] <= at < span[2]] == [
        span for span in found if not span[1] <= at < span[2]
    ]
    assert spans(first, b"") == []


@given(st.data())
def test_damage_of_any_size_hides_only_its_batches(data: st.DataObject) -> None:
    """Damage of whole headers is found by CRCs, and the batches on both sides keep their base offsets."""
    batches = [plain(base, 2) for base in range(6, 24, 2)]
    value = b"".join(batches)
    start = data.draw(st.integers(0, len(value) - 1))
    stop = data.draw(st.integers(start + 1, len(value)))
    inverted = bytes(byte ^ 0xFF for byte in value[start:stop])
    bits = data.draw(st.sampled_from([bytes(stop - start), b"\xff" * (stop - start), inverted]))
    damaged = value[:start] + bits + value[stop:]
    found = spans(6, damaged)
    whole = spans(6, value)
    assert [value[begin:end] for _, begin, end in whole] == batches
    untouched = [span for span in whole if damaged[slice(*span[1:])] == value[slice(*span[1:])]]
    assert [span for span in found if damaged[slice(*span[1:])] == value[slice(*span[1:])]] == untouched


def test_the_length_of_a_batch_may_reach_the_end_of_its_value() -> None:
    value = plain(6) + plain(7) + plain(8)
    damaged = bytearray(value)
    damaged[8:12] = struct.pack(">i", len(value) - 12)
    assert spans(6, damaged) == spans(6, value)


def test_a_batch_within_a_damaged_record_is_not_taken() -> None:
    builder = BatchBuilder(10_000, base_timestamp_ms=5)
    assert builder.append(5, b"key", plain(8))
    outer = bytearray(builder.build())
    stamp(outer, 6, 3)
    for at in range(8, 27):
        damaged = bytearray(outer + plain(7))
        damaged[at] ^= 0x55
        assert spans(6, damaged) == [(6, 0, len(outer)), (7, len(outer), len(damaged))]


def test_a_run_begins_with_the_requested_batch_for_any_size() -> None:
    value = plain(6) + plain(7) + plain(8)
    entries = [(struct.pack(">Iq", 1, 6), value)]
    for max_bytes in (0, 1, 1_000):
        for offset in (6, 7, 8):
            assert gather(iter(entries), 1, offset, 9, max_bytes, 1) == [(offset, plain(offset))]


def test_a_run_has_the_damaged_batch_at_the_requested_offset() -> None:
    value = plain(6) + plain(7) + plain(8)
    size = len(plain(6))
    for base in (6, 7, 8):
        at = (base - 6) * size
        damaged = value[:at] + bytes(size) + value[at + size :]
        run = gather(iter([(struct.pack(">Iq", 1, 6), damaged)]), 1, base, 9, 1, 9)
        assert run == [(base, bytes(size))]


@given(st.data())
def test_any_bytes_are_split_without_a_gap(data: st.DataObject) -> None:
    _, values = values_of(data)
    first, value = values[0]
    damaged = bytearray(value)
    for at in data.draw(st.lists(st.integers(0, len(value) - 1), max_size=20)):
        damaged[at] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(value))) :]
    found = spans(data.draw(st.sampled_from([first, 0, -1, 2**63 - 1])), damaged)
    assert [0, *(stop for _, _, stop in found)] == [*(start for _, start, _ in found), len(damaged)]


def test_a_value_of_another_base_offset_is_one_damaged_batch() -> None:
    value = plain(3) + plain(4)
    assert spans(2, value) == [(2, 0, len(value))]
    assert gather(iter([(struct.pack(">Iq", 1, 2), value)]), 1, 0, 9, 1_000, 9) == [(2, value)]
