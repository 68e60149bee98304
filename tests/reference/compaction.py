"""Reference implementation of compaction without transactions: whole lists, dictionaries, one record at a time.

`kcore_ext.broker.compaction_map` and `kcore_ext.broker.compaction` must give the same batches, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcore.broker.compaction.rewrite import emptied, mergeable, records_of, with_records
from kcore_ext.batch import BatchBuilder, parse_header


def merged(batches: Sequence[bytes]) -> bytes:
    """Merges batches without producers and attributes into one."""
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
    """Merges small neighbours among the remaining batches as long as they fit into `max_bytes`."""
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
    """Returns key -> offset of its last record."""
    return {record.key: record.offset for batch in batches for record in records_of(batch) if record.key is not None}


def left_of(
    batch: bytes, latest: dict[bytes, int], last_of_producers: set[int], now_ms: int, retention_ms: int
) -> bytes | None:
    """Compacts a batch; None: it is removed.

    Args:
        batch: the stored batch.
        latest: the last offset of each key in the new part of the log.
        last_of_producers: the last offsets of the batches that the partition remembers of its producers.
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
