"""Both ends of SASL exchanges: stored users, and a client's side of SCRAM for tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from kcore.security.mechanism import Mechanism
from kcore.security.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism

SALT = b"sixteen salty by"


def credential_of(
    mechanism: ScramMechanism, password: str, salt: bytes = SALT, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """Creates the credential of a password."""
    salted = mechanism.salted_password(password.encode(), salt, iterations)
    return ScramCredential.of_salted(mechanism, salted, salt, iterations)


class Users:
    """Users with passwords, for every hash function of SCRAM."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._credentials = {
            (user, mechanism): credential_of(mechanism, password, SALT)
            for user, password in passwords.items()
            for mechanism in ScramMechanism
        }

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._credentials.get((user, mechanism))


def client_first(user: str, nonce: str = "client") -> bytes:
    return f"n,,n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}".encode()


def client_final(mechanism: ScramMechanism, user: str, password: str, server_first: bytes) -> tuple[bytes, bytes]:
    """Returns the client's proof and the server's expected response."""
    name = mechanism.hash_name
    parts = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    bare = f"c=biws,r={parts['r']}".encode()
    signed = client_first(user)[3:] + b"," + server_first + b"," + bare
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_signature = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    return bare + b",p=" + base64.b64encode(proof), b"v=" + base64.b64encode(server_signature)


def scram_client(server: Mechanism, mechanism: ScramMechanism, user: str, password: str) -> bool:
    """Performs a SCRAM exchange. Returns True if the server proved that it knows the user's password."""
    final, expected = client_final(mechanism, user, password, server.evaluate(client_first(user)))
    return server.evaluate(final) == expected
