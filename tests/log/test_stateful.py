"""Compares a log engine with a model in dictionaries: random operations, failing commits, restarts."""

from __future__ import annotations

import copy
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from kcore.log import FencedLeaderEpochError, LmdbLogEngine, LogEngine, LogError, MemoryLogEngine, MemoryStorage
from tests.log.batches import batch, key, stamped

PARTITIONS = st.integers(0, 3)


@dataclass
class ModelPartition:
    start: int = 0
    end: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """All batches that were appended, also deleted ones, as (base offset, end offset, bytes)."""
    cleaned_to: int = 0

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def visible(self) -> list[bytes]:
        return [data for _, end, data in self.batches if end > self.start]


@dataclass
class Model:
    partitions: dict[int, ModelPartition] = field(default_factory=dict)
    metas: dict[str, bytes] = field(default_factory=dict)


class LogMachine(RuleBasedStateMachine):
    kind = "memory"
    names = Bundle("names")

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kcore-log-"))
        self.memory = MemoryStorage()
        self.engine = self.open()
        self.committed = Model()
        self.staged = Model()
        self.in_flight: tuple[object, Model] | None = None
        self.openings = 0

    def open(self) -> LogEngine:
        if self.kind == "memory":
            return MemoryLogEngine(self.memory)
        return LmdbLogEngine(self.folder / "d", "os", map_size_bytes=1 << 16, tail_size_bytes=500)

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
            shutil.rmtree(self.folder)

    @rule(partition=PARTITIONS, records=st.integers(1, 5), size=st.integers(0, 5000), epoch_step=st.integers(-1, 2))
    def append(self, partition: int, records: int, size: int, epoch_step: int) -> None:
        model = self.staged.partitions.setdefault(partition, ModelPartition())
        log = self.engine.open(key(partition))
        data = batch(records, size, fill=size % 256)
        epoch = model.epoch + epoch_step
        if epoch_step < 0 <= epoch + 1:
            with pytest.raises(FencedLeaderEpochError):
                log.append(data, epoch)
            return
        epoch = max(epoch, 0)
        if epoch != model.epoch:
            model.epochs.append((epoch, model.end))
        base = model.end
        model.end += records
        model.batches.append((base, model.end, stamped(data, base, epoch)))
        assert log.append(data, epoch) == base

    @rule(partition=PARTITIONS)
    def create(self, partition: int) -> None:
        self.engine.open(key(partition))
        self.staged.partitions.setdefault(partition, ModelPartition())

    @rule(partition=PARTITIONS)
    def drop(self, partition: int) -> None:
        self.engine.drop(key(partition))
        self.staged.partitions.pop(partition, None)

    @rule(partition=PARTITIONS, share=st.floats(0, 1))
    def delete_before(self, partition: int, share: float) -> None:
        log = self.engine.get(key(partition))
        if log is None:
            return
        offset = int(share * log.high_watermark)
        log.delete_before(offset)
        model = self.staged.partitions[partition]
        if offset > model.start:
            model.start = offset
            covering = [epoch for epoch, start in model.epochs if start <= offset][-1:]
            model.epochs = [(epoch, offset) for epoch in covering] + [one for one in model.epochs if one[1] > offset]

    @rule(partition=PARTITIONS, first=st.integers(0, 8), count=st.integers(1, 4), merge=st.booleans())
    def rewrite(self, partition: int, first: int, count: int, merge: bool) -> None:
        """Removes some committed batches, or merges them into one."""
        log = self.engine.get(key(partition))
        staged, committed = self.staged.partitions.get(partition), self.committed.partitions.get(partition)
        if log is None or staged is None or committed is None or log.high_watermark == 0:
            return
        visible = [one for one in staged.batches if one[1] > staged.start and one[1] < log.high_watermark]
        some = visible[first : first + count]
        if not some:
            return
        changes: dict[int, bytes | None] = {base: None for base, _, _ in some}
        at = staged.batches.index(some[0])
        base, _, data = some[0]
        end = some[-1][1]
        put = []
        if merge and all(other[12:16] == data[12:16] for _, _, other in some):
            merged = stamped(batch(end - base, 10), base, int.from_bytes(data[12:16], "big"))
            changes[base] = merged
            put = [(base, end, merged)]
        staged.batches[at : at + len(some)] = put
        log.rewrite(changes, end)
        staged.cleaned_to = max(staged.cleaned_to, end)

    @rule(name=st.sampled_from(["a", "b", "b/c"]), value=st.none() | st.binary(max_size=20))
    def put_meta(self, name: str, value: bytes | None) -> None:
        self.engine.put_meta(name, value)
        if value is None:
            self.staged.metas.pop(name, None)
        else:
            self.staged.metas[name] = value

    @rule()
    def seal(self) -> None:
        if self.in_flight is None:
            self.in_flight = (self.engine.seal(), copy.deepcopy(self.staged))

    @rule(fails=st.integers(0, 3))
    def settle(self, fails: int) -> None:
        """Ends the commit that is in progress. With `fails` 0, the commit fails."""
        if self.in_flight is None:
            return
        sealed, model = self.in_flight
        self.in_flight = None
        if fails == 0:
            self.engine.fail(sealed, LogError("the test fails this commit"))
            self.staged = copy.deepcopy(self.committed)
        else:
            self.engine.write(sealed)
            self.engine.finish(sealed)
            self.committed = model

    @rule()
    def commit(self) -> None:
        if self.in_flight is None:
            self.engine.commit()
            self.committed = copy.deepcopy(self.staged)

    @rule()
    def rollback(self) -> None:
        self.engine.rollback()
        self.staged = copy.deepcopy(self.committed if self.in_flight is None else self.in_flight[1])

    @rule(max_batches=st.integers(1, 6))
    def reclaim(self, max_batches: int) -> None:
        self.engine.reclaim(max_batches)

    @rule()
    def restart(self) -> None:
        self.engine.close()
        self.in_flight = None
        self.staged = copy.deepcopy(self.committed)
        self.engine = self.open()
        self.openings += 1
        assert self.engine.node_epoch == self.openings
        assert not self.engine.dirty
        self.readers_see_the_committed_model()

    @invariant()
    def owner_sees_the_staged_model(self) -> None:
        if not hasattr(self, "engine"):
            return
        assert {one.partition for one in self.engine.partitions()} == set(self.staged.partitions)
        for number, model in self.staged.partitions.items():
            log = self.engine.get(key(number))
            assert log is not None
            assert (log.end_offset, log.leader_epoch, log.epoch_entries) == (model.end, model.epoch, model.epochs)
        assert {name: self.engine.get_meta(name) for name in self.engine.meta_names()} == self.staged.metas

    @invariant()
    def readers_see_the_committed_model(self) -> None:
        if not hasattr(self, "engine"):
            return
        for number in set(self.staged.partitions) & set(self.committed.partitions):
            log = self.engine.get(key(number))
            model = self.committed.partitions[number]
            assert log is not None
            if log.high_watermark == 0 and model.end:
                # Dropped and created again, not committed yet.
                continue
            assert (log.log_start_offset, log.high_watermark) == (model.start, model.end)
            assert log.cleaned_to == model.cleaned_to
            assert [data for _, data in log.batches()] == model.visible()
            if model.start < model.end:
                middle = (model.start + model.end) // 2
                assert log.read(middle, 1 << 30) == [data for _, end, data in model.batches if end > middle]
            assert log.size_bytes() == sum(map(len, model.visible()))
        if self.in_flight is None and not self.engine.dirty:
            assert self.engine.verify(deep=True) == []


class LmdbLogMachine(LogMachine):
    kind = "lmdb"


OPTIONS = settings(max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
TestMemory = LogMachine.TestCase
TestMemory.settings = OPTIONS
TestLmdb = LmdbLogMachine.TestCase
TestLmdb.settings = OPTIONS
