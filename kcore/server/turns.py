"""Shares the turns of the event loop between connections with more requests than fit into one turn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kcore_ext.server.connection import TurnsCore

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kcore.server.connection import Connection

TURN_NS: Final = 10_000_000
"""Maximum time for one connection's requests in a turn of the event loop, if no other connection waits."""

SHARED_NS: Final = 20_000_000
"""Maximum time for the requests of all waiting connections in a turn of the event loop."""

SHORTEST_NS: Final = 1_000_000
"""Minimum time for one connection's requests in a turn of the event loop.

A turn may take longer, because the server completes a request that has begun.
"""


class Turns(TurnsCore):
    """The connections that wait for their next turn, in order.

    The server serves connections with one request immediately. Connections with many requests wait here. The more
    connections wait, the shorter each turn is. Therefore, a client delays the others by about `SHARED_NS`, even if it
    fills many connections with requests.

    Args:
        loop: the event loop.
        clock_ns: returns the time in nanoseconds.
        at_end: called each time after some of the waiting connections have served requests.

    Attributes:
        turn_ns: time for the requests of a connection.
        waiting: the connections, in the order of their turns.
    """

    __slots__ = ("_at_end", "_clock_ns", "_loop", "_scheduled")

    waiting: dict[Connection, None]

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        *,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._clock_ns = clock_ns
        self._at_end = at_end
        self._scheduled = False
        self.waiting = {}
        self.turn_ns = TURN_NS

    def add(self, connection: Connection) -> None:
        """Adds a connection at the end of the queue."""
        self.waiting[connection] = None
        self._changed()

    def remove(self, connection: Connection) -> None:
        """Removes a connection that was closed."""
        if connection in self.waiting:
            del self.waiting[connection]
            self._changed()

    def _changed(self) -> None:
        self.turn_ns = min(TURN_NS, max(SHORTEST_NS, SHARED_NS // max(1, len(self.waiting))))
        if self.waiting and not self._scheduled:
            self._loop.call_soon(self._run)
            self._scheduled = True  # last: if scheduling raised, the next change tries again

    def _run(self) -> None:
        """Lets connections serve their requests, in order, until the time of this turn of the event loop is used up."""
        self._scheduled = False
        try:
            until_ns = self._clock_ns() + SHARED_NS
            for _ in range(len(self.waiting)):
                if not self.waiting:
                    break
                connection = next(iter(self.waiting))
                del self.waiting[connection]
                connection.continue_requests()
                if self._clock_ns() >= until_ns:
                    break
        finally:
            self._at_end()
            self._changed()
