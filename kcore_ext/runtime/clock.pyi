from collections.abc import Callable
from typing import Final, Protocol, final

LONG_PAUSE_MS: Final[int]
"""If no round begins for this time in ms, kcore assumes that the event loop may have been blocked.

The time is much shorter than any sensible session timeout.
"""

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
        clock: gives the time: the system's clocks, or a manual clock.

    Attributes:
        now_ms: monotonic milliseconds, for deadlines.
        wall_ms: milliseconds since the epoch, for records.
        resumed_ms: the monotonic time in ms at which the latest long pause ended. A pause is long if there was no
            call of `update` for more than `LONG_PAUSE_MS`.
    """

    now_ms: int
    wall_ms: int
    @property
    def resumed_ms(self) -> int: ...
    def __init__(self, clock: _Clock) -> None: ...
    def update(self) -> int:
        """Reads the clock; returns the monotonic time in ms. The returned time never decreases within a process."""

@final
class RoundClock:
    """The clock of a driver, which is read once for all requests of a round.

    If the last reading is more than 100 ms old, the clock is read again within the round. Otherwise, a session that
    begins after a long request would begin in the past.

    Args:
        now: the clock, which is read once per round.
        open_round: schedules the end of the round, if it is not scheduled yet.

    Attributes:
        now: the clock, which is read once per round.
        read: True if the clock was read for this round. The driver sets it to False at the end of the round.
        open_round: the argument `open_round`.
    """

    now: Now
    read: bool
    open_round: Callable[[], None]
    def __init__(self, now: Now, open_round: Callable[[], None]) -> None: ...
    def begin(self) -> int:
        """Opens the round and reads the clock, unless the round is already open."""
