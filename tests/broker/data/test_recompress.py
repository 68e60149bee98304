"""Conversion of batches to the topic's codec. The conversion uses the topic's compression level or, if this would take
too long, the fastest level.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Generator
from typing import Any

import pytest

from kcore.broker.data.append import append
from kcore.broker.data.recompress import FASTEST_LEVEL, level_for, pack
from kcore.errors import KafkaError
from kcore.protocol.compression import PIECE_BYTES, CompressionType, compress, compress_in_steps, decompress
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.batch import BatchBuilder, iter_records, parse_header
from kcore_ext.batch.builder import copy_records
from kcore_ext.batch.crc32c import crc32c
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_fetch import data_of, entry, fetch
from tests.broker.data.test_produce import produce

TEXT = b"".join(b"%d and %d, " % (number, number * 7) for number in range(60_000))
LIMITS = [
    (CompressionType.GZIP, None, 800_000),
    (CompressionType.GZIP, -1, 800_000),
    (CompressionType.GZIP, 9, 800_000),
    (CompressionType.LZ4, None, 480_000),
    (CompressionType.LZ4, 17, 480_000),
    (CompressionType.ZSTD, 4, 600_000),
    (CompressionType.ZSTD, 14, 600_000),
    (CompressionType.ZSTD, 15, 80_000),
    (CompressionType.ZSTD, 22, 80_000),
]


def appended(plane: DataPlane, records: bytes) -> Any:
    """Returns the result of an append, or the steps of the append if the batch must be converted."""
    return append(plane.partition("t"), records, parse_header(records, 0), plane.now)


def drained(steps: Generator[int, None, Any]) -> tuple[list[int], Any]:
    """Runs the steps of a conversion to their end. Returns the cost of each step, and the result."""
    costs = []
    while True:
        try:
            costs.append(next(steps))
        except StopIteration as end:
            return costs, end.value


@pytest.mark.parametrize(("codec", "level", "limit"), LIMITS)
def test_larger_records_are_compressed_at_the_fastest_level(
    codec: CompressionType, level: int | None, limit: int
) -> None:
    small, large = TEXT[:limit], TEXT[: limit + 1]
    assert (level_for(level, codec, limit), level_for(level, codec, limit + 1)) == (level, FASTEST_LEVEL)
    assert decompress(codec, drained(pack(level, codec, large))[1], len(large)) == large
    assert decompress(codec, drained(pack(level, codec, small))[1], len(small)) == small


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (CompressionType.NONE, None),
        (CompressionType.GZIP, 3),
        (CompressionType.SNAPPY, None),
        (CompressionType.LZ4, 2),
        (CompressionType.ZSTD, None),
        (CompressionType.ZSTD, -5),
    ],
)
def test_fast_levels_have_no_limit(codec: CompressionType, level: int | None) -> None:
    assert level_for(level, codec, len(TEXT)) == level


def test_a_large_batch_of_a_topic_with_a_slow_level_keeps_its_records() -> None:
    plane = DataPlane()
    plane.topic("t", compression_type="zstd", compression_zstd_level=22)
    values = [TEXT[start : start + 1_000] for start in range(0, 400_000, 1_000)]
    assert produce(plane, batch_of(*values)).error_code == 0
    records = bytes(data_of(plane.call(fetch(entry(0)), 12)).records)
    assert parse_header(records, 0).compression == CompressionType.ZSTD
    assert [record.value for record in iter_records(records, decompress=decompress)] == values


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 1_000_000])
def test_pieces_are_compressed_to_one_whole(codec: CompressionType, size: int) -> None:
    data = (TEXT * 2)[:size]
    sizes, packed = drained(compress_in_steps(codec, data))
    assert decompress(codec, packed, size) == data
    pieces = [min(PIECE_BYTES, size - at) for at in range(0, max(size, 1), PIECE_BYTES)]
    assert sizes == ([] if codec == CompressionType.NONE else pieces)


@pytest.mark.parametrize("name", ["producer", "gzip", "uncompressed"])
@pytest.mark.parametrize("size", [1_000, 700_000])
def test_a_batch_that_is_stored_as_it_was_sent_is_appended_at_once(name: str, size: int) -> None:
    """A generator for each batch that needs no conversion would make small requests 10 % slower."""
    plane = DataPlane()
    plane.topic("t", compression_type=name, message_timestamp_type="LogAppendTime")
    codec = CompressionType.NONE if name == "uncompressed" else CompressionType.GZIP
    records = batch_of(TEXT[:size], compression=codec, compress=compress)
    assert appended(plane, records) == (0, plane.now.wall_ms)
    broken = records[:-1] + bytes([records[-1] ^ 1])
    with pytest.raises(KafkaError) as refused:
        appended(plane, broken)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    stored = bytes(data_of(plane.call(fetch(entry(0)), 12)).records)
    assert [record.value for record in iter_records(stored, decompress=decompress)] == [TEXT[:size]]


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_large_batch_is_converted_in_slices(name: str) -> None:
    """In one slice, the conversion of the largest batches would take 0.1 to 0.35 s."""
    plane = DataPlane()
    plane.topic("t", compression_type=name)
    values = [TEXT[start : start + 1_000] for start in range(0, 700_000, 1_000)]
    codec = CompressionType.LZ4 if name == "gzip" else CompressionType.GZIP
    records = batch_of(*values, compression=codec, compress=compress)
    steps = appended(plane, records)
    costs, (base_offset, _) = drained(steps)
    assert base_offset == 0
    assert len(costs) >= 2
    assert max(costs) < 20_000
    stored = bytes(data_of(plane.call(fetch(entry(0)), 12)).records)
    assert [record.value for record in iter_records(stored, decompress=decompress)] == values


def test_a_partition_that_was_closed_meanwhile_refuses_the_batch() -> None:
    plane = DataPlane()
    plane.topic("t", compression_type="zstd")
    steps = appended(plane, batch_of(*[TEXT[:1_000]] * 700))
    next(steps)
    plane.partition("t").closed = True
    with pytest.raises(KafkaError) as refused:
        drained(steps)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def record_with_headers(count: int, key: bytes) -> bytes:
    """Returns a record with many equal headers without values."""
    headers = (varint(len(key)) + key + varint(-1)) * count
    body = b"\0" + varint(5) + varint(0) + varint(1) + b"k" + varint(1) + b"v" + varint(count) + headers
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    """Encodes a number as a zig-zag varint."""
    out = bytearray()
    rest = number << 1 if number >= 0 else -number * 2 - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def batch_with(record: bytes) -> bytes:
    """Returns a batch of one record that is compressed with gzip."""
    template = batch_of(b"v", compression=CompressionType.GZIP, compress=lambda codec, data: b"")
    packed = compress(CompressionType.GZIP, record)
    batch = bytearray(template[:61] + packed)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def test_a_record_with_many_headers_is_converted_without_an_object_for_each() -> None:
    """Batches of 16 KB may have 8 million headers. An object for each header would take 2.4 s in one slice, and a
    gigabyte of memory.
    """
    count = 100_000
    plane = DataPlane()
    plane.topic("t", compression_type="zstd")
    records = batch_with(record_with_headers(count, b"\xff"))
    tracemalloc.start()
    try:
        drained(appended(plane, records))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 30 * count, "a tuple of a key and a value takes 56 bytes, and a list entry 8"
    stored = bytes(data_of(plane.call(fetch(entry(0)), 12)).records)
    (record,) = iter_records(stored, decompress=decompress)
    assert (record.key, record.value, len(record.headers)) == (b"k", b"v", count)
    assert decompress(CompressionType.ZSTD, stored[61:], 10 * count).endswith(b"\x02\xff\x01" * count)


def test_a_copy_of_records_stops_at_its_limits_and_keeps_times_and_headers() -> None:
    times = (1_000, 1_005, 990)
    source = BatchBuilder(10_000, base_timestamp_ms=900)
    for number, time_ms in enumerate(times):
        source.append(time_ms, None, b"x" * 100, [("h", None), ("i", b"1")], offset_delta=2 * number)
    reader = iter_records(source.build())
    copy = BatchBuilder(10_000, base_timestamp_ms=0)
    assert copy_records(reader, copy, 1, 10_000), "one record"
    assert copy_records(reader, copy, 10, 1), "the bytes of one record"
    assert not copy_records(reader, copy, 10, 10_000)
    copied = copy.build()
    assert (copy.base_timestamp_ms, copy.max_timestamp_ms, copy.last_offset_delta) == (1_000, 1_005, 2)
    assert [(record.offset, record.timestamp_ms, record.value, record.headers) for record in iter_records(copied)] == [
        (number, time_ms, b"x" * 100, (("h", None), ("i", b"1"))) for number, time_ms in enumerate(times)
    ]
    append_time = BatchBuilder(10_000, base_timestamp_ms=7, log_append_time=True)
    assert not copy_records(iter_records(copied), append_time, 10, 10_000), "the batch has ended"
    assert {record.timestamp_ms for record in iter_records(append_time.build())} == {7}
    with pytest.raises(ValueError, match="full"):
        copy_records(iter_records(copied), BatchBuilder(100, base_timestamp_ms=0), 10, 10_000)
