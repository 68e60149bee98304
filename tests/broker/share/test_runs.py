"""Compares the compiled delivery state of a share partition with a dictionary of offsets."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kcore.share.batches import Batches, combine
from kcore_ext.batch import BatchBuilder, stamp
from kcore_ext.broker.share.changes import Change, ShareRuns
from kcore_ext.broker.share.runs import Lock
from kcore_ext.runtime.timer_wheel import TimerWheel
from tests.reference.share_partition import ACQUIRED, COMPLETE, Acknowledgement, Model

MEMBERS = st.sampled_from(["a", "b", "c"])
LOCK_MS = 100
MAX_DELIVERIES = 4
MAX_LOCKS = 40


def log_batch(base_offset: int, records: int, offsets: int | None = None) -> bytes:
    """Makes a log batch. `offsets` is the number of offsets that the batch spans, by default the number of records.
    After a compaction that removed its last records, a batch spans more offsets than records.
    """
    builder = BatchBuilder(100 + 50 * records, base_timestamp_ms=1)
    for _ in range(records):
        assert builder.append(1, None, b"v")
    batch = bytearray(builder.build())
    stamp(batch, base_offset, 0)
    if offsets is not None:
        batch[23:27] = (offsets - 1).to_bytes(4, "big")
    return bytes(batch)


class Runs(ShareRuns):
    """The compiled state of a share partition; also collects the writes of expired locks."""

    def __init__(self) -> None:
        self.expired: list[tuple[int, int, int, int]] = []

    def lock_expired(self, lock: Lock) -> None:
        for batches in self.expire(lock, MAX_DELIVERIES):
            self.expired += batches


def each_offset(batches: list[tuple[int, int, int, int]]) -> dict[int, tuple[int, int]]:
    """Returns the state and count of each offset of state batches."""
    return {offset: (state, count) for first, last, state, count in batches for offset in range(first, last + 1)}


class ShareRunsMachine(RuleBasedStateMachine):
    """Runs fetches, acknowledgements, expiry, releases, compaction, truncation and crashes in random order. After each
    operation, it compares the compiled runs with the reference implementation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wheel = TimerWheel(0)
        self.now_ms = 0
        self.log: list[tuple[int, int]] = []  # first and last offset of each log batch
        self.changes: list[tuple[Change, list[int]]] = []
        self.stored: Batches = ()
        self.stored_start = 0
        self.runs = Runs()
        self.runs.reset(0, ())
        self.model = Model(0, ())

    # ---- the log

    @rule(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), gap=st.sampled_from([0, 0, 0, 3]))
    def append(self, sizes: list[int], gap: int) -> None:
        at = self.log[-1][1] + 1 if self.log else 0
        at += gap
        for size in sizes:
            self.log.append((at, at + size - 1))
            at += size

    @precondition(lambda self: len(self.log) > 2)
    @rule(data=st.data())
    def compact(self, data: Any) -> None:
        """Removes a log batch, but never the last one."""
        del self.log[data.draw(st.integers(0, len(self.log) - 2))]

    @precondition(lambda self: self.log)
    @rule(ahead=st.integers(1, 9))
    def truncate(self, ahead: int) -> None:
        """Deletes the beginning of the log."""
        offset = min(self.model.start + ahead, self.log[-1][1] + 1)
        assert self.runs.move_log_start(offset) == (offset > self.model.start)
        self.model.move_log_start(offset)

    # ---- members

    @precondition(lambda self: self.log)
    @rule(
        member=MEMBERS,
        max_records=st.integers(1, 14),
        batch_size=st.integers(1, 9),
        record_limit=st.booleans(),
        read=st.integers(1, 6),
    )
    def fetch(self, member: str, max_records: int, batch_size: int, record_limit: bool, read: int) -> None:
        offset = self.model.next_fetch_offset()
        assert self.runs.next_fetch_offset() == offset
        log = [bounds for bounds in self.log if bounds[1] >= offset][:read]
        if not log:
            return
        limits = {
            "max_records": max_records,
            "batch_size": batch_size,
            "record_limit": record_limit,
            "max_locks": MAX_LOCKS,
            "max_deliveries": MAX_DELIVERIES,
        }
        deadline_ms = self.now_ms + LOCK_MS
        batches = [log_batch(first, 1, last - first + 1) for first, last in log]
        acquired = self.runs.acquire(member, batches, offset, self.wheel, deadline_ms, **limits)
        expected = self.model.acquire(member, log, deadline_ms, **limits)  # type: ignore[arg-type]
        assert acquired.ranges == expected
        assert acquired.count == sum(last - first + 1 for first, last, _ in expected)
        if expected:
            first, last = expected[0][0], expected[-1][1]
            chosen = [bounds for bounds in log if bounds[1] >= first and bounds[0] <= last]
            assert log[acquired.first_batch : acquired.stop_batch] == chosen

    @rule(member=MEMBERS, data=st.data(), allow_renew=st.booleans())
    def acknowledge(self, member: str, data: Any, allow_renew: bool) -> None:
        """Acknowledges random ranges. If the member has acquired records, each range begins at one of these records."""
        owned = [offset for offset, one in self.model.offsets.items() if one.state == ACQUIRED and one.member == member]
        points = st.sampled_from(owned) if owned else st.integers(self.model.start - 2, self.model.end + 2)
        batches = []
        previous = -(10**6)
        for _ in range(data.draw(st.integers(1, 3))):
            first = data.draw(points)
            last = first + data.draw(st.integers(0, 4))
            if owned and data.draw(st.booleans()):
                while last > first and last not in owned:
                    last -= 1
            if first < previous:
                continue
            previous = last
            kind = st.sampled_from([0, 1, 1, 2, 2, 3, 4])
            size = data.draw(st.sampled_from([1, last - first + 1]))
            batches.append(Acknowledgement(first, last, tuple(data.draw(kind) for _ in range(size))))
        deadline_ms = self.now_ms + LOCK_MS
        change = self.runs.acknowledge(
            member, batches, self.wheel, deadline_ms, max_deliveries=MAX_DELIVERIES, allow_renew=allow_renew
        )
        expected = self.model.acknowledge(
            member, batches, deadline_ms, max_deliveries=MAX_DELIVERIES, allow_renew=allow_renew
        )
        self._begun(change, expected)

    @rule(member=MEMBERS)
    def release(self, member: str) -> None:
        self._begun(self.runs.release(member, MAX_DELIVERIES), self.model.release(member, MAX_DELIVERIES))

    def _begun(self, change: Change | int, expected: int | list[int]) -> None:
        if isinstance(expected, int):
            assert change == expected
            return
        assert isinstance(change, Change)
        states = {offset: (self.model.offsets[offset].state, self.model.offsets[offset].count) for offset in expected}
        assert each_offset(change.state_batches) == states
        if expected:
            self.changes.append((change, expected))

    @precondition(lambda self: self.changes)
    @rule(data=st.data(), written=st.sampled_from([True, True, True, False]))
    def finish(self, data: Any, written: bool) -> None:
        change, offsets = self.changes.pop(data.draw(st.integers(0, len(self.changes) - 1)))
        if written:
            self._store(change.state_batches)
        moved, _ = self.runs.finish(change, written, MAX_DELIVERIES)
        assert moved == self.model.finish(offsets, written, MAX_DELIVERIES)

    @rule(ms=st.sampled_from([10, 60, 150]))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.runs.expired.clear()
        for timer in self.wheel.advance(self.now_ms):
            timer.payload()
        assert each_offset(self.runs.expired) == self.model.expire(self.now_ms, MAX_DELIVERIES)
        self._store(self.runs.expired)
        assert self.runs.settle() == self.model.advance()

    def _store(self, batches: list[tuple[int, int, int, int]]) -> None:
        self.stored_start = max(self.stored_start, self.model.start)
        self.stored = combine(self.stored, batches, self.stored_start)

    @rule()
    def crash(self) -> None:
        """Simulates a crash: loads the written state. Unwritten changes are lost, and their timers do not fire."""
        self.changes.clear()
        self.runs.drop_locks()
        self.runs = Runs()
        self.runs.reset(self.stored_start, self.stored)
        self.model = Model(self.stored_start, self.stored)

    # ---- invariants

    @invariant()
    def equals_the_model(self) -> None:
        runs, model = self.runs, self.model
        found = {}
        behind = runs.start_offset
        for first, last, state, count, changing, member in runs.snapshot():
            assert first == behind
            behind = last + 1
            for offset in range(first, last + 1):
                found[offset] = (state, 0 if state in COMPLETE else count, changing, member)
        assert found == model.snapshot()
        assert behind == runs.end_offset
        assert (runs.start_offset, runs.end_offset) == (model.start, model.end)
        assert runs.complete_count == model.complete_count
        assert runs.next_fetch_offset() == model.next_fetch_offset()
        locked = {one.deadline_ms for one in model.offsets.values() if one.member is not None}
        if not locked:
            assert len(self.wheel) == 0, "a timer exists although no record is locked"


TestShareRuns = ShareRunsMachine.TestCase
TestShareRuns.settings = settings(max_examples=30, stateful_step_count=40)


def test_a_run_of_acknowledged_offsets_is_one_object() -> None:
    """Records that are acknowledged one at a time are stored as a single run."""
    wheel, runs = TimerWheel(0), Runs()
    runs.reset(0, ())
    limits = {"max_records": 500, "batch_size": 500, "record_limit": False, "max_locks": 2000, "max_deliveries": 5}
    assert runs.acquire("a", [log_batch(0, 1, 500)], 0, wheel, 100, **limits).ranges == [(0, 499, 1)]  # type: ignore[arg-type]
    for offset in [*range(1, 500, 2), *range(2, 500, 2)]:
        batch = Acknowledgement(offset, offset, (1,))
        change = runs.acknowledge("a", [batch], wheel, 100, max_deliveries=5, allow_renew=True)
        assert isinstance(change, Change)
        assert runs.finish(change, True, 5) == (False, False)
    assert runs.snapshot() == [(0, 0, 1, 1, False, "a"), (1, 499, 2, 1, False, None)]
    assert (runs.complete_count, len(wheel)) == (499, 1)


def test_a_divided_range_expires_with_one_write_for_each_record() -> None:
    """As in Kafka, a partly acknowledged range expires record by record, and an untouched range with one write."""
    wheel, runs = TimerWheel(0), Runs()
    runs.reset(0, ())
    limits = {"max_records": 8, "batch_size": 4, "record_limit": False, "max_locks": 2000, "max_deliveries": 5}
    runs.acquire("a", [log_batch(0, 1, 4), log_batch(4, 1, 4)], 0, wheel, 100, **limits)  # type: ignore[arg-type]
    batch = Acknowledgement(0, 0, (1,))
    change = runs.acknowledge("a", [batch], wheel, 100, max_deliveries=5, allow_renew=True)
    assert isinstance(change, Change)
    runs.finish(change, True, 5)
    locks = [timer.payload for timer in wheel.advance(100)]
    assert len(locks) == 1
    assert runs.expire(locks[0], 5) == [[(1, 1, 0, 1)], [(2, 2, 0, 1)], [(3, 3, 0, 1)], [(4, 7, 0, 1)]]
