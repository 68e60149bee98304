"""One partition's log over any storage: staging, sealing, finishing, discarding, and reading committed batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NoReturn

from kcore.log.batch_header import damage, end_of_sound, last_offset, unpack_checked
from kcore.log.errors import (
    CorruptLogError,
    FailureReason,
    FencedLeaderEpochError,
    InvalidBatchError,
    LogClosedError,
    LogError,
    OffsetOutOfRangeError,
    PartitionDroppedError,
)
from kcore.log.interface import (
    BatchSummary,
    EpochEntry,
    PartitionKey,
    PartitionLog,
    SnapshotInfo,
    TimestampedBatch,
)
from kcore.log.snapshot import SnapshotWriter, read_chunks
from kcore.log.time_index import INDEX_STEP_COST_US, TimeIndex
from kcore.log.write_set import PartitionMeta
from kcore.protocol.batch_layout import HEADER_BYTES
from kcore_ext.batch.run import count_sound
from kcore_ext.log.partition import ABSENT, CLOSED, LIVE, LogCore

if TYPE_CHECKING:
    from kcore.log.engine import StagedLogEngine

SLICE_BYTES = 1 << 20
"""Maximum number of bytes that one call of `read` gets from the storage.

The number is small, because LMDB cannot reuse pages that an open reader may still see.
"""
SLICE_BATCHES = 512
"""Maximum number of batches that one read transaction gets from the storage; see `SLICE_BYTES` for the reason."""
RUN_BYTES = 1 << 18
"""Number of bytes that an iteration reads at once. It is small, so that a load in slices pauses often enough."""


class StagedPartitionLog(LogCore, PartitionLog):
    """A partition of a StagedLogEngine. `LogCore`, the compiled base class, has the code that runs for every batch and
    commit.

    `_meta` is the metadata with staged changes. `_durable_meta` is the committed metadata; None if the partition is not
    created yet. While a write set is being written, `_sealed` contains the changes of this partition in the write set.

    Attributes:
        owned_epoch: the epoch in which this node leads the partition, in a store that several nodes share. A storage
            compares it with the store's epoch at each write. It changes only while the partition has no staged changes.
            -1: the store belongs to this engine alone, or this node only follows the partition.
    """

    __slots__ = ("_time_index", "owned_epoch")

    _meta: PartitionMeta
    _durable_meta: PartitionMeta | None
    _snapshot_writer: SnapshotWriter | None

    def __init__(
        self, engine: StagedLogEngine, key: PartitionKey, meta: PartitionMeta, end_offset: int, durable: bool
    ) -> None:
        self.key = key
        self.log_start_offset = meta.log_start_offset
        self.end_offset = end_offset
        self.high_watermark = end_offset
        self.leader_epoch = meta.epochs[-1].epoch if meta.epochs else -1
        self._engine = engine
        self._number = meta.number
        self._meta = meta
        self._durable_meta = meta if durable else None
        self._state = LIVE
        self._snapshot_writer = None
        self._time_index: TimeIndex | None = None
        self.owned_epoch = -1

    def __repr__(self) -> str:
        return f"<log {self.key} [{self.log_start_offset}, {self.high_watermark}, {self.end_offset}]>"

    # -- staging ------------------------------------------------------------------------------------------------

    @staticmethod
    def _refuse_batch(batch: bytes | bytearray) -> NoReturn:
        size = len(batch)
        if size < HEADER_BYTES:
            raise InvalidBatchError(f"{size} bytes are too few")
        length, _, magic, _, _, delta = unpack_checked(batch)
        raise InvalidBatchError(f"length {length} in {size} bytes, magic {magic}, last offset delta {delta}")

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Refuses an older epoch; records a newer epoch in the staged metadata."""
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(leader_epoch, self.leader_epoch)
        epochs = self._meta.epochs
        # An exception between the two assignments leaves the entry: a second one would be out of order.
        if not epochs or epochs[-1].epoch != leader_epoch:
            self._meta = self._meta._replace(epochs=(*epochs, EpochEntry(leader_epoch, start_offset)))
        self.leader_epoch = leader_epoch

    def delete_before(self, offset: int) -> None:
        """Implements `PartitionLog.delete_before`."""
        if self._state != LIVE:
            self._revive()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.high_watermark)
        meta = self._meta
        if offset <= meta.log_start_offset:
            return
        # The epoch entry that covers the new start is moved up to it; entries completely below the start are removed.
        remaining = [entry for entry in meta.epochs if entry.start_offset > offset]
        if len(remaining) < len(meta.epochs):
            remaining.insert(0, EpochEntry(meta.epochs[-len(remaining) - 1].epoch, offset))
        moved = meta._replace(log_start_offset=offset, epochs=tuple(remaining))
        # Staged first: otherwise, after an exception, a repeated call would return without staging the change.
        self._stage()
        self._meta = moved

    def rewrite(self, changes: Mapping[int, bytes | None], cleaned_to: int) -> None:
        """Implements `PartitionLog.rewrite`."""
        if self._state != LIVE:
            self._revive()
        if cleaned_to >= self.high_watermark:
            raise OffsetOutOfRangeError(cleaned_to, self.log_start_offset, self.high_watermark)
        cleaned_to = max(cleaned_to, self._meta.cleaned_to)
        for base, batch in changes.items():
            end = base + 1
            if batch is not None:
                found = damage(batch, base, check_crc=False)
                if found is not None:
                    raise InvalidBatchError(f"{found[1]}, as the replacement at offset {base}")
                end = last_offset(batch) + 1
            if end > cleaned_to:
                raise InvalidBatchError(f"a batch that ends at {end}, above the end of compaction at {cleaned_to}")
        rewrites = {**self._rewrites, **changes}
        meta = self._meta._replace(cleaned_to=cleaned_to)
        self._stage()
        # `cleaned_to` before the gaps: in the other order an exception in between would leave illegal gaps.
        self._meta = meta
        self._rewrites = rewrites

    def put_snapshot_chunk(self, offset: int, index: int, chunk: bytes) -> None:
        """Implements `PartitionLog.put_snapshot_chunk`."""
        if self._state != LIVE:
            self._revive()
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.high_watermark)
        self._stage()
        if index == 0:
            # Waits for `reclaim`, which may be deleting chunks of an earlier attempt at the same offset.
            with self._engine._reclaim_lock:
                self._snapshot_writer = SnapshotWriter.accept(None, self.key, offset, index, chunk)
        else:
            SnapshotWriter.accept(self._snapshot_writer, self.key, offset, index, chunk)

    def commit_snapshot(self, offset: int) -> None:
        """Implements `PartitionLog.commit_snapshot`."""
        if self._state != LIVE:
            self._revive()
        info = SnapshotWriter.complete(self._snapshot_writer, self.key, offset)
        meta = self._meta._replace(snapshot=info)
        self._stage()
        self._meta = meta

    def drop_old_snapshots(self) -> None:
        """Implements `PartitionLog.drop_old_snapshots`."""
        self._require_readable()
        self._engine._add_garbage(self)

    def _revive(self) -> None:
        """Stages the creation of the partition again, after the commit of its creation has failed.

        Other methods call it if the handle is not live. If the handle is closed, its partition was dropped, or the
        engine must not repeat the creation, `_revive` raises an error instead.
        """
        if self._state != ABSENT:
            self._refuse()
        if not self._engine._recreates:
            raise LogError(f"{self.key} was not created: the commit failed", FailureReason.MISSING)
        self._engine._create_again(self)

    def _refuse(self) -> None:
        if self._state == CLOSED:
            raise LogClosedError
        raise PartitionDroppedError(self.key)

    def _require_readable(self) -> None:
        if self._state > ABSENT:
            self._refuse()

    # -- commits ------------------------------------------------------------------------------------------------

    def _rewritten(self, rewrites: Mapping[int, bytes | None]) -> None:
        """Drops from memory the batches that compaction has replaced in the storage."""
        # The index describes the old batches; the next search builds a new one.
        self._time_index = None
        self._tail.drop_below(max(rewrites) + 1)

    def _mark_meta_durable(self, meta: PartitionMeta) -> None:
        """Marks metadata as the durable metadata of the partition. Can be repeated after an exception."""
        self._durable_meta = meta
        if self._state == ABSENT:
            self._state = LIVE
        if self.log_start_offset != meta.log_start_offset:
            self._tail.drop_deleted(meta.log_start_offset)
            self.log_start_offset = meta.log_start_offset
            self._engine._add_garbage(self)
        writer = self._snapshot_writer
        if writer is not None and meta.snapshot is not None and meta.snapshot.offset == writer.offset:
            self._snapshot_writer = None

    def _discard(self) -> None:
        """Discards all changes that are not in the sealed write set. Can be repeated.

        If there is no sealed write set, discards all changes that are not durable.
        """
        sealed = self._sealed
        meta = self._durable_meta
        if sealed is not None:
            self.end_offset = sealed.end_offset
            meta = sealed.meta or meta
        else:
            self.end_offset = self.high_watermark
        self._staged = False
        self._batches = []
        self._rewrites = {}
        # A snapshot that lost some of its chunks must begin again.
        self._snapshot_writer = None
        if meta is None:
            self._meta = self._meta._replace(epochs=(), snapshot=None, cleaned_to=0)
            if self._state == LIVE:
                self._state = ABSENT
        else:
            self._meta = meta
        self.leader_epoch = self._meta.epochs[-1].epoch if self._meta.epochs else -1

    # -- reading ------------------------------------------------------------------------------------------------

    def _out_of_range(self, offset: int) -> NoReturn:
        raise OffsetOutOfRangeError(offset, self.log_start_offset, self.end_offset)

    def _read_stored(self, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> list[bytes]:
        """Reads batches that are no longer in memory, as `read` does; `limit` is at most the high watermark."""
        if not at_least_one and not self._fits(offset, limit, max_bytes):
            return []
        # The caller's limit may be of any size, but one read transaction stays bounded.
        stored = self._engine._storage.slice(self._number, offset, limit, min(max_bytes, SLICE_BYTES), SLICE_BATCHES)
        self._check_start(stored, offset, limit)
        batches: list[bytes] = []
        size = 0
        for base, batch in stored:
            end = end_of_sound(batch, base, check_crc=False)
            if end < 0:
                if batches:
                    break  # the next read reports it
                self._raise_damaged(base, batch, check_crc=False)
            size += len(batch)
            if not batches:
                self._check_end(base, end)
            if end > limit or (size > max_bytes and (batches or not at_least_one)):
                break
            batches.append(batch)
        return batches

    def _check_end(self, base: int, end: int) -> None:
        """Raises CorruptLogError if a batch that was read without its CRC ends after the end of the log."""
        if end > self.high_watermark:
            self._require_readable()
            raise CorruptLogError(self.key, base, f"the last offset {end - 1} is above the end of the log")

    def _fits(self, offset: int, limit: int, max_bytes: int) -> bool:
        """Returns True if the stored batch at an offset has at most `max_bytes`.

        Does not copy the batch, which may have megabytes.
        """
        head = self._engine._storage.summaries(self._number, offset, limit, 1)
        return not head or head[0].size_bytes <= max_bytes

    @property
    def cleaned_to(self) -> int:
        """Implements `PartitionLog.cleaned_to`."""
        meta = self._durable_meta
        return 0 if meta is None else meta.cleaned_to

    def _check_start(self, stored: list[tuple[int, bytes]], offset: int, limit: int) -> None:
        """Checks that the first batch read for `offset` contains the offset, or follows a gap that compaction left.

        If no batch was read, the gap ends at `limit`. The check uses the staged metadata: while a write set is being
        finished, the storage may be newer than the handle's committed metadata.
        """
        if stored:
            base, batch = stored[0]
            end = end_of_sound(batch, base, check_crc=False)
            if end < 0:
                self._raise_damaged(base, batch, check_crc=False)
            if base <= offset < end:
                return
        if not offset < (stored[0][0] if stored else limit) <= self._meta.cleaned_to:
            self._raise_missing(offset)

    def _raise_missing(self, offset: int) -> NoReturn:
        """Raises the error for an offset that is in no batch: it was deleted by retention, or the log is damaged."""
        self._require_readable()
        if offset < self.log_start_offset:
            # Retention overtook the reader.
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.end_offset)
        raise CorruptLogError(self.key, offset, "no batch contains this offset")

    def _raise_damaged(self, base: int, batch: bytes, *, check_crc: bool) -> NoReturn:
        found = damage(batch, base, check_crc)
        assert found is not None, "a batch that is not sound is damaged"
        raise CorruptLogError(self.key, base, found[1])

    def batches(
        self, start: int | None = None, stop: int | None = None, check_crc: bool = True
    ) -> Iterator[tuple[int, bytes]]:
        """Implements `PartitionLog.batches`."""
        return chain.from_iterable(self.runs(start, stop, check_crc))

    def runs(
        self, start: int | None = None, stop: int | None = None, check_crc: bool = True
    ) -> Iterator[list[tuple[int, bytes]]]:
        """Implements `PartitionLog.runs`."""
        self._require_readable()
        limit = self.high_watermark if stop is None else min(stop, self.high_watermark)
        offset = self.log_start_offset if start is None else start
        if offset < self.log_start_offset or offset > self.end_offset:
            self._out_of_range(offset)
        return self._iterate(offset, limit, check_crc)

    def _iterate(self, offset: int, limit: int, check_crc: bool) -> Iterator[list[tuple[int, bytes]]]:
        storage = self._engine._storage
        first = True
        while offset < limit:
            self._require_readable()
            stored = storage.slice(self._number, offset, limit, RUN_BYTES, SLICE_BATCHES)
            if not stored:
                self._check_start(stored, offset, limit)
                return
            sound = count_sound(stored, offset, self._meta.cleaned_to, check_crc)
            if sound == len(stored):
                yield stored
            else:
                if sound:
                    yield stored[:sound]
                    offset = last_offset(stored[sound - 1][1]) + 1
                for entry in self._one_by_one(stored[sound:], offset, first and not sound, check_crc):
                    yield [entry]
            first = False
            offset = last_offset(stored[-1][1]) + 1
            self._check_end(stored[-1][0], offset)

    def _one_by_one(
        self, stored: list[tuple[int, bytes]], offset: int, first: bool, check_crc: bool
    ) -> Iterator[tuple[int, bytes]]:
        """Yields batches up to the first damaged batch or illegal gap, and raises there."""
        for base, batch in stored:
            end = end_of_sound(batch, base, check_crc=check_crc)
            if end < 0:
                self._raise_damaged(base, batch, check_crc=check_crc)
            if base != offset and not (first and base < offset < end):
                self._check_step(base, end, offset)
            first = False
            offset = end
            yield base, batch

    def _check_step(self, base: int, end: int, offset: int) -> None:
        """Checks that compaction explains a gap or an overlap that an iteration found at `offset`."""
        if not (offset < base <= self._meta.cleaned_to or base < offset < end <= self._meta.cleaned_to):
            self._raise_missing(offset)

    def summaries(self, start: int, max_batches: int) -> list[BatchSummary]:
        """Implements `PartitionLog.summaries`."""
        self._require_readable()
        return self._engine._storage.summaries(self._number, start, self.high_watermark, max_batches)

    @property
    def epoch_entries(self) -> list[EpochEntry]:
        """Implements `PartitionLog.epoch_entries`."""
        return list(self._meta.epochs)

    @property
    def committed_epochs(self) -> list[EpochEntry]:
        """Implements `PartitionLog.committed_epochs`."""
        meta = self._durable_meta
        return [] if meta is None else list(meta.epochs)

    @property
    def snapshot(self) -> SnapshotInfo | None:
        """Implements `PartitionLog.snapshot`."""
        meta = self._durable_meta
        return None if meta is None else meta.snapshot

    def read_snapshot(self) -> Iterator[bytes]:
        """Implements `PartitionLog.read_snapshot`."""
        self._require_readable()
        info = self.snapshot
        return iter(()) if info is None else read_chunks(self._engine._storage, self._number, self.key, info)

    def _index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = self._time_index = TimeIndex(self._engine._storage, self._number)
        return index

    def index_steps(self) -> Iterator[int]:
        """Implements `PartitionLog.index_steps`."""
        self._require_readable()
        while self._index().extend(self.log_start_offset, self.high_watermark):
            yield INDEX_STEP_COST_US
            self._require_readable()

    def find_by_timestamp(self, timestamp_ms: int, after_offset: int = -1) -> TimestampedBatch | None:
        """Implements `PartitionLog.find_by_timestamp`."""
        self._require_readable()
        return self._index().find(timestamp_ms, self.log_start_offset, self.high_watermark, after_offset)

    def max_timestamp_batch(self) -> TimestampedBatch | None:
        """Implements `PartitionLog.max_timestamp_batch`."""
        self._require_readable()
        return self._index().find_max(self.log_start_offset, self.high_watermark)

    def size_bytes(self) -> int:
        """Implements `PartitionLog.size_bytes`."""
        self._require_readable()
        return self._index().size_bytes(self.log_start_offset, self.high_watermark)
