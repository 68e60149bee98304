"""The engine common to all storages: which partitions there are, what is staged, rounds, and space to give back."""

from __future__ import annotations

import os
import threading
import weakref
from operator import attrgetter
from typing import Final

from kcore.log.errors import FailureReason, LogClosedError, LogError
from kcore.log.interface import EngineStats, Finding, LogEngine, PartitionKey, PartitionLog
from kcore.log.partition import StagedPartitionLog
from kcore.log.round import PartitionMeta, Round
from kcore.log.storage import ReclaimTask, Storage
from kcore.log.verify import verify_partition
from kcore_ext.log_core import ABSENT, CLOSED, DROPPED, LIVE, EngineCore
from kcore_ext.log_tail import TailCache

TAIL_SIZE_BYTES: Final = 64 << 20
"""Default bound of the newest batches kept in memory, over all partitions of an engine."""
MAX_NAME_BYTES: Final = 500
"""LMDB's keys end at 511 bytes."""

_NO_METAS: Final[dict[str, bytes | None]] = {}
_NO_DROPS: Final[list[StagedPartitionLog]] = []

_BY_NUMBER = attrgetter("_number")


class StagedLogEngine(EngineCore, LogEngine):
    """A LogEngine over a Storage. Opened by its subclasses' constructors."""

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
        "_storage",
        "node_epoch",
    )

    def __init__(self, storage: Storage, tail_size_bytes: int = TAIL_SIZE_BYTES) -> None:
        self._storage = storage
        self._tails = TailCache(tail_size_bytes)
        self._closed: str | None = None
        self._drops: list[StagedPartitionLog] = []
        self._metas: dict[str, bytes | None] = {}
        self._in_flight: Round | None = None
        self._new_numbers = False
        self._reclaim_lock = threading.Lock()
        # Insertion-ordered sets: numbers dropped for good, and partitions with deleted batches or old snapshots.
        self._garbage: dict[int, StagedPartitionLog | None] = {}
        stored, dropped, self._next_number = storage.load()
        self.node_epoch = storage.node_epoch
        self._logs: dict[PartitionKey, StagedPartitionLog] = {}
        self._garbage.update(dict.fromkeys(dropped))
        for found in stored:
            log = StagedPartitionLog(self, found.key, found.meta, found.end_offset, durable=True)
            self._logs[found.key] = log
            if found.garbage:
                self._garbage[found.meta.number] = log
        _forget_after_fork(self)

    # -- partitions ---------------------------------------------------------------------------------------------

    def open(self, key: PartitionKey, log_start_offset: int = 0) -> PartitionLog:
        """See LogEngine."""
        self._require_open()
        log = self._logs.get(key)
        if log is None:
            if len(key.topic_id) != 16 or not 0 <= key.partition < 1 << 31:
                raise ValueError(f"a topic id has 16 bytes and a partition is an int32 from 0 on: {key!r}")
            meta = PartitionMeta(self._next_number, log_start_offset, (), None)
            self._next_number += 1
            log = StagedPartitionLog(self, PartitionKey(*key), meta, log_start_offset, durable=False)
            self._logs[log.key] = log
            self._new_numbers = True
            log._stage()
        elif log._state == ABSENT:
            self._create_again(log)
        return log

    def _create_again(self, log: StagedPartitionLog) -> None:
        """Stage the creation of a partition whose first creation failed."""
        self._require_open()
        log._state = LIVE
        self._new_numbers = True
        log._stage()

    def get(self, key: PartitionKey) -> PartitionLog | None:
        """See LogEngine."""
        self._require_open()
        log = self._logs.get(key)
        return None if log is None or log._state == ABSENT else log

    def partitions(self) -> list[PartitionKey]:
        """See LogEngine."""
        self._require_open()
        return [log.key for log in sorted(self._logs.values(), key=_BY_NUMBER) if log._state == LIVE]

    def drop(self, key: PartitionKey) -> None:
        """See LogEngine."""
        self._require_open()
        log = self._logs.pop(key, None)
        if log is None:
            return
        if log._staged:
            self._dirty.remove(log)
            log._discard()
        log._state = DROPPED
        if log._durable_meta is not None or log._sealed is not None:
            self._drops.append(log)

    # -- rounds -------------------------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """See LogEngine."""
        return bool(self._dirty or self._metas or self._drops)

    def seal(self) -> Round:
        """See LogEngine."""
        self._require_open()
        if self._in_flight is not None:
            raise LogError("the previous round has been neither finished nor failed", FailureReason.MISUSE)
        dirty = self._dirty
        if len(dirty) > 1:
            dirty.sort(key=_BY_NUMBER)
        metas, drops = self._metas, self._drops
        # An empty container is shared, never handed to the round: what is staged next must not show up in it.
        sealed = Round(self._seal_dirty(), metas or _NO_METAS, drops or _NO_DROPS, 0)
        if self._new_numbers:
            sealed.next_number = self._next_number
            self._new_numbers = False
        if metas:
            self._metas = {}
        if drops:
            self._drops = []
        self._in_flight = sealed
        return sealed

    def write(self, round: Round) -> None:
        """See LogEngine."""
        self._require_open()
        if not round.empty:
            self._storage.write(round)

    def finish(self, round: Round) -> None:
        """See LogEngine."""
        self._in_flight = None
        self._finish_sealed(round.partitions)
        for log in round.drops:
            log._durable_meta = None
            log._tail.clear()
            self._garbage[log._number] = None

    def fail(self, round: Round, error: BaseException) -> None:
        """See LogEngine."""
        self._in_flight = None
        for sealed in round.partitions:
            sealed.log._sealed = None
        self._discard_staged()
        for sealed in round.partitions:
            sealed.log._discard()
        self._restore(round.drops)

    def commit(self) -> None:
        """See LogEngine."""
        if not (self._dirty or self._metas or self._drops):
            self._require_open()
            return
        sealed = self.seal()
        try:
            self.write(sealed)
        except BaseException as error:
            # An interrupt may arrive when the transaction is already durable: `landed` is the truth then.
            if sealed.landed:
                self.finish(sealed)
            else:
                self.fail(sealed, error)
            raise
        self.finish(sealed)

    def rollback(self) -> None:
        """See LogEngine."""
        self._require_open()
        self._discard_staged()

    def _discard_staged(self) -> None:
        """Forget everything that no round has taken."""
        dirty, self._dirty = self._dirty, []
        for log in dirty:
            log._discard()
        self._metas = {}
        drops, self._drops = self._drops, []
        self._restore(drops)

    def _restore(self, drops: list[StagedPartitionLog]) -> None:
        """Take drops back; a partition created in the place of one was staged later and is gone with its creation."""
        for log in drops:
            other = self._logs.get(log.key)
            if other is not None and other is not log:
                other._state = DROPPED
            log._state = LIVE if log._durable_meta is not None or log._sealed is not None else ABSENT
            self._logs[log.key] = log

    # -- metadata -----------------------------------------------------------------------------------------------

    def get_meta(self, name: str) -> bytes | None:
        """See LogEngine."""
        self._require_open()
        if name in self._metas:
            return self._metas[name]
        in_flight = self._in_flight
        if in_flight is not None and name in in_flight.metas:
            return in_flight.metas[name]
        return self._storage.get_meta(name)

    def put_meta(self, name: str, value: bytes | None) -> None:
        """See LogEngine."""
        self._require_open()
        if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
            raise ValueError(f"a name has 1 to {MAX_NAME_BYTES} bytes: {name!r}")
        self._metas[name] = None if value is None else bytes(value)

    def meta_names(self, prefix: str = "") -> list[str]:
        """See LogEngine."""
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
        """Remember that `log` has deleted batches or old snapshots."""
        if self._garbage.get(log._number, log) is not None:
            self._garbage[log._number] = log

    def _reclaim_task(self, number: int, log: StagedPartitionLog | None) -> ReclaimTask:
        if log is None:
            return ReclaimTask(number, None, (), forget=True)
        # The writer before the metadata: a snapshot committed in between is then kept twice rather than not at all.
        writer = log._snapshot_writer
        meta = log._durable_meta
        if meta is None:
            return ReclaimTask(number, None, (), forget=True)
        keep = [] if writer is None else [writer.offset]
        if meta.snapshot is not None:
            keep.append(meta.snapshot.offset)
        return ReclaimTask(number, meta.log_start_offset, tuple(keep), forget=False)

    def reclaim(self, max_batches: int) -> bool:
        """See LogEngine."""
        self._require_open()
        with self._reclaim_lock:
            entries = list(self._garbage.items())
            if not entries:
                return False
            tasks = [self._reclaim_task(number, log) for number, log in entries]
            for entry in entries:
                del self._garbage[entry[0]]
            done = 0
            try:
                done = self._storage.reclaim(tasks, max_batches)
            finally:
                for number, log in entries[done:]:
                    # The owner may have marked it again meanwhile; a drop outranks retention.
                    self._garbage.setdefault(number, log)
            return bool(self._garbage)

    def verify(self, deep: bool = False) -> list[Finding]:
        """See LogEngine."""
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

    def sync(self) -> None:
        """See LogEngine."""
        self._require_open()
        self._storage.sync()

    def stats(self) -> EngineStats:
        """See LogEngine."""
        self._require_open()
        file_size_bytes, used_bytes = self._storage.sizes()
        return EngineStats(file_size_bytes, used_bytes, self._tails.size_bytes, len(self.partitions()))

    def close(self) -> None:
        """See LogEngine."""
        if self._closed is None:
            self._shut("the log engine is closed")
            self._storage.close()

    def _shut(self, why: str) -> None:
        """Refuse everything from now on."""
        self._closed = why
        for log in [*self._logs.values(), *self._drops]:
            if log._state != DROPPED:
                log._state = CLOSED

    def _require_open(self) -> None:
        if self._closed is not None:
            raise LogClosedError(self._closed)


_ENGINES: weakref.WeakSet[StagedLogEngine] = weakref.WeakSet()


def _forget_after_fork(engine: StagedLogEngine) -> None:
    """Have `engine` refuse work in forked children: LMDB's locks and reader slots belong to the parent."""
    _ENGINES.add(engine)


def _shut_in_child() -> None:
    for engine in list(_ENGINES):
        engine._shut(f"the log engine was opened by the parent of process {os.getpid()}: open it after the fork")
        abandon = getattr(engine._storage, "abandon_in_child", None)
        if abandon is not None:
            abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shut_in_child)
