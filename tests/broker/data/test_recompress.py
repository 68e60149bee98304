"""Recompression at a topic's level, which is the fastest one for records that would take too long."""

from __future__ import annotations

import pytest

from kcore.broker.data.recompress import FASTEST_LEVEL, compress_soon
from kcore.protocol.compression import CompressionType, compress, decompress
from kcore_ext.batch import iter_records, parse_header
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


@pytest.mark.parametrize(("codec", "level", "limit"), LIMITS)
def test_larger_records_are_compressed_at_the_fastest_level(
    codec: CompressionType, level: int | None, limit: int
) -> None:
    small, large = TEXT[:limit], TEXT[: limit + 1]
    assert compress_soon(level, codec, small) == compress(codec, small, level)
    packed = compress_soon(level, codec, large)
    assert packed == compress(codec, large, FASTEST_LEVEL)
    assert decompress(codec, packed, len(large)) == large


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
    assert compress_soon(level, codec, TEXT) == compress(codec, TEXT, level)


def test_a_large_batch_of_a_topic_with_a_slow_level_keeps_its_records() -> None:
    plane = DataPlane()
    plane.topic("t", compression_type="zstd", compression_zstd_level=22)
    values = [TEXT[start : start + 1_000] for start in range(0, 400_000, 1_000)]
    assert produce(plane, batch_of(*values)).error_code == 0
    records = bytes(data_of(plane.call(fetch(entry(0)), 12)).records)
    assert parse_header(records, 0).compression == CompressionType.ZSTD
    assert [record.value for record in iter_records(records, decompress=decompress)] == values
