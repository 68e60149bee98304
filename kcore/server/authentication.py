"""Security of listeners: authentication by certificate or by SASL."""

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
    """The security of one listener's connections.

    Modules that only TLS or SASL needs are imported here: before the listener opens, and only on nodes that use them.

    Args:
        listener: the listener.
        engine: contains the users and the settings.

    Raises:
        ConfigError: the security settings are invalid.

    Attributes:
        name: the listener's name.
        connection: creates a connection of this listener.
        tls: the TLS context; None without TLS.
        settings: the security settings of this listener.
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
            from kcore.server.secure import SecureConnection  # noqa: PLC0415

            self.tls = server_context(self.settings, listener.name)
            self.connection = SecureConnection
        if listener.protocol.has_sasl:
            from kcore.server.mechanisms import exchange_maker  # noqa: PLC0415
            from kcore.server.sasl import SaslConnection  # noqa: PLC0415

            self._new_exchange = exchange_maker(self.settings, engine)
            self.connection = SaslConnection

    @property
    def has_sasl(self) -> bool:
        """True if clients authenticate with SASL."""
        return self._new_exchange is not None

    def exchange(self) -> SaslExchange:
        """Starts a SASL exchange."""
        assert self._new_exchange is not None, f"{self.name} has no SASL"
        return self._new_exchange()

    def principal_of(self, subject: str) -> str | None:
        """Returns the principal of a certificate's subject; None if no mapping rule matches."""
        name = self._rules.name(subject)
        return None if name is None else user_principal(name)


def _plain_connection(server: Server, security: ListenerSecurity, connection_id: int) -> Connection:
    return Connection(server, security.name, connection_id)
