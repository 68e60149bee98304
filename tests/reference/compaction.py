"""Reference implementation of compaction for logs without transactions. It is written for clarity, not for speed.

`kcore_ext.broker.compaction_map` and `kcore_ext.broker.compaction` must give the same batches, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from kcore.broker.compaction.rewrite import MAX_BATCH_BYTES, emptied, mergeable
from kcore.protocol.compression import compress, decompress
from kcore_ext.batch import BatchBuilder, BatchHeader, Record, iter_records, parse_header
from kcore_ext.batch.crc32c import crc32c


def with_records(header: BatchHeader, records: Sequence[Record], horizon_ms: int = -1) -> bytes:
    """Builds a batch from the records that remain of a compacted batch.

    Args:
        header: the batch's header.
        records: the remaining records, at least one.
        horizon_ms: the time from which the tombstones or the marker of the batch may be removed (KIP-534); -1 if the
            batch has neither.
    """
    append_time = header.is_log_append_time
    base_timestamp_ms = records[0].timestamp_ms
    if append_time:
        base_timestamp_ms = header.max_timestamp_ms
    elif horizon_ms >= 0:
        base_timestamp_ms = horizon_ms  # the horizon is stored in the base timestamp's field
    codec = header.compression
    builder = BatchBuilder(
        MAX_BATCH_BYTES,
        base_timestamp_ms=base_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        compression=codec,
        compress=compress if codec else None,
        log_append_time=append_time,
    )
    _fill(builder, header.base_offset, records)
    batch = builder.build_bytearray(
        header.base_offset, header.partition_leader_epoch, last_offset_delta=header.last_offset_delta
    )
    if horizon_ms < 0:
        return bytes(batch)
    attributes = struct.unpack_from(">h", batch, 21)[0]
    struct.pack_into(">h", batch, 21, attributes | 0x40)  # the base timestamp's field has the horizon
    struct.pack_into(">q", batch, 27, horizon_ms)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def _fill(builder: BatchBuilder, base_offset: int, records: Iterable[Record]) -> None:
    for record in records:
        taken = builder.append(
            record.timestamp_ms, record.key, record.value, record.headers, offset_delta=record.offset - base_offset
        )
        assert taken, "the records of a batch fit into one batch"


def records_of(batch: bytes) -> list[Record]:
    """Reads the records of a batch of any codec."""
    return list(iter_records(batch, decompress=decompress))


def merged(batches: Sequence[bytes]) -> bytes:
    """Merges batches into one. They must not have a producer id, compression or other attributes."""
    first, last = parse_header(batches[0]), parse_header(batches[-1])
    records = [record for batch in batches for record in records_of(batch)]
    builder = BatchBuilder(2**31 - 1, base_timestamp_ms=records[0].timestamp_ms)
    for one in records:
        assert builder.append(
            one.timestamp_ms, one.key, one.value, one.headers, offset_delta=one.offset - first.base_offset
        )
    return builder.build(
        first.base_offset, first.partition_leader_epoch, last_offset_delta=last.last_offset - first.base_offset
    )


def neighbours_merged(batches: Sequence[bytes], max_bytes: int) -> list[bytes]:
    """Merges small neighbouring batches as long as the result fits into `max_bytes`."""
    left: list[bytes] = []
    run: list[bytes] = []
    for batch in [*batches, None]:
        alone = batch is None or not mergeable(parse_header(batch)) or 2 * len(batch) >= max_bytes
        if run and (
            alone
            or batch is None
            or parse_header(batch).partition_leader_epoch != parse_header(run[0]).partition_leader_epoch
            or sum(map(len, run)) + len(batch) > max_bytes
        ):
            left.append(merged(run) if len(run) > 1 else run[0])
            run = []
        if batch is not None and alone:
            left.append(batch)
        elif batch is not None:
            run.append(batch)
    return left


def latest_offsets(batches: Sequence[bytes]) -> dict[bytes, int]:
    """Returns the offset of the last record of each key."""
    return {record.key: record.offset for batch in batches for record in records_of(batch) if record.key is not None}


def compacted(
    batch: bytes, latest: dict[bytes, int], last_of_producers: set[int], now_ms: int, retention_ms: int
) -> bytes | None:
    """Compacts a batch. Returns None if the batch is removed.

    Args:
        batch: the stored batch.
        latest: the last offset of each key in the part of the log that this pass compacts.
        last_of_producers: the last offsets of the batches that the partition's producer state refers to. Such a batch
            stays in the log even if no record of it remains.
        now_ms: the time of the pass.
        retention_ms: retention time of tombstones.
    """
    header = parse_header(batch)
    expired = 0 <= header.delete_horizon_ms <= now_ms
    stay = [
        record
        for record in records_of(batch)
        if record.key is not None
        and latest.get(record.key, -1) <= record.offset
        and not (expired and record.value is None)
    ]
    if not stay:
        needed = header.producer_id >= 0 and header.last_offset in last_of_producers
        return (emptied(header) if header.record_count else batch) if needed else None
    horizon_ms = -1
    if any(record.value is None for record in stay):
        horizon_ms = header.delete_horizon_ms if header.delete_horizon_ms >= 0 else now_ms + retention_ms
    if len(stay) == header.record_count and horizon_ms == header.delete_horizon_ms:
        return batch
    return with_records(header, stay, horizon_ms)
