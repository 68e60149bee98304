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

from kcore.broker.compaction_map import OffsetMap
from kcore.broker.compaction_rewrite import Merger, emptied, mergeable, records_of, with_records
from kcore.broker.compaction_transactions import AbortedRanges, LastWritten, MarkersInUse
from kcore.protocol.compression import decompress
from kcore_ext.batch import iter_entries, parse_control, parse_header

if TYPE_CHECKING:
    from kcore.broker.partition import Partition
    from kcore.log.errors import LogError
    from kcore_ext.batch import BatchHeader, Record

SLICE_RECORDS: Final = 2_000
"""How many records a slice looks at, give or take a batch, before requests get their turn."""
SLICE_BATCHES: Final = 256
SLICE_BYTES: Final = 512 * 1024
MERGED_BATCH_BYTES: Final = 64 * 1024
"""How large several small batches may become as one."""
MAP_BYTES: Final = 128 * 1024 * 1024
"""What a pass may take for remembering keys (Kafka's log.cleaner.dedupe.buffer.size)."""


class CompactionRules(NamedTuple):
    """What a pass goes by.

    Attributes:
        now_ms: the wall-clock time, ms since the epoch.
        delete_retention_ms: how long tombstones stay.
        min_lag_ms: how long records are not to be touched.
        map_bytes: what may be taken for remembering keys.
        slice_records: how many records a slice looks at.
    """

    now_ms: int
    delete_retention_ms: int = 86_400_000
    min_lag_ms: int = 0
    map_bytes: int = MAP_BYTES
    slice_records: int = SLICE_RECORDS


class _Slice:
    """What is left of the present slice's allowance."""

    __slots__ = ("_batches", "_bytes", "_limit", "_records")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records = self._batches = self._bytes = 0

    def full(self, header: BatchHeader) -> bool:
        """Counts a batch; True if it is time to pause, and then begins the next slice."""
        self._records += header.record_count
        self._batches += 1
        self._bytes += header.size_bytes
        if self._records >= self._limit or self._batches >= SLICE_BATCHES or self._bytes >= SLICE_BYTES:
            self._records = self._batches = self._bytes = 0
            return True
        return False


class CompactionPass:
    """One pass over one partition. A participant of the commits that make its slices durable.

    Args:
        partition: which; recovered, not closed.
        rules: what to go by.

    Attributes:
        end_offset: how far this pass compacts the log, once it knows.
        size_bytes: what the batches up to there come to, once it is done.
        next_horizon_ms: when the first of the tombstones and markers that stay may go; -1: there are none.
        done: whether the pass came to its end.
    """

    __slots__ = (
        "_changes",
        "_failed",
        "_gone_markers",
        "_in_use",
        "_last",
        "_map",
        "_merger",
        "_partition",
        "_ranges",
        "_rules",
        "_staged",
        "_staged_markers",
        "done",
        "end_offset",
        "next_horizon_ms",
        "size_bytes",
    )

    def __init__(self, partition: Partition, rules: CompactionRules) -> None:
        self._partition = partition
        self._rules = rules
        self._map = OffsetMap(rules.map_bytes)
        self._in_use = MarkersInUse()
        self._changes: dict[int, bytes | None] = {}
        self._merger = Merger(self._changes, MERGED_BATCH_BYTES)
        self._gone_markers: set[int] = set()
        self._staged_markers: set[int] = set()
        self._staged = False
        self._failed = False
        self.done = False
        self.end_offset = -1
        self.size_bytes = 0
        self.next_horizon_ms = -1

    def run(self) -> Iterator[None]:
        """The whole pass, in slices.

        Raises:
            LogError: the log is damaged or the partition was deleted; what was staged before stays as good as it was.
        """
        if not self._settle():
            return
        partition, log = self._partition, self._partition.log
        start = log.log_start_offset
        self._last = LastWritten(partition.producers)
        self._ranges = AbortedRanges(partition.producers.aborted.entries)
        first_dirty = max(log.cleaned_to, start)
        self.end_offset = yield from self._survey(first_dirty, self._limit())
        if self._interrupted:
            return
        yield from self._clean(start, self.end_offset)

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
        untouched_from_ms = self._rules.now_ms - self._rules.min_lag_ms
        offsets, share = self._map, _Slice(self._rules.slice_records)
        end = start
        if start >= limit:
            return start
        for _, batch in self._partition.log.batches(start, limit):
            header = parse_header(batch)
            if self._rules.min_lag_ms and header.max_timestamp_ms > untouched_from_ms:
                break
            if not header.is_control and not (header.is_transactional and self._ranges.covers(header)):
                for offset, _, key, _ in iter_entries(batch, decompress=decompress):
                    if key is not None:
                        offsets.put(key, offset)
            end = header.next_offset
            if offsets.full:
                break
            if share.full(header):
                yield
                if self._interrupted:
                    break
        return end

    # ---- the second half

    def _clean(self, start: int, end: int) -> Iterator[None]:
        share = _Slice(self._rules.slice_records)
        position = start
        if start < end:
            for base, batch in self._partition.log.batches(start, end):
                header = parse_header(batch)
                if base < start or base < position:
                    # Retention cuts it, or it was merged by this very pass: it stays as it is.
                    self._merger.flush()
                    self._merger.size_bytes += len(batch)
                elif header.is_control:
                    self._control(header, batch)
                else:
                    self._data(header, batch)
                position = header.next_offset
                if share.full(header):
                    self._stage(position)
                    yield
                    if not self._settle():
                        return
        self._stage(end)
        yield
        self.done = self._settle()
        self.size_bytes = self._merger.size_bytes

    def _data(self, header: BatchHeader, batch: bytes) -> None:
        """Decides about a batch of records."""
        transactional = header.is_transactional
        if transactional:
            self._in_use.saw_data(header.producer_id)
        kept = header.record_count
        tombstones = 0
        if transactional and self._ranges.covers(header):
            kept = 0
        else:
            latest = self._map.offsets
            expired = 0 <= header.delete_horizon_ms <= self._rules.now_ms
            for offset, _, key, value in iter_entries(batch, decompress=decompress):
                if key is None or latest.get(key, -1) > offset:
                    kept -= 1
                elif value is None:
                    if expired:
                        kept -= 1
                    else:
                        tombstones += 1
        if not kept:
            self._empty(header, batch)
            return
        horizon_ms = -1
        if tombstones:
            horizon_ms = self._horizon(header)
        if kept == header.record_count and horizon_ms == header.delete_horizon_ms:
            self._merger.add(header, batch, False, mergeable(header))
            return
        changed = with_records(header, self._kept_records(header, batch), horizon_ms)
        self._merger.add(header, changed, True, mergeable(parse_header(changed)))

    def _kept_records(self, header: BatchHeader, batch: bytes) -> list[Record]:
        latest = self._map.offsets
        expired = 0 <= header.delete_horizon_ms <= self._rules.now_ms
        return [
            record
            for record in records_of(batch)
            if record.key is not None
            and latest.get(record.key, -1) <= record.offset
            and not (expired and record.value is None)
        ]

    def _empty(self, header: BatchHeader, batch: bytes) -> None:
        """Nothing is left of a batch: it goes, unless its producer is known by nothing else."""
        if header.producer_id >= 0 and self._last.is_last_data(header):
            stays = emptied(header) if header.record_count else batch
            self._merger.add(header, stays, header.record_count > 0, False)
        else:
            self._changes[header.base_offset] = None

    def _control(self, header: BatchHeader, batch: bytes) -> None:
        """Decides about a marker: one that ends nothing any more goes as a tombstone does."""
        if header.record_count and parse_control(batch).is_end_marker:
            needed = self._in_use.ends_something(header.producer_id) or self._last.is_last_marker(header)
            if not needed and 0 <= header.delete_horizon_ms <= self._rules.now_ms:
                self._changes[header.base_offset] = None
                self._gone_markers.add(header.base_offset)
                return
            if not needed and header.delete_horizon_ms < 0:
                changed = with_records(header, records_of(batch), self._horizon(header))
                self._merger.add(header, changed, True, False)
                return
            if not needed:
                self._horizon(header)
        self._merger.add(header, batch, False, False)

    def _horizon(self, header: BatchHeader) -> int:
        """When tombstones, or a marker, may go: as was said before, else from now on."""
        horizon_ms = header.delete_horizon_ms
        if horizon_ms < 0:
            horizon_ms = self._rules.now_ms + self._rules.delete_retention_ms
        if self.next_horizon_ms < 0 or horizon_ms < self.next_horizon_ms:
            self.next_horizon_ms = horizon_ms
        return horizon_ms

    # ---- commits (Participant)

    def _stage(self, position: int) -> None:
        """Hands what the slice changed to the log, for the next commit."""
        self._merger.flush()
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
