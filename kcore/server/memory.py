"""Server-wide memory limits of requests and responses.

At `queued.max.request.bytes`, the server stops reading requests. Above `kcore.max.request.memory.bytes`, it closes
connections that do not finish their requests. `kcore.max.response.memory.bytes` limits unread responses.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from kcore.process_logging import log_failure, next_step
from kcore.protocol import MessageTooLargeError
from kcore.server.size_classes import SizeClasses

if TYPE_CHECKING:
    from kcore.broker.data.fetch_budget import FetchMemoryBudget
    from kcore.server.connection import Connection

logger = logging.getLogger(__name__)

LEAST_BYTES = 1_048_576
"""Maximum size of a response that the server encodes regardless of the remaining memory."""

CHECK_INTERVAL_S = 0.05
"""Time between two checks of the connections whose peers have not read all bytes. Without such connections, no timer
runs.
"""

CHECKED: Final = 1_000
"""Maximum number of connections that the server checks, pauses or resumes in one step of a few milliseconds."""

FREE_DIVISOR: Final = 8
"""Divisor that determines when full memory is no longer full: when `limit / FREE_DIVISOR` bytes are free.

Each change between full and not full pauses or resumes many connections. With this margin, a single request cannot
cause such a change.
"""


class NoRoomError(MessageTooLargeError):
    """A response that does not fit into memory because other responses are unread."""


def _is_full(held_bytes: int, limit_bytes: int, was_full: bool) -> bool:
    return held_bytes >= limit_bytes or (was_full and held_bytes > limit_bytes - limit_bytes // FREE_DIVISOR)


class RequestMemory:
    """Request bytes that all connections hold.

    These bytes are incomplete frames, counted with their announced length, and complete frames that wait. At the limit,
    connections that hold no bytes are not read until an eighth of the limit is free. As in Kafka (KIP-72), a connection
    that has begun a frame may finish it; otherwise no connection could make progress. Together, all connections hold at
    most the limit, plus one frame and the bytes of one read of the socket for each connection.

    The object pauses or resumes connections in slices. Until the slice of a connection runs, the connection can begin
    another frame.

    Args:
        limit_bytes: number of bytes at which the server stops reading.
        connections: all open connections.
        loop: runs the slices.
    """

    __slots__ = ("_connections", "_full", "_loop", "_next", "_outdated", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int, connections: Iterable[Connection], loop: asyncio.AbstractEventLoop) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._connections = connections
        self._loop = loop
        self._full = False
        self._outdated: list[Connection] = []  # connections that were not yet notified whether the memory is full
        self._next: asyncio.Handle | None = None

    def claim(self, connection: Connection, size_bytes: int) -> None:
        """Sets the number of bytes that `connection` holds."""
        self.held_bytes += size_bytes - connection.claimed_bytes
        connection.claimed_bytes = size_bytes
        full = _is_full(self.held_bytes, self.limit_bytes, self._full)
        if full is not self._full:
            self._outdated = list(self._connections)
            self._full = full
            if self._next is None:
                self._next = self._loop.call_soon(self._inform)

    def _inform(self) -> None:
        """Pauses or resumes the reading of some connections now, and of the remaining connections in later turns of the
        event loop.
        """
        delay_s = 0.0
        try:
            for _ in range(CHECKED):
                if not self._outdated:
                    break
                connection = self._outdated.pop()
                try:
                    connection.on_request_memory_changed()
                except BaseException as error:
                    self._outdated.insert(0, connection)
                    if not isinstance(error, Exception):
                        raise
                    log_failure(
                        logger,
                        error,
                        "connection %d from %s: an internal error prevented a pause, or the end of a pause, of reading "
                        "requests; the server tries again%s",
                        connection.connection_id,
                        connection.client_host,
                        next_step(error),
                    )
                    delay_s = CHECK_INTERVAL_S
                    break
        finally:
            self._next = self._loop.call_later(delay_s, self._inform) if self._outdated else None

    def may_read(self, connection: Connection) -> bool:
        """Returns True if `connection` may be read: memory is free, or the connection is in the middle of a frame."""
        return not self._full or connection.claimed_bytes > 0


class UnservedMemory:
    """The received bytes of requests that no API serves yet: unfinished requests, and waiting requests.

    By default, Kafka's brokers hold such bytes without a limit, even if clients never finish long requests. kcore
    closes connections as long as there are more than `limit_bytes`. It selects a client address with the most bytes, or
    with about as many. Of this address, it closes the connection that has held such bytes for the longest time. So a
    client that finishes its requests keeps its connections, unless other clients at its address hold the whole memory
    meanwhile.

    Args:
        limit_bytes: the limit; -1 for none.

    Attributes:
        held_bytes: the received bytes of all such requests. The bytes of a connection count from the time when it holds
            more than `READ_AHEAD_LIMIT` bytes until it holds none.
        closed_connections: the number of connections closed because of the limit.
    """

    __slots__ = ("_by_host", "_by_size", "closed_connections", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.closed_connections = 0
        self._by_host: dict[str, _Holders] = {}
        self._by_size: SizeClasses[_Holders] = SizeClasses()

    def claim(self, connection: Connection, size_bytes: int) -> bool:
        """Sets the number of bytes that `connection` holds. Then closes connections as long as the limit is exceeded.

        Returns True if `size_bytes` is not 0.
        """
        host = connection.client_host
        holders = self._by_host.get(host)
        if holders is None:
            holders = self._by_host[host] = _Holders()
        change_bytes = size_bytes - holders.sizes.get(connection, 0)
        if size_bytes:
            holders.sizes[connection] = size_bytes  # a connection that is not new keeps its position
        else:
            holders.sizes.pop(connection, None)
        holders.held_bytes += change_bytes
        self._by_size.set(holders, holders.held_bytes)
        self.held_bytes += change_bytes
        if not holders.sizes:
            del self._by_host[host]
        while self.held_bytes > self.limit_bytes >= 0:
            self._close_one()
        return size_bytes > 0

    def _close_one(self) -> None:
        oldest = next(iter(self._by_size.largest().sizes))
        self.claim(oldest, 0)
        self.closed_connections += 1
        oldest.close_unserved()


class _Holders:
    """The connections of a client address with their numbers of bytes, in the order in which they began to hold
    bytes.
    """

    __slots__ = ("held_bytes", "sizes")

    def __init__(self) -> None:
        self.sizes: dict[Connection, int] = {}
        self.held_bytes = 0


class ResponseMemory:
    """All encoded responses that the peers have not read yet.

    A response waits in its connection while an earlier response of the connection is not complete. It waits in the
    transport while the peer's socket is full. Kafka has no common limit: its brokers hold one such response for each
    connection.

    - A fetch returns at most a quarter of the remaining memory, and always at least one batch, so that every reader
      makes progress (KIP-74).
    - Another API's response of more than 1 MiB is encoded only if all of it fits into the remaining memory. If it does
      not fit, its connection is closed, and the client retries over another connection.
    - While no memory is left, connections with unread bytes are not served until an eighth of the limit is free. Other
      connections are served.
    - While more than half of the limit is in use, a connection whose peer has read nothing for `stall_ms` is closed.

    All connections together hold at most the limit plus an excess for each connection. The excess has two parts: one
    response (one batch of a fetch, or 1 MiB for another API), and the bytes that the connection may send between two
    checks of its unread bytes.

    Args:
        limit_bytes: maximum number of unread bytes, apart from the excess.
        stall_ms: time for which a peer may read nothing while memory is short.
        room: the memory budget of fetches; this object updates it.
        loop: schedules the checks.

    Attributes:
        held_bytes: number of unread bytes.
        full: True while connections with unread bytes have to wait.
        stalled_connections: number of connections closed because their peers did not read.
    """

    __slots__ = (
        "_look",
        "_loop",
        "_room",
        "_unread",
        "full",
        "held_bytes",
        "limit_bytes",
        "stall_ms",
        "stalled_connections",
    )

    def __init__(
        self, limit_bytes: int, stall_ms: int, room: FetchMemoryBudget, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.limit_bytes = limit_bytes
        self.stall_ms = stall_ms
        self.held_bytes = 0
        self.full = False
        self.stalled_connections = 0
        self._room = room
        self._loop = loop
        # connections with unread bytes, in the order of their next checks
        self._unread: OrderedDict[Connection, None] = OrderedDict()
        self._look: asyncio.TimerHandle | None = None
        room.measure(limit_bytes)

    @property
    def pressed(self) -> bool:
        """True if memory is short, so that connections of peers that do not read are closed."""
        return self.held_bytes > self.limit_bytes // 2

    def reserve(self, size_bytes: int) -> None:
        """Reserves memory for an encoded response. After the end of the round, only the unread bytes count.

        Raises:
            NoRoomError: not enough memory is left.
        """
        left_bytes = max(self._room.left_bytes, LEAST_BYTES)
        if size_bytes > left_bytes:
            raise NoRoomError("response", left_bytes)
        self._room.reserve(size_bytes)

    def set_unread(self, connection: Connection, size_bytes: int) -> None:
        """Sets the number of bytes that the peer of `connection` has not read."""
        self.held_bytes += size_bytes - connection.unread_bytes
        connection.unread_bytes = size_bytes
        if size_bytes:
            self._unread[connection] = None
            if self._look is None:
                self._look = self._loop.call_later(CHECK_INTERVAL_S, self.look)
        else:
            self._unread.pop(connection, None)
        full = _is_full(self.held_bytes, self.limit_bytes, self.full)
        connection.hold(full and size_bytes > 0)
        if full is not self.full:
            self.full = full
            for other in list(islice(self._unread, CHECKED)):  # the checks hold or resume the others
                other.hold(full)
        if not self._room.reserved:
            self._room.measure(self.limit_bytes - self.held_bytes)

    def end_round(self) -> None:
        """Releases the memory reserved for the round's responses, so that only their unread bytes count."""
        if self._room.reserved:
            self._room.measure(self.limit_bytes - self.held_bytes)

    def look(self) -> None:
        """Checks the unread bytes of connections, because transports report no progress below their buffer limit."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        stall_s = self.stall_ms / 1000
        for connection in list(islice(self._unread, CHECKED)):
            if connection not in self._unread:
                continue  # it was closed meanwhile
            self._unread.move_to_end(connection)
            connection.report_unread()
            if self.pressed and self._loop.time() - connection.taken_s > stall_s and connection.unread_bytes:
                connection.stalled()
                self.stalled_connections += 1
                self.set_unread(connection, 0)
        if self._unread and self._look is None:
            self._look = self._loop.call_later(CHECK_INTERVAL_S, self.look)

    def close(self) -> None:
        """Stops the checks."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
