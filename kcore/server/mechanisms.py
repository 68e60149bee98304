"""The SASL mechanisms that a listener's settings enable."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kcore.broker.metadata.scram_users import ScramUsers
from kcore.config.jaas import plain_users
from kcore.errors import ConfigError, LogError
from kcore.security.decoys import Decoys
from kcore.security.mechanism import Mechanism
from kcore.security.oauthbearer import OAuthBearer, Validator
from kcore.security.plain import Plain, PlainOfSettings
from kcore.security.plugin import load_object
from kcore.security.sasl import SaslExchange
from kcore.security.scram import ScramSha256, ScramSha512

if TYPE_CHECKING:
    from kcore.config.security import SecuritySettings
    from kcore.engine import Engine

logger = logging.getLogger(__name__)

Makers = Mapping[str, Callable[[], Mechanism]]

NONCE_BYTES = 24
DECOY_SECRET_META = "scram.decoy.secret"
DECOY_SECRET_BYTES = 32


def exchange_maker(settings: SecuritySettings, engine: Engine) -> Callable[[], SaslExchange]:
    """Returns a function that starts the SASL exchange of a new connection.

    Args:
        settings: the listener's settings.
        engine: the engine, which stores the users.

    Raises:
        ConfigError: settings of an enabled mechanism are missing or invalid.
    """
    mechanisms = _mechanisms(settings, engine)
    return lambda: SaslExchange(mechanisms, settings.connections_max_reauth_ms)


def _decoy_secret(engine: Engine) -> bytes:
    """Returns the secret from which kcore derives decoys, which are credentials for users that do not exist.

    The data folder stores the secret, so that the salts of decoys stay the same after a restart.
    """
    secret = engine.log.get_meta(DECOY_SECRET_META)
    if secret is None:
        secret = secrets.token_bytes(DECOY_SECRET_BYTES)
        engine.log.put_meta(DECOY_SECRET_META, secret)
        try:
            if engine.commit():  # the pipeline first commits an open write set, because it must handle the result
                engine.log.commit()
        except LogError as error:
            logger.warning(
                "SCRAM: cannot store the secret from which kcore derives salts for unknown users: %s; these salts "
                "change at the next start; check the disk",
                error,
            )
    return secret


def _mechanisms(settings: SecuritySettings, engine: Engine) -> Makers:
    users = ScramUsers(engine.topics)
    decoys = Decoys(_decoy_secret(engine), users.forms)
    nonce = partial(secrets.token_urlsafe, NONCE_BYTES)
    makers: dict[str, Callable[[], Mechanism]] = {}
    for name in settings.sasl_enabled_mechanisms:
        if name == Plain.name and settings.plain_sasl_jaas_config:
            makers[name] = partial(PlainOfSettings, plain_users(settings.plain_sasl_jaas_config))
        elif name == Plain.name:
            makers[name] = partial(Plain, users, decoys)
        elif name == ScramSha256.name:
            makers[name] = partial(ScramSha256, users, decoys, nonce)
        elif name == ScramSha512.name:
            makers[name] = partial(ScramSha512, users, decoys, nonce)
        else:
            makers[name] = partial(OAuthBearer, _validator(settings), engine.clock.wall_ms)
    return makers


def _validator(settings: SecuritySettings) -> Validator:
    """Returns the validator of OAUTHBEARER tokens: the user's validator, or the validator of JSON Web Tokens."""
    setting = "kcore.sasl.oauthbearer.validator"
    if settings.kcore_sasl_oauthbearer_validator:
        validator: Validator = load_object(settings.kcore_sasl_oauthbearer_validator, setting)
        return validator
    if settings.sasl_oauthbearer_jwks_endpoint_url:
        from kcore.server.jwt_validator import JwtValidator  # noqa: PLC0415  # most nodes need none

        return JwtValidator(settings)
    raise ConfigError(
        "OAUTHBEARER is enabled, but no setting defines how to validate tokens: set "
        f"sasl.oauthbearer.jwks.endpoint.url to the URL of the issuer's keys, or {setting} to your own validator"
    )
