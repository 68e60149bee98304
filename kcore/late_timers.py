"""Reads sockets before timers fire when an event loop was late.

A process that was stopped, a long request or a slow device keep the event loop from its sockets. Then the deadlines of
sessions have passed while the heartbeats that would have moved them wait to be read. Event loops run timers first: a
member that never missed a heartbeat would be removed from its group.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kcore.clock import Clock, Now

logger = logging.getLogger(__name__)

LATE_MS: Final = 1_000
"""Time without a round after which the loop may have been late: shorter than any sensible session by far."""

TURNS: Final = 2
"""Turns of an event loop after which every socket was read that had data when the first of them began.

A callback of the next turn may run before that turn's sockets are read, one of the turn behind it runs after them.
"""

MAX_READS: Final = 10
"""Reads in a row that may be late themselves, before timers fire all the same: else a flood could hold them up."""


class LateTimers:
    """Fires timers at once, or after a read of the sockets if no round began for more than `LATE_MS`.

    A loop that merely had nothing to do is not told from a late one: two empty turns cost a few microseconds.

    Args:
        loop: the event loop.
        clock: the engine's clock.
        now: the time of the engine's last round.
        fire: fires the timers that are due.
    """

    __slots__ = ("_clock", "_fire", "_loop", "_now", "_reads", "_since_ms", "_turns")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, now: Now, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._now = now
        self._fire = fire
        self._reads = 0  # 0: no read is under way
        self._since_ms = 0
        self._turns = 0

    def ring(self) -> None:
        """Handles a timer of the loop: timers of the engine are due."""
        if self._reads:
            return
        late_ms = self._clock.monotonic_ms() - self._now.now_ms
        if late_ms > LATE_MS:
            logger.debug("no round for %d ms: sockets are read before timers fire", late_ms)
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
        elif self._clock.monotonic_ms() - self._since_ms > LATE_MS and self._reads < MAX_READS:
            self._read()  # what came during this read was not read yet
        else:
            self._reads = 0
            self._fire()
