"""PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628) on the server's side."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.config.jaas import PLAIN_MODULE
from kcore.errors import AuthenticationError
from kcore.security.decoys import Decoys
from kcore.security.oauthbearer import OAuthBearer, OAuthIdentity
from kcore.security.oauthbearer import _split as split
from kcore.security.plain import Plain, PlainOfSettings
from tests.nodes import node_of
from tests.security.exchange import Users
from tests.security.test_sasl_wire import handshake, plain
from tests.server.live import LiveServer, Raw

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("token", "user"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        (b"bob\0alice\0secret", None),
        (b"\0alice\0Secret", None),
        (b"\0bob\0secret", None),
        (b"\0alice\0", None),
        (b"\0\0secret", None),
        (b"alice\0secret", None),
        (b"\0alice\0secret\0", None),
        (b"", None),
        (b"\0al\xff\0secret", None),
    ],
)
def test_a_plain_token_is_accepted_or_refused(token: bytes, user: str | None) -> None:
    """A token has three parts: an authorization id, which is empty or the user, then the user, and the password."""
    one = Plain(Users({"alice": "secret"}), Decoys(b"x"))
    if user is not None:
        assert one.evaluate(token) == b""
        assert (one.complete, one.user) == (True, user)
        return
    with pytest.raises(AuthenticationError) as refused:
        one.evaluate(token)
    assert "secret" not in str(refused.value).lower().replace("credentials", "")
    assert not one.complete


def validator(token: str, extensions: Mapping[str, str]) -> OAuthIdentity:
    """Accepts only some tokens, such as "good". The returned user name contains the extensions that the client sent."""
    if token == "good":
        return OAuthIdentity("alice" + "".join(f"+{k}={v}" for k, v in extensions.items()), NOW_MS + 60_000)
    if token == "old":
        return OAuthIdentity("alice", NOW_MS)
    if token == "nobody":
        return OAuthIdentity("", NOW_MS + 60_000)
    raise ValueError(f"the token {token} is not good")


def bearer() -> OAuthBearer:
    return OAuthBearer(validator, lambda: NOW_MS)


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"n,,\x01auth=Bearer good\x01\x01", "alice"),
        (b"n,a=alice,\x01auth=bearer good\x01\x01", "alice"),
        (b"n,,\x01auth=Bearer good\x01traceId=1\x01\x01", "alice+traceId=1"),
    ],
)
def test_a_valid_token_authenticates_until_it_expires(message: bytes, user: str) -> None:
    """A valid token completes the exchange. The session gets the user and the expiration time that the validator
    returns.

    The validator also receives the extensions that the client has sent (KIP-342).
    """
    one = bearer()
    assert one.evaluate(message) == b""
    assert (one.complete, one.user, one.expires_at_ms) == (True, user, NOW_MS + 60_000)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("bad", "the validator refused the token: ValueError"),
        ("old", "the token has expired"),
        ("nobody", "the validator found no principal in the token"),
    ],
)
def test_a_refused_token_gets_json_and_then_a_failure(
    token: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """After an invalid token, the server sends an error as JSON. The client responds with a dummy message, and then the
    server reports the failure (RFC 7628, 3.2.2 and 3.2.3).

    The log does not contain the token, even if the validator's error text contains it.
    """
    caplog.set_level(logging.DEBUG)
    one = bearer()
    assert one.evaluate(f"n,,\x01auth=Bearer {token}\x01\x01".encode()) == b'{"status":"invalid_token"}'
    assert not one.complete
    with pytest.raises(AuthenticationError) as refused:
        one.evaluate(b"\x01")
    assert refused.value.reason == reason
    assert caplog.messages == [f"OAUTHBEARER: {reason}"]
    assert not any("bad" in line for line in caplog.messages)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer good\x01", b"n,,auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01host=x\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01", b"n,a=bob,\x01auth=Bearer good\x01\x01", b"\xff",
    ],
)  # fmt: skip
def test_invalid_oauthbearer_messages_are_refused(message: bytes) -> None:
    """The server refuses malformed messages, other schemes, empty tokens, and an authorization id of another user."""
    with pytest.raises(AuthenticationError):
        bearer().evaluate(message)


REFERENCE = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^\0=,\x01]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)+)\x01"
)
"""The grammar of RFC 7628, 3.1, as a regular expression."""

PARTS = [
    "n,",
    "a=",
    ",",
    "\x01",
    "\x01\x01",
    "auth=",
    "Bearer ",
    "good",
    "=2C",
    "=3D",
    "=",
    "2C",
    "3D",
    "k=v",
    "\0",
    "é",
]


@given(st.lists(st.sampled_from(PARTS), max_size=12), st.booleans())
def test_messages_are_accepted_exactly_as_the_grammar_says(parts: list[str], complete: bool) -> None:
    text = "".join(parts)
    if complete:
        text = f"n,a={text},\x01auth=Bearer {text}\x01\x01"
    assert (split(text.encode()) is None) == (REFERENCE.fullmatch(text) is None)


@pytest.mark.parametrize("message", [b"n,a=" + b"x" * 500_000, b"n,,\x01" + b"a=b\x01" * 120_000])
def test_a_long_message_is_refused_before_it_is_parsed(message: bytes) -> None:
    """A message of more than 64 KiB is refused without parsing. The regular expression of RFC 7628 would block the
    interpreter for 40 to 130 ms and need 220 MB.
    """
    with pytest.raises(AuthenticationError, match="longer than 65536 bytes"):
        bearer().evaluate(message)


@pytest.mark.parametrize("expires_at_ms", [10**400, 1 << 63, 1 << 62])
def test_a_late_expiry_fits_into_the_response(expires_at_ms: int) -> None:
    exchange = OAuthBearer(lambda token, extensions: OAuthIdentity("alice", expires_at_ms), lambda: NOW_MS)
    assert exchange.evaluate(b"n,,\x01auth=Bearer good\x01\x01") == b""
    assert exchange.expires_at_ms == (1 << 53) - 1


@pytest.mark.parametrize("principal", ["\ud800", "x" * 200_000])
def test_a_principal_that_cannot_be_stored_refuses_the_token(principal: str) -> None:
    exchange = OAuthBearer(lambda token, extensions: OAuthIdentity(principal, NOW_MS + 1), lambda: NOW_MS)
    assert exchange.evaluate(b"n,,\x01auth=Bearer good\x01\x01") == b'{"status":"invalid_token"}'
    assert not exchange.complete


@given(st.binary(max_size=80))
def test_random_tokens_are_refused(token: bytes) -> None:
    """Random bytes raise an AuthenticationError and no other exception."""
    with pytest.raises(AuthenticationError):
        bearer().evaluate(token)


@pytest.mark.parametrize(
    ("token", "fits"),
    [
        (b"\0alice\0secret", True),
        (b"\0b\xc3\xb6b\0p\xc3\xa4ss", True),
        (b"\0alice\0Secret", False),
        (b"\0alice\0", False),
        (b"\0nobody\0secret", False),
        (b"\0nobody\0", False),
    ],
)
def test_plain_accepts_users_of_the_settings(token: bytes, fits: bool) -> None:
    """The passwords of these users are checked like those of stored users."""
    one = PlainOfSettings({"alice": "secret", "böb": "päss"})
    if fits:
        assert (one.evaluate(token), one.complete, one.user) == (b"", True, token.split(b"\0")[1].decode())
        return
    with pytest.raises(AuthenticationError):
        one.evaluate(token)
    assert not one.complete


def test_a_listener_has_the_users_of_its_settings() -> None:
    """On this listener, PLAIN accepts only these users. Other listeners accept the stored users."""
    jaas = f'{PLAIN_MODULE} required user_carol="of-the-file";'
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OWN://127.0.0.1:0,STORED://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OWN:SASL_PLAINTEXT,STORED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.own.plain.sasl.jaas.config": jaas,
        "connection.failed.authentication.delay.ms": "0",
    }
    with LiveServer(settings) as live:
        with live.connect() as connection:
            node_of(connection).users.set_password("dave", "stored-password")
        for listener, user, password, code in (
            ("OWN", "carol", "of-the-file", 0),
            ("OWN", "carol", "of-the-other-file", 58),
            ("OWN", "dave", "stored-password", 58),
            ("STORED", "dave", "stored-password", 0),
            ("STORED", "carol", "of-the-file", 58),
        ):
            with Raw(live.server.addresses[listener][1]) as raw:
                assert handshake(raw, "PLAIN").error_code == 0
                assert plain(raw, password, user).error_code == code, (listener, user)
