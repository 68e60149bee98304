"""Random records, transactions, tombstones, deletions, failed commits and crashes, with compaction
at random moments.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kcore.log.faults import SimulatedCrashError
from tests.broker.compaction.world import World, check, outcomes

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
VALUES = st.one_of(st.none(), st.binary(max_size=6))
ENTRIES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)
PRODUCERS = st.integers(1, 3)


class CompactionMachine(RuleBasedStateMachine):
    on_disk = False
    folder: Path | None = None

    @initialize(
        slice_records=st.sampled_from([1, 2, 5, 10, 25]),
        map_bytes=st.sampled_from([1, 400, 1 << 20]),
        unread_batches=st.sampled_from([1, 2, 32]),
    )
    def begin(self, slice_records: int, map_bytes: int, unread_batches: int) -> None:
        if self.on_disk:
            self.folder = Path(tempfile.mkdtemp(prefix="kcore-compaction-"))
        folder = None if self.folder is None else self.folder / "data"
        self.world = World(
            slice_records=slice_records, map_bytes=map_bytes, unread_batches=unread_batches, folder=folder
        )

    @rule(entries=ENTRIES, codec=st.sampled_from([0, 0, 0, 1, 3]), append_time=st.booleans())
    def write(self, entries: list[tuple[bytes, bytes | None]], codec: int, append_time: bool) -> None:
        self.world.write(entries, codec=codec, append_time=append_time, headers=(("h", b"1"),) if codec else ())

    @rule(entries=ENTRIES, producer_id=st.integers(10, 11))
    def write_idempotent(self, entries: list[tuple[bytes, bytes | None]], producer_id: int) -> None:
        self.world.write(entries, producer_id=producer_id)

    @rule(entries=ENTRIES, producer_id=PRODUCERS, codec=st.sampled_from([0, 4]))
    def write_in_transaction(self, entries: list[tuple[bytes, bytes | None]], producer_id: int, codec: int) -> None:
        self.world.write(entries, producer_id=producer_id, transactional=True, codec=codec)

    @rule(producer_id=PRODUCERS, commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        self.world.end(producer_id, commit)

    @rule()
    def commit(self) -> None:
        self.world.commit()

    @rule()
    def commit_fails(self) -> None:
        if self.world.engine.dirty:
            self.world.engine.fail_commit()
            assert not self.world.commit()

    @rule()
    def begin_pass(self) -> None:
        if self.world.work is None:
            self.world.begin()

    @rule(ms=st.sampled_from([1, 5_000, 5_000]))
    def compact(self, ms: int) -> None:
        """Runs a whole compaction pass. Before most passes, the time advances beyond all delete horizons of the log."""
        self.world.commit()
        while self.world.step():
            pass
        self.world.wall_ms += ms
        self.world.compact()

    @rule(producer_id=PRODUCERS, entries=ENTRIES, commit=st.booleans())
    def transaction(self, producer_id: int, entries: list[tuple[bytes, bytes | None]], commit: bool) -> None:
        self.world.write(entries, producer_id=producer_id, transactional=True)
        self.world.end(producer_id, commit)
        self.world.commit()

    @rule(count=st.integers(1, 4))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.world.step()

    @rule()
    def step_fails(self) -> None:
        """Makes the log refuse the writes of the next slices."""
        if self.world.work is not None:
            self.world.engine.fail_commit()
            while self.world.step():
                pass
            self.world.engine._failures.clear()

    @rule(nth=st.integers(1, 3), after=st.booleans())
    def crash(self, nth: int, after: bool) -> None:
        if self.world.work is None:
            self.world.begin()
        self.world.engine.crash_commit(nth, after)
        try:
            while self.world.step():
                pass
            self.world.commit()
        except SimulatedCrashError:
            self.world.reopen()
        else:
            self.world.engine._crashes.clear()

    @rule()
    def restart(self) -> None:
        world = self.world
        world.commit()
        before = {
            producer_id: (entry.epoch, entry.last_sequence, entry.txn_first_offset >= 0)
            for producer_id, entry in world.partition.producers.entries.items()
        }
        stable = world.partition.last_stable_offset
        world.restart()
        after = {
            producer_id: (entry.epoch, entry.last_sequence, entry.txn_first_offset >= 0)
            for producer_id, entry in world.partition.producers.entries.items()
        }
        if not world.log.log_start_offset:  # retention may delete the last batch of a producer
            assert after == before
            assert world.partition.last_stable_offset == stable

    @rule()
    def snapshot_producers(self) -> None:
        self.world.commit()
        self.world.partition.snapshot_producers(1)
        self.world.commit()

    @rule(ms=st.sampled_from([1, 600, 5_000]))
    def pass_time(self, ms: int) -> None:
        self.world.step()  # a pass that has begun reads the end of the log before the time advances
        self.world.wall_ms += ms

    @rule(share=st.floats(0, 0.5))
    def delete_before(self, share: float) -> None:
        """Deletes records. The deletion never splits a transaction, because the model does not cover this."""
        world = self.world
        if world.commit() and not world.partition.producers.open_transactions:
            what_happened = outcomes(world.history)
            offset = int(share * world.log.high_watermark)
            if all(what_happened.get(one.offset) is not None or one.marker is not None for one in world.history):
                while any(one.offset == offset and one.producer_id >= 0 for one in world.history):
                    offset -= 1
                if not self._cuts_a_transaction(offset):
                    world.partition.delete_before(max(offset, 0))
                    world.commit()
                    self.world.engine.reclaim(10)

    def _cuts_a_transaction(self, offset: int) -> bool:
        open_: set[int] = set()
        for one in self.world.history:
            if one.offset >= offset:
                break
            if one.marker is not None:
                open_.discard(one.producer_id)
            elif one.producer_id >= 0:
                open_.add(one.producer_id)
        return bool(open_)

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "world"):
            check(self.world)

    def teardown(self) -> None:
        """Runs compaction passes until the log is compacted. Two more passes must change nothing."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.commit()
        world.work = None
        for _ in range(200):
            before = world.log.cleaned_to
            assert world.compact().done
            if world.log.cleaned_to == before:
                break
        check(world)
        again = world.stored()
        world.compact()
        assert world.stored() == again
        world.engine.close()
        if self.folder is not None:
            shutil.rmtree(self.folder)


TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class LmdbCompactionMachine(CompactionMachine):
    on_disk = True


TestCompactionInLmdb = LmdbCompactionMachine.TestCase
TestCompactionInLmdb.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_the_checks_of_the_world_fail_for_a_wrong_log() -> None:
    """Removes a live record from the log directly. The checks must then fail."""
    world = World()
    for value in (b"1", b"2"):
        world.write([(b"a", value)])
    world.write([(b"b", b"3")])
    world.commit()
    check(world)
    world.log.rewrite({1: None}, 2)
    world.engine.commit()
    with pytest.raises(AssertionError):
        check(world)
