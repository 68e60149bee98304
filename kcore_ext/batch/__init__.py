"""Kafka's record batch v2: builds, parses, iterates, stamps and checks batches, regardless of the records' meaning.

A header has these fields. A number in front of a field is its position in bytes; `length` counts the bytes after it.

    0 base offset i64 | 8 length i32 | 12 leader epoch i32 | 16 magic i8 = 2 | 17 crc u32
    21 attributes i16 | 23 last offset delta i32 | 27 base timestamp i64 | 35 max timestamp i64
    43 producer id i64 | 51 producer epoch i16 | 53 base sequence i32 | 57 record count i32 | 61 records

All numbers are big-endian. The CRC-32C covers everything from the attributes on. Therefore, the log can set the base
offset and the leader epoch in place without a new CRC. Records consist of zig-zag varints and bytes. If the attributes
name a codec, all records together are one compressed block.

This package contains no codecs. Callers pass them as the functions `compress(codec, data) -> bytes` and
`decompress(codec, data, max_size_bytes) -> bytes`. The codecs are 1 gzip, 2 snappy, 3 lz4 and 4 zstd.

No function reads beyond its buffer. Before a function allocates memory according to a number in the buffer, it checks
the number against the size of the buffer. Malformed batches raise CorruptBatchError.
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
