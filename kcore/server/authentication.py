"""Listeners where clients say who they are: by a certificate, or with SASL."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kcore.broker.scram_users import ScramUsers
from kcore.errors import ConfigError
from kcore.security.mechanism import Mechanism
from kcore.security.oauthbearer import OAuthBearer
from kcore.security.plain import Plain
from kcore.security.plugin import load_object
from kcore.security.principal import PrincipalRules, user_principal
from kcore.security.sasl import SaslExchange
from kcore.security.scram import Decoys, ScramSha256, ScramSha512
from kcore.security.tls import server_context

if TYPE_CHECKING:
    from kcore.config_security import SecuritySettings
    from kcore.coordinator import Engine
    from kcore.server.listeners import Listener

Makers = Mapping[str, Callable[[], Mechanism]]

NONCE_BYTES = 24


class ListenerSecurity:
    """What is special about the connections of one listener.

    Args:
        listener: the listener.
        engine: has the users and the settings.

    Raises:
        ConfigError: what the settings say cannot be done.

    Attributes:
        name: the listener's name.
        tls: what is spoken first; None: Kafka's protocol at once.
        settings: those of this listener.
    """

    __slots__ = ("_mechanisms", "_rules", "name", "settings", "tls")

    def __init__(self, listener: Listener, engine: Engine) -> None:
        self.name = listener.name
        self.settings = engine.config.for_listener(listener.name)
        self._rules = PrincipalRules(self.settings.ssl_principal_mapping_rules)
        self.tls: ssl.SSLContext | None = None
        if listener.protocol.has_tls:
            self.tls = server_context(self.settings, listener.name)
        self._mechanisms: Makers | None = None
        if listener.protocol.has_sasl:
            self._mechanisms = _mechanisms(self.settings, engine)

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self._mechanisms is not None

    def exchange(self) -> SaslExchange:
        """A new SASL exchange."""
        assert self._mechanisms is not None, f"{self.name} has no SASL"
        return SaslExchange(self._mechanisms, self.settings.connections_max_reauth_ms)

    def principal_of(self, subject: str) -> str | None:
        """The principal of a certificate's subject; None if no rule says one."""
        name = self._rules.name(subject)
        return None if name is None else user_principal(name)


def _mechanisms(settings: SecuritySettings, engine: Engine) -> Makers:
    users, decoys = ScramUsers(engine.topics), Decoys(secrets.token_bytes(32))
    nonce = partial(secrets.token_urlsafe, NONCE_BYTES)
    makers: dict[str, Callable[[], Mechanism]] = {}
    for name in settings.sasl_enabled_mechanisms:
        if name == Plain.name:
            makers[name] = partial(Plain, users, decoys)
        elif name == ScramSha256.name:
            makers[name] = partial(ScramSha256, users, decoys, nonce)
        elif name == ScramSha512.name:
            makers[name] = partial(ScramSha512, users, decoys, nonce)
        else:
            setting = "kcore.sasl.oauthbearer.validator"
            if not settings.kcore_sasl_oauthbearer_validator:
                raise ConfigError(f"OAUTHBEARER is enabled: {setting} must name what checks its tokens")
            validator = load_object(settings.kcore_sasl_oauthbearer_validator, setting)
            makers[name] = partial(OAuthBearer, validator, engine.clock.wall_ms)
    return makers
