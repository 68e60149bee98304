"""Record batches of format 2: every field has its position in the format, limits apply, and records round-trip."""

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.protocol.compression import compress, decompress
from kcore_ext.batch import (
    BatchBuilder,
    BatchHeader,
    ControlMarker,
    CorruptBatchError,
    Record,
    build_control_batch,
    iter_entries,
    iter_records,
    parse_control,
    parse_header,
    split_batches,
    stamp,
    stamp_append_time,
    validate,
    validate_crc,
)

MAX_INT64 = 2**63 - 1
HEADER_FIELDS = [
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "attributes",
    "last_offset_delta",
    "base_timestamp_ms",
    "max_timestamp_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
]


def fields_of(batch: bytes | bytearray) -> dict[str, Any]:
    header = parse_header(batch)
    return {name: getattr(header, name) for name in HEADER_FIELDS}


def small_batch(count: int = 3, **arguments: Any) -> bytes:
    builder = BatchBuilder(10_000, base_timestamp_ms=1000, **arguments)
    for index in range(count):
        assert builder.append(1000 + index, b"k%d" % index, b"v%d" % index)
    return builder.build()


def test_the_bytes_of_a_batch_follow_the_format() -> None:
    """The expected bytes are written by hand from the format, so that an error in both builder and reader is found."""
    builder = BatchBuilder(
        500,
        base_timestamp_ms=0x0102030405060708,
        producer_id=0x1112131415161718,
        producer_epoch=0x2122,
        base_sequence=0x31323334,
        transactional=True,
    )
    assert builder.append(0x0102030405060708, b"key", None)
    assert builder.append(0x0102030405060708 + 64, None, b"value", [("h", b"x"), ("n", None)])
    built = builder.build(0x4142434445464748, 0x51525354)
    records = bytes.fromhex("12 00 00 00 06 6b6579 01 0026 00 8001 02 01 0a 76616c7565 04 02 68 02 78 02 6e 01")
    assert built[61:] == records
    assert built[:17] == bytes.fromhex("4142434445464748 0000004f 51525354 02")
    assert built[21:61] == bytes.fromhex(
        "0010 00000001 0102030405060708 0102030405060748 1112131415161718 2122 31323334 00000002"
    )
    assert len(built) == builder.size_bytes == 91
    assert validate_crc(built) is True


def test_every_field_of_the_header_is_set_and_read() -> None:
    builder = BatchBuilder(10_000, base_timestamp_ms=50, producer_id=9, producer_epoch=3, base_sequence=2**31 - 2)
    for timestamp_ms in (50, 49, 70, 60):
        builder.append(timestamp_ms, b"k", b"v")
    header = parse_header(builder.build(100, 7))
    assert {name: getattr(header, name) for name in HEADER_FIELDS} == {
        "base_offset": 100,
        "batch_length": builder.size_bytes - 12,
        "partition_leader_epoch": 7,
        "magic": 2,
        "attributes": 0,
        "last_offset_delta": 3,
        "base_timestamp_ms": 50,
        "max_timestamp_ms": 70,
        "producer_id": 9,
        "producer_epoch": 3,
        "base_sequence": 2**31 - 2,
        "record_count": 4,
    }
    assert (header.size_bytes, header.last_offset, header.next_offset) == (builder.size_bytes, 103, 104)
    assert header.last_sequence == 1, "sequence numbers wrap from 2147483647 to 0"
    assert parse_header(small_batch()).last_sequence == -1


@pytest.mark.parametrize(
    ("arguments", "attributes", "properties"),
    [
        ({}, 0, ()),
        ({"log_append_time": True}, 0x08, ("is_log_append_time",)),
        ({"transactional": True}, 0x10, ("is_transactional",)),
        ({"transactional": True, "control": True}, 0x30, ("is_transactional", "is_control")),
    ],
)
def test_the_bits_of_the_attributes_are_read(
    arguments: dict[str, bool], attributes: int, properties: tuple[str, ...]
) -> None:
    header = parse_header(small_batch(**arguments))
    assert header.attributes == attributes
    names = ("is_log_append_time", "is_transactional", "is_control")
    assert tuple(name for name in names if getattr(header, name)) == properties
    assert (header.compression, header.delete_horizon_ms) == (0, -1)


def test_a_delete_horizon_is_read() -> None:
    batch = bytearray(small_batch())
    batch[22] |= 0x40
    assert parse_header(batch).delete_horizon_ms == 1000


def test_log_append_time_is_the_time_of_every_record() -> None:
    builder = BatchBuilder(1000, base_timestamp_ms=500, log_append_time=True)
    builder.append(90, b"a", b"1")
    builder.append(900, b"b", b"2")
    assert [record.timestamp_ms for record in iter_records(builder.build())] == [500, 500]


any_bytes = st.none() | st.binary(max_size=300)
any_records = st.lists(
    st.tuples(
        st.integers(-(2**63), MAX_INT64),
        any_bytes,
        any_bytes,
        st.lists(st.tuples(st.text(max_size=10), any_bytes), max_size=3),
    ),
    min_size=1,
    max_size=200,
)


@given(
    records=any_records,
    base_timestamp_ms=st.integers(-(2**63), MAX_INT64),
    base_offset=st.integers(0, 2**62),
    codec=st.integers(0, 4),
)
def test_records_round_trip(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    base_timestamp_ms: int,
    base_offset: int,
    codec: int,
) -> None:
    builder = BatchBuilder(2**20, base_timestamp_ms=base_timestamp_ms, compression=codec, compress=compress)
    for record in records:
        assert builder.append(*record)
    batch = builder.build(base_offset, 5)
    expected = [
        Record(base_offset + index, timestamp_ms, key, value, headers)
        for index, (timestamp_ms, key, value, headers) in enumerate(records)
    ]
    assert list(iter_records(batch, decompress=decompress)) == expected
    assert list(iter_entries(batch, decompress=decompress)) == [
        (record.offset, record.timestamp_ms, record.key, record.value) for record in expected
    ]
    header = validate(batch, decompress=decompress)
    assert (header.record_count, header.size_bytes) == (len(records), len(batch))
    assert len(batch) <= builder.size_bytes
    assert builder.build_bytearray(base_offset, 5) == batch


@given(
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=60),
    max_size_bytes=st.integers(61, 3000),
)
def test_a_batch_never_outgrows_its_limit_and_a_refused_record_leaves_it_unchanged(
    sizes: list[int], max_size_bytes: int
) -> None:
    builder = BatchBuilder(max_size_bytes, base_timestamp_ms=0)
    taken = []
    for size in sizes:
        before = (builder.count, builder.size_bytes)
        if builder.append(0, b"", bytes(size)):
            taken.append(size)
        else:
            assert (builder.count, builder.size_bytes) == before
            generous = BatchBuilder(10_000, base_timestamp_ms=0)
            for other in [*taken, size]:
                generous.append(0, b"", bytes(other))
            assert generous.size_bytes > max_size_bytes, "the batch would have fitted"
    assert builder.size_bytes <= max_size_bytes
    if taken:
        assert [len(record.value or b"") for record in iter_records(builder.build())] == taken


def test_records_that_do_not_shrink_are_left_uncompressed() -> None:
    builder = BatchBuilder(1000, base_timestamp_ms=0, compression=1, compress=compress)
    builder.append(0, b"k", b"v")
    batch = builder.build()
    assert parse_header(batch).compression == 0
    assert len(batch) == builder.size_bytes
    builder.append(0, b"k", bytes(500))
    batch = builder.build()
    assert parse_header(batch).compression == 1
    assert len(batch) < builder.size_bytes


def test_a_builder_continues_after_a_build() -> None:
    builder = BatchBuilder(1000, base_timestamp_ms=0)
    builder.append(1, b"a", b"1")
    first = builder.build()
    assert builder.build() == first
    builder.append(2, b"b", b"2")
    assert [record.key for record in iter_records(builder.build(10))] == [b"a", b"b"]
    assert [record.key for record in iter_records(first)] == [b"a"]
    assert repr(builder) == f"<BatchBuilder count=2 size_bytes={builder.size_bytes}>"


def test_a_compacted_batch_keeps_its_offsets_and_its_last_one() -> None:
    builder = BatchBuilder(1000, base_timestamp_ms=0)
    for offset_delta in (2, 5):
        builder.append(0, b"k", b"v", offset_delta=offset_delta)
    builder.append(0, b"k", b"v")
    with pytest.raises(ValueError, match="offset delta 6 after 6"):
        builder.append(0, b"k", b"v", offset_delta=6)
    batch = builder.build(100, last_offset_delta=9)
    assert [record.offset for record in iter_records(batch)] == [102, 105, 106]
    assert (validate(batch).last_offset, parse_header(batch).record_count) == (109, 3)
    with pytest.raises(ValueError, match="last offset delta 5 is below 6"):
        builder.build(last_offset_delta=5)


def test_a_batch_emptied_by_compaction_keeps_its_header() -> None:
    builder = BatchBuilder(61, base_timestamp_ms=-1, producer_id=4, producer_epoch=1, base_sequence=0)
    assert not builder.append(0, None, None)
    with pytest.raises(ValueError, match="an empty batch has no last offset"):
        builder.build()
    batch = builder.build(7, last_offset_delta=2)
    assert (len(batch), validate(batch).next_offset, list(iter_records(batch))) == (61, 10, [])


def test_only_buffers_are_accepted() -> None:
    builder = BatchBuilder(1000, base_timestamp_ms=0)
    builder.append(0, bytearray(b"key"), memoryview(b"xvaluex")[1:-1], [("h", bytearray(b"1"))])
    expected = [Record(0, 0, b"key", b"value", (("h", b"1"),))]
    for buffer in (builder.build(), builder.build_bytearray(), memoryview(builder.build())):
        assert list(iter_records(buffer)) == expected
        assert parse_header(buffer).record_count == 1
    wrong: Any
    for wrong in (5, "text", [1]):
        with pytest.raises(TypeError):
            builder.append(0, wrong, b"")
        with pytest.raises(TypeError):
            iter_records(wrong)
        with pytest.raises(TypeError):
            parse_header(wrong)
    with pytest.raises(TypeError):
        builder.append(0, b"", b"", [(b"bytes", b"")])  # type: ignore[list-item]
    assert builder.count == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_size_bytes": 60}, "max_size_bytes must be from 61 to 2147483647, not 60"),
        ({"max_size_bytes": 2**31}, "max_size_bytes must be from 61 to 2147483647, not 2147483648"),
        ({"compression": 5}, "compression must be from 0 to 4, not 5"),
        ({"compression": 1}, "codec 1 needs the argument compress"),
    ],
)
def test_a_builder_refuses_invalid_arguments(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchBuilder(**{"max_size_bytes": 100, "base_timestamp_ms": 0, **arguments})  # type: ignore[arg-type]


def test_stamping_changes_offset_and_epoch_and_keeps_the_crc() -> None:
    batch = bytearray(b"before" + small_batch())
    before = fields_of(batch[6:])
    stamp(batch, 2**40, 12, 6)
    assert fields_of(batch[6:]) == {**before, "base_offset": 2**40, "partition_leader_epoch": 12}
    assert validate_crc(batch, 6)
    assert [record.offset for record in iter_records(batch, 6)] == [2**40, 2**40 + 1, 2**40 + 2]
    assert batch[:6] == b"before"
    with pytest.raises(BufferError):
        stamp(bytes(batch[6:]), 0, 0)  # type: ignore[arg-type]


def test_stamping_an_append_time_gives_it_to_every_record_with_a_new_crc() -> None:
    batch = bytearray(small_batch() + b"behind")
    before = fields_of(batch)
    stamp_append_time(batch, 77_777)
    assert fields_of(batch) == {**before, "attributes": 0x08, "max_timestamp_ms": 77_777}
    assert validate(batch).is_log_append_time
    assert [record.timestamp_ms for record in iter_records(batch)] == [77_777] * 3
    assert batch.endswith(b"behind")


@pytest.mark.parametrize(("control_type", "commit"), [(0, False), (1, True)])
def test_an_end_marker_is_built_and_read(control_type: int, commit: bool) -> None:
    batch = build_control_batch(
        control_type, 2**31 - 1, producer_id=8, producer_epoch=2, timestamp_ms=99, base_offset=5
    )
    header = validate(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence, header.record_count) == (
        True,
        True,
        -1,
        1,
    )
    assert (header.producer_id, header.producer_epoch, header.max_timestamp_ms) == (8, 2, 99)
    assert list(iter_records(batch)) == [Record(5, 99, b"\0\0\0" + bytes([control_type]), b"\0\0\x7f\xff\xff\xff")]
    marker = parse_control(batch)
    assert (marker.type, marker.is_end_marker, marker.is_commit) == (control_type, True, commit)
    assert marker.coordinator_epoch == 2**31 - 1


def control(key: bytes | None, value: bytes | None) -> bytes:
    builder = BatchBuilder(1000, base_timestamp_ms=0, control=True)
    builder.append(0, key, value)
    return builder.build()


@pytest.mark.parametrize("control_type", [2, 3, 4, 5, 6, 99, -1])
def test_other_control_records_are_no_end_markers(control_type: int) -> None:
    marker = parse_control(control(b"\0\0" + control_type.to_bytes(2, "big", signed=True), None))
    assert (marker.type, marker.is_end_marker, marker.is_commit) == (control_type, False, False)
    assert marker.coordinator_epoch == -1


def test_newer_and_longer_end_markers_are_read() -> None:
    marker = parse_control(control(b"\0\5\0\1more", b"\0\5\0\0\0\7more"))
    assert (marker.is_commit, marker.coordinator_epoch) == (True, 7)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"\0\0\0\0\0\1"), (b"\0\0\0", b""), (b"\0\0\0\1", None), (b"\0\0\0\0", b"\0\0\0\0\0"), (b"\xff\0\0\1", b""),
     (b"\0\0\0\1", b"\xff\xff\0\0\0\1")],
)  # fmt: skip
def test_a_marker_too_short_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatchError) as caught:
        parse_control(control(key, value))
    assert caught.value.fault == "control"


def test_a_data_batch_is_not_a_control_batch() -> None:
    with pytest.raises(CorruptBatchError, match="not a control batch"):
        parse_control(small_batch())
    empty = BatchBuilder(100, base_timestamp_ms=0, control=True).build(last_offset_delta=0)
    with pytest.raises(CorruptBatchError, match="a control batch without a record"):
        parse_control(empty)


def test_consecutive_batches_are_split_and_the_rest_is_reported() -> None:
    first, second = small_batch(1), small_batch(2)
    whole = first + second
    spans = [(0, len(first)), (len(first), len(second))]
    assert split_batches(whole) == (spans, len(whole), None)
    assert split_batches(b"") == ([], 0, None)
    for left in range(len(second)):
        assert split_batches(first + second[:left]) == (spans[:1], len(first), None)
    for position, size in spans:
        assert validate(whole, position).size_bytes == size


def test_old_magics_are_found_and_new_ones_are_no_batches() -> None:
    old = bytes(8) + (22).to_bytes(4, "big") + bytes(22)
    assert split_batches(old) == ([(0, 34)], 34, None)
    with pytest.raises(CorruptBatchError, match="magic 0 instead of 2"):
        parse_header(old)
    for magic in (3, 0x80):
        batch = bytearray(small_batch())
        batch[16] = magic
        found = split_batches(small_batch(1) + batch)
        assert (len(found.batches), found.end) == (1, len(small_batch(1)))
        assert found.error is not None
        assert (found.error.fault, found.error.position) == ("magic", found.end + 16)


@pytest.mark.parametrize(("magic", "length"), [(2, 48), (2, -1), (2, -(2**31)), (1, 13), (0, -5)])
def test_an_impossible_length_ends_the_split(magic: int, length: int) -> None:
    batch = bytearray(small_batch())
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    batch[16] = magic
    found = split_batches(batch)
    assert (found.batches, found.end) == ([], 0)
    assert found.error is not None
    assert (found.error.fault, found.error.position) == ("size", 8)


def test_compressed_records_need_a_codec() -> None:
    builder = BatchBuilder(1000, base_timestamp_ms=0, compression=4, compress=compress)
    builder.append(0, b"k", bytes(500))
    batch = builder.build()
    with pytest.raises(ValueError, match="compressed with codec 4: pass decompress"):
        iter_records(batch)
    assert validate(batch).compression == 4, "everything but the records is checked"
    with pytest.raises(CorruptBatchError, match="more than the 100 bytes allowed") as caught:
        iter_records(batch, decompress=decompress, max_decompressed_bytes=100)
    assert caught.value.fault == "compression"


def test_an_iterator_holds_its_buffer_until_it_is_done() -> None:
    batch = bytearray(small_batch())
    records = iter_records(batch)
    next(records)
    with pytest.raises(BufferError):
        batch.append(0)
    assert len(list(records)) == 2
    batch.append(0)
    assert list(records) == [], "the iterator stays at its end"
    entries = iter_entries(batch)
    del entries
    gc.collect()
    batch.append(0)


def test_records_are_values() -> None:
    record = Record(5, 6, b"k", None, [("h", b"v")])
    assert record == Record(5, 6, b"k", None, (("h", b"v"),))
    assert hash(record) == hash(Record(5, 6, b"k", None, (("h", b"v"),)))
    assert record != Record(5, 6, b"k", b"", (("h", b"v"),))
    assert record != object()
    assert repr(record) == "Record(offset=5, timestamp_ms=6, key=b'k', value=None, headers=(('h', b'v'),))"


def test_objects_of_the_parser_cannot_be_constructed() -> None:
    for made in (BatchHeader, ControlMarker, type(iter_records(small_batch()))):
        with pytest.raises(TypeError, match="made by"):
            made()
