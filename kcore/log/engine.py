"""The log engine common to all storages: partitions, staged changes, write sets, and freeing space."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from operator import attrgetter
from typing import Final, NoReturn

from kcore.log.errors import FailureReason, LogClosedError, LogError
from kcore.log.interface import EngineStats, Finding, LogEngine, PartitionKey, PartitionLog
from kcore.log.partition import StagedPartitionLog
from kcore.log.storage import ReclaimTask, Storage
from kcore.log.verify import verify_partition
from kcore.log.write_set import PartitionMeta, WriteSet
from kcore_ext.log.partition import ABSENT, CLOSED, COMMITTING, DROPPED, LIVE, STAGING, EngineCore
from kcore_ext.log.tail_cache import TailCache
from kcore_ext.util.lock import Lock

TAIL_SIZE_BYTES: Final = 64 << 20
"""Default limit of the total size of the newest batches that an engine keeps in memory, over all partitions."""
MAX_NAME_BYTES: Final = 500
"""Maximum length of a name in `put_meta`, because LMDB's keys have at most 511 bytes."""

_NO_METAS: Final[dict[str, bytes | None]] = {}
_NO_DROPS: Final[list[StagedPartitionLog]] = []

_BY_NUMBER = attrgetter("_number")

_INTERRUPTED: Final = (
    "an exception interrupted a call of the log engine: all changes that were not committed are discarded"
)


class StagedLogEngine(EngineCore, LogEngine):
    """A LogEngine over a Storage. The constructors of its subclasses open the engine.

    Any line may raise `MemoryError` or `KeyboardInterrupt`. A change of several steps therefore sets a bit of
    `_interrupted_change` before its first step and clears it after the last. After an exception, `seal`, `finish`,
    `fail` and `commit` themselves reset memory to the contents of the storage. The storage contains the write set if
    `WriteSet.is_durable`; `Storage.resolve_write` determines this flag before memory changes. If a second exception
    interrupts the reset, the bit stays set. The next `commit` or `seal` then resets memory and raises like a failed
    write. If this reset also fails, later calls repeat it.
    """

    __slots__ = (
        "_closed",
        "_drops",
        "_garbage",
        "_in_flight",
        "_logs",
        "_metas",
        "_new_numbers",
        "_next_number",
        "_reclaim_lock",
        "_recreates",
        "_released",
        "_storage",
        "node_epoch",
    )

    def __init__(self, storage: Storage, tail_size_bytes: int = TAIL_SIZE_BYTES) -> None:
        self._storage = storage
        self._tails = TailCache(tail_size_bytes)
        self._recreates = True
        self._closed: str | None = None
        self._released = False
        self._interrupted_change = 0
        self._drops: list[StagedPartitionLog] = []
        self._metas: dict[str, bytes | None] = {}
        self._in_flight: WriteSet | None = None
        self._new_numbers = False
        self._reclaim_lock = Lock()
        # Insertion-ordered: numbers of dropped partitions (None), and partitions with deleted batches or old snapshots.
        self._garbage: dict[int, StagedPartitionLog | None] = {}
        self._logs: dict[PartitionKey, StagedPartitionLog] = {}
        try:
            self._load()
        except BaseException:
            storage.close()
            raise

    def _load(self) -> None:
        """Creates a handle for each stored partition."""
        stored, dropped, self._next_number = self._storage.load()
        self.node_epoch = self._storage.node_epoch
        self._garbage.update(dict.fromkeys(dropped))
        for found in stored:
            log = StagedPartitionLog(self, found.key, found.meta, found.end_offset, durable=True)
            self._logs[found.key] = log
            if found.garbage:
                self._garbage[found.meta.number] = log
        _forget_after_fork(self)

    # -- partitions ---------------------------------------------------------------------------------------------

    def open(self, key: PartitionKey, log_start_offset: int = 0) -> PartitionLog:
        """Implements `LogEngine.open`."""
        self._require_open()
        log = self._logs.get(key)
        if log is None:
            if len(key.topic_id) != 16 or not 0 <= key.partition < 1 << 31:
                raise ValueError(
                    f"{key!r} is not a partition key; valid: a topic id of 16 bytes, and a partition number from 0 to "
                    "2**31 - 1"
                )
            self._require_whole()
            meta = PartitionMeta(self._next_number, log_start_offset, (), None)
            log = StagedPartitionLog(self, PartitionKey(*key), meta, log_start_offset, durable=False)
            self._interrupted_change = STAGING
            self._next_number += 1
            self._new_numbers = True
            log._stage()
            self._logs[log.key] = log
            self._interrupted_change = 0
        elif log._state == ABSENT:
            self._create_again(log)
        return log

    def permit_recreation(self, permitted: bool) -> None:
        """Implements `LogEngine.permit_recreation`."""
        self._recreates = permitted

    def _create_again(self, log: StagedPartitionLog) -> None:
        """Stages the creation of a partition whose first creation failed."""
        self._require_whole()
        self._interrupted_change = STAGING
        log._stage()
        self._new_numbers = True
        log._state = LIVE
        self._interrupted_change = 0

    def get(self, key: PartitionKey) -> PartitionLog | None:
        """Implements `LogEngine.get`."""
        self._require_open()
        log = self._logs.get(key)
        return None if log is None or log._state == ABSENT else log

    def partitions(self) -> list[PartitionKey]:
        """Implements `LogEngine.partitions`."""
        self._require_open()
        return [log.key for log in sorted(self._logs.values(), key=_BY_NUMBER) if log._state == LIVE]

    def drop(self, key: PartitionKey) -> None:
        """Implements `LogEngine.drop`."""
        self._require_open()
        log = self._logs.get(key)
        if log is None:
            return
        self._require_whole()
        self._interrupted_change = STAGING
        if log._durable_meta is not None or log._sealed is not None:
            self._drops.append(log)
        if log._staged:
            self._dirty.remove(log)
            log._discard()
        log._state = DROPPED
        del self._logs[key]
        self._interrupted_change = 0

    # -- commits ------------------------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Implements `LogEngine.dirty`."""
        # Also True after an interrupted call: the next commit then fails and discards the staged changes.
        return bool(self._dirty or self._metas or self._drops or self._interrupted_change)

    def seal(self) -> WriteSet:
        """Implements `LogEngine.seal`."""
        if self._closed is not None or self._interrupted_change or self._in_flight is not None:
            self._refuse_seal()
        self._interrupted_change = COMMITTING
        try:
            sealed = self._take_staged()
        except BaseException:
            self._recover()
            raise
        self._interrupted_change = 0
        return sealed

    def _refuse_seal(self) -> NoReturn:
        """Raises the error of `seal` or `commit` if the log cannot make a write set now.

        If an earlier call was interrupted, the method recovers the log before it raises the error.
        """
        if self._closed is not None:
            raise LogClosedError(self._closed)
        if self._interrupted_change & COMMITTING or (self._interrupted_change and self._in_flight is None):
            self._recover()
            raise LogError(_INTERRUPTED, FailureReason.INTERRUPTED)
        raise LogError("the previous write set is neither finished nor failed", FailureReason.MISUSE)

    def _take_staged(self) -> WriteSet:
        """Moves all staged changes into a write set. After an exception, a change may be in the staged set, the
        write set, or both.
        """
        metas, drops = self._metas, self._drops
        # The write set gets a shared empty container, never the engine's own: later changes must not appear in it.
        sealed = WriteSet(self._seal_dirty(), metas or _NO_METAS, drops or _NO_DROPS, 0)
        if self._new_numbers:
            sealed.next_number = self._next_number
        self._in_flight = sealed
        self._new_numbers = False
        if metas:
            self._metas = {}
        if drops:
            self._drops = []
        return sealed

    def write(self, write_set: WriteSet) -> None:
        """Implements `LogEngine.write`."""
        self._require_open()
        if not write_set.empty:
            self._storage.write(write_set)

    def finish(self, write_set: WriteSet) -> None:
        """Implements `LogEngine.finish`."""
        self._interrupted_change |= COMMITTING
        try:
            self._show(write_set)
            self._in_flight = None
        except BaseException:
            # The write set is durable, and changes that were staged after it stay valid, so the step is repeated.
            self._show(write_set)
            self._in_flight = None
            self._interrupted_change &= ~COMMITTING
            raise
        self._interrupted_change &= ~COMMITTING

    def fail(self, write_set: WriteSet, error: BaseException) -> None:
        """Implements `LogEngine.fail`."""
        interrupted = self._interrupted_change
        self._interrupted_change = interrupted | COMMITTING
        self._storage.resolve_write()
        if interrupted or write_set.is_durable or self._in_flight is not write_set:
            self._recover()
            return
        try:
            for sealed in write_set.partitions:
                sealed.log._sealed = None
            self._discard_staged()
            for sealed in write_set.partitions:
                sealed.log._discard()
            self._restore(write_set.drops)
            self._in_flight = None
        except BaseException:
            self._recover()
            raise
        self._interrupted_change = 0

    def commit(self) -> None:
        """Implements `LogEngine.commit`."""
        if self._closed is not None or self._interrupted_change or self._in_flight is not None:
            self._refuse_seal()
        if not (self._dirty or self._metas or self._drops):
            return
        self._interrupted_change = COMMITTING
        try:
            sealed = self._take_staged()
            self.write(sealed)
            self._show(sealed)
            self._in_flight = None
        except BaseException:
            # An interrupt may come when the transaction is already durable: `WriteSet.is_durable` decides.
            self._recover()
            raise
        self._interrupted_change = 0

    @property
    def uncertain(self) -> bool:
        """Implements `LogEngine.uncertain`."""
        return self._closed is None and bool(self._interrupted_change & COMMITTING)

    def recover(self) -> None:
        """Implements `LogEngine.recover`."""
        self._require_open()
        self._recover()

    def _recover(self) -> None:
        """Resets memory to the contents of the storage.

        The write set of the interrupted commit becomes visible if it is durable. All other staged changes are
        discarded. No thread may be writing the write set.

        The recovery starts from durable metadata and high watermarks, which only a finished write set changes. It
        visits every partition and can be repeated, so it is correct after an exception at any line.
        """
        if self._closed is not None:
            self._in_flight = None
            return
        self._interrupted_change |= COMMITTING
        self._storage.resolve_write()
        write_set = self._in_flight
        self._restore(self._drops)
        if write_set is not None:
            if write_set.is_durable:
                self._show(write_set)
                for sealed in write_set.partitions:
                    # An exception may have come between the move of the log start and this call.
                    self._add_garbage(sealed.log)
            else:
                self._restore(write_set.drops)
        for log in self._logs.values():
            log._sealed = None
            log._discard()
        self._forget_staged()
        self._in_flight = None
        self._interrupted_change = 0

    def rollback(self) -> None:
        """Implements `LogEngine.rollback`."""
        self._require_open()
        if self._interrupted_change & COMMITTING:
            self._recover()
            return
        interrupted, self._interrupted_change = self._interrupted_change, STAGING
        if interrupted:
            self._restore(self._drops)
            for log in self._logs.values():
                log._discard()
            self._forget_staged()
        else:
            self._discard_staged()
        self._interrupted_change = 0

    def _forget_staged(self) -> None:
        """Clears the lists of staged changes, after the caller has reset the partitions."""
        self._dirty = []
        self._metas = {}
        self._drops = []

    def _discard_staged(self) -> None:
        """Discards all staged changes that are in no write set."""
        dirty, self._dirty = self._dirty, []
        for log in dirty:
            log._discard()
        self._metas = {}
        drops, self._drops = self._drops, []
        self._restore(drops)

    def _restore(self, drops: list[StagedPartitionLog]) -> None:
        """Restores dropped partitions. A partition that was created to replace a dropped partition is discarded."""
        for log in drops:
            other = self._logs.get(log.key)
            if other is not None and other is not log:
                other._state = DROPPED
            log._state = LIVE if log._durable_meta is not None or log._sealed is not None else ABSENT
            self._logs[log.key] = log

    # -- metadata -----------------------------------------------------------------------------------------------

    def get_meta(self, name: str) -> bytes | None:
        """Implements `LogEngine.get_meta`."""
        self._require_open()
        if name in self._metas:
            return self._metas[name]
        in_flight = self._in_flight
        if in_flight is not None and name in in_flight.metas:
            return in_flight.metas[name]
        return self._storage.get_meta(name)

    def put_meta(self, name: str, value: bytes | None) -> None:
        """Implements `LogEngine.put_meta`."""
        self._require_open()
        if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
            raise ValueError(f"{name!r} is not a valid name; valid: 1 to {MAX_NAME_BYTES} bytes")
        self._metas[name] = None if value is None else bytes(value)

    def meta_names(self, prefix: str = "") -> list[str]:
        """Implements `LogEngine.meta_names`."""
        self._require_open()
        names = dict.fromkeys(self._storage.meta_names(prefix))
        for staged in (self._in_flight.metas if self._in_flight is not None else {}, self._metas):
            for name, value in staged.items():
                if value is None:
                    names.pop(name, None)
                elif name.startswith(prefix):
                    names[name] = None
        return sorted(names)

    # -- housekeeping -------------------------------------------------------------------------------------------

    def _add_garbage(self, log: StagedPartitionLog) -> None:
        """Records that `log` has deleted batches or old snapshots, whose space must be reclaimed."""
        if self._garbage.get(log._number, log) is not None:
            self._garbage[log._number] = log

    def _reclaim_task(self, number: int, log: StagedPartitionLog | None) -> ReclaimTask:
        if log is None:
            return ReclaimTask(number, None, (), forget=True)
        # The writer is read before the metadata: a snapshot committed in between is then listed twice, not omitted.
        writer = log._snapshot_writer
        meta = log._durable_meta
        if meta is None:
            return ReclaimTask(number, None, (), forget=True)
        keep = [] if writer is None else [writer.offset]
        if meta.snapshot is not None:
            keep.append(meta.snapshot.offset)
        return ReclaimTask(number, meta.log_start_offset, tuple(keep), forget=False)

    def reclaim(self, max_batches: int) -> bool:
        """Implements `LogEngine.reclaim`."""
        self._require_open()
        with self._reclaim_lock:
            entries = list(self._garbage.items())
            if not entries:
                return False
            tasks = [self._reclaim_task(number, log) for number, log in entries]
            done = 0
            try:
                for entry in entries:
                    del self._garbage[entry[0]]
                done = self._storage.reclaim(tasks, max_batches)
            finally:
                for number, log in entries[done:]:
                    # A newer entry of the same partition stays: the partition may have been dropped in the meantime.
                    self._garbage.setdefault(number, log)
            return bool(self._garbage)

    def verify(self, deep: bool = False) -> list[Finding]:
        """Implements `LogEngine.verify`."""
        self._require_open()
        findings: list[Finding] = []
        known: dict[int, PartitionKey] = {}
        for log in sorted(self._logs.values(), key=_BY_NUMBER):
            meta = log._durable_meta
            if meta is None:
                continue
            known[meta.number] = log.key
            findings.extend(verify_partition(self._storage, log.key, meta, log.high_watermark, deep))
        if deep:
            for dropped in self._drops:
                known[dropped._number] = dropped.key
            findings.extend(self._storage.stray_entries(known))
        return findings

    def move_beside(self, start: Callable[[Callable[[], None]], bool] | None) -> None:
        """Implements `LogEngine.move_beside`."""
        self._storage.move_beside(start)

    def sync(self) -> None:
        """Implements `LogEngine.sync`."""
        self._require_open()
        self._storage.sync()

    def stats(self) -> EngineStats:
        """Implements `LogEngine.stats`."""
        self._require_open()
        file_size_bytes, used_bytes = self._storage.sizes()
        partition_count = sum(log._state == LIVE for log in self._logs.values())
        return EngineStats(file_size_bytes, used_bytes, self._tails.size_bytes, partition_count)

    def close(self) -> None:
        """Implements `LogEngine.close`."""
        if self._released:
            return
        if self._closed is None:
            self._shut("the log engine is closed")
        self._storage.close()
        self._released = True

    def _shut(self, why: str) -> None:
        """Makes the engine and its handles refuse every later call; `why` is the text of the errors."""
        self._closed = why
        for log in [*self._logs.values(), *self._drops]:
            if log._state != DROPPED:
                log._state = CLOSED

    def _require_open(self) -> None:
        if self._closed is not None:
            raise LogClosedError(self._closed)

    def _require_whole(self) -> None:
        """Raises if an earlier call was interrupted, because the next commit would discard a change staged now."""
        self._require_open()
        if self._interrupted_change:
            raise LogError(_INTERRUPTED, FailureReason.INTERRUPTED)


_ENGINES: weakref.WeakSet[StagedLogEngine] = weakref.WeakSet()


def _forget_after_fork(engine: StagedLogEngine) -> None:
    """Makes `engine` refuse calls in forked children: LMDB's locks and reader slots belong to the parent."""
    _ENGINES.add(engine)


def _shut_in_child() -> None:
    for engine in list(_ENGINES):
        engine._shut(f"the log engine was opened by the parent of process {os.getpid()}: open it after the fork")
        engine._released = True  # its resources belong to the parent
        abandon = getattr(engine._storage, "abandon_in_child", None)
        if abandon is not None:
            abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shut_in_child)
