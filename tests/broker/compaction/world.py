"""One partition, the history of its writes, and the conditions that its log must meet after any compaction.

The expected results come from the order of data and markers in the history, not from the code under test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kcore.broker.compaction.cleaner import UNREAD_BATCHES, CompactionPass, CompactionRules
from kcore.broker.configs.log_config import LogConfig
from kcore.broker.data.partition import Partition
from kcore.log import LmdbLogEngine, LogEngine, MemoryLogEngine, PartitionKey
from kcore.log.faults import FaultInjectingEngine
from kcore.log.memory_engine import MemoryStorage
from kcore.protocol.compression import compress, decompress
from kcore.runtime import CommitPipeline
from kcore_ext.batch import BatchBuilder, iter_records, parse_control, parse_header

TOPIC_ID = bytes(range(16))
RETENTION_MS = 1_000
Header = tuple[str, bytes | None]


class Written(NamedTuple):
    """A written record, or a marker: `marker` is None for records, True for a commit, False for an abort."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    producer_id: int = -1
    marker: bool | None = None


Entries = list[tuple[bytes | None, bytes | None]]


class World:
    """A partition that is written, compacted and restarted, and its history."""

    def __init__(
        self,
        *,
        slice_records: int = 3,
        map_bytes: int = 1 << 20,
        unread_batches: int = UNREAD_BATCHES,
        folder: Path | None = None,
    ) -> None:
        self.storage = MemoryStorage()
        self.folder = folder
        self.slice_records = slice_records
        self.map_bytes = map_bytes
        self.unread_batches = unread_batches
        self.wall_ms = 1_000_000
        self.history: list[Written] = []
        self.sequences: dict[int, int] = {}
        self.work: Iterator[None] | None = None
        self.passes: list[CompactionPass] = []
        self.engine: FaultInjectingEngine
        self._open()

    def _open(self) -> None:
        inner: LogEngine = MemoryLogEngine(self.storage)
        if self.folder is not None:
            inner = LmdbLogEngine(self.folder, "os", tail_size_bytes=300)
        self.engine = FaultInjectingEngine(inner)
        self.pipeline = CommitPipeline(self.engine)
        self.log = self.engine.open(PartitionKey(TOPIC_ID, 0))
        self.partition = Partition(
            "t",
            TOPIC_ID,
            0,
            self.log,
            leader_epoch=self.engine.node_epoch,
            pipeline=self.pipeline,
            config=LogConfig({"cleanup.policy": "compact"}),
        )
        self.partition.finish_recovery()
        self.pipeline.enlist(self.partition)
        self.pipeline.commit()

    def restart(self) -> None:
        """Restarts the process. Uncommitted writes are lost."""
        self.engine.rollback()
        self.engine.inner.close()
        self.reopen()

    def reopen(self) -> None:
        """Opens the storage of a process that has ended."""
        self.work = None
        self._open()
        self.forget_lost()

    # ---- writing

    def write(
        self,
        entries: Entries,
        *,
        producer_id: int = -1,
        epoch: int = 0,
        transactional: bool = False,
        codec: int = 0,
        append_time: bool = False,
        headers: tuple[Header, ...] = (),
    ) -> int:
        """Stages a batch; returns its base offset."""
        base = self.log.end_offset
        sequence = -1
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(entries)
        builder = BatchBuilder(
            1 << 20,
            base_timestamp_ms=self.wall_ms,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
            compression=codec,
            compress=compress if codec else None,
            log_append_time=append_time,
        )
        for at, (key, value) in enumerate(entries):
            timestamp_ms = self.wall_ms if append_time else self.wall_ms - 5 + at
            assert builder.append(timestamp_ms, key, value, headers)
            who = producer_id if transactional else -1
            self.history.append(Written(base + at, timestamp_ms, key, value, headers, who))
        batch = bytearray(builder.build())
        last, newest_ms = len(entries) - 1, parse_header(bytes(batch)).max_timestamp_ms
        found = self.partition.append_data(batch, producer_id, epoch, sequence, last, newest_ms, transactional)
        assert found == base
        return base

    def end(self, producer_id: int, commit: bool, epoch: int = 0) -> None:
        """Stages the end of a producer's transaction."""
        offset = self.partition.append_marker(producer_id, epoch, 0, commit, self.wall_ms)
        self.history.append(Written(offset, self.wall_ms, None, None, (), producer_id, commit))

    def commit(self) -> bool:
        good = self.pipeline.commit()
        self.forget_lost()
        return good

    def forget_lost(self) -> None:
        """Removes from the history the writes that a failed commit or a crash has lost."""
        end = self.log.end_offset
        self.history = [one for one in self.history if one.offset < end]

    # ---- compaction

    def begin(self, limit_offset: int | None = None) -> None:
        rules = CompactionRules(
            self.wall_ms,
            RETENTION_MS,
            0,
            self.map_bytes,
            self.slice_records,
            self.unread_batches,
            limit_offset,
        )
        self.passes.append(CompactionPass(self.partition, rules))
        self.work = self.passes[-1].run()

    def step(self) -> bool:
        """Runs one slice of the current pass; returns False at its end."""
        if self.work is None:
            return False
        try:
            next(self.work)
        except StopIteration:
            self.work = None
        finally:
            self.forget_lost()
        return self.work is not None

    def compact(self, limit_offset: int | None = None) -> CompactionPass:
        """Runs a whole pass, up to the active segment."""
        self.begin(limit_offset)
        while self.step():
            pass
        return self.passes[-1]

    # ---- state

    def stored(self) -> list[Written]:
        """Reads every record and marker of the log, from its start."""
        found = []
        for _, batch in self.log.batches():
            header = parse_header(batch)
            producer_id = header.producer_id if header.is_transactional else -1
            if header.is_control:
                marker = parse_control(batch)
                found.append(
                    Written(header.base_offset, header.max_timestamp_ms, None, None, (), producer_id, marker.is_commit)
                )
                continue
            found += [
                Written(one.offset, one.timestamp_ms, one.key, one.value, one.headers, producer_id)
                for one in iter_records(batch, decompress=decompress)
            ]
        start = self.log.log_start_offset
        return [one for one in found if start <= one.offset < self.log.high_watermark]

    def committed_history(self) -> list[Written]:
        high_watermark, start = self.log.high_watermark, self.log.log_start_offset
        return [one for one in self.history if start <= one.offset < high_watermark]


def outcomes(records: list[Written]) -> dict[int, bool | None]:
    """Returns offset -> state of the record: True (committed), False (aborted), None (its transaction is open)."""
    found: dict[int, bool | None] = {}
    open_: dict[int, list[int]] = {}
    for one in records:
        if one.marker is not None:
            for offset in open_.pop(one.producer_id, []):
                found[offset] = one.marker
        elif one.producer_id >= 0:
            open_.setdefault(one.producer_id, []).append(one.offset)
            found[one.offset] = None
        else:
            found[one.offset] = True
    return found


def state(records: list[Written]) -> tuple[dict[bytes, Written], dict[tuple[int, bytes], Written]]:
    """Replays a log as a coordinator does: returns values by key, and values of open transactions."""
    values: dict[bytes, Written] = {}
    pending: dict[tuple[int, bytes], Written] = {}
    for one in records:
        if one.marker is not None:
            for producer_id, key in [at for at in pending if at[0] == one.producer_id]:
                held = pending.pop((producer_id, key))
                if one.marker and (key not in values or values[key].offset < held.offset):
                    values[key] = held
        elif one.key is None:
            continue
        elif one.producer_id >= 0:
            pending[one.producer_id, one.key] = one
        else:
            values[one.key] = one
    return {key: one for key, one in values.items() if one.value is not None}, pending


def read_committed(world: World, start: int) -> list[Written]:
    """Reads from `start` on with the algorithm of a Kafka consumer with isolation.level=read_committed (KIP-98)."""
    partition = world.partition
    limit = partition.last_stable_offset
    batches: list[bytes] = []
    position = start
    while position < limit:
        some = partition.read(position, 200, limit)
        if not some:
            break
        batches += some
        position = parse_header(some[-1]).next_offset
    todo = sorted(partition.producers.aborted.of_batches(batches, start, position), key=lambda one: one.first_offset)
    aborted: set[int] = set()
    seen = []
    for batch in batches:
        header = parse_header(batch)
        while todo and todo[0].first_offset <= header.last_offset:
            aborted.add(todo.pop(0).producer_id)
        if header.is_control:
            if not parse_control(batch).is_commit:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            producer_id = header.producer_id if header.is_transactional else -1
            seen += [
                Written(one.offset, one.timestamp_ms, one.key, one.value, one.headers, producer_id)
                for one in iter_records(batch, decompress=decompress)
                if one.offset >= start
            ]
    return seen


def check(world: World) -> None:
    """Checks a log that was compacted any number of times, in whole or in part."""
    log = world.log
    stored, history = world.stored(), world.committed_history()
    by_offset = {one.offset: one for one in history}
    what_happened = outcomes(history)
    # Compaction changes and moves no record: each remaining record is the one written at its offset.
    assert all(one == by_offset[one.offset] for one in stored)
    # The part above the mark of compaction is complete.
    assert [one for one in stored if one.offset >= log.cleaned_to] == [
        one for one in history if one.offset >= log.cleaned_to
    ]
    # A replay gives the same state.
    assert state(stored) == state(history)
    # Below the mark each key has one record, and aborted records are removed, except in a batch that the start cuts.
    first = next(iter(log.batches()), None)
    cut = parse_header(first[1]).next_offset if first is not None and first[0] < log.log_start_offset else 0
    clean = [one for one in stored if cut <= one.offset < log.cleaned_to and one.marker is None]
    assert len({one.key for one in clean}) == len(clean)
    assert all(what_happened[one.offset] for one in clean)
    # A tombstone stays at least for the retention time.
    last = {one.key: one for one in history if one.marker is None and what_happened[one.offset]}
    there = {one.offset for one in stored}
    for one in last.values():
        if one.value is None and one.key is not None and world.wall_ms < one.timestamp_ms + RETENTION_MS:
            assert one.offset in there
    # Readers of committed records see the remaining ones, from any start offset.
    stable = world.partition.last_stable_offset
    expected = [one for one in stored if one.marker is None and one.offset < stable and what_happened[one.offset]]
    for start in {log.log_start_offset, (log.log_start_offset + log.high_watermark) // 2, max(cut, log.cleaned_to)}:
        if log.log_start_offset <= start <= log.high_watermark:
            assert read_committed(world, start) == [one for one in expected if one.offset >= start]
    assert world.engine.verify(deep=True) == []
