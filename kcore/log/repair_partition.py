"""Plan of the repair of one partition: the batches that are kept, new batches in place of others, and the losses.

The planner first chooses the undamaged batches among those that the file had when the damage occurred. Then it takes
older copies for the gaps between these batches. It lists all offsets that are still missing, unless compaction explains
why they are missing.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kcore.log.batch_header import damage, last_offset, leader_epoch
from kcore.log.interface import EpochEntry, PartitionKey, SnapshotInfo
from kcore.log.lmdb_salvage import Salvage
from kcore.log.salvaged_content import MAX_OFFSET, Batches, Tier
from kcore.log.write_set import PartitionMeta
from kcore.protocol.batch_layout import (
    CHECKED_FIELDS,
    CHECKED_FROM,
    COUNT_AT,
    CRC_AT,
    HEADER_BYTES,
    LAST_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    header_struct,
)
from kcore_ext.batch.crc32c import crc32c
from kcore_ext.log.journal import MAX_VALUE_BYTES

if TYPE_CHECKING:
    from kcore.log.repair_plan import Plan

MAX_DELTA: Final = (1 << 31) - 1
MAX_LOST_OFFSETS: Final = 1 << 40
"""Maximum number of lost offsets at the end of a log. A larger number shows that a key or metadata are damaged."""
_BEFORE_CRC: Final = header_struct("base_offset", "length", "leader_epoch", "magic", "crc")
_COUNT: Final = struct.Struct(">i")
_BASE: Final = struct.Struct(">Q")
_CRC: Final = slice(CRC_AT, CHECKED_FROM)


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
        meta: the partition's metadata.
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


def empty_batch(base: int, end: int, epoch: int) -> bytes:
    """Returns a batch without records for the offsets from `base` up to `end`, at most 2^31 of them."""
    rest = CHECKED_FIELDS.pack(0, end - base - 1, -1, -1, -1, -1, -1, 0)
    length = CHECKED_FROM - LENGTH_OVERHEAD + len(rest)
    return _BEFORE_CRC.pack(base, length, epoch, MAGIC, crc32c(rest)) + rest


def record_count(batch: bytes) -> int | None:
    """Returns the number of records in a batch header, or None if the header is incomplete or the number impossible."""
    if len(batch) < HEADER_BYTES:
        return None
    count = int(_COUNT.unpack_from(batch, COUNT_AT)[0])
    return count if 0 <= count <= len(batch) else None


class _Bad(NamedTuple):
    """A batch that is not kept.

    Attributes:
        loss: the loss. It may end before the last lost offset, unless `has_end` is True.
        position: the position of the batch in the file.
        has_end: True if the end of the loss is certain.
    """

    loss: Loss
    position: int
    has_end: bool

    @property
    def base(self) -> int:
        """The first lost offset."""
        return self.loss.from_offset or 0

    @property
    def known_end(self) -> int:
        """The end of the offsets that are known to be lost."""
        return self.loss.to_offset or 0 if self.has_end else self.base + 1


def _base_of(bad: _Bad) -> int:
    return bad.base


class Planner:
    """The planner of the repair of one partition.

    Args:
        salvage: the content of the damaged folder.
        key: the partition.
        metas: the versions of the partition's metadata, the most reliable version first.
        rules: decides which undamaged batches can be loaded.
        losses: receives the losses.
    """

    def __init__(
        self, salvage: Salvage, key: PartitionKey, metas: list[PartitionMeta], rules: RepairRules, losses: list[Loss]
    ) -> None:
        self._salvage = salvage
        self._rules = rules
        self._losses = losses
        self._metas = metas
        self._batches = salvage.log.get(metas[0].number, Batches())
        order = self._batches.in_order()
        self._current = [place for place in order if self._batches.tiers[place] <= Tier.LOST]
        self._copies = [place for place in order if self._batches.tiers[place] > Tier.LOST]
        self._copies_used = 0  # the number of copies that were taken or passed over
        self._moved = {self._batches.positions[at] for at in self._copies if self._batches.tiers[at] == Tier.MOVED}
        self._kept: set[int] = set()  # the positions in `_moved` of the batches that are kept
        self._plan = PartitionPlan(key, metas[0])
        self._bad: list[_Bad] = []

    def run(self) -> PartitionPlan:
        """Returns the plan."""
        start = self._log_start()
        self._plan.end_offset = start
        self._choose(start)
        self._close_gaps(start)
        self._settle_epochs()
        self._settle_snapshot()
        plan = self._plan
        plan.changed = plan.changed or plan.meta != self._metas[0]
        return plan

    def _log_start(self) -> int:
        """Returns the log start, or the best guess if the log start in the metadata is above every current batch."""
        batches, current = self._batches, self._current
        if not current:
            return self._plan.meta.log_start_offset
        last = current[-1]
        end = batches.bases[last] + 1
        head = self._salvage.read(batches.positions[last], HEADER_BYTES)
        if len(head) == HEADER_BYTES:
            end = max(end, min(last_offset(head), batches.bases[last] + batches.sizes[last] * 8) + 1)
        for meta in self._metas:
            if meta.log_start_offset <= end:
                return meta.log_start_offset
        self._lose(None, None, None, "metadata", f"the log start {self._plan.meta.log_start_offset} is above the end")
        return batches.bases[current[0]]

    # ---- choosing batches

    def _choose(self, start: int) -> None:
        """Chooses undamaged batches from the log start on, each after the end of the previous one."""
        batches, plan = self._batches, self._plan
        for at, place in enumerate(self._current):
            base = batches.bases[place]
            if base < plan.end_offset and (plan.bases or base > start):
                self._overlapping(base, place)
                continue
            batch = self._salvage.read(batches.positions[place], batches.sizes[place])
            wrong = damage(batch, base, check_crc=True)
            made = None
            if wrong is not None:
                following = batches.bases[self._current[at + 1]] if at + 1 < len(self._current) else MAX_OFFSET
                made = self._with_base(base, batch, following)
                if made is None:
                    if base >= start or plan.bases:
                        self._reject(base, place, batch, *wrong)
                    continue
            end = last_offset(made or batch) + 1
            if end <= start:
                continue
            self._take_copies(start, base)
            if self._accept(base, end, made or batch, place) and made is not None:
                plan.made[base] = made
                plan.changed = True
        self._take_copies(start, None)

    def _with_base(self, base: int, batch: bytes, following: int) -> bytes | None:
        """Returns a batch with the base offset of its key, if only the base offset in its header is damaged.

        The batch must end at `following`, the base offset of the next batch. Or it must follow the previous batch,
        unless it would end at `following` with the base offset in its header.

        Returns None for any other batch, and for a batch of more than `MAX_VALUE_BYTES`. LMDB stores such a batch in
        pages without its key, so it may belong to another partition.
        """
        if not HEADER_BYTES <= len(batch) <= MAX_VALUE_BYTES:
            return None
        made = _BASE.pack(base) + batch[8:]
        if damage(made, base, check_crc=True) is not None:
            return None
        fits = last_offset(made) + 1 == following
        if fits or (base == self._plan.end_offset and last_offset(batch) + 1 != following):
            return made
        return None

    def _take_copies(self, start: int, limit: int | None) -> None:
        """Adds older copies of batches to the plan, for the gap after the last batch of the plan.

        Args:
            start: the log start.
            limit: the end of the gap; None for the end of the log.
        """
        batches, plan = self._batches, self._plan
        is_open = bool(self._bad) and self._bad[-1].base >= plan.end_offset and not self._bad[-1].has_end
        while self._copies_used < len(self._copies):
            place = self._copies[self._copies_used]
            base, position = batches.bases[place], batches.positions[place]
            if limit is not None and base >= limit:
                return
            self._copies_used += 1
            if base < plan.end_offset and (plan.bases or base > start):
                continue
            is_moved = batches.tiers[place] == Tier.MOVED
            if is_moved and position in self._kept:
                continue
            batch = self._salvage.read(position, batches.sizes[place])
            if damage(batch, base, check_crc=True) is not None:
                continue
            if not is_moved and not self._may_replace(base, batch, place, limit, is_open):
                continue
            end = last_offset(batch) + 1
            if end <= start or (limit is not None and end > limit):
                continue
            if not is_moved or base == plan.end_offset or end == limit:
                self._accept(base, end, batch, place)

    def _may_replace(self, base: int, batch: bytes, place: int, limit: int | None, is_open: bool) -> bool:
        """Returns True if the repair may use an older copy of a batch.

        It may if the batch itself is damaged, or was on a damaged page. In other cases the copy may be a batch that was
        never acknowledged, or that compaction has removed.

        Args:
            base: the base offset of the copy.
            batch: the copy, which is undamaged.
            place: the index of the copy.
            limit: the end of the gap; None for the end of the log.
            is_open: True if the last damaged batch begins in the gap, and its end is not known.
        """
        meta = self._plan.meta
        if base < meta.cleaned_to:
            if self._salvage.doubts(meta.number, base):
                return self._batches.tiers[place] == Tier.UNKNOWN
            bad = self._bad_in(base, base + 1)
            return bool(bad) and bad[0].loss.batch[_CRC] == batch[_CRC]
        is_known = bool(self._bad) and base < self._bad[-1].known_end
        return limit is not None or is_open or is_known or self._salvage.doubts(meta.number, base)

    def _overlapping(self, base: int, place: int) -> None:
        """Leaves out a batch that overlaps the previous batch. Reports a loss, unless the batch is a copy."""
        batches = self._batches
        if batches.tiers[place] == Tier.LIVE and base not in self._plan.bases[-1:]:
            batch = self._salvage.read(batches.positions[place], batches.sizes[place])
            self._lose(
                base, base + 1, record_count(batch), "overlap", "the batch begins within the previous batch", batch
            )

    def _accept(self, base: int, end: int, batch: bytes, place: int) -> bool:
        plan, position = self._plan, self._batches.positions[place]
        refusal = self._rules.refusal(plan.key, base, batch)
        if refusal is not None:
            if not self._bad_in(base, base + 1):  # an older copy is refused again
                loss = Loss(plan.key, base, end, record_count(batch), "record", refusal, batch)
                insort(self._bad, _Bad(loss, position, True), key=_base_of)
            return False
        plan.bases.append(base)
        plan.positions.append(position)
        plan.sizes.append(self._batches.sizes[place])
        plan.end_offset = end
        plan.changed = plan.changed or self._batches.tiers[place] > Tier.LIVE
        if position in self._moved:
            self._kept.add(position)
        return True

    def _reject(self, base: int, place: int, batch: bytes, kind: str, detail: str) -> None:
        count = record_count(batch)
        end = base + max(count or 1, 1)
        # Only a CRC error leaves the header plausible. A batch has at least as many offsets as records.
        delta = _COUNT.unpack_from(batch, LAST_DELTA_AT)[0] if kind == "crc" else -1
        has_end = count is not None and max(count, 1) <= delta + 1 <= len(batch)
        if has_end:
            end = base + delta + 1
        loss = Loss(self._plan.key, base, end, count, kind, detail, batch)
        insort(self._bad, _Bad(loss, self._batches.positions[place], has_end), key=_base_of)

    def _lose(
        self, first: int | None, end: int | None, records: int | None, kind: str, detail: str, batch: bytes = b""
    ) -> None:
        self._plan.changed = True
        self._losses.append(Loss(self._plan.key, first, end, records, kind, detail, batch))

    # ---- losses

    def _close_gaps(self, start: int) -> None:
        """Reports losses, and covers their offsets with empty batches."""
        old = self._plan
        meta = self._meta_without_damage(old)
        new = self._plan = PartitionPlan(old.key, meta)
        new.changed, new.made = old.changed, old.made
        self._bad = [bad for bad in self._bad if bad.position not in self._kept]
        # A loss below `cleaned_to` may be the end of a transaction: the log is compacted again from there.
        mark = meta.cleaned_to
        expected = start
        for place, base in enumerate(old.bases):
            if base > expected:
                bad = self._bad_in(expected, base)
                lost = self._visible(expected, base) if not bad else min(bad[0].base, self._visible(expected, base))
                mark = min(mark, lost) if lost < base else mark
                if place == 0 and start >= mark:
                    self._losses.extend(one.loss for one in bad)
                    self._lose(expected, base, None, "start", "the beginning of the log")
                    start = base
                else:
                    self._list_losses(expected, base, bad, "no batch holds these offsets")
                    if max(expected, mark) < base:
                        self._fill(new, max(expected, mark), base)
            new.bases.append(base)
            new.positions.append(old.positions[place])
            new.sizes.append(old.sizes[place])
            expected = old.end_offset if place + 1 == len(old.bases) else self._end_of(old, place)
        known = self._end_of_lost(expected, meta)
        bad = self._bad_in(expected, MAX_OFFSET << 2)
        if bad:
            mark = min(mark, bad[0].base)
        if bad or known > expected:
            self._list_losses(expected, known, bad, "the end of the log", is_end=True)
        if known > expected:
            if new.bases:
                self._fill(new, expected, known)
            else:
                start = known
            expected = known
        if self._salvage.doubts_any(meta.number, expected, MAX_OFFSET) and not self._salvage.doubts_all:
            self._lose(
                expected, None, None, "end", "batches from here on may be lost; new records will get their offsets"
            )
        new.end_offset = expected
        new.meta = meta._replace(log_start_offset=min(start, expected), cleaned_to=mark)

    def _meta_without_damage(self, plan: PartitionPlan) -> PartitionMeta:
        """Returns the metadata of a partition. If `cleaned_to` is damaged, because it lies far above the end of the
        log, replaces it by 0 and reports the loss.
        """
        meta = plan.meta
        if meta.cleaned_to <= plan.end_offset + MAX_LOST_OFFSETS:
            return meta
        self._lose(None, None, None, "metadata", f"the end of compaction {meta.cleaned_to} is above the end of the log")
        return meta._replace(cleaned_to=0)

    def _end_of_lost(self, expected: int, meta: PartitionMeta) -> int:
        """Returns the offset after the last offset that is known to be lost; at least `expected`."""
        known = [meta.cleaned_to + 1 if meta.cleaned_to else 0, *(bad.known_end for bad in self._bad)]
        known += [entry.start_offset for entry in meta.epochs]
        if meta.snapshot is not None:
            known.append(meta.snapshot.offset)
        return max([expected, *(offset for offset in known if offset <= expected + MAX_LOST_OFFSETS)])

    def _bad_in(self, first: int, end: int) -> list[_Bad]:
        """Returns the batches with base offsets from `first` up to `end` that are not kept."""
        bad = self._bad
        return bad[bisect_left(bad, first, key=_base_of) : bisect_left(bad, end, key=_base_of)]

    def _visible(self, first: int, end: int) -> int:
        """Returns the first offset of a gap that counts as lost. The offsets before it do not count, because compaction
        may have removed them.
        """
        meta = self._plan.meta
        if self._salvage.doubts_any(meta.number, first, min(end, meta.cleaned_to)):
            return first
        return max(first, meta.cleaned_to)

    def _list_losses(self, first: int, end: int, bad: list[_Bad], detail: str, *, is_end: bool = False) -> None:
        """Reports all lost offsets of a gap.

        Args:
            first: the first missing offset.
            end: the end of the gap.
            bad: the batches in the gap that are not kept, by base offset.
            detail: the description of offsets without a batch.
            is_end: True for the gap at the end of the log, which may be longer than known.
        """
        visible = first if is_end else self._visible(first, end)
        lost_to = first
        limits = [one.base for one in bad[1:]] + [end]
        for (loss, _, has_end), limit in zip(bad, limits, strict=False):
            self._list_gap(max(visible, lost_to), loss.from_offset or 0, detail)
            is_last = is_end and loss is bad[-1].loss
            lost_to = limit
            listed = loss._replace(to_offset=limit, records=loss.records if loss.to_offset == limit else None)
            if has_end and loss.to_offset is not None:
                lost_to = loss.to_offset if is_last else min(loss.to_offset, limit)
                listed = loss._replace(to_offset=lost_to)
            elif is_last:
                listed = loss._replace(to_offset=None)
            self._losses.append(listed)
            self._plan.changed = True
        self._list_gap(max(visible, lost_to), end, detail)

    def _list_gap(self, first: int, end: int, detail: str) -> None:
        if first < end:
            self._lose(first, end, None, "gap", detail)

    def _end_of(self, plan: PartitionPlan, place: int) -> int:
        made = plan.made.get(plan.bases[place])
        return last_offset(self._salvage.read(plan.positions[place], HEADER_BYTES) if made is None else made) + 1

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
        known = [epoch for epoch in stamped if epoch is not None]
        if not meta.epochs and 2 * sum(epoch >= 0 for epoch in known) > len(known):
            sound = False  # the metadata is an older copy, from the time before the first epoch
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
                if epoch is not None and epoch >= 0 and (not epochs or epoch > epochs[-1].epoch):
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
            if at < 0 and (base < begin or plan.sizes[place] <= HEADER_BYTES):
                continue
            epoch = plan.meta.epochs[at].epoch if at >= 0 else -1
            if stamped[place] != epoch:
                batch = plan.made.get(base) or self._salvage.read(plan.positions[place], plan.sizes[place])
                plan.made[base] = batch[:LEADER_EPOCH_AT] + _COUNT.pack(epoch) + batch[MAGIC_AT:]
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
        made = plan.made.get(plan.bases[place])
        if made is not None and not plan.sizes[place] > HEADER_BYTES:
            return None
        return leader_epoch(self._salvage.read(plan.positions[place], HEADER_BYTES) if made is None else made)

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
