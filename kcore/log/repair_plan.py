"""Plan of a repair: the batches of a damaged folder that are kept, the replacements of other batches, and the losses.

Records keep their offsets. An empty batch, like the batches that Kafka's compaction leaves, covers the offsets of lost
batches. So no other record gets these offsets, and consumers continue after the gap.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import NamedTuple

from kcore.log.batch_header import damage, last_offset
from kcore.log.interface import PartitionKey, SnapshotInfo
from kcore.log.lmdb_layout import (
    CLUSTER_EPOCH_KEY,
    DROPPED_PREFIX,
    FIRST_VERSION,
    FORMAT_KEY,
    FORMAT_VERSION,
    NEXT_NUMBER_KEY,
    NODE_EPOCH_KEY,
    PARTITION_PREFIX,
    U32,
    U64,
    USER_PREFIX,
    parse_partition_meta_key,
    parse_version,
)
from kcore.log.lmdb_salvage import Salvage
from kcore.log.repair_partition import Loss, PartitionPlan, Planner, RepairRules, record_count
from kcore.log.repair_rows import Found, damaged_partitions, rebuild_metadata
from kcore.log.salvaged_content import Batches, Tier
from kcore.log.write_set import PartitionMeta
from kcore.protocol.uuids import METADATA_TOPIC_ID


class Plan(NamedTuple):
    """The content of the repaired folder, and the losses."""

    partitions: list[PartitionPlan]
    meta: dict[bytes, bytes]
    chunks: dict[tuple[int, int, int], tuple[int, int, Tier]]
    losses: list[Loss]
    changed: bool

    def take_number(self) -> int:
        """Allocates the number of a new partition, and returns it."""
        (number,) = U32.unpack(self.meta[NEXT_NUMBER_KEY])
        self.meta[NEXT_NUMBER_KEY] = U32.pack(number + 1)
        return int(number)


def make_plan(salvage: Salvage, rules: RepairRules) -> Plan:
    """Plans the repair of the content that `salvage` has read.

    Args:
        salvage: the damaged folder's content.
        rules: decides which sound batches can be loaded.

    Returns:
        The plan; `changed` is False if the folder needs no repair.
    """
    losses = [Loss(None, None, None, None, "page", problem) for problem in salvage.problems]
    if salvage.doubts_all:
        detail = "the newest batches of any partition may be lost; new records will get their offsets"
        losses.append(Loss(None, None, None, None, "end", detail))
    meta = {key: versions[0][1] for key, versions in salvage.meta.items() if versions[0][0].is_current}
    changed = bool(losses) or salvage.has_corrected_rows
    for name in (FORMAT_KEY, NODE_EPOCH_KEY, *(one for one in salvage.meta if one.startswith(USER_PREFIX))):
        is_lost = salvage.doubts_meta or name in salvage.damaged_rows or not name.startswith(USER_PREFIX)
        if name not in meta and name in salvage.meta and is_lost:
            meta[name] = salvage.meta[name][0][1]
    metas = _partition_metas(salvage, losses)
    partitions = []
    for number in sorted(metas, key=lambda number: (metas[number][0].topic_id != METADATA_TOPIC_ID, number)):
        key, found = metas[number]
        partition = Planner(salvage, key, found, rules, losses).run()
        partitions.append(partition)
        changed = changed or partition.changed
    dropped = {key for key in meta if key.startswith(DROPPED_PREFIX)}
    for number in sorted(salvage.log):
        orphan = salvage.log[number]
        if number in metas or DROPPED_PREFIX + U32.pack(number) in dropped or not _is_lost(salvage, number):
            continue
        changed = True
        losses.append(_orphan_loss(salvage, number, orphan))
    snapshots = {one.meta.number: one.meta.snapshot for one in partitions}
    chunks = {place: found for place, found in salvage.chunks.items() if _is_chunk_of(snapshots.get(place[0]), place)}
    unknown = {place[0] for place, found in salvage.chunks.items() if found[2] == Tier.LIVE and place[0] not in metas}
    losses.extend(
        Loss(None, None, None, None, "orphan", f"snapshot chunks of unknown partition number {number}")
        for number in sorted(unknown)
        if DROPPED_PREFIX + U32.pack(number) not in dropped
    )
    other = _other_meta(meta, metas, partitions)
    changed = changed or len(losses) > 0 or bool(salvage.missing) or _is_damaged(meta, other)
    return Plan(partitions, other, chunks, losses, changed)


def _is_damaged(meta: dict[bytes, bytes], repaired: dict[bytes, bytes]) -> bool:
    """Returns True if kcore could not open the folder because of the versions and counters in `meta`.

    `repaired` contains their values after the repair.
    """
    number = meta.get(NEXT_NUMBER_KEY, U32.pack(0))
    return (
        meta.get(FORMAT_KEY) != repaired[FORMAT_KEY]
        or len(meta.get(NODE_EPOCH_KEY, b"")) != U64.size
        or len(number) != U32.size
        or number < repaired[NEXT_NUMBER_KEY]
        or any(len(key) != len(DROPPED_PREFIX) + U32.size for key in meta if key.startswith(DROPPED_PREFIX))
    )


def _partition_metas(salvage: Salvage, losses: list[Loss]) -> Found:
    """Returns the key and the versions of the metadata, most reliable version first, by partition number."""
    found: Found = {}
    dropped = {key[len(DROPPED_PREFIX) :] for key in salvage.meta if key.startswith(DROPPED_PREFIX)}
    by_trust: list[tuple[Tier, PartitionKey, PartitionMeta]] = []
    for name, versions in salvage.meta.items():
        if not name.startswith(PARTITION_PREFIX):
            continue
        for place, (tier, value) in enumerate(versions):
            try:
                by_trust.append((tier, parse_partition_meta_key(name), PartitionMeta.decode(value)))
            except (ValueError, struct.error) as error:
                if place == 0 and tier.is_current:
                    losses.append(Loss(None, None, None, None, "metadata", f"{name!r} cannot be read: {error}"))
    copies = Counter((key, meta.number) for _, key, meta in by_trust)
    by_trust.sort(
        key=lambda one: (one[0], -copies[one[1], one[2].number], -len(one[2].epochs), -one[2].log_start_offset)
    )
    taken: dict[PartitionKey, int] = {}
    damaged = damaged_partitions(salvage)
    for tier, key, meta in by_trust:
        number = meta.number
        # An older copy is used only for batches that are not copies themselves: the partition may have been dropped.
        if not tier.is_current:
            is_lost = key in damaged or _is_lost(salvage, number)
            if U32.pack(number) in dropped or not is_lost:
                continue
        if taken.setdefault(key, number) == number and number in found and found[number][0] == key:
            found[number][1].append(meta)
        elif taken[key] == number and number not in found:
            found[number] = (key, [meta])
        elif taken[key] == number:
            del taken[key]  # an older copy may have another number
            if tier.is_current:
                losses.append(
                    Loss(key, None, None, None, "metadata", f"its number {number} belongs to another partition")
                )
    rebuild_metadata(salvage, found, losses)
    return found


def _is_lost(salvage: Salvage, number: int) -> bool:
    """Returns True if the batches with a partition number that has no metadata belong to a partition that was not
    dropped.

    Batches that may be older copies do not prove this, because they may belong to a dropped partition. They count only
    if metadata and batches were on damaged pages.
    """
    batches = salvage.log.get(number)
    if batches is None:
        return False
    if min(batches.tiers) <= Tier.MOVED:
        return True
    return salvage.doubts_meta and any(salvage.doubts(number, base) for base in batches.bases)


def _orphan_loss(salvage: Salvage, number: int, orphan: Batches) -> Loss:
    """Returns the loss of all batches with a partition number that belongs to no known partition."""
    records = end = 0
    first = b""
    bases = set()
    for place in orphan.in_order():
        if orphan.bases[place] not in bases:
            bases.add(orphan.bases[place])
            batch = salvage.read(orphan.positions[place], orphan.sizes[place])
            first = first or batch
            records += record_count(batch) or 0
            is_whole = damage(batch, orphan.bases[place], check_crc=True) is None
            end = max(end, (last_offset(batch) if is_whole else orphan.bases[place]) + 1)
    detail = f"batches of unknown partition number {number}"
    return Loss(None, min(orphan.bases), end, records, "orphan", detail, first)


def _is_chunk_of(info: SnapshotInfo | None, place: tuple[int, int, int]) -> bool:
    return info is not None and info.offset == place[1] and place[2] < info.chunk_count


def _other_meta(
    meta: dict[bytes, bytes],
    metas: Found,
    partitions: list[PartitionPlan],
) -> dict[bytes, bytes]:
    """Returns the metadata that belongs to no partition: versions, counters, and the named values of the engine's user.

    It omits the tombstones of dropped partitions, because the new file has no batches of them.
    """
    kept = {key: value for key, value in meta.items() if key.startswith(USER_PREFIX)}
    version = parse_version(meta.get(FORMAT_KEY), 0)
    kept[FORMAT_KEY] = U32.pack(version if FIRST_VERSION <= version <= FORMAT_VERSION else FORMAT_VERSION)
    counted = meta.get(NEXT_NUMBER_KEY, b"")
    dropped = [U32.unpack(key[-4:])[0] for key in meta if key.startswith(DROPPED_PREFIX) and len(key) == 12]
    highest = max([*metas, *dropped, -1]) + 1
    kept[NEXT_NUMBER_KEY] = U32.pack(max(U32.unpack(counted)[0] if len(counted) == 4 else 0, highest))
    counted = meta.get(NODE_EPOCH_KEY, b"")
    epochs = [entry.epoch for one in partitions for entry in one.meta.epochs]
    shared = meta.get(CLUSTER_EPOCH_KEY, b"")
    if len(shared) == U64.size:
        epochs.append(U64.unpack(shared)[0])
    kept[NODE_EPOCH_KEY] = U64.pack(max([U64.unpack(counted)[0] if len(counted) == 8 else 0, *epochs]))
    return kept
