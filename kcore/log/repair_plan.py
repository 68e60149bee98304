"""Plan of a repair: the batches of a damaged folder that are kept, the replacements of other batches, and the losses.

Records keep their offsets. An empty batch, like the batches that Kafka's compaction leaves, covers the offsets of lost
batches. So no other record gets these offsets, and consumers continue after the gap.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from kcore.log.batch_header import HEADER_SIZE, damage, last_offset, leader_epoch
from kcore.log.interface import EpochEntry, PartitionKey, SnapshotInfo
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
    parse_partition_meta_key,
)
from kcore.log.lmdb_salvage import Batches, Salvage, Tier
from kcore.log.write_set import PartitionMeta
from kcore.protocol.uuids import METADATA_TOPIC_ID
from kcore_ext.batch.crc32c import crc32c

MAX_DELTA: Final = (1 << 31) - 1
MAX_OFFSET: Final = 1 << 62
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_BEFORE_CRC: Final = struct.Struct(">qiibI")
_COUNT: Final = struct.Struct(">i")


class RepairRules(Protocol):
    """The interface of an object that checks, for one repair plan, which batches kcore can load."""

    def refusal(self, key: PartitionKey, base: int, batch: bytes) -> str | None:
        """Returns the reason why kcore cannot load an undamaged batch; None if kcore can load it.

        The repair first calls this method for the batches of the metadata log, then for all other batches.
        """
        ...

    def amend(self, plan: Plan, batches: Callable[[PartitionPlan], Iterator[tuple[int, bytes]]]) -> None:
        """Changes a plan before the repair carries it out, for example restores lost metadata of topics.

        `batches` returns the planned batches of a partition.
        """
        ...


class Loss(NamedTuple):
    """Data that a repair cannot keep.

    Attributes:
        partition: the partition; None for data of no partition.
        from_offset: the first lost offset.
        to_offset: the offset after the last lost one.
        records: the number of records according to headers; None if it is unknown.
        kind: a word for programs: `gap`, `crc`, `header`, `overlap`, `start`, `end`, `record`, `epoch`, `orphan`,
            `snapshot`, `metadata`, `page`.
        detail: the cause, for people.
        batch: the damaged batch, so that its readable parts can be shown.
    """

    partition: PartitionKey | None
    from_offset: int | None
    to_offset: int | None
    records: int | None
    kind: str
    detail: str
    batch: bytes = b""


class PartitionPlan:
    """The batches and the metadata of one partition after the repair.

    Attributes:
        key: the partition.
        meta: its metadata.
        bases: base offsets, ascending.
        positions: the position of each batch in the damaged file; without meaning for batches in `made`.
        sizes: the size of each batch.
        made: new or changed batches, which the file does not have, by base offset.
        end_offset: the offset after the last batch.
        changed: True if anything differs from the content of the folder.
    """

    __slots__ = ("bases", "changed", "end_offset", "key", "made", "meta", "positions", "sizes")

    def __init__(self, key: PartitionKey, meta: PartitionMeta) -> None:
        self.key = key
        self.meta = meta
        self.bases = array("Q")
        self.positions = array("Q")
        self.sizes = array("I")
        self.made: dict[int, bytes] = {}
        self.end_offset = meta.log_start_offset
        self.changed = False

    def put(self, base: int, batch: bytes) -> None:
        """Adds a new batch, which the file does not have, at the end of the plan."""
        self.bases.append(base)
        self.positions.append(0)
        self.sizes.append(len(batch))
        self.made[base] = batch

    def append(self, batch: bytes, count: int) -> None:
        """Appends a new batch of `count` records, whose base offset must be `end_offset`."""
        self.put(self.end_offset, batch)
        self.end_offset += count


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


def empty_batch(base: int, end: int, epoch: int) -> bytes:
    """Returns a batch without records for the offsets from `base` up to `end`, at most 2^31 of them."""
    rest = _AFTER_CRC.pack(0, end - base - 1, -1, -1, -1, -1, -1, 0)
    return _BEFORE_CRC.pack(base, len(rest) + 9, epoch, 2, crc32c(rest)) + rest


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
    meta = {key: versions[0][1] for key, versions in salvage.meta.items() if versions[0][0] < Tier.FREE}
    changed = bool(losses)
    for name in (FORMAT_KEY, NODE_EPOCH_KEY, *(one for one in salvage.meta if one.startswith(b"user:"))):
        if name not in meta and name in salvage.meta:
            meta[name] = salvage.meta[name][0][1]
    metas = _partition_metas(salvage, losses)
    partitions = []
    for number in sorted(metas, key=lambda number: (metas[number][0].topic_id != METADATA_TOPIC_ID, number)):
        key, found = metas[number]
        partition = _Planner(salvage, key, found, rules, losses).run()
        partitions.append(partition)
        changed = changed or partition.changed
    dropped = {key for key in meta if key.startswith(DROPPED_PREFIX)}
    for number in sorted(salvage.log):
        orphan = salvage.log[number]
        if number in metas or DROPPED_PREFIX + U32.pack(number) in dropped or min(orphan.tiers) == Tier.FREE:
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


def _partition_metas(salvage: Salvage, losses: list[Loss]) -> dict[int, tuple[PartitionKey, list[PartitionMeta]]]:
    """Returns the key and the versions of the metadata, most reliable version first, by partition number."""
    found: dict[int, tuple[PartitionKey, list[PartitionMeta]]] = {}
    dropped = {key[len(DROPPED_PREFIX) :] for key in salvage.meta if key.startswith(DROPPED_PREFIX)}
    by_trust: list[tuple[Tier, PartitionKey, PartitionMeta]] = []
    for name, versions in salvage.meta.items():
        if not name.startswith(PARTITION_PREFIX):
            continue
        for place, (tier, value) in enumerate(versions):
            try:
                by_trust.append((tier, parse_partition_meta_key(name), PartitionMeta.decode(value)))
            except (ValueError, struct.error) as error:
                if place == 0 and tier < Tier.FREE:
                    losses.append(Loss(None, None, None, None, "metadata", f"{name!r} cannot be read: {error}"))
    copies = Counter((key, meta.number) for _, key, meta in by_trust)
    by_trust.sort(
        key=lambda one: (one[0], -copies[one[1], one[2].number], -len(one[2].epochs), -one[2].log_start_offset)
    )
    taken: dict[PartitionKey, int] = {}
    for tier, key, meta in by_trust:
        number = meta.number
        if tier == Tier.FREE:
            batches = salvage.log.get(number)
            # An older copy is used only for live batches: the partition may have been dropped since.
            if U32.pack(number) in dropped or batches is None or min(batches.tiers) == Tier.FREE:
                continue
        if taken.setdefault(key, number) == number and number in found and found[number][0] == key:
            found[number][1].append(meta)
        elif taken[key] == number and number not in found:
            found[number] = (key, [meta])
        elif taken[key] == number:
            del taken[key]  # an older copy may have another number
            if tier < Tier.FREE:
                losses.append(
                    Loss(key, None, None, None, "metadata", f"its number {number} belongs to another partition")
                )
    return found


def _orphan_loss(salvage: Salvage, number: int, orphan: Batches) -> Loss:
    """Returns the loss of all batches with a partition number that belongs to no known partition."""
    records = 0
    first = b""
    bases = set()
    for place in orphan.in_order():
        if orphan.bases[place] not in bases:
            bases.add(orphan.bases[place])
            batch = salvage.read(orphan.positions[place], orphan.sizes[place])
            first = first or batch
            records += _record_count(batch) or 0
    detail = f"batches of unknown partition number {number}"
    return Loss(None, min(orphan.bases), max(orphan.bases) + 1, records, "orphan", detail, first)


def _record_count(batch: bytes) -> int | None:
    """Returns the number of records in a batch header, or None if the header is incomplete or the number impossible."""
    if len(batch) < HEADER_SIZE:
        return None
    count = int(_COUNT.unpack_from(batch, HEADER_SIZE - 4)[0])
    return count if 0 <= count <= len(batch) else None


def _is_chunk_of(info: SnapshotInfo | None, place: tuple[int, int, int]) -> bool:
    return info is not None and info.offset == place[1] and place[2] < info.chunk_count


def _other_meta(
    meta: dict[bytes, bytes],
    metas: dict[int, tuple[PartitionKey, list[PartitionMeta]]],
    partitions: list[PartitionPlan],
) -> dict[bytes, bytes]:
    """Returns the metadata that belongs to no partition: versions, counters, and the named values of the engine's user.

    It omits the tombstones of dropped partitions, because the new file has no batches of them.
    """
    kept = {key: value for key, value in meta.items() if key.startswith(b"user:")}
    version = meta.get(FORMAT_KEY, b"")
    known = len(version) == U32.size and FIRST_VERSION <= U32.unpack(version)[0] <= FORMAT_VERSION
    kept[FORMAT_KEY] = version if known else U32.pack(FORMAT_VERSION)
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


class _Planner:
    """The planner of the repair of one partition."""

    def __init__(
        self, salvage: Salvage, key: PartitionKey, metas: list[PartitionMeta], rules: RepairRules, losses: list[Loss]
    ) -> None:
        self._salvage = salvage
        self._rules = rules
        self._losses = losses
        self._metas = metas
        self._batches = salvage.log.get(metas[0].number, Batches())
        self._order = self._batches.in_order()
        self._plan = PartitionPlan(key, metas[0])
        self._known_end = 0  # no offset below it may be assigned again
        self._bad: list[Loss] = []

    def run(self) -> PartitionPlan:
        start = self._log_start()
        self._plan.end_offset = start
        self._keep(start)
        self._close_gaps(start)
        self._settle_epochs()
        self._settle_snapshot()
        plan = self._plan
        plan.changed = plan.changed or plan.meta != self._metas[0]
        return plan

    def _log_start(self) -> int:
        """Returns the log start, or the best guess if the log start in the metadata is above every live batch."""
        batches = self._batches
        live = [place for place in self._order if batches.tiers[place] < Tier.FREE]
        if not live:
            return self._plan.meta.log_start_offset
        last = live[-1]
        end = batches.bases[last] + 1
        head = self._salvage.read(batches.positions[last], HEADER_SIZE)
        if len(head) == HEADER_SIZE:
            end = max(end, min(last_offset(head), batches.bases[last] + batches.sizes[last] * 8) + 1)
        for meta in self._metas:
            if meta.log_start_offset <= end:
                return meta.log_start_offset
        self._lose(None, None, None, "metadata", f"the log start {self._plan.meta.log_start_offset} is above the end")
        return batches.bases[live[0]]

    # ---- choosing batches

    def _keep(self, start: int) -> None:
        """Chooses sound batches from the log start on, each after the end of the previous one."""
        batches, plan = self._batches, self._plan
        # For each index the base offset of the next live batch, which an older copy must not overlap.
        following = [MAX_OFFSET] * (len(self._order) + 1)
        for at in range(len(self._order) - 1, -1, -1):
            place = self._order[at]
            following[at] = batches.bases[place] if batches.tiers[place] < Tier.FREE else following[at + 1]
        for at, place in enumerate(self._order):
            base, tier = batches.bases[place], batches.tiers[place]
            if tier == Tier.FREE and not self._may_replace(base):
                continue
            if base < plan.end_offset and (plan.bases or base > start):
                self._overlapping(base, place)
                continue
            batch = self._salvage.read(batches.positions[place], batches.sizes[place])
            wrong = damage(batch, base, check_crc=True)
            end = base + 1 if wrong is not None else last_offset(batch) + 1
            if wrong is None and (end <= start or (tier == Tier.FREE and end > following[at + 1])):
                continue
            if wrong is None and not self._accept(base, end, batch, place):
                continue
            if wrong is not None and tier < Tier.FREE and (base >= start or plan.bases):
                self._reject(base, batch, *wrong)

    def _may_replace(self, base: int) -> bool:
        """Returns True if an older copy of a batch may be used, because the batch is damaged, or was on a damaged page.

        In other cases the copy may be a batch that was never acknowledged, or that compaction has removed.
        """
        meta = self._plan.meta
        if base < meta.cleaned_to:
            return False
        return any(loss.from_offset == base for loss in self._bad[-1:]) or self._salvage.doubts(meta.number, base)

    def _overlapping(self, base: int, place: int) -> None:
        """Leaves out a batch that overlaps the previous batch. Reports a loss, unless the batch is an older copy."""
        batches = self._batches
        if batches.tiers[place] == Tier.LIVE and base not in self._plan.bases[-1:]:
            batch = self._salvage.read(batches.positions[place], batches.sizes[place])
            self._lose(
                base, base + 1, _record_count(batch), "overlap", "the batch begins within the previous batch", batch
            )

    def _accept(self, base: int, end: int, batch: bytes, place: int) -> bool:
        plan = self._plan
        refusal = self._rules.refusal(plan.key, base, batch)
        if refusal is not None:
            self._known_end = max(self._known_end, end)
            if base not in [loss.from_offset for loss in self._bad[-1:]]:  # an older copy is refused again
                self._bad.append(Loss(plan.key, base, end, _record_count(batch), "record", refusal, batch))
            return False
        plan.bases.append(base)
        plan.positions.append(self._batches.positions[place])
        plan.sizes.append(self._batches.sizes[place])
        plan.end_offset = end
        plan.changed = plan.changed or self._batches.tiers[place] > Tier.LIVE
        return True

    def _reject(self, base: int, batch: bytes, kind: str, detail: str) -> None:
        count = _record_count(batch)
        self._known_end = max(self._known_end, base + 1)
        self._bad.append(Loss(self._plan.key, base, base + max(count or 1, 1), count, kind, detail, batch))

    def _lose(
        self, first: int | None, end: int | None, records: int | None, kind: str, detail: str, batch: bytes = b""
    ) -> None:
        self._plan.changed = True
        self._losses.append(Loss(self._plan.key, first, end, records, kind, detail, batch))

    # ---- losses

    def _close_gaps(self, start: int) -> None:
        """Reports losses, and covers their offsets with empty batches."""
        old, meta = self._plan, self._plan.meta
        new = self._plan = PartitionPlan(old.key, meta)
        new.changed = old.changed
        covered = {loss.from_offset for loss in self._bad}
        replaced = set(old.bases)
        bad = [loss for loss in self._bad if loss.from_offset not in replaced]
        for loss in bad:
            self._losses.append(loss)
            new.changed = True
        lost_below = min((loss.from_offset or 0 for loss in bad), default=MAX_OFFSET)
        # A loss below `cleaned_to` may be the end of a transaction: the log is compacted again from there.
        mark = min(meta.cleaned_to, lost_below)
        expected = start
        for place, base in enumerate(old.bases):
            if base > expected:
                if place == 0 and start >= mark:
                    self._gap(expected, base, covered, "start", "the beginning of the log")
                    start = base
                elif max(expected, mark) < base:
                    if max(expected, meta.cleaned_to) < base:
                        self._gap(max(expected, meta.cleaned_to), base, covered, "gap", "no batch holds these offsets")
                    self._fill(new, max(expected, mark), base)
            new.bases.append(base)
            new.positions.append(old.positions[place])
            new.sizes.append(old.sizes[place])
            expected = old.end_offset if place + 1 == len(old.bases) else self._end_of(old, place)
        known = max(self._known_end, meta.cleaned_to + 1 if meta.cleaned_to else 0)
        known = max(known, *(entry.start_offset for entry in meta.epochs)) if meta.epochs else known
        if meta.snapshot is not None:
            known = max(known, meta.snapshot.offset)
        if known > expected:
            self._gap(expected, known, covered, "gap", "the end of the log")
            if new.bases:
                self._fill(new, expected, known)
            else:
                start = known
            expected = known
        if self._salvage.doubts(meta.number, expected) and not self._salvage.doubts_all:
            self._lose(
                expected, None, None, "end", "batches from here on may be lost; new records will get their offsets"
            )
        new.end_offset = expected
        new.meta = meta._replace(log_start_offset=min(start, expected), cleaned_to=mark)

    def _gap(self, first: int, end: int, covered: set[int | None], kind: str, detail: str) -> None:
        """Reports offsets as lost, unless a damaged batch at these offsets is reported already."""
        if kind == "start" or not any(at is not None and first <= at < end for at in covered):
            self._lose(first, end, None, kind, detail)

    def _end_of(self, plan: PartitionPlan, place: int) -> int:
        return last_offset(self._salvage.read(plan.positions[place], HEADER_SIZE)) + 1

    def _fill(self, plan: PartitionPlan, first: int, end: int) -> None:
        plan.changed = True
        while first < end:
            until = min(end, first + MAX_DELTA)
            plan.put(first, empty_batch(first, until, 0))
            first = until

    # ---- epochs and snapshots

    def _settle_epochs(self) -> None:
        """Makes the recorded leader epochs match the epochs in the batches.

        Afterwards, the recorded epochs never decrease from an entry to the next entry.
        """
        plan = self._plan
        meta = plan.meta
        starts = [entry.start_offset for entry in meta.epochs]
        stamped = [self._epoch_of(place) for place in range(len(plan.bases))]
        sound = all(
            (at := bisect_right(starts, base) - 1) < 0 or epoch in (None, meta.epochs[at].epoch)
            for base, epoch in zip(plan.bases, stamped, strict=True)
        ) and self._ascending(meta.epochs)
        epochs = list(meta.epochs)
        if not sound:
            self._lose(
                None,
                None,
                None,
                "epoch",
                "the leader epochs of batches and metadata differed; the epochs of the batches are used",
            )
            epochs = []
            for base, epoch in zip(plan.bases, stamped, strict=True):
                if epoch is not None and (not epochs or epoch > epochs[-1].epoch):
                    epochs.append(EpochEntry(epoch, base))
        begin, end = plan.meta.log_start_offset, plan.end_offset
        kept = [entry for entry in epochs if begin < entry.start_offset <= end]
        before = [entry for entry in epochs if entry.start_offset <= begin]
        if before:
            kept.insert(0, before[-1] if before[-1].start_offset == begin else EpochEntry(before[-1].epoch, begin))
        if sound and begin == self._metas[0].log_start_offset:
            kept = [entry for entry in epochs if entry.start_offset <= end]
        plan.meta = meta._replace(epochs=tuple(kept))
        starts = [entry.start_offset for entry in plan.meta.epochs]
        for place, base in enumerate(plan.bases):
            at = bisect_right(starts, base) - 1
            if at >= 0 and stamped[place] != plan.meta.epochs[at].epoch:
                batch = plan.made.get(base) or self._salvage.read(plan.positions[place], plan.sizes[place])
                plan.made[base] = batch[:12] + _COUNT.pack(plan.meta.epochs[at].epoch) + batch[16:]
                plan.changed = True

    @staticmethod
    def _ascending(epochs: tuple[EpochEntry, ...]) -> bool:
        return all(
            later.epoch > earlier.epoch and later.start_offset >= earlier.start_offset
            for earlier, later in pairwise(epochs)
        )

    def _epoch_of(self, place: int) -> int | None:
        """Returns the epoch in a batch, or None for a batch that the repair has made."""
        plan = self._plan
        if plan.bases[place] in plan.made:
            return None
        return leader_epoch(self._salvage.read(plan.positions[place], HEADER_SIZE))

    def _settle_snapshot(self) -> None:
        """Keeps the snapshot if it is complete and sound."""
        info = self._plan.meta.snapshot
        if info is None or self._whole(info):
            return
        self._lose(info.offset, None, None, "snapshot", "the snapshot is damaged; the log is replayed from its start")
        self._plan.meta = self._plan.meta._replace(snapshot=None)

    def _whole(self, info: SnapshotInfo) -> bool:
        crc = size = 0
        for index in range(info.chunk_count):
            found = self._salvage.chunks.get((self._plan.meta.number, info.offset, index))
            if found is None:
                return False
            chunk = self._salvage.read(found[0], found[1])
            crc, size = crc32c(chunk, crc), size + len(chunk)
        return crc == info.crc and size == info.size_bytes
