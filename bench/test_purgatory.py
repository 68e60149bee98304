"""Compares the purgatory with a simple implementation in Python: a dict of lists, and a heap of timeouts that is purged
when it has grown.

In each row, a round has COUNT operations, and `make bench` prints the time of one operation. In some rows, BACKGROUND
operations wait under the same keys all the time, as in a busy purgatory. In the other rows, no operations wait, so the
lists of the keys are created and dropped repeatedly.
"""

import heapq
import time
from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore_ext.runtime.purgatory import DelayedOperation, Purgatory
from kcore_ext.runtime.timer_wheel import TimerWheel

pytestmark = pytest.mark.benchmark(timer=time.process_time)  # processor time, because the machine is shared

COUNT = 1_000
DEADLINE_MS = 30_000
KEYS = {1: ("group-1",), 3: ("group-1", "group-2", "group-3")}


class ReferenceOperation:
    __slots__ = ("completed",)

    def __init__(self) -> None:
        self.completed = False

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None: ...

    def force_complete(self) -> bool:
        if self.completed:
            return False
        self.completed = True
        self.on_complete()
        return True


class ReferencePurgatory:
    """The baseline in Python.

    An operation that completes under one key stays in the lists of its other keys and in the heap until a purge.
    """

    def __init__(self) -> None:
        self.watchers: dict[Any, list[ReferenceOperation]] = {}
        self.heap: list[tuple[int, int, ReferenceOperation]] = []
        self.order = 0

    def try_complete_else_watch(self, operation: ReferenceOperation, keys: tuple[str, ...], deadline_ms: int) -> bool:
        if operation.try_complete():
            return True
        for key in keys:
            self.watchers.setdefault(key, []).append(operation)
        self.order += 1
        heapq.heappush(self.heap, (deadline_ms, self.order, operation))
        if self.order % 1000 == 0:
            for key, waiting in list(self.watchers.items()):
                self.watchers[key] = [other for other in waiting if not other.completed]
        return False


class ReadyOperation(DelayedOperation):
    """A delayed operation in Python that completes once `ready` is True. Group coordinator operations are similar."""

    __slots__ = ("ready",)

    def __init__(self) -> None:
        self.ready = False

    def try_complete(self) -> bool:
        return self.force_complete() if self.ready else False


KINDS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "purgatory": (lambda: Purgatory(TimerWheel()), DelayedOperation),
    "plain": (ReferencePurgatory, ReferenceOperation),
}


@pytest.mark.parametrize("background", [0, 10])
@pytest.mark.parametrize("keys", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_watch_and_complete(benchmark: BenchmarkFixture, kind: str, keys: int, background: int) -> None:
    benchmark.group = f"purgatory: watch and complete, {keys} keys, {background} waiting"
    make_purgatory, make_operation = KINDS[kind]

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        purgatory = make_purgatory()
        waiting = [make_operation() for _ in range(background)]
        for operation in waiting:
            purgatory.try_complete_else_watch(operation, KEYS[keys], DEADLINE_MS)
        return (purgatory, [make_operation() for _ in range(COUNT)], waiting), {}

    def run(purgatory: Any, operations: list[Any], waiting: list[Any]) -> None:
        watch = purgatory.try_complete_else_watch
        names = KEYS[keys]
        for operation in operations:
            watch(operation, names, DEADLINE_MS)
            operation.force_complete()

    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(run, setup=setup, rounds=200, warmup_rounds=10)


@pytest.mark.parametrize("keys", [1, 3])
def test_watch_then_complete_by_condition(benchmark: BenchmarkFixture, keys: int) -> None:
    """Measures operations of a Python subclass. Each operation needs two calls of `try_complete` and one key check."""
    benchmark.group = f"purgatory: watch, check, complete in Python, {keys} keys"

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (Purgatory(TimerWheel()), [ReadyOperation() for _ in range(COUNT)]), {}

    def run(purgatory: Purgatory, operations: list[ReadyOperation]) -> None:
        names = KEYS[keys]
        for operation in operations:
            purgatory.try_complete_else_watch(operation, names, DEADLINE_MS)
            operation.ready = True
            purgatory.check_and_complete(names[0])

    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(run, setup=setup, rounds=200, warmup_rounds=10)


def test_watch_and_expire(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "purgatory: watch and expire, 3 keys"

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        wheel = TimerWheel()
        return (wheel, Purgatory(wheel), [DelayedOperation() for _ in range(COUNT)]), {}

    def run(wheel: TimerWheel, purgatory: Purgatory, operations: list[DelayedOperation]) -> None:
        for index, operation in enumerate(operations):
            purgatory.try_complete_else_watch(operation, KEYS[3], index)
        for timer in wheel.advance(DEADLINE_MS):
            timer.payload()
        assert purgatory.expired_total == COUNT

    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(run, setup=setup, rounds=200, warmup_rounds=10)
