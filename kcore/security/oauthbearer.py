"""OAUTHBEARER (RFC 7628, KIP-255): a token that somebody else issued, checked by a validator of the user's own.

A token that the validator does not accept is answered with an error in JSON; the client acknowledges that with one
byte, and only then the exchange fails: so RFC 7628 wants it, and so clients expect it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

from kcore.security.mechanism import AuthenticationError, Mechanism

logger = logging.getLogger(__name__)

_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^\0=,\x01]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)+)\x01"
)
_INVALID_TOKEN = json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()


class OAuthIdentity(NamedTuple):
    """What a validator found in a token.

    Attributes:
        principal: the name of whom it stands for: "alice" becomes the principal "User:alice".
        expires_at_ms: when it loses its force, in ms since 1970; the connection has to authenticate again by then.
    """

    principal: str
    expires_at_ms: int


Validator = Callable[[str, Mapping[str, str]], OAuthIdentity]
"""Checks a token: signature, issuer, audience, whatever its issuer prescribes. Called with the token and the SASL
extensions (KIP-342), on a thread that may wait. An exception refuses the token; its type is logged, its text not."""


class OAuthBearer(Mechanism):
    """The server's side of one exchange.

    Args:
        validator: decides what a token is worth.
        wall_ms: the time now, in ms since 1970.
    """

    __slots__ = ("_refused", "_validator", "_wall_ms")

    name: ClassVar[str] = "OAUTHBEARER"
    blocking: ClassVar[bool] = True  # a validator may ask its issuer for keys

    def __init__(self, validator: Validator, wall_ms: Callable[[], int]) -> None:
        super().__init__()
        self._validator = validator
        self._wall_ms = wall_ms
        self._refused = False

    def evaluate(self, token: bytes) -> bytes:
        """The client's message with the token; or its acknowledgement that the token was refused."""
        if self._refused:
            raise AuthenticationError("Authentication failed: the credentials for OAUTHBEARER are not valid")
        if self.complete:
            raise AuthenticationError("OAUTHBEARER: a message behind the last one")
        authzid, bearer, extensions = _parse(token)
        identity = self._validate(bearer, extensions)
        if identity is None:
            self._refused = True
            return _INVALID_TOKEN
        if authzid not in (None, identity.principal):
            raise AuthenticationError("OAUTHBEARER: nobody can act for another user here")
        self.user = identity.principal
        self.expires_at_ms = identity.expires_at_ms
        self.complete = True
        return b""

    def _validate(self, bearer: str, extensions: Mapping[str, str]) -> OAuthIdentity | None:
        try:
            identity = self._validator(bearer, extensions)
        except Exception as error:
            # Only the kind of error: its text may be a library's own, with the token in it.
            logger.info("a token was refused: %s", type(error).__name__)
            return None
        if not identity.principal or identity.expires_at_ms <= self._wall_ms():
            logger.info("a token was refused: it names nobody, or its time is over")
            return None
        return identity


def _parse(token: bytes) -> tuple[str | None, str, dict[str, str]]:
    """(whom the client wants to act for, the bearer token, the extensions) of the client's first message."""
    try:
        message = _CLIENT_FIRST.fullmatch(token.decode())
    except UnicodeDecodeError:
        message = None
    if message is None:
        raise AuthenticationError("OAUTHBEARER: the client's first message is malformed")
    pairs: dict[str, str] = {}
    for pair in message["pairs"][:-1].split("\x01"):
        key, _, value = pair.partition("=")
        pairs[key] = value
    scheme, _, bearer = pairs.pop("auth", "").partition(" ")
    bearer = bearer.strip()
    if scheme.lower() != "bearer" or not bearer:
        raise AuthenticationError("OAUTHBEARER: the client's first message has no bearer token")
    authzid = message["authzid"]
    return None if authzid is None else authzid.replace("=2C", ",").replace("=3D", "="), bearer, pairs
