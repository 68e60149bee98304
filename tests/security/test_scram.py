"""SCRAM on the server's side: the exchanges of the RFCs, and invalid messages."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.errors import AuthenticationError
from kcore.security.decoys import Decoys
from kcore.security.scram import ScramCredential, ScramMechanism, ScramServer, ScramSha256, ScramSha512
from tests.security.exchange import SALT, Users, credential_of, scram_client

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def server(kind: type[ScramServer] = ScramSha256, nonce: str = "server", **users: str) -> ScramServer:
    return kind(Users(users), Decoys(b"secret"), lambda: nonce)


def test_the_exchange_equals_the_example_of_rfc_7677() -> None:
    """The exchange equals that of RFC 7677, section 3, byte for byte: user "user", password "pencil"."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_of(SHA_256, "pencil", salt, 4096)

    class Rfc:
        def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
            return credential if (user, mechanism) == ("user", SHA_256) else None

    one = ScramSha256(Rfc(), Decoys(b""), lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert one.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert not one.complete
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert one.evaluate(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert one.complete
    assert (one.user, one.expires_at_ms) == ("user", None)


def test_a_login_costs_the_same_for_a_user_and_for_an_unknown_name() -> None:
    """The server computes a decoy (an invented credential) even for a user that exists, because this takes up to 0.5
    ms.

    Otherwise the response time would show whether a user exists.
    """
    made: list[str] = []

    class Counted(Decoys):
        def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
            made.append(user)
            return super().credential(user, mechanism)

    for name in ("alice", "ghost"):
        ScramSha256(Users({"alice": "secret"}), Counted(b"x"), lambda: "n").evaluate(f"n,,n={name},r=c".encode())
    assert made == ["alice", "ghost"]


def test_the_keys_of_rfc_5802_follow_from_the_formula() -> None:
    """A second implementation of RFC 5802, section 3, gives the same keys for both hashes."""
    import hashlib
    import hmac

    for mechanism in ScramMechanism:
        name = mechanism.hash_name
        block = hmac.new(b"pw", SALT + b"\0\0\0\1", name).digest()
        salted = int.from_bytes(block, "big")
        for _ in range(4095):
            block = hmac.new(b"pw", block, name).digest()
            salted ^= int.from_bytes(block, "big")
        password = salted.to_bytes(len(block), "big")
        client_key = hmac.new(password, b"Client Key", name).digest()
        found = credential_of(mechanism, "pw", SALT)
        assert found.stored_key == hashlib.new(name, client_key).digest()
        assert found.server_key == hmac.new(password, b"Server Key", name).digest()
        assert found.has_password("pw")
        assert not found.has_password("pW")


@pytest.mark.parametrize(("kind", "mechanism"), [(ScramSha256, SHA_256), (ScramSha512, SHA_512)])
@pytest.mark.parametrize("user", ["alice", "a=b,c", "jürgen"])
def test_a_client_that_knows_the_password_authenticates(
    kind: type[ScramServer], mechanism: ScramMechanism, user: str
) -> None:
    """Both hash functions work. In a name, "=" and "," are sent as =3D and =2C. The server proves that it knows the
    user.
    """
    one = server(kind, **{user: "pässword"})
    assert scram_client(one, mechanism, user, "pässword")
    assert (one.complete, one.user) == (True, user)


@pytest.mark.parametrize(("user", "password"), [("alice", "Secret"), ("alice", ""), ("bob", "secret")])
def test_wrong_passwords_and_unknown_users_are_refused_alike(user: str, password: str) -> None:
    """A client cannot find out which users exist, because both exchanges fail at the same step with the same error."""
    one = server(alice="secret")
    with pytest.raises(AuthenticationError) as refused:
        scram_client(one, SHA_256, user, password)
    assert str(refused.value) == "Authentication failed: the credentials for SCRAM-SHA-256 are not valid"
    assert not one.complete


def test_the_salt_of_an_absent_user_is_stable() -> None:
    """Each login of an absent user gets the same salt. A salt that changed would show that the user is absent.

    Another server has another secret and thus other salts.
    """
    firsts = {server(nonce="n").evaluate(b"n,,n=ghost,r=c") for _ in range(3)}
    assert len(firsts) == 1
    assert ScramSha256(Users({}), Decoys(b"other"), lambda: "n").evaluate(b"n,,n=ghost,r=c") not in firsts


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n", b"n,,", b"n,,n=alice", b"n,,r=nonce", b"n,,n=alice,r=", b"p=tls-unique,,n=alice,r=c",
        b"n,,n=al=ice,r=c", b"n,,m=ext,n=alice,r=c", b"n,,n=alice,r=c c", b"n,a=bob,n=alice,r=c", b"\xff", b"n,,n=,r=c",
    ],
)  # fmt: skip
def test_invalid_first_messages_are_refused(first: bytes) -> None:
    """The server refuses malformed messages, required channel binding, mandatory extensions (RFC 5802, 5.1) and
    authorization ids of other users.
    """
    with pytest.raises(AuthenticationError):
        server(alice="secret").evaluate(first)


@pytest.mark.parametrize("first", [b"y,,n=alice,r=c", b"n,a=alice,n=alice,r=c", b"n,,n=alice,r=c,tokenauth=true"])
def test_channel_binding_authorization_ids_and_extensions_are_accepted(first: bytes) -> None:
    """The server accepts a first message that contains optional channel binding, an authorization id that equals the
    user name, or optional extensions.
    """
    assert server(alice="secret").evaluate(first).startswith(b"r=cserver,s=")


@pytest.mark.parametrize(
    "final",
    [
        b"", b"c=biws,r=cserver", b"c=biws,r=other,p=AAAA", b"c=eSws,r=cserver,p=AAAA", b"c=biws,r=cserver,p=",
        b"c=biws,r=cserver,p=A", b"c=biws,r=cserver,p=AAAA", b"r=cserver,c=biws,p=AAAA",
    ],
)  # fmt: skip
def test_invalid_final_messages_are_refused(final: bytes) -> None:
    """The server refuses malformed messages, another nonce, another channel binding than announced, and proofs of a
    wrong length.
    """
    one = server(alice="secret")
    one.evaluate(b"n,,n=alice,r=c")
    with pytest.raises(AuthenticationError):
        one.evaluate(final)
    assert not one.complete


def test_no_token_follows_the_last_message() -> None:
    """A complete exchange accepts no further token."""
    one = server(alice="secret")
    scram_client(one, SHA_256, "alice", "secret")
    with pytest.raises(AuthenticationError):
        one.evaluate(b"n,,n=alice,r=c")


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_random_tokens_are_refused(tokens: list[bytes]) -> None:
    """Any token gets a response or an AuthenticationError, but no token authenticates."""
    one = server(alice="secret")
    for token in tokens:
        try:
            one.evaluate(token)
        except AuthenticationError:
            break
    assert not one.complete


def test_the_text_of_a_credential_has_no_secret() -> None:
    """The repr of a credential may appear in a log."""
    text = repr(credential_of(SHA_256, "secret", SALT))
    assert text == "ScramCredential(mechanism=<ScramMechanism.SCRAM_SHA_256: 1>, iterations=4096)"


def test_messages_of_any_form_are_parsed_in_linear_time_and_bounded() -> None:
    """A client that is not authenticated sends long messages. They are parsed in linear time, and messages above 16 KiB
    are refused, so that they do not block the event loop.
    """
    for name in ("a" * 16_000, "=2C" * 5_000, "a=3D" * 4_000):
        first = f"n,,n={name},r=c".encode()
        assert server().evaluate(first).startswith(b"r=cserver,s=")
        with pytest.raises(AuthenticationError, match="malformed"):
            server().evaluate(first.replace(b",r=", b"\0r="))
    with pytest.raises(AuthenticationError, match="longer than 16384 bytes"):
        server().evaluate(b"n,,n=alice,r=" + b"c" * 16_384)
