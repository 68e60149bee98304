"""OAUTHBEARER (RFC 7628, KIP-255): a token of an external issuer, checked by the user's own validator.

If the validator refuses a token, the server responds with an error in JSON. The client acknowledges it with one byte,
and only then the exchange fails, as RFC 7628 requires and clients expect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, NamedTuple

from kcore.errors import AuthenticationError
from kcore.process_logging import limited_logger
from kcore.security.mechanism import Mechanism, PostponedError

logger = limited_logger(__name__)

MAX_MESSAGE_BYTES: Final = 65_536
"""Maximum size of a client's first message. Tokens have a few KiB, and parsing a longer message would delay other
clients.
"""
MAX_PRINCIPAL_LENGTH: Final = 32_767
"""Maximum length of a principal in characters."""
MAX_TIME_MS: Final = (1 << 53) - 1
"""Latest expiry of a token, in ms since the epoch. kcore replaces a later expiry by this time, because the
lifetime in a response is an int64.
"""

_VALUE_CHARACTERS: Final = "".join(map(chr, range(0x20, 0x7F))) + "\t\r\n"
_INVALID_TOKEN = json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()


class OAuthIdentity(NamedTuple):
    """The identity that a validator found in a token.

    Attributes:
        principal: the name of the token's subject: "alice" becomes the principal "User:alice".
        expires_at_ms: expiry in ms since 1970; the connection must re-authenticate by then.
    """

    principal: str
    expires_at_ms: int


class TokenRefusedError(ValueError):
    """A token is not valid; the text has the reason without any part of the token, because it is logged."""


Validator = Callable[[str, Mapping[str, str]], OAuthIdentity]
"""Type of a function that checks a token: signature, issuer, audience, and any other rule of its issuer.

kcore calls the function with the token and the SASL extensions (KIP-342), on a thread that may block. If the function
raises an exception other than PostponedError, kcore refuses the token and logs the type of the exception. kcore logs
the text only of a `TokenRefusedError`, because other texts may contain the token.
"""


class OAuthBearer(Mechanism):
    """The server side of one OAUTHBEARER exchange.

    Args:
        validator: checks the token.
        wall_ms: returns the current time in ms since 1970.
    """

    __slots__ = ("_refusal", "_validator", "_wall_ms")

    name: ClassVar[str] = "OAUTHBEARER"
    threads: ClassVar[int] = 8  # a validator may wait for its issuer's keys

    def __init__(self, validator: Validator, wall_ms: Callable[[], int]) -> None:
        super().__init__()
        self._validator = validator
        self._wall_ms = wall_ms
        self._refusal = ""  # the reason for which the token was refused

    def evaluate(self, token: bytes) -> bytes:
        """Evaluates the client's message with the token, or its acknowledgement of the refusal."""
        if self._refusal:
            raise AuthenticationError(
                "Authentication failed: the credentials for OAUTHBEARER are not valid", self._refusal
            )
        if self.complete:
            raise AuthenticationError("OAUTHBEARER: unexpected message after the end of the authentication")
        authzid, bearer, extensions = _parse(token)
        identity = self._validate(bearer, extensions)
        if identity is None:
            logger.info("OAUTHBEARER: %s", self._refusal)
            return _INVALID_TOKEN
        if authzid not in (None, identity.principal):
            raise AuthenticationError("OAUTHBEARER: an authorization id is not supported")
        self.user = identity.principal
        self.expires_at_ms = min(identity.expires_at_ms, MAX_TIME_MS)
        self.complete = True
        return b""

    def _validate(self, bearer: str, extensions: Mapping[str, str]) -> OAuthIdentity | None:
        try:
            identity = self._validator(bearer, extensions)
        except PostponedError:
            raise
        except Exception as error:
            # Log only the type of another error: its text may come from a library and contain the token.
            reason = str(error) if isinstance(error, TokenRefusedError) else type(error).__name__
            self._refusal = f"the validator refused the token: {reason}"
            return None
        if not identity.principal:
            self._refusal = "the validator found no principal in the token"
        elif not _is_valid_principal(identity.principal):
            self._refusal = "the principal of the token is too long, or no valid Unicode"
        elif identity.expires_at_ms <= self._wall_ms():
            self._refusal = "the token has expired"
        return None if self._refusal else identity


def _is_valid_principal(principal: str) -> bool:
    """Returns True for a name that ACLs and logs can contain.

    A text in JSON may have half of a surrogate pair, which cannot be encoded as UTF-8.
    """
    try:
        return len(principal) <= MAX_PRINCIPAL_LENGTH and bool(principal.encode())
    except UnicodeEncodeError:
        return False


def _parse(token: bytes) -> tuple[str | None, str, dict[str, str]]:
    """Parses the client's first message into (authorization id, bearer token, extensions)."""
    if len(token) > MAX_MESSAGE_BYTES:
        raise AuthenticationError(f"OAUTHBEARER: the message is longer than {MAX_MESSAGE_BYTES} bytes")
    message = _split(token)
    if message is None:
        raise AuthenticationError("OAUTHBEARER: the client's first message is malformed")
    authzid, pairs = message
    scheme, _, bearer = pairs.pop("auth", "").partition(" ")
    bearer = bearer.strip()
    if scheme.lower() != "bearer" or not bearer:
        raise AuthenticationError("OAUTHBEARER: the client's first message has no bearer token")
    return authzid, bearer, pairs


def _split(token: bytes) -> tuple[str | None, dict[str, str]] | None:
    """Splits the client's first message: `n,[a=AUTHZID],` and `KEY=VALUE` pairs that 0x01 surrounds (RFC 7628, 3.1).

    The function uses no regular expression. A match would hold the interpreter's lock for its whole duration, and need
    memory for each character.

    Returns:
        The authorization id or None, and the pairs; None if the message is malformed.
    """
    try:
        header, separator, rest = token.decode().partition(",\x01")
    except UnicodeDecodeError:
        return None
    if not separator or not rest.endswith("\x01\x01"):
        return None
    authzid: str | None = None
    if header.startswith("n,a="):
        escaped = header[4:]
        authzid = escaped.replace("=2C", ",").replace("=3D", "=")
        if not escaped or any(character in escaped for character in ",\0\x01"):
            return None
        if not all(other.startswith(("2C", "3D")) for other in escaped.split("=")[1:]):
            return None
    elif header != "n,":
        return None
    pairs: dict[str, str] = {}
    for pair in rest[:-2].split("\x01"):
        key, _, value = pair.partition("=")
        if not (key.isascii() and key.isalpha()) or not value or value.strip(_VALUE_CHARACTERS):
            return None
        pairs[key] = value
    return authzid, pairs
