"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): a password is proved without being sent or kept.

The server keeps for each user a salt, an iteration count and two keys that follow from the password:

    SaltedPassword = PBKDF2(password, salt, iterations)
    StoredKey      = H(HMAC(SaltedPassword, "Client Key"))      checks the client's proof
    ServerKey      = HMAC(SaltedPassword, "Server Key")         proves the server to the client

Two round trips: nonces, salt and count first, then the proof and the server's signature. There is no channel binding,
and names and passwords are taken as they are, in UTF-8 (Kafka prepares neither, RFC 4013 notwithstanding).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from enum import IntEnum
from typing import ClassVar, NamedTuple, Protocol

from kcore.security.mechanism import AuthenticationError, Mechanism

MIN_ITERATIONS = 4_096
"""The least that RFC 7677 allows; also what a new credential has unless it is told otherwise."""
MAX_ITERATIONS = 16_384
"""The most that Kafka stores: more would let a client keep a server busy."""

NEW_SALT_BYTES = 32
"""The length of the salts of new credentials."""

_LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"
_TEXTUAL = re.compile(rb"[0-9a-z]+")

# saslname is UTF-8 without NUL, "=" and ","; these two are written =3D and =2C.
_CLIENT_FIRST = re.compile(
    r"(?P<gs2>[ny],(?:a=(?P<authzid>(?:[^\0=,]|=2C|=3D)+))?,)"
    r"(?P<bare>n=(?P<name>(?:[^\0=,]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^\0,]+)*)"
)
_CLIENT_FINAL = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/]+=*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^\0,]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/]+=*)"
)


class ScramMechanism(IntEnum):
    """The two hashes; the number is Kafka's on the wire and in records (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in SASL's registry."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash as `hashlib` calls it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    def salted_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """PBKDF2 of a password: what a client sends to have a credential stored."""
        return hashlib.pbkdf2_hmac(self.hash_name, password, salt, iterations)

    def hash(self, data: bytes) -> bytes:
        """H()."""
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """HMAC()."""
        return hmac.digest(key, data, self.hash_name)


class ScramCredential(NamedTuple):
    """What a server keeps of a password. Its text shows no secret.

    Attributes:
        mechanism: the hash it was made with.
        salt: random bytes.
        stored_key: checks a client's proof.
        server_key: signs for the server.
        iterations: of PBKDF2.
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
        """From PBKDF2's result."""
        stored_key = mechanism.hash(mechanism.hmac(salted_password, b"Client Key"))
        return cls(mechanism, salt, stored_key, mechanism.hmac(salted_password, b"Server Key"), iterations)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """From a password."""
        salted = mechanism.salted_password(password.encode(), salt, iterations)
        return cls.of_salted(mechanism, salted, salt, iterations)

    def has_password(self, password: str) -> bool:
        """Whether it was made of this password; compared in constant time."""
        salted = self.mechanism.salted_password(password.encode(), self.salt, self.iterations)
        stored_key = self.mechanism.hash(self.mechanism.hmac(salted, b"Client Key"))
        return hmac.compare_digest(stored_key, self.stored_key)


class Credentials(Protocol):
    """The users of a node."""

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """A user's credential for a mechanism, or None."""
        ...


class SaltForm(NamedTuple):
    """The parts of a credential that a client learns before it authenticates, except for the salt itself.

    Attributes:
        length: bytes of the salt.
        iterations: of PBKDF2.
        textual: whether the salt consists of digits and lower-case letters, as those of Kafka's own tools do.
    """

    length: int
    iterations: int
    textual: bool

    @classmethod
    def of(cls, credential: ScramCredential) -> SaltForm:
        """The form of a user's credential."""
        return cls(len(credential.salt), credential.iterations, bool(_TEXTUAL.fullmatch(credential.salt)))


DEFAULT_FORM = SaltForm(NEW_SALT_BYTES, MIN_ITERATIONS, textual=False)
"""The form of the credentials that `kcore users add` makes."""


class Decoys:
    """Credentials of users that do not exist: always the same for a name, and no password fits.

    They keep strangers from finding out which users exist, by the responses or by the time that these take.

    Args:
        secret: random bytes that clients do not know; every listener, after every restart, needs the same.
        form: the form that most credentials of real users have, so that decoys look like them.
    """

    __slots__ = ("_form", "_secret")

    def __init__(self, secret: bytes, form: Callable[[ScramMechanism], SaltForm] = lambda _: DEFAULT_FORM) -> None:
        self._secret = secret
        self._form = form

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Makes the credential that stands for the missing one of a user."""
        name = user.encode("utf-8", "surrogatepass")
        key = mechanism.hmac(self._secret, b"key " + name)
        length, iterations, textual = self._form(mechanism)
        salt = b""
        while len(salt) < length:
            salt += mechanism.hmac(self._secret, b"salt %d " % len(salt) + name)
        salt = salt[:length]
        if textual:
            salt = bytes(_LETTERS[byte % len(_LETTERS)] for byte in salt)
        return ScramCredential(mechanism, salt, key, key, iterations)


class ScramServer(Mechanism):
    """The server's side of one exchange.

    Args:
        credentials: the users.
        decoys: stand for users that do not exist.
        nonce: makes the server's part of the nonce: printable ASCII without a comma.
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
        self._auth_prefix = ""  # the first two messages, as they are signed
        self._credential: ScramCredential | None = None
        self._known = False

    def evaluate(self, token: bytes) -> bytes:
        """The first message of the client, then its proof."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationError(f"{self.name}: a message that is no UTF-8") from None
        if self._credential is None:
            return self._first(text).encode()
        if self.complete:
            raise AuthenticationError(f"{self.name}: a message behind the last one")
        return self._final(text, self._credential).encode()

    def _first(self, text: str) -> str:
        message = _CLIENT_FIRST.fullmatch(text)
        if message is None:
            raise AuthenticationError(f"{self.name}: the client's first message is malformed")
        user = _plain(message["name"])
        if message["authzid"] is not None and _plain(message["authzid"]) != user:
            raise AuthenticationError(f"{self.name}: nobody can act for another user here")
        self.user = user
        self._gs2 = message["gs2"]
        self._nonce = message["nonce"] + self._nonces()
        found = self._credentials.find(user, self.mechanism)
        self._known = found is not None
        credential = self._credential = found or self._decoys.credential(user, self.mechanism)
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._auth_prefix = f"{message['bare']},{answer},"
        return answer

    def _final(self, text: str, credential: ScramCredential) -> str:
        message = _CLIENT_FINAL.fullmatch(text)
        if message is None:
            raise AuthenticationError(f"{self.name}: the client's final message is malformed")
        if message["nonce"] != self._nonce:
            raise AuthenticationError(f"{self.name}: the nonce is not the one that was given")
        if message["binding"] != base64.b64encode(self._gs2.encode()).decode():
            raise AuthenticationError(f"{self.name}: the channel binding is not what the first message said")
        mechanism = self.mechanism
        signed = (self._auth_prefix + message["bare"]).encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        try:
            proof = base64.b64decode(message["proof"], validate=True)
        except binascii.Error:
            raise AuthenticationError(f"{self.name}: the proof is no base64") from None
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        proved = hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
        if not (proved and self._known and len(proof) == len(signature)):
            raise AuthenticationError(f"Authentication failed: the credentials for {self.name} are not valid")
        self.complete = True
        return "v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed)).decode()


def _plain(saslname: str) -> str:
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
