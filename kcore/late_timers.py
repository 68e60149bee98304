"""Timers of an event loop. After a delay of the loop, they fire only when the loop has read the waiting requests.

A stopped process, a long request or a slow device keeps the event loop from reading its sockets. Deadlines of sessions
then pass while the heartbeats that would extend them wait to be read. An event loop runs timers before it reads
sockets. Without this module, a member that never missed a heartbeat would be removed from its group.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kcore_ext.runtime.clock import LONG_PAUSE_MS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kcore.clock import Clock, Now

logger = logging.getLogger(__name__)

TURNS: Final = 2
"""Number of turns of the event loop until every socket that had data at the beginning has been read.

A callback in the next turn may run before the loop reads the sockets of that turn. A callback in the second turn runs
after the loop has read them.
"""

MAX_READS: Final = 10
"""Maximum number of successive reads of all sockets. After this number, timers fire.

Another read follows a read that took more than `LONG_PAUSE_MS`. Without this limit, a flood of requests could block
timers.
"""

MAX_WAITS: Final = 100
"""Maximum number of turns for which timers wait for requests that were read but not served.

Without this limit, a flood of requests could block timers. A turn serves requests for 20 ms.
"""


class LateTimers:
    """The timers of an event loop. They fire immediately, or after a read of all sockets if the loop was late.

    The loop counts as late if no round has begun for more than `LONG_PAUSE_MS`. After this pause, it
    counts as late until all sockets have been read, for `LONG_PAUSE_MS` at most: the first request after the pause
    begins a round, but other requests that were sent during the pause may not be read yet. An idle loop also counts as
    late; the two turns for the read then cost only a few microseconds.

    Args:
        loop: the event loop that fires the timers.
        clock: the engine's clock.
        now: the time of the engine's last round.
        fire: fires the timers that are due.

    Attributes:
        unserved: a function that returns True while requests that were read wait for a later turn of the loop.
    """

    __slots__ = (
        "_clock",
        "_fire",
        "_handled_ms",
        "_loop",
        "_now",
        "_reads",
        "_since_ms",
        "_turns",
        "_waits",
        "unserved",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, now: Now, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._now = now
        self._fire = fire
        self._handled_ms = now.resumed_ms  # end of the latest pause after which the sockets were read
        self._reads = 0  # 0: no read is in progress
        self._since_ms = 0
        self._turns = 0
        self._waits = 0
        self.unserved: Callable[[], bool] = lambda: False

    def ring(self) -> None:
        """Fires the timers that are due, or first reads all sockets if the loop was late. The loop's alarm calls it."""
        if self._reads:
            return
        now_ms = self._clock.monotonic_ms()
        resumed_ms = self._now.resumed_ms
        long_pause = now_ms - self._now.now_ms > LONG_PAUSE_MS
        if long_pause or (now_ms - resumed_ms <= LONG_PAUSE_MS and resumed_ms != self._handled_ms):
            logger.debug(
                "timers: the driver was delayed for more than %d ms; the driver reads from sockets before it fires "
                "timers",
                LONG_PAUSE_MS,
            )
            self._read()
        else:
            self._fire()

    def _read(self) -> None:
        self._reads += 1
        self._since_ms = self._clock.monotonic_ms()
        self._turns = TURNS
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turns -= 1
        if self._turns:
            self._loop.call_soon(self._turn)
        elif self._clock.monotonic_ms() - self._since_ms > LONG_PAUSE_MS and self._reads < MAX_READS:
            self._read()  # data that arrived during this read has not been read yet
        elif self._waits < MAX_WAITS and self.unserved():
            self._waits += 1
            self._turns = 1
            self._loop.call_soon(self._turn)
        else:
            self._reads = self._waits = 0
            self._fire()
            self._handled_ms = self._now.resumed_ms
