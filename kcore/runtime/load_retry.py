"""The timer that repeats the failed load of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.clock import Now
    from kcore_ext.runtime.timer_wheel import TimerWheel

FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 30_000

_DUE: Final = 0  # a deadline in the past: an int that needs no memory


class LoadRetry:
    """The timer that repeats the load of a shard, or the recovery of a partition, until it succeeds.

    A log may become readable after an outage of its store or disk, or when memory is free again. The pause between
    attempts doubles from one second to half a minute, because each attempt on a damaged log reads the log and fails.

    The timer is armed as long as the load is incomplete, also while an attempt runs. So after an exception at any step
    of a load, or in the handler of its failure, another attempt follows. The constructor makes the timer, so that
    arming it needs no memory.

    Args:
        wheel: fires the timer.
        now: the clock, which is read once per round.
        again: starts the load again if it has failed. It does nothing while the load runs, or if the log no longer
            exists.

    Attributes:
        pause_ms: the pause after the next failure.
    """

    __slots__ = ("_again", "_now", "_timer", "pause_ms")

    def __init__(self, wheel: TimerWheel, now: Now, again: Callable[[], object]) -> None:
        self._now = now
        self._again = again
        self.pause_ms = FIRST_PAUSE_MS
        self._timer = wheel.add(_DUE, self)
        self._timer.cancel()

    def begin(self) -> None:
        """Arms the timer at the beginning of a load. Needs no memory."""
        try:
            deadline_ms = self._now.now_ms + self.pause_ms
        except MemoryError:
            deadline_ms = _DUE
        self._timer.extend(deadline_ms)

    def failed(self) -> None:
        """Begins the pause after a failed load, and doubles the next pause."""
        self.begin()
        self.pause_ms = min(2 * self.pause_ms, LONGEST_PAUSE_MS)

    def end(self) -> None:
        """Ends the attempts: the load has succeeded, or the log no longer exists."""
        self._timer.cancel()
        self.pause_ms = FIRST_PAUSE_MS

    def __call__(self) -> None:
        """Starts the load again when the timer fires."""
        self.begin()  # first, since the next line may raise
        self._again()
