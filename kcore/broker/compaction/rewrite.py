"""Rewriting of batches for compaction: removes records, or sets the time from which tombstones may be removed.

A rewritten batch keeps its base offset, last offset, producer and sequence. So offsets never change, and the remaining
batch still identifies its producer (KIP-98). The callers choose the records to remove. Uncompressed batches, the common
case, and markers go through `kcore_ext.broker.compaction` instead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Final

from kcore.protocol.batch_layout import (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    CODEC_BITS,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    MAX_TIMESTAMP_AT,
)
from kcore.protocol.compression import PIECE_BYTES, Buffer, compress, compress_in_steps, decompress
from kcore_ext.batch import DEFAULT_MAX_DECOMPRESSED_BYTES, BatchBuilder, BatchHeader
from kcore_ext.batch.crc32c import crc32c
from kcore_ext.broker.compaction import filtered

MAX_BATCH_BYTES: Final = 2**31 - 1
NO_TIMESTAMP: Final = -1

_UINT32 = struct.Struct(">I")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")


def _seal(batch: bytearray) -> bytes:
    """Computes the CRC of the batch's current bytes and writes it into the batch's header."""
    _UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return bytes(batch)


def repacked(
    header: BatchHeader,
    batch: bytes,
    stays: bytes,
    horizon_ms: int,
    unpack: Callable[[int, Buffer, int], bytes] = decompress,
) -> Generator[int, None, bytes]:
    """Builds a compressed batch from some of its records, in steps if there are many.

    Args:
        header: the batch's header.
        batch: the bytes of the batch.
        stays: a flag for each record: 1 if it remains. At least one remains.
        horizon_ms: the time from which the batch's tombstones may be removed; -1: the batch has no tombstones.
        unpack: decompresses the records of the batch.

    Yields:
        The number of bytes that a step has decompressed or compressed.
    """
    codec = header.compression
    whole = bytearray(batch[:HEADER_BYTES])
    whole += unpack(codec, memoryview(batch)[HEADER_BYTES:], DEFAULT_MAX_DECOMPRESSED_BYTES)
    _set_codec(whole, 0)
    if len(whole) > PIECE_BYTES:
        yield len(whole)
    kept = filtered(bytes(whole), stays, horizon_ms)
    records = kept[HEADER_BYTES:]
    if len(records) <= PIECE_BYTES:
        packed = compress(codec, records)
    else:
        packed = yield from compress_in_steps(codec, records)
    if len(packed) >= len(records):
        return kept
    changed = bytearray(kept[:HEADER_BYTES])
    changed += packed
    _set_codec(changed, codec)
    return _seal(changed)


def _set_codec(batch: bytearray, codec: int) -> None:
    """Sets the codec and the length of a batch."""
    attributes = _INT16.unpack_from(batch, ATTRIBUTES_AT)[0]
    _INT16.pack_into(batch, ATTRIBUTES_AT, attributes & ~CODEC_BITS | codec)
    _INT32.pack_into(batch, LENGTH_AT, len(batch) - LENGTH_OVERHEAD)


def emptied(header: BatchHeader) -> bytes:
    """Builds a batch without records that keeps the producer and its last sequence."""
    builder = BatchBuilder(
        MAX_BATCH_BYTES,
        base_timestamp_ms=NO_TIMESTAMP,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        log_append_time=header.is_log_append_time,
    )
    batch = builder.build_bytearray(
        header.base_offset, header.partition_leader_epoch, last_offset_delta=header.last_offset_delta
    )
    # The largest timestamp stays, as in Kafka: it is the time of the producer's last write.
    _INT64.pack_into(batch, MAX_TIMESTAMP_AT, header.max_timestamp_ms)
    return _seal(batch)


def mergeable(header: BatchHeader) -> bool:
    """Returns True if a batch can be merged, because it has no producer id, no codec and no other attribute bits."""
    return header.attributes == 0 and header.producer_id < 0
