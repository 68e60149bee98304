"""Listeners where clients say who they are: by a certificate, or with SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.security.principal import PrincipalRules, user_principal
from kcore.server.connection import Connection

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from kcore.engine import Engine
    from kcore.security.sasl import SaslExchange
    from kcore.server.listeners import Listener
    from kcore.server.server import Server


class ListenerSecurity:
    """What is special about the connections of one listener.

    What only TLS or only SASL needs is imported here, for a listener that has it: before it listens, and not by nodes
    that have none.

    Args:
        listener: the listener.
        engine: has the users and the settings.

    Raises:
        ConfigError: what the settings say cannot be done.

    Attributes:
        name: the listener's name.
        connection: makes a connection of it.
        tls: what is spoken first; None: Kafka's protocol at once.
        settings: those of this listener.
    """

    __slots__ = ("_new_exchange", "_rules", "connection", "name", "settings", "tls")

    def __init__(self, listener: Listener, engine: Engine) -> None:
        self.name = listener.name
        self.settings = engine.config.for_listener(listener.name)
        self._rules = PrincipalRules(self.settings.ssl_principal_mapping_rules)
        self.connection: Callable[[Server, ListenerSecurity, int], Connection] = _plain_connection
        self.tls: ssl.SSLContext | None = None
        self._new_exchange: Callable[[], SaslExchange] | None = None
        if listener.protocol.has_tls:
            from kcore.security.tls import server_context  # noqa: PLC0415
            from kcore.server.handshake import tell_failures  # noqa: PLC0415
            from kcore.server.secure import SecureConnection  # noqa: PLC0415

            self.tls = server_context(self.settings, listener.name)
            tell_failures(self.tls, listener.name)
            self.connection = SecureConnection
        if listener.protocol.has_sasl:
            from kcore.server.mechanisms import exchange_maker  # noqa: PLC0415
            from kcore.server.sasl import SaslConnection  # noqa: PLC0415

            self._new_exchange = exchange_maker(self.settings, engine)
            self.connection = SaslConnection

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self._new_exchange is not None

    def exchange(self) -> SaslExchange:
        """A new SASL exchange."""
        assert self._new_exchange is not None, f"{self.name} has no SASL"
        return self._new_exchange()

    def principal_of(self, subject: str) -> str | None:
        """The principal of a certificate's subject; None if no rule says one."""
        name = self._rules.name(subject)
        return None if name is None else user_principal(name)


def _plain_connection(server: Server, security: ListenerSecurity, connection_id: int) -> Connection:
    return Connection(server, security.name, connection_id)
