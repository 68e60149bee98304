"""Time as an argument: the clocks that a driver hands to an engine."""

from __future__ import annotations

from typing import Protocol

from kcore_ext.runtime.clock import Now, SystemClock

__all__ = ["Clock", "ManualClock", "Now", "SystemClock"]


class Clock(Protocol):
    """Where an engine's driver reads the time; nothing below the drivers may."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, from any origin; timers run on it."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; timestamps in records are made of it."""
        ...


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
