"""Compaction of one partition: keeps the last record of each key at its offset (Kafka's log cleaner, KIP-58, KIP-354,
KIP-534).

A pass has two halves. The first reads the batches that are new since the last pass and stores the last offset of each
key, until its memory is full. The second reads the log from its start to the end of the first half and removes:

* records of a key that has a later record; records without a key, which a compacted topic cannot have;
* records of aborted transactions;
* tombstones, and markers of transactions without remaining batches, once `delete.retention.ms` has passed since the
  first pass that read them. The first pass stores the time of the removal in their batch, as the batch's *horizon*.
  So a reader that started before the first pass can still read them.

Batches without remaining records are removed, except the last batches of each producer, which stay as empty batches.
Both halves stop at the last stable offset, so the pass never compacts records of an open transaction. The last batch of
the log is never changed, because only that batch shows where the log ends.

Both halves pause after every slice, and each slice of the second half has its own commit. Readers see the log before or
after a slice. A crash at any moment leaves a log from which a replay gives the same state. Each slice advances the
offset `cleaned_to`; below it, each key has only one record.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.broker.compaction.rewrite import emptied, mergeable, repacked
from kcore.broker.compaction.transactions import LastWritten, MarkersInUse
from kcore.protocol.batch_layout import HEADER_BYTES
from kcore.protocol.compression import CompressionError, decompress, decompress_in_steps, prepared
from kcore_ext.batch import DEFAULT_MAX_DECOMPRESSED_BYTES, parse_control, parse_header
from kcore_ext.broker.compaction import Sweep, filtered
from kcore_ext.broker.compaction_map import OffsetMap

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.log.errors import LogError
    from kcore_ext.batch import BatchHeader
    from kcore_ext.batch.run import Run

SLICE_RECORDS: Final = 6_000
"""Maximum work units of a slice. Each record, each batch and each 512 bytes count as one unit.

A batch with more records is read in several slices, and rewritten in one.
"""
LARGE_PACKED_BYTES: Final = 4_096
"""Size of a compressed batch above which it is decompressed in slices; with gzip it may become 1,000 times as large.

`kcore_ext.broker.compaction` and `compaction_map` leave such batches to this module.
"""
SLICE_REMOVED: Final = 1_500
"""Maximum number of batches that a slice removes. The commit of the slice takes time for each removed batch."""
UNREAD_BATCHES: Final = 32
"""Minimum number of adjacent removable batches that a pass removes without reading them again.

The pass reads fewer adjacent removable batches together with the batches around them, which saves a separate read.
"""
MERGED_BATCH_BYTES: Final = 64 * 1024
"""Largest size of a batch that is merged from several small ones."""
MAP_BYTES: Final = 128 * 1024 * 1024
"""Memory of a pass for the last offsets of keys (Kafka's log.cleaner.dedupe.buffer.size)."""
_NEVER_MS: Final = 2**63 - 1


class CompactionRules(NamedTuple):
    """Parameters of a pass.

    Attributes:
        now_ms: the wall-clock time, ms since the epoch.
        delete_retention_ms: retention time of tombstones.
        limit_offset: the first offset of the active segment, which is not compacted; None: the whole log is compacted.
        min_lag_ms: minimum age of compacted records; younger records are not changed.
        map_bytes: memory for the last offsets of keys.
        slice_records: work units of a slice, counted as for SLICE_RECORDS.
        unread_batches: minimum length of a run of adjacent batches that the pass removes without reading it again; at
            least 1.
    """

    now_ms: int
    delete_retention_ms: int = 86_400_000
    min_lag_ms: int = 0
    map_bytes: int = MAP_BYTES
    slice_records: int = SLICE_RECORDS
    unread_batches: int = UNREAD_BATCHES
    limit_offset: int | None = None


class CompactionPass:
    """One pass over one partition, and a participant of the commits that make its slices durable.

    Args:
        partition: the partition; recovered, not closed.
        rules: the pass's parameters.

    Attributes:
        end_offset: the offset up to which this pass compacts the log; -1 before the first half ends.
        size_bytes: total size of the batches up to `end_offset`; 0 until the pass is done.
        done: True once the pass has completed.
    """

    allows_background_commit = False  # its slices are committed inline

    __slots__ = (
        "_changes",
        "_failed",
        "_gone_markers",
        "_in_use",
        "_last",
        "_map",
        "_partition",
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
        """Earliest time at which a retained tombstone or marker may be removed; -1 if there is none."""
        return self._sweep.next_horizon_ms

    def run(self) -> Iterator[None]:
        """Runs the whole pass in slices.

        Raises:
            LogError: the log is damaged or the partition was deleted. The slices before the error remain valid.
        """
        if not self._settle():
            return
        partition, log = self._partition, self._partition.log
        start = self._start = log.log_start_offset
        self._last = LastWritten(partition.producers)
        first_dirty = max(log.cleaned_to, start)
        self.end_offset = yield from self._survey(first_dirty, self._limit())
        if not self._settle():
            return
        yield from self._clean(start, first_dirty, self.end_offset)

    def _limit(self) -> int:
        """Returns the offset at which the pass must end: the lowest of last stable offset, last batch and active
        segment.
        """
        log = self._partition.log
        if log.log_start_offset >= log.high_watermark:
            return log.log_start_offset
        last = log.summaries(log.high_watermark - 1, 1)
        limit = min(self._partition.last_stable_offset, last[0].base_offset)
        active = self._rules.limit_offset
        return limit if active is None else max(min(limit, active), log.log_start_offset)

    @property
    def _interrupted(self) -> bool:
        """True if the pass must stop: a slice's commit failed, the partition was closed, or a coordinator is loading
        it.

        If a load has read a record, the pass must not remove a later tombstone of this record before the load reads it.
        """
        partition = self._partition
        return self._failed or partition.closed or partition.loading > 0

    def _is_aborted(self, header: BatchHeader) -> bool:
        """Tests if a transactional batch below the last stable offset belongs to an aborted transaction."""
        return self._partition.producers.aborted.covers(header.producer_id, header.base_offset)

    # ---- the first half

    def _survey(self, start: int, limit: int) -> Generator[None, None, int]:
        """Stores the last offset of each key from `start` on. Returns the offset after the last batch that was read."""
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
                    if not (yield from self._survey_special(header, run[at][1])):
                        return end
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

    def _survey_special(self, header: BatchHeader, batch: bytes) -> Generator[None, None, bool]:
        """Reads, in the first half of a pass, a batch that the compiled code does not read, such as a marker. Returns
        False if the pass is over.
        """
        if header.is_control or self._is_aborted(header):
            self._map.step_over(header.base_offset)
            self._work -= 1
            return True
        unpack = yield from self._unpacked(header, batch, lambda: not self._interrupted)
        if unpack is None:
            return False
        self._work = self._map.add(batch, unpack, self._work)
        while self._map.within_batch:
            self._work = self._rules.slice_records
            yield
            if self._interrupted:
                return False
            self._work = self._map.add(batch, unpack, self._work)
        return True

    def _unpacked(
        self, header: BatchHeader, batch: bytes, may_continue: Callable[[], bool]
    ) -> Generator[None, None, Callable[[int, Any, int], bytes] | None]:
        """Decompresses a large batch in slices.

        Args:
            header: the header of the batch.
            batch: the bytes of the batch.
            may_continue: called after each slice; returns False if the pass is over.

        Returns:
            A function with the parameters of `decompress` that returns the records; None if the pass is over.
        """
        if not header.compression or len(batch) <= LARGE_PACKED_BYTES:
            return decompress
        steps = decompress_in_steps(
            header.compression, memoryview(batch)[HEADER_BYTES:], DEFAULT_MAX_DECOMPRESSED_BYTES
        )
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return prepared(end.value)
            except CompressionError:
                return decompress  # the reader of the batch reports the damage
            yield
            if not may_continue():
                return None

    # ---- the second half

    def _clean(self, start: int, first_dirty: int, end: int) -> Iterator[None]:
        surveyed = self._map
        self._work = self._rules.slice_records
        position = start
        if surveyed.count:
            # The part that earlier passes compacted ends at the first surveyed batch.
            first_dirty = min(first_dirty, surveyed.base_offset(0))
        if start < first_dirty:
            position = yield from self._read(start, first_dirty, position)
        at = 0
        while at < surveyed.count and position >= 0:
            stop, removable = surveyed.next_sequence(at, self._rules.unread_batches)
            upto = surveyed.base_offset(stop) if stop < surveyed.count else end
            if removable:
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
        """Ends a slice; its changes are committed before the next slice. Returns False if the pass is over."""
        self._stage(position)
        self._work = self._rules.slice_records
        yield
        return self._settle()

    def _pause_in_batch(self) -> Generator[None, None, bool]:
        """Ends a slice before the work for one batch is complete. Returns False if the pass is over."""
        yield
        return self._settle()

    def _remove(self, at: int, stop: int, upto: int) -> Generator[None, None, int]:
        """Removes batches that the first half has read, without reading them again. `at` is the index of the first of
        these batches, `stop` the index after the last one.

        Returns `upto`, which must be the offset after these batches; -1 if the pass is over.
        """
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
        """Reads and compacts batches; returns the offset after them, -1 if the pass is over.

        Args:
            start: base offset of the first batch, or the log's start.
            stop: the base offset of the batch after the last batch to read.
            position: the offset after the batches that the pass has compacted so far.
        """
        log = self._partition.log
        start = max(start, log.log_start_offset)  # retention may have moved the log's start since the pass began
        for run in log.runs(start, stop) if start < stop else ():
            at = 0
            while at < len(run):
                at, position, self._work = self._sweep.sweep(run, at, position, self._work, decompress)
                if self._work > 0 and at < len(run):
                    position = yield from self._special(position, run, at)
                    if position < 0:
                        return -1
                    at += 1
                if self._work <= 0 and not (yield from self._pause(position)):
                    return -1
        return position

    def _special(self, position: int, run: Run, at: int) -> Generator[None, None, int]:
        """Compacts a batch that the compiled code (`self._sweep`) does not handle, such as a marker.

        Returns:
            The offset after the batch; -1 if the pass is over.
        """
        base, batch = run[at]
        header = parse_header(batch)
        self._work -= 1 + header.record_count
        if base < position > self._start:
            # This pass merged the batch. A batch that the log's start cuts is compacted like any other: an old value
            # left in it would reappear once the tombstone after it is removed.
            self._sweep.flush()
            self._sweep.add(batch, changed=False, may_merge=False)
        elif header.is_control:
            self._control(header, batch)
        elif not (yield from self._data(header, batch)):
            return -1
        return header.next_offset

    def _data(self, header: BatchHeader, batch: bytes) -> Generator[None, None, bool]:
        """Compacts a batch of records that is transactional, compressed or has a producer id.

        Pauses between the steps of a long compression. Returns False if the pass is over.
        """
        sweep = self._sweep
        if header.is_transactional:
            self._in_use.saw_data(header.producer_id)
            if self._is_aborted(header):
                self._empty(header, batch)
                return True
        is_large = header.record_count > self._rules.slice_records
        if is_large and not (yield from self._pause_in_batch()):
            return False
        unpack = yield from self._unpacked(header, batch, self._settle)
        if unpack is None:
            return False
        remaining = sweep.remaining_records(batch, unpack, self._rules.slice_records)
        while remaining is None:
            if not (yield from self._pause_in_batch()):
                return False
            remaining = sweep.remaining_records(batch, unpack, self._rules.slice_records)
        kept, tombstones, stays = remaining
        if not kept:
            self._empty(header, batch)
            return True
        horizon_ms = sweep.horizon(header.delete_horizon_ms) if tombstones else -1
        if kept == header.record_count and horizon_ms == header.delete_horizon_ms:
            sweep.add(batch, changed=False, may_merge=mergeable(header))
            return True
        if is_large and not (yield from self._pause_in_batch()):
            return False
        if header.compression:
            work = repacked(header, batch, stays, horizon_ms, unpack)
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    rewritten = end.value
                    break
                if not (yield from self._pause_in_batch()):
                    return False
        else:
            rewritten = filtered(batch, stays, horizon_ms)
        sweep.add(rewritten, changed=True, may_merge=mergeable(parse_header(rewritten)))
        return True

    def _empty(self, header: BatchHeader, batch: bytes) -> None:
        """Removes a batch without remaining records, or empties it if it is one of its producer's last batches."""
        if header.producer_id >= 0 and self._last.is_remembered(header):
            stays = emptied(header) if header.record_count else batch
            self._sweep.add(stays, changed=header.record_count > 0, may_merge=False)
        else:
            self._changes[header.base_offset] = None

    def _control(self, header: BatchHeader, batch: bytes) -> None:
        """Compacts a marker. A marker whose transaction has no remaining batches is removed like a tombstone."""
        sweep = self._sweep
        if header.record_count and parse_control(batch).is_end_marker:
            needed = self._in_use.ends_transaction(header.producer_id) or self._last.is_only_batch(header)
            if not needed and 0 <= header.delete_horizon_ms <= self._rules.now_ms:
                self._changes[header.base_offset] = None
                self._gone_markers.add(header.base_offset)
                return
            if not needed and header.delete_horizon_ms < 0:
                rewritten = filtered(batch, b"\x01" * header.record_count, sweep.horizon(-1))
                sweep.add(rewritten, changed=True, may_merge=False)
                return
            if not needed:
                sweep.horizon(header.delete_horizon_ms)
        sweep.add(batch, changed=False, may_merge=False)

    # ---- commits (Participant)

    def _stage(self, position: int) -> None:
        """Stages the slice's changes in the log for the next commit."""
        self._sweep.flush()
        log = self._partition.log
        if self._changes or position > log.cleaned_to:
            self._partition.rewrite(self._changes, position)
            self._partition.pipeline.enlist(self)
            self._staged = True
            self._staged_markers, self._gone_markers = self._gone_markers, set()
            self._changes.clear()

    def _settle(self) -> bool:
        """Commits the staged slice, unless a commit of requests has included it already. Returns False if the pass is
        over.
        """
        if self._staged or self._partition.dirty:
            self._partition.pipeline.commit()
        return not (self._interrupted or self._staged or self._partition.dirty)

    def seal(self) -> None:
        """Does nothing, because a pass stages its changes immediately."""

    def committed(self) -> None:
        """Forgets the aborted transactions whose markers were removed by the slice that is now durable."""
        self._staged = False
        if self._staged_markers:
            self._partition.producers.aborted.forget(self._staged_markers)
            self._staged_markers = set()

    def failed(self, error: LogError) -> None:
        """Ends the pass: the log is as it was before the slice, and a later pass starts again."""
        self._staged = False
        self._failed = True
