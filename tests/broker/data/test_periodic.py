"""Periodic housekeeping: one run at a time, and a next run even if a run could not be queued."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kcore.broker.data.retention import Periodic
from kcore_ext.runtime.timer_wheel import TimerWheel

INTERVAL_MS = 100


def test_housekeeping_continues_after_a_run_that_could_not_be_queued() -> None:
    wheel = TimerWheel(0)
    queued: list[Iterator[None]] = []
    has_memory = False

    def add(work: Iterator[None], subject: object) -> None:
        if not has_memory:
            raise MemoryError
        queued.append(work)

    slices: Any = SimpleNamespace(add=add)
    now: Any = SimpleNamespace(now_ms=0)
    periodic = Periodic(wheel, slices, now, INTERVAL_MS, lambda: iter([None]))
    periodic.start()
    (timer,) = wheel.advance(INTERVAL_MS)
    with pytest.raises(MemoryError):
        timer.payload()
    assert len(wheel) == 0, "the engine repeats this timer, and arms no second one"
    has_memory = True
    timer.payload()
    assert len(queued) == 1
    assert len(wheel) == 1
