"""The memory of clients on SASL listeners that have not authenticated yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kcore.server.sasl import SaslConnection

MAX_BYTES: Final = 67_108_864
"""Received bytes of all such clients together: 128 messages of the largest size, or many thousands of real ones."""


class UnauthenticatedMemory:
    """Received bytes of the clients that have not authenticated.

    `sasl.server.max.receive.size` bounds the bytes of one connection, but a client may open many connections.
    Beyond `MAX_BYTES`, the connection that holds the most is closed.

    Attributes:
        held_bytes: the number of bytes of all connections.
    """

    __slots__ = ("_by_connection", "held_bytes")

    def __init__(self) -> None:
        self._by_connection: dict[SaslConnection, int] = {}
        self.held_bytes = 0

    def claim(self, connection: SaslConnection, size_bytes: int) -> None:
        """Sets the number of bytes that `connection` holds; 0 once it has authenticated or is closed."""
        self.held_bytes += size_bytes - self._by_connection.pop(connection, 0)
        if size_bytes:
            self._by_connection[connection] = size_bytes
        while self.held_bytes > MAX_BYTES:
            largest = max(self._by_connection, key=self._by_connection.__getitem__)
            self.held_bytes -= self._by_connection.pop(largest)
            largest.close_unauthenticated()
