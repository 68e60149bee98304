"""Record batches as rows, read by the extension and in pure Python: all codecs, intact and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.protocol.compression import CompressionType, compress
from kcore.spark.events import batches, pure_batch
from kcore.spark.events.arrow import LARGEST_MS, from_batch
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.events.segments import find_partitions, read_rows
from kcore.spark.events.sources import Part, response_rows
from kcore_ext.batch import BatchBuilder, build_control_batch

CODECS = list(CompressionType)


def batch_of(
    records: list[tuple[int, bytes | None, bytes | None, Any]], base_offset: int = 0, codec: int = 0, **more: Any
) -> bytes:
    """Returns one batch of (timestamp, key, value, headers)."""
    builder = BatchBuilder(1 << 24, base_timestamp_ms=1_000, compression=codec, compress=compress, **more)
    for record in records:
        assert builder.append(*record)
    return builder.build(base_offset)


def sealed(batch: bytes) -> bytes:
    """Returns the batch with a corrected CRC."""
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


def gathered(backend: Any, batch: bytes) -> tuple[list[EventRow], str]:
    """Reads a batch into an Arrow table. Returns the rows of this table, and the text of the fault, or ""."""
    into = backend("t", 1)
    fault = ""
    try:
        into.add(memoryview(batch), 0, None)
    except batches.BatchError as error:
        fault = f"{error.kind} {error.offset} {error.size_bytes}: {error}"
    if not len(into):
        return [], fault
    found = into.take()
    found.validate(full=True)
    assert len(into) == 0
    return list(from_batch(found)), fault


def read(backend: Any, batch: bytes) -> tuple[list[EventRow], str]:
    """Returns the rows of a batch, and the fault."""
    rows = []
    try:
        for row in backend("t", 1, batch):
            rows.append(row)  # noqa: PERF402  # those before the damage count
    except batches.BatchError as error:
        return rows, f"{error.kind} {error.offset} {error.size_bytes}: {error}"
    return rows, ""


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
HEADERS = st.lists(st.tuples(TEXTS, st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
BYTES = st.none() | st.binary(max_size=200)


def in_arrow(timestamp_ms: int) -> int:
    """Returns a time as Arrow represents it, or None if it is outside of the range of microseconds."""
    return timestamp_ms if 0 <= timestamp_ms <= LARGEST_MS else -1


RECORDS = st.lists(st.tuples(st.integers(-5, 1 << 40), BYTES, BYTES, HEADERS), min_size=1, max_size=8)


@settings(max_examples=70, deadline=None)
@given(st.data(), RECORDS, st.sampled_from(CODECS), st.integers(0, 1 << 50), st.booleans())
def test_both_readers_give_the_same_rows(
    data: st.DataObject, records: list[Any], codec: CompressionType, base: int, append_time: bool
) -> None:
    """Compares intact batches, and damaged batches with a correct CRC."""
    more = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 3, "transactional": True}
    whole = batch_of(records, base, codec, log_append_time=append_time, **more)
    rows, fault = read(batches.rows_pure, whole)
    assert fault == ""
    assert [(row.key, row.value, row.headers) for row in rows] == [record[1:] for record in records]
    assert (rows, fault) == read(batches.rows_compiled, whole)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from([21, 22, *range(57, len(whole))]))
        damaged[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF, damaged[at] ^ 1]))
    for batch in (whole, sealed(bytes(damaged))):
        expected = read(batches.rows_pure, batch)
        assert read(batches.rows_compiled, batch) == expected
        in_range = [row._replace(timestamp_ms=in_arrow(row.timestamp_ms)) for row in expected[0] if row.offset >= 0]
        assert gathered(batches.CompiledGatherer, batch) == (in_range, expected[1])


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=60), st.integers(-2, 4))
def test_both_readers_agree_on_random_bytes(noise: bytes, count: int) -> None:
    """Compares random bytes after a valid header."""
    batch = bytearray(batch_of([(0, None, None, ())])[:61]) + noise
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    expected = read(batches.rows_pure, sealed(bytes(batch)))
    assert read(batches.rows_compiled, sealed(bytes(batch))) == expected
    in_range = [row._replace(timestamp_ms=in_arrow(row.timestamp_ms)) for row in expected[0] if row.offset >= 0]
    assert gathered(batches.CompiledGatherer, sealed(bytes(batch))) == (in_range, expected[1])


def test_control_batches_and_empty_batches_are_read() -> None:
    marker = build_control_batch(1, 3, producer_id=7, producer_epoch=1, timestamp_ms=5, base_offset=9)
    empty = BatchBuilder(1 << 20, base_timestamp_ms=0, producer_id=7, producer_epoch=1, base_sequence=4).build(
        20, last_offset_delta=5
    )
    for batch in (marker, empty):
        expected = read(batches.rows_pure, batch)
        assert read(batches.rows_compiled, batch) == expected
        for backend in (batches.CompiledGatherer, batches.RowGatherer):
            assert gathered(backend, batch) == expected
    (row,) = batches.rows_of("t", 1, empty)
    assert row == EventRow(None, None, "t", 1, 25, row.timestamp_ms, 0, (), 7, 1, 9, False, False, True)


@pytest.mark.parametrize("data", [b"", b"a", b"123456789", bytes(range(256)) * 5], ids=len)
def test_crc32c_is_computed_without_its_package(data: bytes) -> None:
    assert pure_batch.slow_crc32c(data) == crc32c(data)
    assert pure_batch.slow_crc32c(b"123456789") == 0xE3069283, "the check value of CRC-32C"


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_segments_of_all_codecs_are_read(tmp_path: Path, codec: CompressionType) -> None:
    """A block that the codec cannot decompress is a fault. The batches around this block are read."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    found = [
        [(1_000 + n, b"key", b"value %d" % n * 20, (("trace", b"%d" % n), ("none", None))) for n in range(at, at + 10)]
        for at in (0, 10, 20)
    ]
    first, second, third = (batch_of(part, 10 * at, codec) for at, part in enumerate(found))
    segment = folder / f"{0:020d}.log"
    segment.write_bytes(first + second + third)
    (part,) = find_partitions(tmp_path)
    rows = list(read_rows(part))
    assert [(row.timestamp_ms, row.key, row.value, row.headers) for row in rows] == [
        record for part in found for record in part
    ]
    assert [row.offset for row in rows] == list(range(30))
    faults: list[LogFault] = []
    segment.write_bytes(first + sealed(second[:61] + b"\x55" * (len(second) - 61)) + third)
    assert list(read_rows(part, on_fault=faults.append)) == rows[:10] + rows[20:]
    ((_, _, offset, kind, detail),) = faults
    assert (offset, kind) == (10, "corrupt")
    assert detail.startswith(f"{segment.name}: corrupt record batch at byte ")


@pytest.mark.parametrize(
    ("at", "flip", "expected"),
    [
        (2, 0x80, "has base offset 140737488355338, but offset 10 was expected"),
        (6, 0x10, "has base offset 4106, but offset 10 was expected"),
        (9, 0x40, "needs 41"),
        (10, 0x7F, "the batch at position"),
        (11, 0x01, "the CRC of the batch at position"),
        (16, 0x80, "unknown magic 130 of the batch at position"),
        (70, 0x01, "the CRC of the batch at position"),
    ],
)
def test_a_flipped_bit_loses_one_batch(tmp_path: Path, at: int, flip: int, expected: str) -> None:
    """The CRC does not cover offset, length and magic. The batches after the damage are read nevertheless."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    whole = [batch_of([(1_000, b"key", b"value %d" % n, ())] * 10, n * 10) for n in range(4)]
    segment = folder / f"{0:020d}.log"
    segment.write_bytes(b"".join(whole))
    (part,) = find_partitions(tmp_path)
    rows = list(read_rows(part))
    assert len(rows) == 40
    damaged = bytearray(whole[1])
    damaged[at] ^= flip
    segment.write_bytes(whole[0] + damaged + whole[2] + whole[3])
    faults: list[LogFault] = []
    assert list(read_rows(part, on_fault=faults.append)) == rows[:10] + rows[20:]
    ((_, _, offset, kind, detail),) = faults
    assert kind in {"corrupt", "truncated"}
    assert offset >= 10
    assert expected in detail


def test_a_damaged_batch_of_a_response_is_skipped() -> None:
    """A Fetch response has a damaged batch between two valid ones, and ends with a truncated batch. The valid ones are
    read, and the next fetch begins at the truncated one.
    """
    first, second, third = (batch_of([(0, b"%d" % at, None, ())], at) for at in range(3))
    faults: list[LogFault] = []
    response = first + second[:-1] + b"\xff" + third + third[:-1]
    ends = []

    def rows() -> Iterator[EventRow]:
        ends.append((yield from response_rows(Part("t", 1), memoryview(response), 0, None, faults.append)))

    assert [row.offset for row in rows()] == [0, 2]
    assert ends == [3]
    assert [(fault.offset, fault.kind) for fault in faults] == [(1, "corrupt")]
