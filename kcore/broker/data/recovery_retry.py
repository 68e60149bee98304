"""Repeats the recovery of partitions whose log could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kcore.runtime.load_retry import LoadRetry

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.clock import Now
    from kcore.runtime.slices import Slices
    from kcore_ext.runtime.timer_wheel import TimerWheel


class RecoveryRetry:
    """The runner of partition recoveries. It repeats a failed recovery after a pause (`LoadRetry`).

    Args:
        wheel: fires the timers of the pauses.
        slices: runs recoveries.
        now: the clock, which the driver reads once for each round of requests.
    """

    __slots__ = ("_now", "_slices", "_wheel")

    def __init__(self, wheel: TimerWheel, slices: Slices, now: Now) -> None:
        self._wheel = wheel
        self._slices = slices
        self._now = now

    def recover(self, partition: Partition) -> Iterator[None]:
        """Returns the recovery of a partition in slices. The recovery is repeated if it fails or is interrupted."""
        return _Recovery(partition, self._wheel, self._slices, self._now).run()


class _Recovery:
    """The attempts to recover one partition."""

    __slots__ = ("_partition", "_retry", "_running", "_slices")

    def __init__(self, partition: Partition, wheel: TimerWheel, slices: Slices, now: Now) -> None:
        self._partition = partition
        self._slices = slices
        self._running = False
        self._retry = LoadRetry(wheel, now, self._again)
        self._retry.begin()

    def run(self) -> Iterator[None]:
        """Recovers the partition in slices.

        Ends immediately if another attempt, which began while this one was queued, is running.
        """
        if self._running:
            return
        self._running = True
        try:
            yield from self._partition.recovery()
        finally:
            self._running = False
            if self._partition.recovering and not self._partition.closed:
                self._retry.failed()
            else:
                self._retry.end()

    def _again(self) -> None:
        if self._running:
            return
        if self._partition.closed or not self._partition.recovering:
            self._retry.end()
            return
        self._partition.begin_recovery()
        self._slices.add(self.run(), self._partition)
