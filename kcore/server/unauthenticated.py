"""The memory of clients on SASL listeners that have not authenticated yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.server.size_classes import SizeClasses

if TYPE_CHECKING:
    from kcore.server.sasl import SaslConnection

MAX_BYTES: Final = 67_108_864
"""Maximum number of received bytes that all unauthenticated clients together may hold: 128 messages of the maximum
size.
"""


class UnauthenticatedMemory:
    """The received bytes of the clients that have not authenticated.

    `sasl.server.max.receive.size` bounds the bytes of one connection, but a client may open many connections. If all
    connections together hold more than `MAX_BYTES`, the server closes the connection that holds the most bytes, or a
    connection that holds about as many.

    Attributes:
        held_bytes: the number of bytes of all connections.
    """

    __slots__ = ("_by_connection", "held_bytes")

    def __init__(self) -> None:
        self._by_connection: SizeClasses[SaslConnection] = SizeClasses()
        self.held_bytes = 0

    def claim(self, connection: SaslConnection, size_bytes: int) -> None:
        """Sets the number of bytes that `connection` holds; 0 once it has authenticated or is closed.

        While all connections together hold more than `MAX_BYTES`, closes one of the largest connections.
        """
        before_bytes = self._by_connection.size_of(connection)
        self._by_connection.set(connection, size_bytes)
        self.held_bytes += size_bytes - before_bytes
        while self.held_bytes > MAX_BYTES:
            largest = self._by_connection.largest()
            self.claim(largest, 0)
            largest.close_unauthenticated()
