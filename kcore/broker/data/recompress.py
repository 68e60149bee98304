"""Recompression of a batch with its topic's codec."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from kcore.broker.data.decompression import with_costs
from kcore.protocol.compression import (
    PIECE_BYTES,
    Buffer,
    CompressionType,
    compress,
    compress_in_steps,
    prepared,
)
from kcore_ext.batch import BatchBuilder, iter_records
from kcore_ext.batch.builder import copy_records

if TYPE_CHECKING:
    from kcore.broker.configs.log_config import LogConfig
    from kcore_ext.batch import BatchHeader

LARGEST_BATCH_BYTES = 2**31 - 1

NO_LIMIT: Final = LARGEST_BATCH_BYTES
FASTEST_LEVEL: Final = 1
LEVEL_LIMITS: Final = {
    CompressionType.GZIP: ((3, NO_LIMIT), (9, 800_000)),
    CompressionType.LZ4: ((2, NO_LIMIT), (17, 480_000)),
    CompressionType.ZSTD: ((3, NO_LIMIT), (14, 600_000), (22, 80_000)),
}
"""Codec -> pairs of a compression level and a maximum size of records in bytes, by ascending level.

For a topic's level, the first pair with this or a higher level applies. Compressing records of the pair's maximum size
takes at most about 40 ms. For larger records, the broker uses the fastest level.

The sizes assume compressible text and a CPU core of the year 2024, which compresses 20 MB/s with gzip 6, 12 MB/s with
lz4 9, and 2 MB/s with zstd 22.
"""
DEFAULT_LEVELS: Final = {CompressionType.GZIP: 6, CompressionType.LZ4: 9, CompressionType.ZSTD: 3}


RECORDS_A_STEP: Final = 2_000
"""Maximum number of records that one step copies."""
BYTES_A_STEP: Final = 262_144
"""Maximum number of bytes that one step copies."""
RECORD_COST_US: Final = 2
"""The cost of copying one record in addition to the cost of its bytes, in microseconds."""
BYTES_A_MICROSECOND: Final = 100
"""Approximate speed at which records are copied, in bytes per microsecond."""
PACKED_BYTES_A_MICROSECOND: Final = 30
"""Approximate speed of compression at the fastest level of the slowest codec, in bytes per microsecond."""


def level_for(level: int | None, codec: int, size_bytes: int) -> int | None:
    """Returns the level for records: the fastest level if the topic's level would take too long, else the topic's.

    Args:
        level: the topic's level; None: the codec's default.
        codec: a CompressionType.
        size_bytes: the size of the records of a batch.
    """
    limits = LEVEL_LIMITS.get(CompressionType(codec))
    if limits is not None:
        wished = DEFAULT_LEVELS[CompressionType(codec)] if level is None or level < 0 else level
        limit = next((size for highest, size in limits if wished <= highest), limits[-1][1])
        if size_bytes > limit:
            return FASTEST_LEVEL
    return level


def pack(level: int | None, codec: int, data: Buffer) -> Generator[int, None, bytes]:
    """Compresses records at the level that `level_for` returns, in steps if they are long.

    Args:
        level: the topic's level; None: the codec's default.
        codec: a CompressionType.
        data: the records of a batch.

    Yields:
        The cost of each step in microseconds.
    """
    size_bytes = memoryview(data).nbytes
    level = level_for(level, codec, size_bytes)
    if size_bytes <= PIECE_BYTES or codec == CompressionType.NONE:
        return compress(codec, data, level)
    return (yield from with_costs(compress_in_steps(codec, data, level), PACKED_BYTES_A_MICROSECOND))


def rebuild(
    batch: bytes | bytearray,
    header: BatchHeader,
    codec: int,
    config: LogConfig,
    wall_ms: int,
    unpacked: bytes | None,
) -> Generator[int, None, bytearray]:
    """Builds a batch with the same records and producer, in another codec and with offsets from 0 on.

    Args:
        batch: the producer's batch, already checked.
        header: the batch's header.
        codec: the new codec; 0 for none.
        config: the topic's settings.
        wall_ms: the time of the append, for topics with append times.
        unpacked: the decompressed records of a compressed batch; None: the batch is not compressed.

    Yields:
        The cost of each step in microseconds, if the batch is long. No step takes longer than about 40 ms.
    """
    packed = b""
    reader = iter_records(batch, decompress=prepared(unpacked))
    builder = BatchBuilder(
        LARGEST_BATCH_BYTES,
        base_timestamp_ms=wall_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        compression=codec,
        compress=lambda codec, data: packed,
        keeps_codec=True,
        log_append_time=config.log_append_time,
    )
    step_bytes = builder.size_bytes
    while copy_records(reader, builder, RECORDS_A_STEP, BYTES_A_STEP):
        yield RECORD_COST_US * RECORDS_A_STEP + (builder.size_bytes - step_bytes) // BYTES_A_MICROSECOND
        step_bytes = builder.size_bytes
    assert builder.count, "a checked batch has records"
    packed = yield from pack(config.compression_level, codec, builder.record_bytes())
    return bytearray(builder.build())
