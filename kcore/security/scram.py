"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): proves a password without sending or storing it.

For each user, the server stores a salt, an iteration count and two keys derived from the password:

    SaltedPassword = PBKDF2(password, salt, iterations)
    StoredKey      = H(HMAC(SaltedPassword, "Client Key"))      checks the client's proof
    ServerKey      = HMAC(SaltedPassword, "Server Key")         proves the server to the client

The exchange takes two round trips: nonces, salt and count first, then the client's proof and the server's signature.
There is no channel binding. Like Kafka, kcore uses names and passwords in UTF-8 without the preparation of RFC 4013.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from kcore.errors import AuthenticationError
from kcore.security.mechanism import Mechanism

if TYPE_CHECKING:
    from kcore.security.decoys import Decoys

MIN_ITERATIONS = 4_096
"""Minimum number of iterations (RFC 7677), and the number in new credentials."""
MAX_ITERATIONS = 16_384
"""Maximum number of iterations, as in Kafka. With more iterations, a client could keep a server busy."""

NEW_SALT_BYTES = 32
"""Length of the salts of new credentials in bytes."""

MAX_SALT_BYTES = 1_024
"""Maximum length of the salt of a new credential. The server must be able to make decoys with salts of this length."""

MAX_MESSAGE_BYTES = 16_384
"""Maximum size of a client's message. The event loop's thread parses it before the client is authenticated."""

# saslname is UTF-8 without NUL, "=" and ","; the latter two are written =3D and =2C.
_SASLNAME = r"(?!,)[^\0=,]*(?:=(?:2C|3D)[^\0=,]*)*"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_SASLNAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASLNAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^\0,]+)*)"
)
_CLIENT_FINAL = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/]+=*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^\0,]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/]+=*)"
)


class ScramMechanism(IntEnum):
    """The two SCRAM mechanisms. The value is Kafka's number of the mechanism in requests and records (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in SASL's registry."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash in `hashlib`."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    def salted_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """Derives the salted password with PBKDF2. Clients send the salted password to store a credential."""
        return hashlib.pbkdf2_hmac(self.hash_name, password, salt, iterations)

    def hash(self, data: bytes) -> bytes:
        """Computes the function H of RFC 5802: the mechanism's hash."""
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Computes the function HMAC of RFC 5802 with the mechanism's hash."""
        return hmac.digest(key, data, self.hash_name)


class ScramCredential(NamedTuple):
    """The stored form of a password. The `repr` of the object shows no secret.

    Attributes:
        mechanism: the hash function.
        salt: random bytes.
        stored_key: checks a client's proof.
        server_key: signs for the server.
        iterations: the iteration count of PBKDF2.
    """

    mechanism: ScramMechanism
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(mechanism={self.mechanism!r}, iterations={self.iterations!r})"

    @classmethod
    def of_salted(
        cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Creates a credential from PBKDF2's result."""
        stored_key = mechanism.hash(mechanism.hmac(salted_password, b"Client Key"))
        return cls(mechanism, salt, stored_key, mechanism.hmac(salted_password, b"Server Key"), iterations)

    def has_password(self, password: str) -> bool:
        """Returns True if the credential belongs to this password; compares in constant time."""
        salted = self.mechanism.salted_password(password.encode(), self.salt, self.iterations)
        stored_key = self.mechanism.hash(self.mechanism.hmac(salted, b"Client Key"))
        return hmac.compare_digest(stored_key, self.stored_key)


class Credentials(Protocol):
    """The users of a node."""

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Returns a user's credential for a mechanism, or None."""
        ...


class ScramServer(Mechanism):
    """The server side of one exchange.

    Args:
        credentials: the users.
        decoys: credentials for users that do not exist, so that the responses do not reveal which users exist.
        nonce: creates the server's part of the nonce: printable ASCII without a comma.
    """

    __slots__ = ("_auth_prefix", "_credential", "_credentials", "_decoys", "_gs2", "_known", "_nonce", "_nonces")

    mechanism: ClassVar[ScramMechanism]

    def __init__(self, credentials: Credentials, decoys: Decoys, nonce: Callable[[], str]) -> None:
        super().__init__()
        self._credentials = credentials
        self._decoys = decoys
        self._nonces = nonce
        self._nonce = ""
        self._gs2 = ""
        self._auth_prefix = ""  # the first two messages, in the form that is signed
        self._credential: ScramCredential | None = None
        self._known = False

    def evaluate(self, token: bytes) -> bytes:
        """Evaluates the client's first message, then its proof."""
        if len(token) > MAX_MESSAGE_BYTES:
            raise AuthenticationError(f"{self.name}: the message is longer than {MAX_MESSAGE_BYTES} bytes")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationError(f"{self.name}: the message is not UTF-8") from None
        if self._credential is None:
            return self._first(text).encode()
        if self.complete:
            raise AuthenticationError(f"{self.name}: unexpected message after the end of the authentication")
        return self._final(text, self._credential).encode()

    def _first(self, text: str) -> str:
        message = _CLIENT_FIRST.fullmatch(text)
        if message is None:
            raise AuthenticationError(f"{self.name}: the client's first message is malformed")
        user = _unescaped(message["name"])
        if message["authzid"] is not None and _unescaped(message["authzid"]) != user:
            raise AuthenticationError(f"{self.name}: an authorization id is not supported")
        self.user = user
        self._gs2 = message["gs2"]
        self._nonce = message["nonce"] + self._nonces()
        stored = self._credentials.find(user, self.mechanism)
        # made even if the user exists, because the time must not show which users exist
        decoy = self._decoys.credential(user, self.mechanism)
        self._known = stored is not None
        credential = self._credential = stored or decoy
        salt = base64.b64encode(credential.salt).decode()
        response = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._auth_prefix = f"{message['bare']},{response},"
        return response

    def _final(self, text: str, credential: ScramCredential) -> str:
        message = _CLIENT_FINAL.fullmatch(text)
        if message is None:
            raise AuthenticationError(f"{self.name}: the client's final message is malformed")
        if message["nonce"] != self._nonce:
            raise AuthenticationError(f"{self.name}: the nonce does not match")
        if message["binding"] != base64.b64encode(self._gs2.encode()).decode():
            raise AuthenticationError(f"{self.name}: the channel binding differs from the first message")
        mechanism = self.mechanism
        signed = (self._auth_prefix + message["bare"]).encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        try:
            proof = base64.b64decode(message["proof"], validate=True)
        except binascii.Error:
            raise AuthenticationError(f"{self.name}: the proof is not base64") from None
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        proved = hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
        if not (proved and self._known and len(proof) == len(signature)):
            raise AuthenticationError(f"Authentication failed: the credentials for {self.name} are not valid")
        self.complete = True
        return "v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed)).decode()


def _unescaped(saslname: str) -> str:
    return saslname.replace("=2C", ",").replace("=3D", "=")


class ScramSha256(ScramServer):
    """SCRAM-SHA-256."""

    __slots__ = ()

    mechanism: ClassVar[ScramMechanism] = ScramMechanism.SCRAM_SHA_256
    name: ClassVar[str] = mechanism.sasl_name


class ScramSha512(ScramServer):
    """SCRAM-SHA-512."""

    __slots__ = ()

    mechanism: ClassVar[ScramMechanism] = ScramMechanism.SCRAM_SHA_512
    name: ClassVar[str] = mechanism.sasl_name
