"""The queue of work that ends share sessions and share partitions."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from kcore.process_logging import log_failure, next_step
from kcore.runtime.sliced import SLICE_COST_US, step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcore.clock import Now
    from kcore.runtime.sliced import Work
    from kcore.runtime.slices import Slices

logger = logging.getLogger(__name__)

MAX_IN_A_ROUND: Final = 200
"""Maximum number of share partitions that end immediately during one round of requests. Each takes up to 50 µs. The
others end in slices.
"""


class Endings:
    """The queue of work that ends share sessions and share partitions, in the order in which the work was added.

    The queue limits the time for which this work delays other requests. For example, the end of one connection can end
    sessions with 500,000 partitions.

    Args:
        slices: runs the slices.
        now: the clock, which the driver reads once for each round of requests.
    """

    __slots__ = ("_count", "_now", "_queue", "_round_ms", "_slices")

    def __init__(self, slices: Slices, now: Now) -> None:
        self._slices = slices
        self._now = now
        self._queue: deque[tuple[Work, object]] = deque()
        self._round_ms = -1
        self._count = 0  # of the share partitions that have ended in this round

    def add(self, work: Work, count: int, subject: object) -> None:
        """Runs `work` in one step if it is short and no other work waits; else in slices.

        Args:
            work: yields the cost of each step in microseconds.
            count: the number of share partitions that it ends.
            subject: the group, session or topics whose share partitions end, for log lines.
        """
        if self._round_ms != self._now.now_ms:
            self._round_ms = self._now.now_ms
            self._count = 0
        self._count += count
        if not self._slices.requests.enabled or (not self._queue and self._count <= MAX_IN_A_ROUND):
            step(work, -1)
            return
        self._queue.append((work, subject))
        if len(self._queue) == 1:
            self._slices.add(self._run())

    def _run(self) -> Iterator[None]:
        while self._queue:
            try:
                done = step(self._queue[0][0], SLICE_COST_US)[0]
            except Exception as error:
                log_failure(
                    logger,
                    error,
                    "share sessions: cannot release some acquired records of %s; other members get these records "
                    "after their locks expire%s",
                    self._queue[0][1],
                    next_step(error),
                )
                done = True
            if done:
                self._queue.popleft()
            yield
