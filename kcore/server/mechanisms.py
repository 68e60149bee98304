"""The SASL mechanisms of a listener, as its settings enable them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kcore.broker.scram_users import ScramUsers
from kcore.errors import ConfigError
from kcore.security.mechanism import Mechanism
from kcore.security.oauthbearer import OAuthBearer
from kcore.security.plain import Plain
from kcore.security.plugin import load_object
from kcore.security.sasl import SaslExchange
from kcore.security.scram import Decoys, ScramSha256, ScramSha512

if TYPE_CHECKING:
    from kcore.config_security import SecuritySettings
    from kcore.coordinator import Engine

Makers = Mapping[str, Callable[[], Mechanism]]

NONCE_BYTES = 24


def exchange_maker(settings: SecuritySettings, engine: Engine) -> Callable[[], SaslExchange]:
    """Makes what begins a SASL exchange of a new connection.

    Args:
        settings: those of the listener.
        engine: has the users.

    Raises:
        ConfigError: a mechanism is enabled that cannot work.
    """
    mechanisms = _mechanisms(settings, engine)
    return lambda: SaslExchange(mechanisms, settings.connections_max_reauth_ms)


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
