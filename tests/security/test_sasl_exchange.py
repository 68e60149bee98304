"""The table of states and requests of the SASL exchange, and sessions that end (KIP-368)."""

from __future__ import annotations

import pytest

from kcore.errors import AuthenticationError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kcore.security.mechanism import Mechanism
from kcore.security.sasl import EXPECTED, TRANSITIONS, SaslExchange, SaslState

NOW_MS, WALL_MS = 1_000_000, 1_700_000_000_000


class Named(Mechanism):
    """A mechanism that authenticates the user whose name is the token.

    The token "two" requires a second token, "no" is refused, and "NAME until N" opens a session of N ms.
    """

    name = "NAMED"

    def evaluate(self, token: bytes) -> bytes:
        text = token.decode()
        if text == "no":
            raise AuthenticationError("no")
        if text == "two":
            return b"again"
        self.user, _, until = text.partition(" until ")
        self.expires_at_ms = WALL_MS + int(until) if until else None
        self.complete = True
        return b"in"


class Other(Named):
    name = "OTHER"


def exchange(max_reauth_ms: int = 0) -> SaslExchange:
    return SaslExchange({"NAMED": Named, "OTHER": Other}, max_reauth_ms)


def authenticated(token: bytes = b"alice", max_reauth_ms: int = 0) -> SaslExchange:
    one = exchange(max_reauth_ms)
    one.handshake(1, "NAMED", NOW_MS)
    one.evaluate(token)
    one.evaluated(NOW_MS, WALL_MS)
    return one


def in_state(state: SaslState) -> SaslExchange:
    one = authenticated() if state is SaslState.COMPLETE else exchange()
    if state is SaslState.NEGOTIATED:
        one.negotiated()
    elif state is SaslState.TOKENS:
        one.handshake(1, "NAMED", NOW_MS)
    elif state is SaslState.RAW:
        one.handshake(0, "NAMED", NOW_MS)
    elif state is SaslState.FAILED:
        one.fail()
    assert one.state is state
    return one


@pytest.mark.parametrize("state", list(SaslState))
def test_each_state_accepts_only_its_requests(state: SaslState) -> None:
    """At the start, the exchange accepts ApiVersions and SaslHandshake. After ApiVersions it accepts only
    SaslHandshake, and after SaslHandshake only SaslAuthenticate.
    """
    taken = {
        SaslState.START: {18, 17},
        SaslState.NEGOTIATED: {17},
        SaslState.TOKENS: {36},
    }
    one = in_state(state)
    assert {int(key) for key in ApiKey if one.accepts(key)} == taken.get(state, set())


def test_the_tables_are_total() -> None:
    """Each state has a rule for each request."""
    assert set(TRANSITIONS) == set(EXPECTED) == set(SaslState)


def test_a_disabled_mechanism_is_refused_with_the_enabled_ones() -> None:
    """The response has the error UNSUPPORTED_SASL_MECHANISM (33)."""
    one = exchange()
    assert one.handshake(1, "GSSAPI", NOW_MS) == SaslHandshakeResponse(error_code=33, mechanisms=["NAMED", "OTHER"])
    assert one.state is SaslState.FAILED


def test_the_principal_is_anonymous_until_the_last_token() -> None:
    """The principal is anonymous until the mechanism is complete."""
    one = exchange()
    assert one.handshake(1, "NAMED", NOW_MS) == SaslHandshakeResponse(mechanisms=["NAMED", "OTHER"])
    assert one.evaluate(b"two") == b"again"
    assert (one.evaluated(NOW_MS, WALL_MS), one.complete, one.principal) == (0, False, "User:ANONYMOUS")
    assert one.evaluate(b"alice") == b"in"
    assert (one.evaluated(NOW_MS, WALL_MS), one.complete, one.principal) == (0, True, "User:alice")
    assert not one.expired(NOW_MS + 10**12)
    assert not one.may_reauthenticate(NOW_MS + 10**6), "sessions without an end are not renewed"


@pytest.mark.parametrize(
    ("token", "max_reauth_ms", "lifetime_ms"),
    [(b"alice", 0, 0), (b"alice", 5_000, 5_000), (b"alice until 3000", 0, 3_000), (b"alice until 3000", 5_000, 3_000),
     (b"alice until 9000", 5_000, 5_000)],
)  # fmt: skip
def test_a_session_ends_with_the_setting_or_the_token(token: bytes, max_reauth_ms: int, lifetime_ms: int) -> None:
    """A session lasts as long as the token or the setting permits, whichever is shorter. A lifetime of 0 means no end.

    A millisecond after its end, the session has expired.
    """
    one = exchange(max_reauth_ms)
    one.handshake(1, "NAMED", NOW_MS)
    one.evaluate(token)
    assert one.evaluated(NOW_MS, WALL_MS) == lifetime_ms
    assert not one.expired(NOW_MS + lifetime_ms)
    assert one.expired(NOW_MS + lifetime_ms + 1) == (lifetime_ms > 0)


def test_a_session_is_renewed_by_the_same_user_with_the_same_mechanism() -> None:
    """After a renewal, the principal is the same, and a new lifetime begins. The next renewal is permitted a second
    later.
    """
    one = authenticated(max_reauth_ms=5_000)
    now_ms = NOW_MS + 4_000
    assert one.may_reauthenticate(now_ms)
    one.handshake(1, "NAMED", now_ms)
    assert (one.principal, one.complete, one.accepts(ApiKey.HEARTBEAT)) == ("User:alice", False, False)
    one.evaluate(b"alice")
    assert one.evaluated(now_ms, WALL_MS) == 5_000
    assert (one.complete, one.expires_at_ms) == (True, now_ms + 5_000)
    assert not one.may_reauthenticate(now_ms + 999)
    assert one.may_reauthenticate(now_ms + 1_000)


@pytest.mark.parametrize(("mechanism", "token"), [("NAMED", b"bob"), ("OTHER", b"alice"), ("NAMED", b"no")])
def test_a_renewal_with_another_user_or_mechanism_fails(mechanism: str, token: bytes) -> None:
    """The principal stays the same, and the connection is closed."""
    one = authenticated(max_reauth_ms=5_000)
    one.handshake(1, mechanism, NOW_MS + 2_000)

    def renew() -> None:
        one.evaluate(token)
        one.evaluated(NOW_MS + 2_000, WALL_MS)

    with pytest.raises(AuthenticationError):
        renew()
    assert one.principal == "User:alice"
    one.fail()
    assert not any(one.accepts(key) for key in ApiKey)
