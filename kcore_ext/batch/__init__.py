"""Kafka's record batch v2: builds, parses, iterates, stamps and checks batches, regardless of the records' meaning.

    0 base offset i64 | 8 length i32 (of what follows it) | 12 leader epoch i32 | 16 magic i8 = 2 | 17 crc u32
    21 attributes i16 | 23 last offset delta i32 | 27 base timestamp i64 | 35 max timestamp i64
    43 producer id i64 | 51 producer epoch i16 | 53 base sequence i32 | 57 record count i32 | 61 records

All numbers are big-endian. The CRC-32C covers everything from the attributes on, so the log stamps base offset and
leader epoch in place without a new CRC. Records are zig-zag varints and bytes; with a codec in the attributes they are
one compressed block.

Codecs are defined above this package and passed as arguments: `compress(codec, data) -> bytes` and
`decompress(codec, data, max_size_bytes) -> bytes`, codec 1 gzip, 2 snappy, 3 lz4, 4 zstd.

No function reads beyond its buffer, or allocates by a number in it before checking that number against the available
bytes. Malformed batches raise CorruptBatchError.
"""

from kcore_ext.batch.builder import BatchBuilder, build_control_batch, marker_builder
from kcore_ext.batch.header import (
    BatchHeader,
    CorruptBatchError,
    SplitBatches,
    parse_header,
    split_batches,
    stamp,
    stamp_append_time,
    stamped,
    validate_crc,
)
from kcore_ext.batch.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    ControlMarker,
    Record,
    iter_entries,
    iter_records,
    parse_control,
    validate,
)

__all__ = [
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "BatchBuilder",
    "BatchHeader",
    "ControlMarker",
    "CorruptBatchError",
    "Record",
    "SplitBatches",
    "build_control_batch",
    "iter_entries",
    "iter_records",
    "marker_builder",
    "parse_control",
    "parse_header",
    "split_batches",
    "stamp",
    "stamp_append_time",
    "stamped",
    "validate",
    "validate_crc",
]
