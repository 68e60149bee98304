"""The client side of SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677), as token exchanges without I/O.

An exchange is a generator, which yields tokens to send and receives the server's tokens. It returns once the server is
authenticated.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable, Generator
from typing import Final

from kcore.errors import AuthenticationError
from kcore.security.scram import MIN_ITERATIONS, ScramMechanism

Exchange = Generator[bytes, bytes, None]

MAX_ITERATIONS: Final = 1_000_000
"""The largest iteration count that a client accepts: it bounds the work that a server can cause."""

_SERVER_FIRST = re.compile(r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/]+=*),i=(?P<count>[1-9]\d{0,8})")
_SERVER_FINAL = re.compile(r"v=(?P<signature>[A-Za-z0-9+/]+=*)")


def plain(user: str, password: str) -> Exchange:
    """Runs PLAIN, which sends a single token."""
    yield f"\0{user}\0{password}".encode()


def scram(mechanism: ScramMechanism, user: str, password: str, nonce: str = "") -> Exchange:
    """Runs SCRAM: client and server prove to each other that they know the password.

    Args:
        mechanism: the SCRAM mechanism, which determines the hash function.
        user: the user's name.
        password: the user's password.
        nonce: printable ASCII without a comma; random by default.

    Raises:
        AuthenticationError: a server message is malformed, or the server does not know the password.
    """
    nonce = nonce or secrets.token_urlsafe(24)
    name = user.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}"
    first = _decode_utf8(mechanism, (yield f"n,,{bare}".encode()))
    server_first = _SERVER_FIRST.fullmatch(first)
    if server_first is None or not server_first["nonce"].startswith(nonce) or server_first["nonce"] == nonce:
        raise AuthenticationError(f"{mechanism.sasl_name}: the server's first message is malformed")
    iterations = int(server_first["count"])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise AuthenticationError(
            f"{mechanism.sasl_name}: the server requires {iterations} iterations; valid: {MIN_ITERATIONS} to "
            f"{MAX_ITERATIONS}"
        )
    salted = mechanism.salted_password(password.encode(), _decode_base64(mechanism, server_first["salt"]), iterations)
    final = f"c={base64.b64encode(b'n,,').decode()},r={server_first['nonce']}"
    signed = f"{bare},{first},{final}".encode()
    client_key = mechanism.hmac(salted, b"Client Key")
    signature = mechanism.hmac(mechanism.hash(client_key), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = _decode_utf8(mechanism, (yield f"{final},p={base64.b64encode(proof).decode()}".encode()))
    server_final = _SERVER_FINAL.fullmatch(last)
    expected = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
    if server_final is None or not hmac.compare_digest(_decode_base64(mechanism, server_final["signature"]), expected):
        raise AuthenticationError(
            f"{mechanism.sasl_name}: the server's signature is wrong: the server does not know the user's password"
        )


def _decode_utf8(mechanism: ScramMechanism, token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationError(f"{mechanism.sasl_name}: the message is not UTF-8") from None


def _decode_base64(mechanism: ScramMechanism, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationError(f"{mechanism.sasl_name}: a field of the server's message is not base64") from None


MECHANISMS: Final[dict[str, Callable[[str, str], Exchange]]] = {
    "PLAIN": plain,
    **{
        one.sasl_name: lambda user, password, one=one: scram(one, user, password)  # type: ignore[misc]
        for one in ScramMechanism
    },
}
"""Mechanism -> function that starts its exchange for a user and a password."""
