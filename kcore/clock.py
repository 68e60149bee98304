"""The clocks that a driver passes to an engine."""

from __future__ import annotations

from typing import Protocol

from kcore_ext.runtime.clock import Now, SystemClock

__all__ = ["Clock", "ManualClock", "Now", "SystemClock", "check_advance"]

MAX_MS = 2**62
"""Latest time in ms of a manual clock. Timers compute with 64-bit numbers."""


class Clock(Protocol):
    """The clock that an engine's driver reads. No layer below the drivers reads a clock."""

    def monotonic_ms(self) -> int:
        """Returns the monotonic time in ms, from any origin. Timers use this time."""
        ...

    def wall_ms(self) -> int:
        """Returns the wall-clock time in ms since the epoch. Timestamps in records use this time."""
        ...


def check_advance(ms: int) -> None:
    """Checks the time in ms by which a manual clock is moved.

    Raises:
        TypeError: `ms` is not a number.
        ValueError: `ms` is negative or not finite.
    """
    if not isinstance(ms, int | float) or isinstance(ms, bool):
        raise TypeError(f"advance needs a number of milliseconds, not {type(ms).__name__}")
    if not 0 <= ms < float("inf"):
        raise ValueError(f"a clock cannot go back: advance({ms}) needs a finite value of at least 0")


class ManualClock:
    """A clock for tests and simulations. Only `advance` moves it.

    Args:
        wall_ms: the wall-clock time at the start, in ms since the epoch.
        monotonic_ms: the monotonic time at the start, in ms.

    Raises:
        TypeError: a time is not a whole number.
        ValueError: a time is negative, or above 2**62.
    """

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        for name, value in (("wall_ms", wall_ms), ("monotonic_ms", monotonic_ms)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name}={value!r}; valid: a whole number of milliseconds")
            if not 0 <= value <= MAX_MS:
                raise ValueError(f"{name}={value}; valid: 0 to {MAX_MS} milliseconds")
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def monotonic_ms(self) -> int:
        """Returns the manual monotonic time, in ms."""
        return self._monotonic_ms

    def wall_ms(self) -> int:
        """Returns the manual wall time, in ms since the epoch."""
        return self._wall_ms

    def advance(self, ms: int) -> None:
        """Moves both clocks forward by `ms` (not negative)."""
        check_advance(ms)
        self._monotonic_ms += ms
        self._wall_ms += ms
