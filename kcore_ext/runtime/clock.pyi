from typing import Protocol, final

class _Clock(Protocol):
    def monotonic_ms(self) -> int: ...
    def wall_ms(self) -> int: ...

@final
class SystemClock:
    """The machine's own clocks."""

    def monotonic_ms(self) -> int:
        """The system's monotonic clock, in ms."""

    def wall_ms(self) -> int:
        """The system's wall clock, in ms since the epoch."""

@final
class Now:
    """The time of the present round: read once by the driver, then the same for every decision of the round.

    Args:
        clock: what is read.

    Attributes:
        now_ms: monotonic milliseconds, for deadlines.
        wall_ms: milliseconds since the epoch, for what is written.
    """

    now_ms: int
    wall_ms: int
    def __init__(self, clock: _Clock) -> None: ...
    def update(self) -> int:
        """Reads the clock; returns the monotonic time in ms. Time never goes back within a process."""
