"""Checks JSON Web Tokens of OAUTHBEARER with the issuer's public keys, by Kafka's rules (KIP-768)."""

from __future__ import annotations

import contextlib
import http.client
import logging
import socket
import threading
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.errors import ConfigError
from kcore.json_text import parse_json
from kcore.security.mechanism import PostponedError
from kcore.security.oauthbearer import OAuthIdentity, TokenRefusedError
from kcore_ext.util.lock import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kcore.config.security import SecuritySettings

logger = logging.getLogger(__name__)

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Names of the accepted signature algorithms, all with a public key.

Algorithms with a shared secret are not accepted, because an attacker could use the public key as the secret.
"""

RSA_ALGORITHMS: Final = frozenset(name for name in ALGORITHMS if name.startswith(("RS", "PS")))

MAX_KEYS_BYTES: Final = 1 << 20
READ_TIMEOUT_S: Final = 10.0


class IssuerKey(NamedTuple):
    """A key of an issuer.

    Attributes:
        key: the key object of PyJWT. PyJWT assumes RS256 for an RSA key without the parameter "alg".
        names_algorithm: True if the key has the parameter "alg". An RSA key without this parameter can verify the
            signatures of all RSA algorithms.
    """

    key: Any
    names_algorithm: bool

    def serves(self, algorithm: str) -> bool:
        """Returns True if the key can verify tokens whose signatures use this algorithm."""
        name: str = self.key.algorithm_name
        return name == algorithm or (not self.names_algorithm and {name, algorithm} <= RSA_ALGORITHMS)

    def for_algorithm(self, algorithm: str) -> Any:
        """Returns the key argument with which PyJWT checks a token of this algorithm.

        If the key does not fit the algorithm, the result makes PyJWT refuse the token.
        """
        bound = self.key.algorithm_name == algorithm or not self.serves(algorithm)
        return self.key if bound else self.key.key


class KeySet:
    """The public keys of an issuer, which logins read from a URL.

    The first login after `jwks.endpoint.refresh.ms` reads the keys again. A login whose token names an unknown key
    reads them earlier. After a failed read, the previous keys stay in use; the time until the next read doubles with
    each failure. Only one login at a time reads keys. Meanwhile, other logins use the previous keys. Logins whose key
    is not among them are postponed, and hold no thread.

    Args:
        settings: the listener's settings.
        now_s: returns the time of a monotonic clock.
        read: returns the bytes at a URL.
    """

    def __init__(
        self,
        settings: SecuritySettings,
        now_s: Callable[[], float] = time.monotonic,
        read: Callable[[str], bytes] | None = None,
    ) -> None:
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        assert url, "a key set needs a URL"
        self._url = url
        self._refresh_s = settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1_000
        self._retry_s = settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1_000
        self._max_retry_s = settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1_000
        self._now_s = now_s
        self._read = read or _read
        self._lock = Lock()
        self._reading: Future[None] | None = None  # done when the login that reads keys has read them
        self._keys: list[IssuerKey] = []
        self._failures = 0
        self._refresh_at_s = self._last_read_s = float("-inf")

    def key(self, key_id: str | None, algorithm: str) -> Any:
        """Returns the key that a token names. If the token names no key, returns the only key that fits its algorithm.

        Raises:
            TokenRefusedError: there is no such key.
            PostponedError: the key may be among the keys that another login reads now.
        """
        key = self._find(key_id, algorithm)
        if key is not None and self._now_s() < self._refresh_at_s:
            return key
        done: Future[None] = Future()
        with self._lock:
            reading = self._reading
            if reading is None:
                self._reading = done
        if reading is None:
            try:
                key = self._read_if_due(key_id, algorithm)
            finally:
                self._reading = None
                done.set_result(None)
        elif key is None:
            raise PostponedError(reading)
        if key is None:
            raise TokenRefusedError("the issuer's key set has no key with the token's key id and algorithm")
        return key

    def _read_if_due(self, key_id: str | None, algorithm: str) -> Any:
        """Reads the keys again if they are old, or if `key_id` is not among them.

        Returns the key with `key_id`, or None.
        """
        if self._now_s() >= self._refresh_at_s:
            self._load()
        key = self._find(key_id, algorithm)
        if key is None and self._now_s() - self._last_read_s >= self._max_retry_s:
            self._load()
            key = self._find(key_id, algorithm)
        return key

    def _find(self, key_id: str | None, algorithm: str) -> Any:
        if key_id is not None:
            named = next((key for key in self._keys if key.key.key_id == key_id), None)
            return None if named is None else named.for_algorithm(algorithm)
        fitting = [key for key in self._keys if key.serves(algorithm)]
        return fitting[0].for_algorithm(algorithm) if len(fitting) == 1 else None

    def _load(self) -> None:
        try:
            keys = list(_usable_keys(parse_json(self._read(self._url))["keys"]))
            if not keys:
                raise ValueError("the key set has no usable key")
            self._keys = [each for each in keys if each.key.public_key_use in (None, "sig")]
        except Exception as error:
            # The pause begins at the end of the read, because a read that times out takes as long as the longest pause.
            self._last_read_s = now_s = self._now_s()
            self._refresh_at_s = now_s + min(self._retry_s * 2 ** min(self._failures, 30), self._max_retry_s)
            self._failures += 1
            logger.warning(
                "OAUTHBEARER: cannot read the issuer's keys from %s: %s: %s; %d keys stay in use; kcore tries again; "
                "check the URL and the network",
                self._url, type(error).__name__, error, len(self._keys),
            )  # fmt: skip
        else:
            self._last_read_s = self._now_s()
            self._refresh_at_s = self._last_read_s + self._refresh_s
            self._failures = 0


def _usable_keys(rows: list[Any]) -> Iterator[IssuerKey]:
    """Yields the keys of a key set that PyJWT can read. Skips keys of other types."""
    import jwt  # noqa: PLC0415  # optional

    for row in rows:
        if isinstance(row, dict):
            with contextlib.suppress(jwt.PyJWTError):
                yield IssuerKey(jwt.PyJWK(row), bool(row.get("alg")))


class SecureRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect handler that refuses a redirect from https to http.

    An attacker in the network could change a response that TLS does not protect.
    """

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Returns the request for the new URL.

        Raises:
            ValueError: the new URL is not protected by TLS, but the old URL is.
        """
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise ValueError("the issuer redirects from https to another protocol")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Connection(http.client.HTTPConnection):
    """A connection that is closed when the time of its `ReadLimit` has passed."""

    limit: ReadLimit

    def connect(self) -> None:
        """Connects to the host. From then on, the end of the time limit closes the connection."""
        super().connect()
        self.limit.add(self.sock)


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    """A `_Connection` with TLS."""


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """A handler of http and https URLs that makes connections with a `ReadLimit`."""

    def __init__(self, limit: ReadLimit) -> None:
        super().__init__()
        self._limit = limit

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Opens an http URL with the time limit."""
        return self.do_open(partial(self._limit.connection, _Connection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Opens an https URL; the connection checks the issuer's certificate."""
        return self.do_open(partial(self._limit.connection, _SecureConnection), req)


class ReadLimit:
    """The time limit of one read. When it ends, it closes the connections of the read.

    The timeout of a socket applies only to each single receive. An issuer that sends single bytes slowly would never
    exceed such a timeout. It could block the login that reads its keys, and all logins that wait for these keys.

    Args:
        limit_s: the time limit in seconds, from the beginning of the `with` statement.

    Attributes:
        ended: True if the time limit has passed.
    """

    def __init__(self, limit_s: float) -> None:
        self.ended = False
        self._lock = Lock()
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(limit_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> ReadLimit:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def connection(self, kind: type[_Connection], host: str, **options: Any) -> _Connection:
        """Makes a connection that is closed when the time limit ends."""
        connection = kind(host, **options)
        connection.limit = self
        return connection

    def add(self, connected: socket.socket) -> None:
        """Adds a socket to the sockets that are shut down at the end of the time limit.

        If the time limit has passed already, shuts the socket down immediately.
        """
        with self._lock:
            self._sockets.append(connected)
            if self.ended:
                _shut_down(connected)

    def _end(self) -> None:
        with self._lock:
            self.ended = True
            for connected in self._sockets:
                _shut_down(connected)


def _shut_down(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # The method of the base class, because the method of TLS sockets would remove the session while a thread reads.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _read(url: str) -> bytes:
    with ReadLimit(READ_TIMEOUT_S) as limit:
        try:
            opener = urllib.request.build_opener(SecureRedirects, _Handler(limit))
            with opener.open(url, timeout=READ_TIMEOUT_S) as response:
                data: bytes = response.read(MAX_KEYS_BYTES + 1)
        except Exception as error:
            # A single operation of the socket may reach the limit first. `URLError` has its error as `reason`.
            if limit.ended or isinstance(getattr(error, "reason", error), TimeoutError):
                raise TimeoutError(f"the issuer has not responded within {READ_TIMEOUT_S:g} s") from None
            raise
    if limit.ended:
        raise TimeoutError(f"the issuer has not responded within {READ_TIMEOUT_S:g} s")
    if len(data) > MAX_KEYS_BYTES:
        raise ValueError(f"the issuer's keys have more than {MAX_KEYS_BYTES} bytes")
    return data


class JwtValidator:
    """The validator of JSON Web Tokens: checks signature, times, issuer and audience, and returns the user.

    As in Kafka, a token must have a time of issue and an expiry.

    Args:
        settings: the listener's settings.
        keys: the issuer's keys; None: the keys at `sasl.oauthbearer.jwks.endpoint.url`.

    Raises:
        ConfigError: the package PyJWT is missing.
    """

    def __init__(self, settings: SecuritySettings, keys: KeySet | None = None) -> None:
        try:
            import jwt  # noqa: PLC0415  # optional
            import jwt.algorithms  # noqa: PLC0415  # optional
        except ImportError:
            jwt = None  # type: ignore[assignment]
        if jwt is None or not jwt.algorithms.has_crypto:
            raise ConfigError(
                "sasl.oauthbearer.jwks.endpoint.url needs the packages PyJWT and cryptography: "
                "pip install 'kcore[security]'"
            )
        self._settings = settings
        self._keys = keys or KeySet(settings)

    def __call__(self, token: str, extensions: Mapping[str, str]) -> OAuthIdentity:
        """Returns the user and the expiry of a valid token.

        Raises:
            PostponedError: the issuer's keys are being read, and the token names an unknown key.
            Exception: the token is not valid.
        """
        try:
            return self._checked(token)
        except RecursionError:
            raise TokenRefusedError("the token's JSON is nested too deeply") from None

    def _checked(self, token: str) -> OAuthIdentity:
        import jwt  # noqa: PLC0415  # optional

        settings = self._settings
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise TokenRefusedError("the token's algorithm is not accepted")
        claims = jwt.decode(
            token,
            self._keys.key(header.get("kid"), algorithm),
            algorithms=[algorithm],
            audience=settings.sasl_oauthbearer_expected_audience or None,
            issuer=settings.sasl_oauthbearer_expected_issuer or None,
            leeway=settings.sasl_oauthbearer_clock_skew_seconds,
            options={"require": ["exp", "iat"], "verify_sub": False},
        )
        user = claims.get(settings.sasl_oauthbearer_sub_claim_name)
        if not isinstance(user, str) or not user.strip():
            raise TokenRefusedError("the token names no user")
        _check_scopes(claims.get(settings.sasl_oauthbearer_scope_claim_name))
        # The session ends when a login with the token would be refused.
        expires_s = claims["exp"] + settings.sasl_oauthbearer_clock_skew_seconds
        return OAuthIdentity(user, int(expires_s * 1_000))


def _check_scopes(scopes: Any) -> None:
    """Refuses a token that has an empty or a repeated scope, as Kafka does."""
    names = [scopes] if isinstance(scopes, str) else list(scopes) if isinstance(scopes, list) else []
    if len(set(names)) < len(names) or not all(isinstance(name, str) and name.strip() for name in names):
        raise TokenRefusedError("the token has an empty or a repeated scope")
