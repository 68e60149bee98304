"""Connections on listeners with TLS."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kcore.security.principal import distinguished_name
from kcore.server.connection import Connection

if TYPE_CHECKING:
    from kcore.server.authentication import ListenerSecurity
    from kcore.server.server import Server


class SecureConnection(Connection):
    """A connection of a listener with TLS. The handshake is over when it is made.

    Args:
        server: the server.
        security: of its listener.
        connection_id: its number.
    """

    __slots__ = ("security",)

    def __init__(self, server: Server, security: ListenerSecurity, connection_id: int) -> None:
        super().__init__(server, security.name, connection_id)
        self.security = security

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

    def eof_received(self) -> bool:
        """The client sends no more. TLS cannot be closed by half: what it asked is not answered any more."""
        return super().eof_received() and self.security.tls is None
