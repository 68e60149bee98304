"""`queued.max.request.bytes`: how much of requests the whole server holds before it reads no more of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.server.connection import Connection


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
