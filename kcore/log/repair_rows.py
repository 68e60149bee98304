"""Metadata of partitions whose rows are damaged, for a repair: makes the metadata again from the batches of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.log.batch_header import damage, last_offset, leader_epoch
from kcore.log.interface import EpochEntry, PartitionKey
from kcore.log.lmdb_layout import DROPPED_PREFIX, PARTITION_PREFIX, U32, parse_partition_meta_key
from kcore.log.repair_partition import Loss
from kcore.log.row_checksum import without_checksum
from kcore.log.salvaged_content import Tier
from kcore.log.write_set import PartitionMeta
from kcore.protocol.batch_layout import HEADER_BYTES

if TYPE_CHECKING:
    from kcore.log.lmdb_salvage import Salvage

_KEY_BYTES = len(PARTITION_PREFIX) + 20

Found = dict[int, tuple[PartitionKey, list[PartitionMeta]]]
"""Partition number -> the partition, and versions of its metadata, the most reliable version first."""


def damaged_partitions(salvage: Salvage) -> dict[PartitionKey, bytes]:
    """Returns the partitions whose rows are damaged, with the stored values of the rows."""
    return {
        parse_partition_meta_key(key): stored
        for key, stored in salvage.damaged_rows.items()
        if key.startswith(PARTITION_PREFIX) and len(key) == _KEY_BYTES
    }


def rebuild_metadata(salvage: Salvage, found: Found, losses: list[Loss]) -> None:
    """Adds the metadata of partitions whose rows are damaged to `found`, and reports it as lost.

    If the file has an older copy of a row, `found` has this copy already. Otherwise the metadata is made from the
    batches of the partition. The damaged row, or the only partition number without a row, shows which batches these
    are.

    Args:
        salvage: the content of the damaged folder.
        found: the metadata of all other partitions.
        losses: receives the losses.
    """
    known = {key for key, _ in found.values()}
    lost = {}
    for key, stored in damaged_partitions(salvage).items():
        if key in known:
            _lose(losses, key, "the repair uses an older copy")
        else:
            lost[key] = stored
    free = _numbers_without_row(salvage, found)
    for key, stored in list(lost.items()):
        number = U32.unpack(stored[: U32.size])[0] if len(stored) >= U32.size else -1
        if number in free:
            free.remove(number)
            found[number] = (key, [_from_batches(salvage, number, stored)])
            _lose(losses, key, "the repair makes it again from the batches")
            del lost[key]
    if len(lost) == len(free) == 1:
        ((key, stored),) = lost.items()
        found[free[0]] = (key, [_from_batches(salvage, free[0], stored)])
        _lose(losses, key, "the repair makes it again from the only batches of an unknown partition")
        return
    for key in lost:
        _lose(losses, key, "its batches, if it had any, cannot be determined; new records may get their offsets")


def _lose(losses: list[Loss], key: PartitionKey, detail: str) -> None:
    losses.append(Loss(key, None, None, None, "metadata", f"the checksum of its metadata is wrong; {detail}"))


def _numbers_without_row(salvage: Salvage, found: Found) -> list[int]:
    """Returns the numbers that have current batches, but neither a row nor the tombstone of a dropped partition."""
    dropped = {key for key in salvage.meta if key.startswith(DROPPED_PREFIX)}
    return [
        number
        for number, batches in sorted(salvage.log.items())
        if number not in found and DROPPED_PREFIX + U32.pack(number) not in dropped and batches.has_current
    ]


def _from_batches(salvage: Salvage, number: int, stored: bytes) -> PartitionMeta:
    """Returns metadata that fits the batches of a partition number.

    It takes the log start, the end of compaction and the snapshot of the damaged row if they fit the batches. A repair
    checks the snapshot with its own checksum.

    Args:
        salvage: the content of the damaged folder.
        number: the partition number.
        stored: the damaged row.
    """
    batches = salvage.log[number]
    epochs: list[EpochEntry] = []
    start = end = -1
    for place in batches.in_order():
        base = batches.bases[place]
        if batches.tiers[place] > Tier.LOST:
            continue
        start = base if start < 0 else start
        head = salvage.read(batches.positions[place], batches.sizes[place])
        if len(head) < HEADER_BYTES or damage(head, base, check_crc=True) is not None:
            end = max(end, base + 1)
            continue
        end = max(end, last_offset(head) + 1)
        epoch = leader_epoch(head)
        if epoch >= 0 and (not epochs or epoch > epochs[-1].epoch):
            epochs.append(EpochEntry(epoch, base))
    meta = PartitionMeta(number, start, tuple(epochs), None)
    try:
        row = PartitionMeta.decode(without_checksum(stored))
    except ValueError:
        return meta
    if start <= row.log_start_offset <= end:
        meta = meta._replace(log_start_offset=row.log_start_offset)
    if row.cleaned_to < end:
        meta = meta._replace(cleaned_to=row.cleaned_to)
    return meta._replace(snapshot=row.snapshot)
