"""Compaction of one partition: of each key the last record stays, at its own offset (Kafka's log cleaner, KIP-58,
KIP-354, KIP-534).

A pass has two halves. The first reads what is new since the last pass and remembers the last offset of each key, as
far as memory allows. The second walks over the log from its start up to there and leaves out:

* records of a key that has a later one; records without a key, which a compacted topic cannot have;
* records of aborted transactions;
* tombstones, and markers of transactions of which nothing is left, a while after a pass first came by them: their batch
  is given a *horizon* then, so that a reader who began before still learns of them.

Batches of which nothing is left go, but for the last one of each producer, which stays empty. Neither half passes the
last stable offset: what a transaction wrote is looked at when its end is known. The last batch of the log is never
touched, as it alone says where the log ends.

Both halves pause after every slice, and each slice of the second is staged for a commit of its own: readers see the
log before or after a slice, and a crash anywhere leaves a log that says the same. Below the mark that the slices move
on (`cleaned_to`), no key stands twice.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.broker.compaction.rewrite import emptied, mergeable, records_of, with_records
from kcore.broker.compaction.transactions import AbortedRanges, LastWritten, MarkersInUse
from kcore.protocol.compression import decompress
from kcore_ext.batch import parse_control, parse_header
from kcore_ext.broker.compaction import Sweep, filtered
from kcore_ext.broker.compaction_map import OffsetMap

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.log.errors import LogError
    from kcore_ext.batch import BatchHeader
    from kcore_ext.batch.run import Run

SLICE_RECORDS: Final = 6_000
"""How much a slice looks at, give or take a batch, before requests get their turn: a record, a batch and 512 bytes are
one each."""
SLICE_REMOVED: Final = 1_500
"""How many batches a slice removes: that is work of the storage's, when the slice is committed."""
UNREAD_BATCHES: Final = 32
"""So many neighbours that go are stepped over. Fewer are read with those around them, as that is one reading less."""
MERGED_BATCH_BYTES: Final = 64 * 1024
"""How large several small batches may become as one."""
MAP_BYTES: Final = 128 * 1024 * 1024
"""What a pass may take for remembering keys (Kafka's log.cleaner.dedupe.buffer.size)."""
_NEVER_MS: Final = 2**63 - 1


class CompactionRules(NamedTuple):
    """What a pass goes by.

    Attributes:
        now_ms: the wall-clock time, ms since the epoch.
        delete_retention_ms: how long tombstones stay.
        min_lag_ms: how long records are not to be touched.
        map_bytes: what may be taken for remembering keys.
        slice_records: how much a slice looks at, see SLICE_RECORDS.
        unread_batches: how many neighbours that go are not read again, at least 1.
    """

    now_ms: int
    delete_retention_ms: int = 86_400_000
    min_lag_ms: int = 0
    map_bytes: int = MAP_BYTES
    slice_records: int = SLICE_RECORDS
    unread_batches: int = UNREAD_BATCHES


class CompactionPass:
    """One pass over one partition. A participant of the commits that make its slices durable.

    Args:
        partition: which; recovered, not closed.
        rules: what to go by.

    Attributes:
        end_offset: how far this pass compacts the log, once it knows.
        size_bytes: what the batches up to there come to, once it is done.
        done: whether the pass came to its end.
    """

    allows_background_commit = False  # its slices commit in place

    __slots__ = (
        "_changes",
        "_failed",
        "_gone_markers",
        "_in_use",
        "_last",
        "_map",
        "_partition",
        "_ranges",
        "_rules",
        "_staged",
        "_staged_markers",
        "_start",
        "_sweep",
        "_work",
        "done",
        "end_offset",
        "size_bytes",
    )

    def __init__(self, partition: Partition, rules: CompactionRules) -> None:
        self._partition = partition
        self._rules = rules
        self._map = OffsetMap(rules.map_bytes)
        self._in_use = MarkersInUse()
        self._changes: dict[int, bytes | None] = {}
        self._sweep = Sweep(self._map, self._changes, rules.now_ms, rules.delete_retention_ms, MERGED_BATCH_BYTES)
        self._start = 0
        self._work = rules.slice_records
        self._gone_markers: set[int] = set()
        self._staged_markers: set[int] = set()
        self._staged = False
        self._failed = False
        self.done = False
        self.end_offset = -1
        self.size_bytes = 0

    @property
    def next_horizon_ms(self) -> int:
        """When the first of the tombstones and markers that stay may go; -1: there are none."""
        return self._sweep.next_horizon_ms

    def run(self) -> Iterator[None]:
        """The whole pass, in slices.

        Raises:
            LogError: the log is damaged or the partition was deleted; what was staged before stays as good as it was.
        """
        if not self._settle():
            return
        partition, log = self._partition, self._partition.log
        start = self._start = log.log_start_offset
        self._last = LastWritten(partition.producers)
        self._ranges = AbortedRanges(partition.producers.aborted.entries)
        first_dirty = max(log.cleaned_to, start)
        self.end_offset = yield from self._survey(first_dirty, self._limit())
        if self._interrupted:
            return
        yield from self._clean(start, first_dirty, self.end_offset)

    def _limit(self) -> int:
        """The offset that the pass must not come to: the last stable one, or the last batch."""
        log = self._partition.log
        if log.log_start_offset >= log.high_watermark:
            return log.log_start_offset
        last = log.summaries(log.high_watermark - 1, 1)
        return min(self._partition.last_stable_offset, last[0].base_offset)

    @property
    def _interrupted(self) -> bool:
        """Whether to give up: the commit of a slice failed, the partition goes, or somebody loads it just now.

        A load that has read a record must also get to see the tombstone behind it.
        """
        partition = self._partition
        return self._failed or partition.closed or partition.loading > 0

    # ---- the first half

    def _survey(self, start: int, limit: int) -> Generator[None, None, int]:
        """Remembers the last offset of each key from `start` on; returns the offset up to which it did."""
        rules, offsets = self._rules, self._map
        newest_ms = rules.now_ms - rules.min_lag_ms if rules.min_lag_ms else _NEVER_MS
        end = start
        if start >= limit:
            return start
        for run in self._partition.log.runs(start, limit):
            at = 0
            while at < len(run):
                at, self._work = offsets.survey(run, at, self._start, newest_ms, self._work, decompress)
                if self._work > 0 and not offsets.full and at < len(run):
                    header = parse_header(run[at][1])
                    if header.max_timestamp_ms > newest_ms:
                        return parse_header(run[at - 1][1]).next_offset if at else end
                    self._survey_special(header, run[at][1])
                    at += 1
                if at:
                    end = parse_header(run[at - 1][1]).next_offset
                if offsets.full:
                    return end
                if self._work <= 0:
                    self._work = rules.slice_records
                    yield
                    if self._interrupted:
                        return end
        return end

    def _survey_special(self, header: BatchHeader, batch: bytes) -> None:
        """Looks at a marker, or at a batch of a transaction whose end is known."""
        if header.is_control or self._ranges.covers(header):
            self._map.step_over(header.base_offset)
            self._work -= 1
        else:
            self._work -= self._map.add(batch, decompress)

    # ---- the second half

    def _clean(self, start: int, first_dirty: int, end: int) -> Iterator[None]:
        surveyed = self._map
        self._work = self._rules.slice_records
        position = start
        if surveyed.count:
            # What was compacted before ends where the first batch begins that was not.
            first_dirty = min(first_dirty, surveyed.base_offset(0))
        if start < first_dirty:
            position = yield from self._read(start, first_dirty, position)
        at = 0
        while at < surveyed.count and position >= 0:
            stop, goes = surveyed.stretch(at, self._rules.unread_batches)
            upto = surveyed.base_offset(stop) if stop < surveyed.count else end
            if goes:
                position = yield from self._remove(at, stop, upto)
            else:
                position = yield from self._read(max(surveyed.base_offset(at), start), upto, position)
            at = stop
        if position < 0:
            return
        self._stage(end)
        yield
        self.done = self._settle()
        self.size_bytes = self._sweep.size_bytes

    def _pause(self, position: int) -> Generator[None, None, bool]:
        """Ends a slice: what it changed is committed before the next one. False if the pass is over."""
        self._stage(position)
        self._work = self._rules.slice_records
        yield
        return self._settle()

    def _remove(self, at: int, stop: int, upto: int) -> Generator[None, None, int]:
        """Removes the surveyed batches of these indexes, unread; returns the offset behind, -1 if the pass is over."""
        surveyed, cost = self._map, max(1, SLICE_RECORDS // SLICE_REMOVED)
        while at < stop:
            until = min(stop, at + max(1, self._work // cost))
            surveyed.remove(at, until, self._changes)
            self._work -= cost * (until - at)
            at = until
            if self._work < cost and not (yield from self._pause(surveyed.base_offset(at) if at < stop else upto)):
                return -1
        return upto

    def _read(self, start: int, stop: int, position: int) -> Generator[None, None, int]:
        """Reads batches and decides about each; returns the offset behind them, -1 if the pass is over.

        Args:
            start: where the first one begins, or the log's start.
            stop: where the batch behind the last one begins.
            position: the offset behind what was decided so far.
        """
        log = self._partition.log
        start = max(start, log.log_start_offset)  # retention may have moved it since the pass began
        for run in log.runs(start, stop) if start < stop else ():
            at = 0
            while at < len(run):
                at, position, self._work = self._sweep.sweep(run, at, position, self._work, decompress)
                if self._work > 0 and at < len(run):
                    position = self._special(position, run, at)
                    at += 1
                if self._work <= 0 and not (yield from self._pause(position)):
                    return -1
        return position

    def _special(self, position: int, run: Run, at: int) -> int:
        """Decides about a batch of which its records alone do not tell; returns the offset behind it."""
        base, batch = run[at]
        header = parse_header(batch)
        self._work -= 1 + header.record_count
        if base < position > self._start:
            # It was merged by this very pass. One that the log's start cuts is looked at like any other: an old value
            # that stayed in it would come back once the tombstone behind it goes.
            self._sweep.flush()
            self._sweep.add(batch, False, False)
        elif header.is_control:
            self._control(header, batch)
        else:
            self._data(header, batch)
        return header.next_offset

    def _data(self, header: BatchHeader, batch: bytes) -> None:
        """Decides about a batch of records: of a transaction, compressed, or a producer's."""
        sweep = self._sweep
        if header.is_transactional:
            self._in_use.saw_data(header.producer_id)
            if self._ranges.covers(header):
                self._empty(header, batch)
                return
        kept, tombstones, stays = sweep.judge(batch, decompress)
        if not kept:
            self._empty(header, batch)
            return
        horizon_ms = sweep.horizon(header.delete_horizon_ms) if tombstones else -1
        if kept == header.record_count and horizon_ms == header.delete_horizon_ms:
            sweep.add(batch, False, mergeable(header))
            return
        if header.compression:
            kept_records = [record for record, stay in zip(records_of(batch), stays, strict=True) if stay]
            changed = with_records(header, kept_records, horizon_ms)
        else:
            changed = filtered(batch, stays, horizon_ms)
        sweep.add(changed, True, mergeable(parse_header(changed)))

    def _empty(self, header: BatchHeader, batch: bytes) -> None:
        """Nothing is left of a batch: it goes, unless its producer is known by nothing else."""
        if header.producer_id >= 0 and self._last.is_last_data(header):
            stays = emptied(header) if header.record_count else batch
            self._sweep.add(stays, header.record_count > 0, False)
        else:
            self._changes[header.base_offset] = None

    def _control(self, header: BatchHeader, batch: bytes) -> None:
        """Decides about a marker: one that ends nothing any more goes as a tombstone does."""
        sweep = self._sweep
        if header.record_count and parse_control(batch).is_end_marker:
            needed = self._in_use.ends_something(header.producer_id) or self._last.is_last_marker(header)
            if not needed and 0 <= header.delete_horizon_ms <= self._rules.now_ms:
                self._changes[header.base_offset] = None
                self._gone_markers.add(header.base_offset)
                return
            if not needed and header.delete_horizon_ms < 0:
                changed = with_records(header, records_of(batch), sweep.horizon(-1))
                sweep.add(changed, True, False)
                return
            if not needed:
                sweep.horizon(header.delete_horizon_ms)
        sweep.add(batch, False, False)

    # ---- commits (Participant)

    def _stage(self, position: int) -> None:
        """Hands what the slice changed to the log, for the next commit."""
        self._sweep.flush()
        log = self._partition.log
        if self._changes or position > log.cleaned_to:
            self._partition.rewrite(self._changes, position)
            self._partition.pipeline.enlist(self)
            self._staged = True
            self._staged_markers, self._gone_markers = self._gone_markers, set()
            self._changes.clear()

    def _settle(self) -> bool:
        """Nothing is staged any more: commits it, where no round of requests did. False if the pass is over."""
        if self._staged or self._partition.dirty:
            self._partition.pipeline.commit()
        return not (self._interrupted or self._staged or self._partition.dirty)

    def seal(self) -> None:
        """Nothing is collected here."""

    def committed(self) -> None:
        """A slice is durable: who asks for aborted transactions is not told of markers that are gone."""
        self._staged = False
        if self._staged_markers:
            self._partition.producers.aborted.forget(self._staged_markers)
            self._staged_markers = set()

    def failed(self, error: LogError) -> None:
        """The log is as it was before the slice. Another pass will begin again."""
        self._staged = False
        self._failed = True
