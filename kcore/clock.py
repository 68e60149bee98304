"""Time as an argument: the clocks that a driver hands to an engine."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where an engine's driver reads the time; nothing below the drivers may."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, from any origin; timers run on it."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; timestamps in records are made of it."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def monotonic_ms(self) -> int:
        """The system's monotonic clock, in ms."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """The system's wall clock, in ms since the epoch."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is told to move: tests and simulations."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def monotonic_ms(self) -> int:
        """The manual monotonic time, in ms."""
        return self._monotonic_ms

    def wall_ms(self) -> int:
        """The manual wall time, in ms since the epoch."""
        return self._wall_ms

    def advance(self, ms: int) -> None:
        """Moves both clocks forward by `ms` (not negative)."""
        if ms < 0:
            raise ValueError(f"a clock cannot go back: advance({ms})")
        self._monotonic_ms += ms
        self._wall_ms += ms


class Now:
    """The time of the present round: read once by the driver, then the same for every decision of the round.

    Attributes:
        now_ms: monotonic milliseconds, for deadlines.
        wall_ms: milliseconds since the epoch, for what is written.
    """

    __slots__ = ("_clock", "now_ms", "wall_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now_ms = clock.monotonic_ms()
        self.wall_ms = clock.wall_ms()

    def update(self) -> int:
        """Reads the clock; returns the monotonic time in ms. Time never goes back within a process."""
        self.wall_ms = self._clock.wall_ms()
        now_ms = self._clock.monotonic_ms()
        self.now_ms = max(self.now_ms, now_ms)
        return self.now_ms
