"""Compares the timer wheel with a binary heap with lazy deletion (as in `asyncio` and `sched`), in the same run.

Every row does COUNT operations a round; `make bench` prints the time of one operation.
"""

import heapq
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore_ext.runtime.timer_wheel import TimerWheel

pytestmark = pytest.mark.benchmark(timer=time.process_time)  # processor time, because the machine is shared

COUNT = 1_000
SESSIONS = 100_000
HEARTBEAT_MS = 5_000
SESSION_TIMEOUT_MS = 45_000


class HeapTimer:
    __slots__ = ("cancelled", "deadline_ms", "payload")

    def __init__(self, deadline_ms: int, payload: Any) -> None:
        self.deadline_ms = deadline_ms
        self.payload = payload
        self.cancelled = False


class HeapTimers:
    """The baseline: a `heapq` of (deadline, order, timer). A cancelled or moved timer stays in the heap until its entry
    is due.
    """

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, HeapTimer]] = []
        self.order = 0

    def add(self, deadline_ms: int, payload: Any) -> HeapTimer:
        timer = HeapTimer(deadline_ms, payload)
        self.order += 1
        heapq.heappush(self.heap, (deadline_ms, self.order, timer))
        return timer

    def advance(self, now_ms: int) -> list[HeapTimer]:
        expired = []
        while self.heap and self.heap[0][0] <= now_ms:
            timer = heapq.heappop(self.heap)[2]
            if not timer.cancelled:
                expired.append(timer)
        return expired


TIMERS: dict[str, Callable[[], Any]] = {"wheel": TimerWheel, "heapq": HeapTimers}
deadlines = [random.Random(7).randrange(1, 60_000) for _ in range(COUNT)]


@pytest.mark.parametrize("kind", TIMERS)
def test_add(benchmark: BenchmarkFixture, kind: str) -> None:
    benchmark.group = "timers: add"

    def run(timers: Any) -> None:
        add = timers.add
        for deadline_ms in deadlines:
            add(deadline_ms, None)

    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(run, setup=lambda: ((TIMERS[kind](),), {}), rounds=300, warmup_rounds=10)


@pytest.mark.parametrize("kind", TIMERS)
def test_add_and_cancel(benchmark: BenchmarkFixture, kind: str) -> None:
    benchmark.group = "timers: add and cancel"

    def run(timers: Any) -> None:
        add = timers.add
        if kind == "wheel":
            for deadline_ms in deadlines:
                add(deadline_ms, None).cancel()
        else:
            for deadline_ms in deadlines:
                add(deadline_ms, None).cancelled = True

    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(run, setup=lambda: ((TIMERS[kind](),), {}), rounds=300, warmup_rounds=10)


@pytest.mark.parametrize("kind", TIMERS)
def test_add_and_fire(benchmark: BenchmarkFixture, kind: str) -> None:
    benchmark.group = "timers: add and fire"

    def run(timers: Any) -> int:
        add = timers.add
        fired = 0
        for deadline_ms in deadlines:
            add(deadline_ms, None)
        for now_ms in range(0, 60_001, 100):
            for _timer in timers.advance(now_ms):
                fired += 1
        return fired

    benchmark.extra_info["operations"] = COUNT
    fired = benchmark.pedantic(run, setup=lambda: ((TIMERS[kind](),), {}), rounds=100, warmup_rounds=5)
    assert fired == COUNT


@pytest.mark.parametrize("kind", TIMERS)
def test_heartbeats_of_100_000_sessions(benchmark: BenchmarkFixture, kind: str) -> None:
    """Measures COUNT heartbeats a round, in random order over all sessions, while the clock advances."""
    benchmark.group = "timers: heartbeat of 1 in 100,000 sessions"
    timers = TIMERS[kind]()
    order = list(range(SESSIONS))
    random.Random(7).shuffle(order)
    sessions = [timers.add(SESSION_TIMEOUT_MS + i * HEARTBEAT_MS // SESSIONS, i) for i in range(SESSIONS)]
    # a member holds its timer of the wheel; an entry of the heap must be looked up
    shuffled = [sessions[index] for index in order]
    state = {"next": 0, "now_ms": 0}

    def beat_wheel() -> None:
        state["now_ms"] = now_ms = state["now_ms"] + HEARTBEAT_MS * COUNT // SESSIONS
        at = state["next"]
        deadline_ms = now_ms + SESSION_TIMEOUT_MS
        for timer in shuffled[at : at + COUNT]:
            timer.extend(deadline_ms)
        assert sum(1 for _ in timers.advance(now_ms)) == 0
        state["next"] = (at + COUNT) % SESSIONS

    def beat_heap() -> None:
        state["now_ms"] = now_ms = state["now_ms"] + HEARTBEAT_MS * COUNT // SESSIONS
        at = state["next"]
        deadline_ms = now_ms + SESSION_TIMEOUT_MS
        for index in order[at : at + COUNT]:
            sessions[index].cancelled = True
            sessions[index] = timers.add(deadline_ms, index)
        assert len(timers.advance(now_ms)) == 0
        state["next"] = (at + COUNT) % SESSIONS

    # 1,500 rounds = 15 heartbeats of every member = 75 s, so that old deadlines become due as well
    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(beat_wheel if kind == "wheel" else beat_heap, rounds=1_500, warmup_rounds=50)


def test_next_deadline(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "timers: next deadline"
    wheel = TimerWheel()
    for deadline_ms in deadlines:
        wheel.add(deadline_ms * 1000, None)

    def run() -> None:
        for _ in range(COUNT):
            wheel.next_deadline_ms()

    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(run, rounds=300, warmup_rounds=10)
