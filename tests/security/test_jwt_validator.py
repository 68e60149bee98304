"""OAUTHBEARER with JSON Web Tokens: signature, times, issuer, audience and scopes as in Kafka (KIP-768)."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import URLError

import jwt
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from kcore.config.node import Config
from kcore.config.security import CALLBACK_HANDLERS
from kcore.errors import ConfigError
from kcore.security.mechanism import PostponedError
from kcore.security.oauthbearer import OAuthBearer, OAuthIdentity, TokenRefusedError
from kcore.server import jwt_validator
from kcore.server.jwt_validator import JwtValidator, KeySet, SecureRedirects
from tests.security.certificates import Authority
from tests.server.live import LiveServer

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
STRANGER = rsa.generate_private_key(65537, 2048)
ISSUER, AUDIENCE = "https://issuer.test", "kcore"


def key_set(**keys: Any) -> bytes:
    rows = []
    for key_id, key in keys.items():
        algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        rows.append(json.loads(algorithm.to_jwk(key.public_key())) | {"kid": key_id, "use": "sig"})
    return json.dumps({"keys": rows}).encode()


def token(key: Any = RSA, algorithm: str = "RS256", key_id: str | None = "r", **claims: Any) -> str:
    """Returns a signed token for "alice" that is valid for an hour. `claims` replace claims: None removes a claim, and
    times are relative to now.
    """
    now = int(time.time())
    times = {name: now + value for name, value in claims.items() if name in {"exp", "iat", "nbf"} and value is not None}
    whole = {"sub": "alice", "iat": now, "exp": now + 3_600, "iss": ISSUER, "aud": AUDIENCE, **claims, **times}
    present = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(present, key, algorithm, headers=None if key_id is None else {"kid": key_id})


class Issuer:
    """An in-memory replacement of an issuer: the keys at its URL, and a clock."""

    def __init__(self) -> None:
        self.data = key_set(r=RSA, e=EC)
        self.reads = 0
        self.now_s = 1_000.0

    def read(self, url: str) -> bytes:
        assert url == "https://issuer.test/keys"
        self.reads += 1
        if not self.data:
            raise OSError("unreachable")
        return self.data

    def keys(self, **settings: str) -> KeySet:
        names = {"sasl.oauthbearer.jwks.endpoint.url": "https://issuer.test/keys", **settings}
        return KeySet(Config.of(names).for_listener("X"), lambda: self.now_s, self.read)

    def validator(self, **settings: str) -> JwtValidator:
        names = {
            "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.test/keys",
            "sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            **{"sasl.oauthbearer." + name.replace("_", "."): value for name, value in settings.items()},
        }
        return JwtValidator(Config.of(names).for_listener("X"), self.keys())


@pytest.mark.parametrize(
    "make",
    [
        token,
        lambda: token(EC, "ES256", "e"),
        lambda: token(key_id=None),
        lambda: token(aud=["somebody", AUDIENCE]),
        lambda: token(scope="read"),
        lambda: token(scope=["read", "write"]),
        lambda: token(exp=-5),
    ],
    ids=["rsa", "ec", "the only key that fits", "one of several audiences", "scope", "scopes", "within the clock skew"],
)
def test_valid_tokens_are_accepted(make: Callable[[], str]) -> None:
    text = make()
    claims = jwt.decode(text, options={"verify_signature": False})
    assert Issuer().validator()(text, {}) == OAuthIdentity("alice", (claims["exp"] + 30) * 1_000)


@pytest.mark.parametrize("key_id", ["r", None])
def test_an_rsa_key_that_names_no_algorithm_serves_all_algorithms_of_rsa(key_id: str | None) -> None:
    """Many issuers leave out the optional parameter "alg" of a key (RFC 7517)."""
    validate = Issuer().validator()
    for algorithm in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"):
        assert validate(token(RSA, algorithm, key_id), {}).principal == "alice"
    with pytest.raises((jwt.InvalidSignatureError, TokenRefusedError)):
        validate(token(STRANGER, "PS256", key_id), {})
    with pytest.raises(jwt.InvalidAlgorithmError):
        validate(token(EC, "ES256", "r"), {})


def test_an_rsa_key_that_names_an_algorithm_serves_only_this_one() -> None:
    issuer = Issuer()
    keys = json.loads(key_set(r=RSA))
    keys["keys"][0]["alg"] = "PS256"
    issuer.data = json.dumps(keys).encode()
    assert issuer.validator()(token(RSA, "PS256"), {}).principal == "alice"
    with pytest.raises(jwt.InvalidAlgorithmError):
        issuer.validator()(token(RSA, "RS256"), {})


def test_a_token_within_the_clock_skew_opens_a_session() -> None:
    """A token that expired 5 s ago is still accepted, because the allowed clock skew is longer."""
    exchange = OAuthBearer(Issuer().validator(), lambda: int(time.time() * 1_000))
    assert exchange.evaluate(b"n,,\x01auth=Bearer " + token(exp=-5).encode() + b"\x01\x01") == b""
    assert (exchange.complete, exchange.user) == (True, "alice")


@pytest.mark.parametrize(
    "make",
    [
        lambda: token(STRANGER),
        lambda: token(key_id="unknown"),
        lambda: token("a shared secret of thirty-two bytes", "HS256"),
        lambda: jwt.encode({"sub": "alice"}, None, "none"),
        lambda: token(exp=-60),
        lambda: token(iat=1_800),
        lambda: token(nbf=1_800),
        lambda: token(exp=None),
        lambda: token(iat=None),
        lambda: token(iss="https://somebody.else"),
        lambda: token(iss=None),
        lambda: token(aud="somebody"),
        lambda: token(aud=None),
        lambda: token(sub=None),
        lambda: token(sub=" "),
        lambda: token(scope=""),
        lambda: token(scope=["a", "a"]),
        lambda: "noise",
        lambda: token()[:-4] + "AAAA",
    ],
)
def test_invalid_tokens_are_refused(make: Callable[[], str]) -> None:
    with pytest.raises(Exception, match=r".") as refused:
        Issuer().validator()(make(), {})
    assert not isinstance(refused.value, AssertionError)


def test_without_an_expected_audience_a_token_must_have_none() -> None:
    """If no expected audience is configured, tokens with an audience are refused.

    If no expected issuer is configured, tokens of any issuer are accepted, as in Kafka.
    """
    validator = Issuer().validator(expected_audience="", expected_issuer="")
    assert validator(token(aud=None, iss="https://somebody.else"), {}).principal == "alice"
    with pytest.raises(jwt.InvalidAudienceError):
        validator(token(), {})


def test_the_user_may_be_in_another_claim() -> None:
    validator = Issuer().validator(sub_claim_name="preferred", scope_claim_name="scp")
    assert validator(token(preferred="bob", sub=None, scp=["a"], scope=["x", "x"]), {}).principal == "bob"
    with pytest.raises(ValueError, match="names no user"):
        validator(token(preferred=7), {})


def test_keys_are_read_when_they_are_due() -> None:
    """The validator reads the issuer's keys for the first token, after the refresh time, and for a token with an
    unknown key, but at most once in ten seconds.
    """
    issuer = Issuer()
    keys = issuer.keys(**{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "60000"})
    assert issuer.reads == 0
    keys.key("r", "RS256")
    keys.key("e", "ES256")
    assert issuer.reads == 1
    issuer.data = key_set(new=RSA)
    for _ in range(3):
        with pytest.raises(TokenRefusedError):
            keys.key("new", "RS256")
    assert issuer.reads == 1
    issuer.now_s += 10
    keys.key("new", "RS256")
    with pytest.raises(TokenRefusedError):
        keys.key("r", "RS256")
    assert issuer.reads == 2
    issuer.now_s += 60
    keys.key("new", "RS256")
    assert issuer.reads == 3


def test_known_keys_stay_in_use_while_the_issuer_is_unreachable(caplog: pytest.LogCaptureFixture) -> None:
    """A failed read of the keys is repeated after 100 ms, 200 ms, and so on."""
    issuer = Issuer()
    keys = issuer.keys()
    keys.key("r", "RS256")
    issuer.data = b""
    issuer.now_s += 3_600
    for pause_s, reads in ((0, 2), (0.099, 2), (0.001, 3), (0.199, 3), (0.001, 4)):
        issuer.now_s += pause_s
        keys.key("r", "RS256")
        assert issuer.reads == reads, pause_s
    assert (
        "cannot read the issuer's keys from https://issuer.test/keys: OSError: unreachable; 2 keys stay in use"
        in caplog.text
    )
    issuer.data = key_set(r=RSA)
    issuer.now_s += 10
    keys.key("r", "RS256")
    issuer.now_s += 3_599
    keys.key("r", "RS256")
    assert issuer.reads == 5


def test_pauses_begin_when_a_read_has_timed_out() -> None:
    """A read of the issuer's keys takes ten seconds and fails. The pause until the next read begins at the end of this
    read, so that logins directly after it do not read the keys again.
    """
    issuer = Issuer()
    keys = issuer.keys()
    keys.key("r", "RS256")
    read = issuer.read

    def time_out(url: str) -> bytes:
        issuer.data = b""
        issuer.now_s += 10
        return read(url)

    keys._read = time_out
    issuer.now_s += 3_600
    for _ in range(3):
        keys.key("r", "RS256")
    assert issuer.reads == 2
    with pytest.raises(TokenRefusedError):
        keys.key("unknown", "RS256")
    assert issuer.reads == 2


def test_a_login_with_a_known_key_does_not_wait_for_a_read() -> None:
    issuer = Issuer()
    keys = issuer.keys()
    keys.key("r", "RS256")
    issuer.now_s += 3_600
    began, released, data = threading.Event(), threading.Event(), issuer.data

    def read(url: str) -> bytes:
        began.set()
        assert released.wait(60)
        return data

    keys._read = read
    reader = threading.Thread(target=keys.key, args=("r", "RS256"))
    reader.start()
    assert began.wait(60)
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(keys.key("e", "ES256")))
    other.start()
    other.join(10)
    waited = other.is_alive()
    released.set()
    reader.join()
    other.join()
    assert not waited
    assert [key.key_id for key in found] == ["e"]


def test_tokens_with_unknown_keys_do_not_wait_while_another_reads_the_keys() -> None:
    """While one login thread reads the issuer's keys, a login with an unknown key is put back into the queue. It would
    otherwise block another login thread, and logins with known keys would have to wait.
    """
    issuer = Issuer()
    keys = issuer.keys()
    began, released, data = threading.Event(), threading.Event(), key_set(r=RSA, new=RSA)

    def read(url: str) -> bytes:
        began.set()
        assert released.wait(60)
        return data

    keys._read = read
    reader = threading.Thread(target=keys.key, args=("r", "RS256"))
    reader.start()
    assert began.wait(60)
    postponed: list[PostponedError] = []
    exchange = OAuthBearer(issuer.validator(), lambda: int(time.time() * 1_000))
    exchange._validator._keys = keys  # type: ignore[attr-defined]
    message = b"n,,\x01auth=Bearer " + token(key_id="new").encode() + b"\x01\x01"

    def evaluate() -> None:
        try:
            exchange.evaluate(message)
        except PostponedError as error:
            postponed.append(error)

    other = threading.Thread(target=evaluate)
    other.start()
    other.join(10)
    waited = other.is_alive()
    done = [error.until.done() for error in postponed]
    released.set()
    reader.join()
    other.join()
    assert (waited, done) == (False, [False])
    assert postponed[0].until.done()
    assert exchange.evaluate(message) == b""
    assert exchange.user == "alice"


@pytest.mark.parametrize(
    ("old", "new", "followed"),
    [("https", "https", True), ("http", "https", True), ("http", "http", True), ("https", "http", False)],
)
def test_redirects_from_https_to_http_are_refused(old: str, new: str, followed: bool) -> None:
    """If the validator requests keys over TLS, it never accepts keys from an unencrypted connection."""
    request, url = urllib.request.Request(f"{old}://issuer.test/keys"), f"{new}://other.test/keys"
    redirects = SecureRedirects()
    if followed:
        after = redirects.redirect_request(request, None, 302, "Found", Message(), url)
        assert after is not None
        assert after.full_url == url
    else:
        with pytest.raises(ValueError, match="from https"):
            redirects.redirect_request(request, None, 302, "Found", Message(), url)


class SlowIssuer:
    """A server that accepts one connection and sends a response slowly, byte by byte, until the client disconnects."""

    def __init__(self, beginning: bytes) -> None:
        self._beginning = beginning
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._end = threading.Event()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/keys"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> SlowIssuer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._listener.close()

    def _run(self) -> None:
        peer, _ = self._listener.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(self._beginning)
            while not self._end.wait(0.01):
                peer.sendall(b"x")


@pytest.mark.parametrize(
    "beginning",
    [b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\nX-Name: ", b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n"],
)
def test_a_read_of_an_issuers_keys_has_a_time_limit(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit covers the whole read, even if each single byte arrives in time."""
    monkeypatch.setattr(jwt_validator, "READ_TIMEOUT_S", 0.3)
    with SlowIssuer(beginning) as issuer, pytest.raises(TimeoutError, match=r"has not responded within 0\.3 s"):
        jwt_validator._read(issuer.url)


@pytest.mark.parametrize("timed_out", [TimeoutError("timed out"), URLError(TimeoutError("timed out"))])
def test_the_time_limit_of_a_single_operation_gives_the_same_error(
    timed_out: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise timed_out

    monkeypatch.setattr("urllib.request.OpenerDirector.open", fail)
    with pytest.raises(TimeoutError, match="the issuer has not responded within 10 s"):
        jwt_validator._read("http://127.0.0.1:1/keys")


def test_keys_over_https_need_a_trusted_certificate(authority: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer.pem", (NameOID.COMMON_NAME, "localhost")))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one() -> None:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                context.wrap_socket(peer, server_side=True).close()

        server = threading.Thread(target=serve_one, daemon=True)
        server.start()
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            jwt_validator._read(f"https://localhost:{listener.getsockname()[1]}/keys")
        server.join(60)
        assert not server.is_alive()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url", "ftp://issuer.test/keys"),
        ("sasl.server.callback.handler.class", "com.example.Handler"),
    ],
)
def test_invalid_settings_of_an_issuer_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Config.of({name: value})


def test_a_listener_may_have_its_own_issuer() -> None:
    """The prefix of the setting names the listener, and may also name the mechanism, as in Kafka."""
    config = Config.of(
        {
            "sasl.oauthbearer.expected.issuer": "all",
            "listener.name.one.sasl.oauthbearer.expected.issuer": "one",
            "listener.name.two.oauthbearer.sasl.oauthbearer.expected.issuer": "two",
            "listener.name.two.oauthbearer.sasl.server.callback.handler.class": next(iter(CALLBACK_HANDLERS)),
        }
    )
    issuers = [config.for_listener(name).sasl_oauthbearer_expected_issuer for name in ("ONE", "TWO", "THREE")]
    assert issuers == ["one", "two", "all"]


def test_a_real_client_authenticates_with_a_token(
    serve: Callable[..., LiveServer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka sends a token of the issuer, whose keys the server reads from a file. The reason of a refusal is in a
    warning.
    """
    (tmp_path / "keys.json").write_bytes(key_set(r=RSA))
    live = serve(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
    )

    def connected(text: str) -> AdminClient:
        admin = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{live.server.addresses['SASL_PLAINTEXT'][1]}",
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (text, time.time() + 60),
            }
        )
        admin.poll(0)
        assert list(admin.list_topics(timeout=10).brokers) == [1]
        return admin

    admin = connected(token())
    principals = live.call(lambda: {connection.principal for connection in live.server.connections})
    assert "User:alice" in principals
    with pytest.raises(KafkaException):
        connected(token(STRANGER))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert (
        "connection from /127.0.0.1 closed: SASL exchange failed: Authentication failed: the credentials for "
        "OAUTHBEARER are not valid (the validator refused the token: InvalidSignatureError)"
    ) in warnings
    del admin
