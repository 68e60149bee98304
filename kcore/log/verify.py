"""Checks the stored data of one partition for consistency."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from kcore.log.batch_header import damage, last_offset, leader_epoch, offsets_and_timestamp
from kcore.log.errors import CorruptLogError, LogError
from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.snapshot import read_chunks
from kcore.protocol.batch_layout import HEADER_BYTES

if TYPE_CHECKING:
    from kcore.log.storage import Storage
    from kcore.log.write_set import PartitionMeta

SLICE_BYTES = 1 << 20
SLICE_BATCHES = 512


def verify_partition(
    storage: Storage, key: PartitionKey, meta: PartitionMeta, end_offset: int, deep: bool
) -> list[Finding]:
    """Returns the findings of one partition in order of offset. An unreadable storage is a finding too."""
    findings: list[Finding] = []
    try:
        _verify_epochs(key, meta, end_offset, findings)
        if deep:
            _verify_batches(storage, key, meta, end_offset, findings)
            _verify_snapshot(storage, key, meta, findings)
        elif meta.log_start_offset < end_offset:
            _verify_ends(storage, key, meta, end_offset, findings)
    except CorruptLogError as error:
        findings.append(Finding(key, error.offset, "storage", error.what))
    except LogError as error:
        findings.append(Finding(key, None, "storage", str(error)))
    return findings


def _verify_epochs(key: PartitionKey, meta: PartitionMeta, end_offset: int, findings: list[Finding]) -> None:
    """Checks that epochs and their start offsets ascend and lie within the log."""
    before = None
    for entry in meta.epochs:
        if before is not None and (entry.epoch <= before.epoch or entry.start_offset < before.start_offset):
            findings.append(
                Finding(key, entry.start_offset, "epoch", f"leader epoch entry {entry} must not follow {before}")
            )
        if entry.start_offset > end_offset:
            findings.append(
                Finding(
                    key,
                    entry.start_offset,
                    "epoch",
                    f"leader epoch entry {entry} begins above the end offset {end_offset}",
                )
            )
        before = entry


def _check_batch(key: PartitionKey, base: int, batch: bytes, findings: list[Finding]) -> bool:
    found = damage(batch, base, check_crc=True)
    if found is not None:
        findings.append(Finding(key, base, *found))
    # After a CRC error the header may still be right, so the caller uses it. After a header error the header is
    # unreliable.
    return found is None or found[0] == "crc"


def _verify_ends(
    storage: Storage, key: PartitionKey, meta: PartitionMeta, end_offset: int, findings: list[Finding]
) -> None:
    """Checks that the batch with the log start and the last batch exist and are sound."""
    for offset, kind in ((meta.log_start_offset, "start"), (end_offset - 1, "gap")):
        stored = storage.slice(meta.number, offset, end_offset, 1, 1)
        if not stored:
            findings.append(Finding(key, offset, kind, "no batch contains this offset"))
            continue
        base, batch = stored[0]
        if not _check_batch(key, base, batch, findings) or offset < base <= meta.cleaned_to:
            continue  # the batch is damaged and reported, or the offset is in a gap that compaction left
        if not base <= offset <= last_offset(batch):
            findings.append(Finding(key, offset, kind, f"no batch contains this offset, the next begins at {base}"))


def _verify_batches(
    storage: Storage, key: PartitionKey, meta: PartitionMeta, end_offset: int, findings: list[Finding]
) -> None:
    expected = meta.log_start_offset
    first = True
    starts = [entry.start_offset for entry in meta.epochs]
    position = expected
    while position < end_offset:
        stored = storage.slice(meta.number, position, end_offset, SLICE_BYTES, SLICE_BATCHES)
        if stored and not first and stored[-1][0] < position:  # only the batch with a damaged header
            size_bytes = sum(len(batch) for _, batch in stored)
            stored = storage.slice(meta.number, position, end_offset, size_bytes + 1, SLICE_BATCHES)
        fresh = [pair for pair in stored if first or pair[0] >= position]
        if not fresh:
            break
        for base, batch in fresh:
            if base > max(expected, meta.cleaned_to):
                kind = "start" if first else "gap"
                findings.append(Finding(key, expected, kind, f"no batch contains the offsets {expected} to {base - 1}"))
            elif base < expected and not first:
                findings.append(
                    Finding(
                        key, base, "overlap", f"the batch begins below offset {expected}, the end of the previous batch"
                    )
                )
            first = False
            position = base + 1
            if not _check_batch(key, base, batch, findings):
                expected = base + 1
                continue
            expected = max(expected, last_offset(batch) + 1)
            position = max(position, expected)
            _verify_batch_epoch(key, meta, starts, base, batch, findings)
    if meta.cleaned_to >= end_offset > meta.log_start_offset:
        findings.append(
            Finding(
                key,
                meta.cleaned_to,
                "compaction",
                f"the log is compacted up to this offset, but its end offset is {end_offset}",
            )
        )
    if expected < end_offset:
        findings.append(Finding(key, expected, "gap", f"no batch contains the offsets {expected} to {end_offset - 1}"))


def _verify_batch_epoch(
    key: PartitionKey, meta: PartitionMeta, starts: list[int], base: int, batch: bytes, findings: list[Finding]
) -> None:
    """Checks that the epoch in a batch is the recorded epoch of its offset; -1 if no epoch is recorded.

    The epochs of batches below the log start may have been removed from the metadata. The CRC of a batch does not cover
    its epoch. A batch without records may have any epoch if none is recorded, because a repair can have made the batch.
    """
    at = bisect_right(starts, base) - 1
    recorded = meta.epochs[at].epoch if at >= 0 else -1
    stamped = leader_epoch(batch)
    is_checked = at >= 0 or (base >= meta.log_start_offset and len(batch) > HEADER_BYTES)
    if is_checked and stamped != recorded:
        findings.append(
            Finding(key, base, "epoch", f"the batch has leader epoch {stamped}, but the metadata has {recorded}")
        )


def _verify_snapshot(storage: Storage, key: PartitionKey, meta: PartitionMeta, findings: list[Finding]) -> None:
    info = meta.snapshot
    if info is None:
        return
    try:
        size = sum(map(len, read_chunks(storage, meta.number, key, info)))
    except CorruptLogError as error:
        findings.append(Finding(key, info.offset, "snapshot", error.what))
        return
    if size != info.size_bytes:
        findings.append(
            Finding(key, info.offset, "snapshot", f"the snapshot has {size} bytes instead of {info.size_bytes}")
        )


def verify_columns(storage: Storage, key: PartitionKey, meta: PartitionMeta, end_offset: int) -> list[Finding]:
    """Checks a storage that also has header fields of batches in columns of a table. Returns a finding for each batch
    whose columns differ from its header.

    Args:
        storage: the storage to check.
        key: the partition.
        meta: the metadata of the partition, whose batches must be sound.
        end_offset: the end offset of the partition.
    """
    findings: list[Finding] = []
    position = meta.log_start_offset
    try:
        while position < end_offset:
            stored = storage.slice(meta.number, position, end_offset, SLICE_BYTES, SLICE_BATCHES)
            if not stored:
                break
            for (base, batch), fields in zip(
                stored, storage.summaries(meta.number, position, end_offset, len(stored)), strict=True
            ):
                _, last, timestamp_ms = offsets_and_timestamp(batch)
                expected = BatchSummary(base, last, timestamp_ms, len(batch))
                if fields != expected:
                    findings.append(
                        Finding(
                            key,
                            base,
                            "storage",
                            f"the columns of the store have {fields}, but the batch has {expected}",
                        )
                    )
                position = max(position + 1, last + 1)
    except CorruptLogError as error:
        findings.append(Finding(key, error.offset, "storage", error.what))
    except (LogError, ValueError) as error:  # `strict` raises: the numbers of rows and batches differ
        findings.append(Finding(key, position, "storage", str(error)))
    return findings
