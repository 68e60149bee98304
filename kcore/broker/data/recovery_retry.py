"""Recovers partitions again whose log could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.clock import Now
    from kcore.runtime.slices import Slices
    from kcore_ext.runtime.timer_wheel import TimerWheel

FIRST_PAUSE_MS: Final = 2_000
LONGEST_PAUSE_MS: Final = 60_000


class RecoveryRetry:
    """Runs recoveries, and starts those that failed again after a pause.

    A log may become readable again: a store is reachable after an outage, memory is freed. The pause doubles while a
    recovery fails, from two seconds to a minute, because a damaged log is read in vain each time.

    Args:
        wheel: fires the timer of the pause.
        slices: runs recoveries.
        now: the time of the round.
    """

    __slots__ = ("_failed", "_now", "_pause_ms", "_slices", "_wheel")

    def __init__(self, wheel: TimerWheel, slices: Slices, now: Now) -> None:
        self._wheel = wheel
        self._slices = slices
        self._now = now
        self._failed: list[Partition] = []
        self._pause_ms = FIRST_PAUSE_MS

    def recover(self, partition: Partition) -> Iterator[None]:
        """Recovers a partition in slices, and again later if that fails, also by an interrupt."""
        try:
            yield from partition.recovery()
        finally:
            if partition.recovering and not partition.closed:
                self._failed.append(partition)
                if len(self._failed) == 1:
                    self._wheel.add(self._now.now_ms + self._pause_ms, self)

    def __call__(self) -> None:
        """Starts the failed recoveries again when the timer fires."""
        failed, self._failed = self._failed, []
        for partition in failed:
            self._slices.add(self._again(partition))
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    def _again(self, partition: Partition) -> Iterator[None]:
        if partition.closed:
            return
        partition.begin_recovery()
        yield from self.recover(partition)
        if not partition.recovering and not self._failed:
            self._pause_ms = FIRST_PAUSE_MS
