"""A round reads the clock once for all its requests, and again if the round takes longer than 100 ms."""

from __future__ import annotations

import pytest

from kcore.clock import ManualClock
from kcore_ext.runtime.clock import Now, RoundClock


def test_the_first_request_opens_the_round_and_reads_the_clock() -> None:
    clock, opened = ManualClock(), []
    now = Now(clock)
    round_clock = RoundClock(now, lambda: opened.append(now.now_ms))
    begin_ms = now.now_ms
    clock.advance(7)
    round_clock.begin()
    clock.advance(100)
    round_clock.begin()
    assert (opened, now.now_ms) == ([begin_ms + 7], begin_ms + 7)


def test_a_round_of_more_than_100_ms_reads_the_clock_again() -> None:
    clock, opened = ManualClock(), []
    now = Now(clock)
    round_clock = RoundClock(now, lambda: opened.append(now.now_ms))
    round_clock.begin()
    begin_ms = now.now_ms
    clock.advance(101)
    round_clock.begin()
    assert (opened, now.now_ms) == ([begin_ms], begin_ms + 101)


def test_a_failure_to_open_the_round_leaves_it_to_the_next_request() -> None:
    opened = []

    def open_round() -> None:
        opened.append(len(opened))
        if len(opened) == 1:
            raise MemoryError

    round_clock = RoundClock(Now(ManualClock()), open_round)
    with pytest.raises(MemoryError):
        round_clock.begin()
    assert not round_clock.read
    round_clock.begin()
    assert (round_clock.read, opened) == (True, [0, 1])
