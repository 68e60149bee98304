"""The SASL exchange of a connection (KIP-43, KIP-152, KIP-368): states and the requests that each accepts.

START ──ApiVersions──▶ NEGOTIATED            if it succeeds; a refused request changes no state
START, NEGOTIATED ──SaslHandshake──▶ TOKENS  v1: tokens come in SaslAuthenticate requests
                                   ▶ RAW     v0: tokens are whole frames
TOKENS, RAW ──authentication succeeds──▶ COMPLETE
COMPLETE ──SaslHandshake──▶ TOKENS, RAW      re-authentication, if sessions expire and a second has passed
any ──any other event──▶ FAILED
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from kcore.errors import AuthenticationError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kcore.security.mechanism import Mechanism
from kcore.security.principal import ANONYMOUS, user_principal

MIN_REAUTHENTICATION_INTERVAL_MS = 1_000
"""Minimum time between two authentications on a connection (KIP-368)."""


class SaslState(Enum):
    """The state of an exchange."""

    START = "start"
    NEGOTIATED = "negotiated"
    TOKENS = "tokens"
    RAW = "raw"
    COMPLETE = "complete"
    FAILED = "failed"


TRANSITIONS: dict[SaslState, frozenset[SaslState]] = {
    SaslState.START: frozenset({SaslState.NEGOTIATED, SaslState.TOKENS, SaslState.RAW, SaslState.FAILED}),
    SaslState.NEGOTIATED: frozenset({SaslState.TOKENS, SaslState.RAW, SaslState.FAILED}),
    SaslState.TOKENS: frozenset({SaslState.COMPLETE, SaslState.FAILED}),
    SaslState.RAW: frozenset({SaslState.COMPLETE, SaslState.FAILED}),
    SaslState.COMPLETE: frozenset({SaslState.TOKENS, SaslState.RAW, SaslState.FAILED}),
    SaslState.FAILED: frozenset(),
}
"""State of a connection's authentication -> the permitted next states."""

EXPECTED: dict[SaslState, frozenset[ApiKey]] = {
    SaslState.START: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    SaslState.NEGOTIATED: frozenset({ApiKey.SASL_HANDSHAKE}),
    SaslState.TOKENS: frozenset({ApiKey.SASL_AUTHENTICATE}),
    SaslState.RAW: frozenset(),
    SaslState.COMPLETE: frozenset(),
    SaslState.FAILED: frozenset(),
}
"""Mapping from each state to the APIs whose requests the SASL exchange accepts.

In RAW, the exchange accepts only tokens. In COMPLETE, it does not restrict requests: the server serves every API.
"""


class SaslExchange:
    """The identity of a connection's peer and the progress of its authentication.

    Args:
        mechanisms: the enabled mechanisms: name -> function that creates the server side of an exchange.
        max_reauth_ms: `connections.max.reauth.ms`: maximum lifetime of a session; 0: only the credential limits it.

    Attributes:
        state: the state of the exchange.
        principal: the authenticated principal; the anonymous user before authentication. It stays in force during a
            re-authentication.
        expires_at_ms: the monotonic time in ms at which the session ends; -1: never.
    """

    __slots__ = (
        "_began_ms",
        "_is_reauthentication",
        "_max_reauth_ms",
        "_mechanism",
        "_mechanisms",
        "_refusal",
        "expires_at_ms",
        "principal",
        "state",
    )

    def __init__(self, mechanisms: Mapping[str, Callable[[], Mechanism]], max_reauth_ms: int = 0) -> None:
        self.state = SaslState.START
        self.principal = ANONYMOUS
        self.expires_at_ms = -1
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self._mechanism: Mechanism | None = None
        self._refusal = ""  # the reason why the next token fails, whatever it contains
        self._is_reauthentication = False  # this is a re-authentication
        self._began_ms = -1  # the start of the last authentication

    @property
    def complete(self) -> bool:
        """True if the peer is authenticated and not re-authenticating."""
        return self.state is SaslState.COMPLETE

    @property
    def threads(self) -> int:
        """The number of threads on which tokens of the mechanism should be evaluated; 0: on the caller's thread."""
        return 0 if self._mechanism is None else self._mechanism.threads

    @property
    def mechanism_name(self) -> str:
        """The current mechanism; "" before the handshake."""
        return "" if self._mechanism is None else self._mechanism.name

    def accepts(self, api_key: int) -> bool:
        """Returns True if the state accepts the request; any other request ends the exchange."""
        return api_key in EXPECTED[self.state]

    def may_reauthenticate(self, now_ms: int) -> bool:
        """Returns True if a SaslHandshake of an authenticated peer may start a re-authentication."""
        if self.state is not SaslState.COMPLETE or self.expires_at_ms < 0:
            return False
        return self._began_ms < 0 or now_ms - self._began_ms >= MIN_REAUTHENTICATION_INTERVAL_MS

    def expired(self, now_ms: int) -> bool:
        """Returns True if the session has expired. The next request then closes the connection."""
        return 0 <= self.expires_at_ms < now_ms

    def negotiated(self) -> None:
        """Handles a successful ApiVersions request; a second ApiVersions request ends the exchange."""
        self._transition(SaslState.NEGOTIATED)

    def handshake(self, version: int, mechanism: str, now_ms: int) -> SaslHandshakeResponse:
        """Handles the peer's choice of a mechanism; a mechanism that is not enabled ends the exchange.

        Args:
            version: version of the request. After version 0, tokens are sent as frames without a request.
            mechanism: the requested mechanism.
            now_ms: the monotonic time.
        """
        make = self._mechanisms.get(mechanism)
        if make is None:
            self.fail()
            return SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(self._mechanisms)
            )
        if self.complete:
            self._is_reauthentication = True
            self._began_ms = now_ms
            if mechanism != self.mechanism_name:
                self._refusal = (
                    f"the client cannot re-authenticate with {mechanism}, because it authenticated with "
                    f"{self.mechanism_name}"
                )
        self._mechanism = make()
        self._transition(SaslState.TOKENS if version else SaslState.RAW)
        return SaslHandshakeResponse(mechanisms=list(self._mechanisms))

    def evaluate(self, token: bytes) -> bytes:
        """Passes a token to the mechanism. The method changes no other state, so that it may run on another thread.

        Returns:
            The response token.

        Raises:
            AuthenticationError: the token is invalid.
            PostponedError: the token must be evaluated again later.
        """
        assert self._mechanism is not None, "a SASL token arrived before a mechanism was chosen"
        if self._refusal:
            raise AuthenticationError(self._refusal)
        return self._mechanism.evaluate(token)

    def evaluated(self, now_ms: int, wall_ms: int) -> int:
        """Handles a token that was evaluated without an error; the exchange may be complete now.

        Args:
            now_ms: the monotonic time.
            wall_ms: the time since 1970.

        Returns:
            The lifetime of the session in ms; 0 if it never expires or the exchange is not complete.

        Raises:
            AuthenticationError: the re-authenticating peer has a different principal.
        """
        mechanism = self._mechanism
        assert mechanism is not None
        if not mechanism.complete:
            return 0
        principal = user_principal(mechanism.user)
        if self._is_reauthentication and principal != self.principal:
            raise AuthenticationError("the principal must not change when a client re-authenticates")
        self.principal = principal
        self._transition(SaslState.COMPLETE)
        limits = [self._max_reauth_ms] if self._max_reauth_ms > 0 else []
        if mechanism.expires_at_ms is not None:
            limits.append(max(0, mechanism.expires_at_ms - wall_ms))
        if not limits:
            self.expires_at_ms = -1
            return 0
        lifetime_ms = min(limits)
        self.expires_at_ms = now_ms + lifetime_ms
        return lifetime_ms

    def fail(self) -> None:
        """Ends the exchange without authentication."""
        self._transition(SaslState.FAILED)

    def _transition(self, state: SaslState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} cannot become {state}"
        self.state = state
