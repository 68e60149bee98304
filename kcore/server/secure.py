"""Connections on listeners with TLS."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from kcore.security.principal import distinguished_name
from kcore.server.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.server.authentication import ListenerSecurity
    from kcore.server.server import Server

PIECE_BYTES = 65_536  # given to a transport with TLS at once


class SecureConnection(Connection):
    """A connection of a listener with TLS. The handshake is over when it is made.

    Args:
        server: the server.
        security: of its listener.
        connection_id: its number.
    """

    __slots__ = ("_kept", "_kept_bytes", "security")

    def __init__(self, server: Server, security: ListenerSecurity, connection_id: int) -> None:
        super().__init__(server, security.name, connection_id)
        self.security = security
        self._kept: deque[memoryview] = deque()
        self._kept_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came; its certificate says who it is, if it showed one."""
        principal: str | None = self.principal
        subject = distinguished_name(transport.get_extra_info("peercert") or {})
        if subject:
            principal = self.security.principal_of(subject)
            self.principal = principal or self.principal
        super().connection_made(transport)
        if principal is None and not self._closing:
            self._refuse("no rule of ssl.principal.mapping.rules makes a name of its certificate's subject")

    # ---- sending: below TLS a transport takes all that it is given, and does not say how much of it is unread

    def _writer(self, transport: Any) -> Callable[[bytes], None]:
        """What sends: with TLS by the piece, and what the peer does not read is kept here."""
        return super()._writer(transport) if self.security.tls is None else self._write_pieces

    def _write_pieces(self, data: bytes) -> None:
        if len(data) <= PIECE_BYTES and not self._kept and not self._paused:
            self.transport.write(data)
            return
        self._kept.append(memoryview(data))
        self._kept_bytes += len(data)
        self._write_kept()

    def _write_kept(self) -> None:
        """Writes until the transport has enough, which it says while it is written to."""
        while self._kept and not self._paused:
            data = self._kept.popleft()
            if len(data) > PIECE_BYTES:
                self._kept.appendleft(data[PIECE_BYTES:])
                data = data[:PIECE_BYTES]
            self._kept_bytes -= len(data)
            self.transport.write(data)

    def resume_writing(self) -> None:
        """The peer reads again: first what was kept."""
        self._paused = False
        if not self._closing:
            self._write_kept()
        if not self._paused:
            super().resume_writing()

    def _unsent(self) -> int:
        return super()._unsent() + self._kept_bytes

    def _write_rest(self) -> None:
        while self._kept:
            self.transport.write(self._kept.popleft())
        self._kept_bytes = 0

    def eof_received(self) -> bool:
        """The client sends no more. TLS cannot be closed by half: what it asked is not answered any more."""
        return super().eof_received() and self.security.tls is None
