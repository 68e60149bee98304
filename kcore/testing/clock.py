"""The clock of a test broker, which follows the system's clocks, and which a test can freeze and move."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from kcore.clock import ManualClock
from kcore.testing.arguments import check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

NS_PER_MS = 1_000_000
LAST_S = 253_402_300_799.0  # the end of the year 9999


class SteppableClock(ManualClock):
    """A clock that follows the system's clocks, with an offset that a test can change.

    Real clients measure their own timeouts with the system's clock. So the broker's clock also runs, unless it is
    frozen, and a test moves it forward to end the broker's timeouts early.
    """

    __slots__ = ("_frozen_ns", "_lock", "_offset_ms", "_wall_offset_ms")

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._offset_ms = 0
        self._wall_offset_ms = time.time_ns() // NS_PER_MS - time.monotonic_ns() // NS_PER_MS
        self._frozen_ns: int | None = None

    def _system_ms(self) -> int:
        frozen_ns = self._frozen_ns
        return (time.monotonic_ns() if frozen_ns is None else frozen_ns) // NS_PER_MS

    def monotonic_ms(self) -> int:
        """Returns monotonic milliseconds."""
        return self._system_ms() + self._offset_ms

    def wall_ms(self) -> int:
        """Returns milliseconds since the epoch."""
        return self._system_ms() + self._offset_ms + self._wall_offset_ms

    @property
    def frozen(self) -> bool:
        """True while the clock stands still."""
        return self._frozen_ns is not None

    def advance(self, ms: int) -> None:
        """Moves the monotonic and the wall clock forward by `ms`; a negative value changes nothing."""
        with self._lock:
            self._offset_ms += max(0, ms)

    def freeze(self) -> None:
        """Stops the clock; only `advance` moves it now."""
        with self._lock:
            if self._frozen_ns is None:
                self._frozen_ns = time.monotonic_ns()

    def resume(self) -> None:
        """Starts the clock again, from the time at which it was stopped."""
        with self._lock:
            if self._frozen_ns is not None:
                self._offset_ms -= (time.monotonic_ns() - self._frozen_ns) // NS_PER_MS
                self._frozen_ns = None

    def step_wall(self, ms: int) -> None:
        """Moves the wall clock alone, forward or back, like a correction of the system's time. Timeouts ignore it."""
        with self._lock:
            self._wall_offset_ms += ms


class BrokerClock:
    """The controls of a broker's clock: `broker.clock`.

    Args:
        clock: the clock that the broker reads.
        advance: moves the clock forward by a number of milliseconds, and fires the broker's due timers.
    """

    def __init__(self, clock: SteppableClock, advance: Callable[[int], None]) -> None:
        self._clock = clock
        self._advance = advance

    @property
    def now(self) -> float:
        """The broker's time in seconds since the epoch."""
        return self._clock.wall_ms() / 1000

    @property
    def frozen(self) -> bool:
        """True while the clock stands still."""
        return self._clock.frozen

    def advance(self, seconds: float) -> None:
        """Moves the clock forward. Each timer of the broker that is due in this period fires at its own time.

        The clients' own clocks do not move, so the clients send no heartbeats for this period.
        """
        check_seconds("seconds", seconds)  # only step_wall moves time back
        self._advance(round(seconds * 1000))

    def freeze(self) -> None:
        """Stops the clock: no timeout of the broker ends, until `advance` or `resume`."""
        self._clock.freeze()

    def resume(self) -> None:
        """Starts the clock again after `freeze`."""
        self._clock.resume()
        self._advance(0)

    def step_wall(self, seconds: float) -> None:
        """Moves the clock that gives records their timestamps, forward or back. Timeouts are not affected.

        Raises:
            ValueError: the time would be before 1970 or after 9999.
        """
        check_seconds("seconds", seconds, -LAST_S, LAST_S)
        if not 0 <= self.now + seconds <= LAST_S:
            raise ValueError(f"seconds={seconds}: the time would be before 1970 or after 9999")
        self._clock.step_wall(round(seconds * 1000))
