"""Connections on listeners with TLS."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kcore.security.principal import distinguished_name
from kcore.server.connection import Connection
from kcore.server.tls_session import BoundedSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.server.authentication import ListenerSecurity
    from kcore.server.server import Server

PIECE_BYTES = 65_536  # largest write to a TLS transport


class SecureConnection(Connection):
    """A connection on a TLS listener. It is created after the handshake.

    Args:
        server: the server that accepted the connection.
        security: the security of the connection's listener.
        connection_id: the connection's number.
    """

    __slots__ = ("_kept", "_kept_bytes", "security")

    def __init__(self, server: Server, security: ListenerSecurity, connection_id: int) -> None:
        super().__init__(server, security.name, connection_id)
        self.security = security
        self._kept: deque[memoryview] = deque()
        self._kept_bytes = 0

    def _begin(self, transport: Any) -> None:
        """Starts to serve a client; its certificate, if any, determines the principal."""
        principal: str | None = self.principal
        subject = distinguished_name(transport.get_extra_info("peercert") or {})
        if subject:
            principal = self.security.principal_of(subject)
            self.principal = principal or self.principal
        session = transport.get_extra_info("ssl_object")
        if isinstance(session, BoundedSession):
            session.client = f"connection {self.connection_id} from {self.client_host}"
        super()._begin(transport)
        if principal is None and not self._closing:
            self._refuse("no rule of ssl.principal.mapping.rules matches the subject of the client's certificate")

    # ---- sending: a TLS transport accepts any number of bytes and does not report how many are unread

    def _writer(self, transport: Any) -> Callable[[bytes], None]:
        """Returns the function that sends bytes in pieces and retains the bytes that the peer does not read."""
        return super()._writer(transport) if self.security.tls is None else self._write_pieces

    def _write_pieces(self, data: bytes) -> None:
        if len(data) <= PIECE_BYTES and not self._kept and not self._paused:
            self.transport.write(data)
            return
        self._kept.append(memoryview(data))
        self._kept_bytes += len(data)
        self._write_kept()

    def _write_kept(self) -> None:
        """Writes retained bytes until the transport signals that its buffer is full."""
        while self._kept and not self._paused:
            data = self._kept.popleft()
            if len(data) > PIECE_BYTES:
                self._kept.appendleft(data[PIECE_BYTES:])
                data = data[:PIECE_BYTES]
            self._kept_bytes -= len(data)
            self.transport.write(data)

    def resume_writing(self) -> None:
        """Writes the retained bytes first, then resumes the requests, because the peer reads again."""
        self._paused = False
        self._write_kept()
        if self._closing and not self._kept:
            self.transport.close()
        elif not self._paused:
            super().resume_writing()

    def _unsent(self) -> int:
        return super()._unsent() + self._kept_bytes

    def close(self) -> None:
        """Sends the ready responses, then closes the connection.

        Some responses may be retained until the peer reads, because encrypting all of them at once would block the
        event loop. In this case, the connection closes after the last retained response.
        """
        if not self._closing:
            self._flush()
        if self._kept and not self._closing:
            self._closing = self._queue.stopped = True  # `resume_writing` closes the transport
        else:
            super().close()

    def abort(self) -> None:
        """Closes the connection immediately and discards unsent bytes."""
        self._drop_kept()
        super().abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handles the loss of the connection."""
        self._drop_kept()
        super().connection_lost(exc)

    def _drop_kept(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def eof_received(self) -> bool:
        """Handles the client's end of stream. TLS has no half-close: outstanding requests get no response."""
        return super().eof_received() and self.security.tls is None
