from typing import Protocol, final

class _Clock(Protocol):
    def monotonic_ms(self) -> int: ...
    def wall_ms(self) -> int: ...

@final
class SystemClock:
    """The machine's own clocks."""

    def monotonic_ms(self) -> int:
        """Returns the time of the system's monotonic clock, in ms."""

    def wall_ms(self) -> int:
        """Returns the time of the system's wall clock, in ms since the epoch."""

@final
class Now:
    """The time of the current round: the driver reads it once, and every decision of the round uses it.

    Args:
        clock: the clock.

    Attributes:
        now_ms: monotonic milliseconds, for deadlines.
        wall_ms: milliseconds since the epoch, for records.
    """

    now_ms: int
    wall_ms: int
    def __init__(self, clock: _Clock) -> None: ...
    def update(self) -> int:
        """Reads the clock; returns the monotonic time in ms. Time never goes back within a process."""
