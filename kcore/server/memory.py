"""How much of requests and of answers the whole server holds: `queued.max.request.bytes`, before it reads no more of
the ones, and `kcore.max.response.memory.bytes`, before it makes less of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kcore.protocol import MessageTooLargeError

if TYPE_CHECKING:
    from kcore.broker.data.fetch_budget import FetchMemoryBudget
    from kcore.server.connection import Connection

LEAST_BYTES = 1_048_576
"""A response of at most so many bytes is encoded however little memory is left."""

LOOK_S = 0.05
"""How often connections are looked at whose peers have left something unread; there is no look while there is none."""


class NoRoomError(MessageTooLargeError):
    """A response for which there is no memory while other responses are not read."""


class RequestMemory:
    """What all connections hold of requests: frames in the making, with the length they announce, and whole frames
    that wait. While that is at the limit, connections that hold nothing are not read.

    As in Kafka (KIP-72) a connection that has begun a frame may end it, or nobody could ever go on: together they
    hold at most the limit, one frame, and a read of each.

    Args:
        limit_bytes: the limit.
        connections: all connections there are.
    """

    __slots__ = ("_connections", "_full", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int, connections: Iterable[Connection]) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._connections = connections
        self._full = False

    def claim(self, connection: Connection, size_bytes: int) -> None:
        """`connection` holds `size_bytes` from now on."""
        self.held_bytes += size_bytes - connection.claimed_bytes
        connection.claimed_bytes = size_bytes
        full = self.held_bytes >= self.limit_bytes
        if full is not self._full:
            self._full = full
            for other in list(self._connections):
                if other is not connection:
                    other.look_at_memory()

    def may_read(self, connection: Connection) -> bool:
        """Whether `connection` may be read: there is room, or it is in the middle of a frame."""
        return not self._full or connection.claimed_bytes > 0


class ResponseMemory:
    """The responses of all connections that are encoded and not read yet: those that wait in a connection for one in
    front of them, and those that a transport holds because its peer's socket is full. Kafka bounds them for each
    connection alone: one response for each peer that does not read.

    - A fetch answers with at most a quarter of the room that is left, and always with one batch, so that whoever reads
      comes on (KIP-74).
    - Another response of more than 1 MiB is encoded only if there is room for all of it; else its connection is closed,
      and the client asks again over another one. It takes its room from when it is encoded.
    - While there is no room, a connection that has left something unread is not served; others are.
    - While more than half is taken, a connection whose peer has read nothing for a while is closed.

    So all together hold at most the limit, and for each connection one batch, or 1 MiB of another response, and what a
    connection may send before it is looked at.

    Args:
        limit_bytes: the limit.
        stall_ms: for how long a peer may read nothing while memory is short.
        room: what fetches are told.
        loop: where looks are scheduled.

    Attributes:
        held_bytes: what is unread.
        full: whether connections that have left something unread wait.
        stalled_connections: how many were closed because their peers did not read.
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
        self._unread: dict[Connection, None] = {}  # connections with anything unread, in the order in which they came
        self._look: asyncio.TimerHandle | None = None
        room.measure(limit_bytes)

    @property
    def pressed(self) -> bool:
        """Whether memory is short: peers that do not read at all are in the way."""
        return self.held_bytes > self.limit_bytes // 2

    def note(self, size_bytes: int) -> None:
        """Takes the room of a response that was encoded; it is measured anew when the round ends.

        Raises:
            NoRoomError: there is none.
        """
        left_bytes = max(self._room.left_bytes, LEAST_BYTES)
        if size_bytes > left_bytes:
            raise NoRoomError("response", left_bytes)
        self._room.take(size_bytes)

    def claim(self, connection: Connection, size_bytes: int) -> None:
        """The peer of `connection` has left `size_bytes` unread."""
        self.held_bytes += size_bytes - connection.unread_bytes
        connection.unread_bytes = size_bytes
        if size_bytes:
            self._unread[connection] = None
            if self._look is None:
                self._look = self._loop.call_later(LOOK_S, self.look)
        else:
            self._unread.pop(connection, None)
        full = self.held_bytes >= self.limit_bytes
        connection.hold(full and size_bytes > 0)
        if full is not self.full:
            self.full = full
            for other in list(self._unread):
                other.hold(full)
        if not self._room.taken:
            self._room.measure(self.limit_bytes - self.held_bytes)

    def end_round(self) -> None:
        """The answers of a round have left: from now on they count as far as they are unread."""
        if self._room.taken:
            self._room.measure(self.limit_bytes - self.held_bytes)

    def look(self) -> None:
        """Looks at what peers have read since. Nobody else tells, if it is less than a connection's buffer."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        stall_s = self.stall_ms / 1000
        for connection in list(self._unread):
            connection.look_at_unread()
            if self.pressed and self._loop.time() - connection.taken_s > stall_s and connection.unread_bytes:
                connection.stalled()
                self.stalled_connections += 1
                self.claim(connection, 0)
        if self._unread and self._look is None:
            self._look = self._loop.call_later(LOOK_S, self.look)

    def close(self) -> None:
        """Nobody looks any more."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
