"""Security of listeners: authentication by certificate or by SASL."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kcore.config.security import LISTENER_PREFIX
from kcore.errors import ConfigError
from kcore.security.principal import PrincipalRules, user_principal
from kcore.server.connection import Connection

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from kcore.config.security import SecuritySettings
    from kcore.engine import Engine
    from kcore.security.sasl import SaslExchange
    from kcore.server.listeners import Listener
    from kcore.server.server import Server


class ListenerSecurity:
    """The security of one listener's connections.

    The constructor imports the modules that only TLS or SASL needs. So Python loads them before the listener opens, and
    only on nodes that use TLS or SASL.

    Args:
        listener: has the listener's name and security protocol.
        engine: contains the users and the settings.

    Raises:
        ConfigError: the security settings are invalid.

    Attributes:
        name: the listener's name.
        connection: creates a connection of this listener.
        tls: the TLS context; None without TLS.
        settings: the security settings of this listener.
    """

    __slots__ = ("_config", "_make_tls", "_new_exchange", "_rules", "connection", "name", "settings", "tls")

    def __init__(self, listener: Listener, engine: Engine) -> None:
        self.name = listener.name
        self._config = engine.config
        self._make_tls: Callable[[SecuritySettings, str], ssl.SSLContext] | None = None
        self.settings = engine.config.for_listener(listener.name)
        self._rules = PrincipalRules(self.settings.ssl_principal_mapping_rules)
        self.connection: Callable[[Server, ListenerSecurity, int], Connection] = _plain_connection
        self.tls: ssl.SSLContext | None = None
        self._new_exchange: Callable[[], SaslExchange] | None = None
        if listener.protocol.has_tls:
            from kcore.server.secure import SecureConnection  # noqa: PLC0415
            from kcore.server.tls import server_context  # noqa: PLC0415

            self._make_tls = server_context
            self.tls = self._first_context(engine.control.broker_config.stored_keys(listener.name))
            self.connection = SecureConnection
        if listener.protocol.has_sasl:
            from kcore.server.mechanisms import exchange_maker  # noqa: PLC0415
            from kcore.server.sasl import SaslConnection  # noqa: PLC0415

            self._new_exchange = exchange_maker(self.settings, engine)
            self.connection = SaslConnection

    def _first_context(self, stored: Mapping[str, Any]) -> ssl.SSLContext:
        """Creates the TLS context when the server starts.

        If the keys that were set at run time cannot be loaded, the context has the keys of the properties file.

        Args:
            stored: setting -> its value in the properties file, for each key setting that was changed at run time.

        Raises:
            ConfigError: the keys of the properties file cannot be loaded either.
        """
        assert self._make_tls is not None, f"{self.name} has no TLS"
        try:
            return self._make_tls(self.settings, self.name)
        except ConfigError as error:
            if not stored:
                raise
            settings = self._config.for_listener(self.name, stored)
            names = ", ".join(stored)
            try:
                tls = self._make_tls(settings, self.name)
            except ConfigError as static:
                raise ConfigError(
                    f"{error}. This value was set at run time and is stored in the data folder ({names}). The keys of "
                    f"the properties file cannot be used instead: {static}. Set "
                    f"{LISTENER_PREFIX}{self.name.lower()}.ssl.keystore.location in the properties file and start "
                    "again; then alter or delete the stored settings with kafka-configs"
                ) from None
            logger.error(
                "%s; kcore ignores the dynamic settings in the data folder (%s) and uses the keys of the properties "
                "file; alter or delete the dynamic settings with kafka-configs",
                error, names,
            )  # fmt: skip
            self.settings = settings
            return tls

    @property
    def has_sasl(self) -> bool:
        """True if clients authenticate with SASL."""
        return self._new_exchange is not None

    def check_keys(self, changed: Mapping[str, str | None]) -> None:
        """Validates the keys and certificates that a change of settings would load, without applying them.

        Raises:
            ConfigError: the keys or certificates cannot be loaded.
        """
        if self._make_tls is not None:
            from kcore.server.key_material import check_key  # noqa: PLC0415

            settings = self._config.for_listener(self.name, changed)
            try:
                check_key(settings)
            except ConfigError as error:
                raise ConfigError(f"listener {self.name}: {error}") from None
            self._make_tls(settings, self.name)

    def reload_keys(self) -> None:
        """Loads keys and certificates again. Only later connections use them.

        Raises:
            ConfigError: the new keys cannot be loaded; the previous keys stay in use.
        """
        if self._make_tls is not None:
            settings = self._config.for_listener(self.name)
            self.tls = self._make_tls(settings, self.name)
            self.settings = settings

    def exchange(self) -> SaslExchange:
        """Starts a SASL exchange."""
        assert self._new_exchange is not None, f"{self.name} has no SASL"
        return self._new_exchange()

    def principal_of(self, subject: str) -> str | None:
        """Returns the principal of a certificate's subject; None if no mapping rule matches."""
        name = self._rules.name(subject)
        return None if name is None else user_principal(name)


class Authentications:
    """The counts of SASL exchanges by result.

    Attributes:
        results: number of exchanges by (mechanism, "authentication" or "reauthentication", "success" or "failure"). A
            client that fails before it has chosen a mechanism counts with the mechanism "none".
        expired: connections closed because their session expired without a new authentication.
    """

    __slots__ = ("expired", "results")

    def __init__(self) -> None:
        self.results: dict[tuple[str, str, str], int] = {}
        self.expired = 0

    def ended(self, mechanism: str, *, again: bool, success: bool) -> None:
        """Counts an exchange that ended; `again` is True if the client was authenticated before."""
        kind = "reauthentication" if again else "authentication"
        key = (mechanism or "none", kind, "success" if success else "failure")
        self.results[key] = self.results.get(key, 0) + 1


class ServerKeys:
    """Keys and certificates of all listeners of a server, which change at run time.

    Args:
        listeners: the security of each listener.
    """

    __slots__ = ("_listeners",)

    def __init__(self, listeners: Sequence[ListenerSecurity]) -> None:
        self._listeners = listeners

    def fault(self, changed: Mapping[str, str | None]) -> str | None:
        """Describes the reason why keys cannot be loaded after a change of settings; None if they can."""
        try:
            for security in self._listeners:
                security.check_keys(changed)
        except ConfigError as error:
            return str(error)
        return None

    def reload(self) -> None:
        """Loads the keys and certificates of all listeners again.

        A listener whose new keys cannot be loaded keeps its previous keys.
        """
        for security in self._listeners:
            try:
                security.reload_keys()
            except ConfigError as error:
                logger.error(
                    "listeners: cannot reload keys: %s; the previous keys stay in use; correct the key files or the "
                    "settings",
                    error,
                )
            else:
                if security.tls is not None:
                    logger.info("listener %s: reloaded keys and certificates", security.name)


def _plain_connection(server: Server, security: ListenerSecurity, connection_id: int) -> Connection:
    return Connection(server, security.name, connection_id)
