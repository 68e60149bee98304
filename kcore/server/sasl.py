"""Connections whose clients must authenticate with SASL first (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.errors import AuthenticationError
from kcore.process_logging import fields
from kcore.protocol.api_keys import ApiKey, api_name
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kcore.security.sasl import SaslState
from kcore.server import login_queue, unauthenticated
from kcore.server.dispatch import RefusedError
from kcore.server.frames import LENGTH_BYTES
from kcore.server.login_queue import Login
from kcore.server.secure import SecureConnection
from kcore_ext.codec.frames import decode_request_header
from kcore_ext.server.request_queue import ResponseSlot

if TYPE_CHECKING:
    from kcore.server.authentication import ListenerSecurity
    from kcore.server.dispatch import Served
    from kcore.server.server import Server

logger = logging.getLogger(__name__)

MAX_SHOWN_NAME = 32  # logged characters of the name of a mechanism that is not enabled


class RawResponseSlot(ResponseSlot):
    """The response to a token that a client sent without a request header, after SaslHandshake v0.

    The response is a frame that contains only the server's token.
    """

    __slots__ = ()

    def respond(self, response: Any) -> None:
        """Sends the server's token as a frame. If authentication failed, sends nothing, because this frame has no field
        for an error code.
        """
        if response is None or response.error_code:
            self.complete(b"")
        else:
            token = bytes(response.auth_bytes)
            self.complete(len(token).to_bytes(LENGTH_BYTES, "big") + token)


class SaslConnection(SecureConnection):
    """A connection that serves requests once its client has authenticated.

    Slow mechanisms (key derivation, a user's validator) run on another thread, so that only this connection waits.
    """

    __slots__ = ("_authenticated", "_exchange", "_login", "_opened_s", "_token_bytes")

    def __init__(self, server: Server, security: ListenerSecurity, connection_id: int) -> None:
        super().__init__(server, security, connection_id)
        self._exchange = security.exchange()
        self._login: Login | None = None  # the token that another thread evaluates
        self._token_bytes = 0  # the length of that token
        self._authenticated = False  # True after the first successful authentication
        self._opened_s = server.loop.time()
        self._queue.gate = self._at_gate
        self._queue.set_max_frame_bytes(security.settings.sasl_server_max_receive_size)

    def data_received(self, data: bytes) -> None:
        """Feeds received bytes to the request queue.

        All unauthenticated clients together have a limit of received bytes.
        """
        super().data_received(data)
        if not (self._authenticated or self._closing):
            self.server.unauthenticated.claim(self, len(self._queue) + self._token_bytes)

    def _idle_since(self) -> tuple[float, str]:
        """Returns the time since which the connection is idle, and the reason for the log.

        Until the client authenticates, this is the time at which the connection was opened. Otherwise a client without
        credentials could keep the connection open by sending single bytes.
        """
        return super()._idle_since() if self._authenticated else (self._opened_s, "no authentication")

    def close_unauthenticated(self) -> None:
        """Closes this connection. Called while clients that have not authenticated hold too much memory."""
        self.server.client_log.log(
            logging.WARNING, self.client_host,
            "connection from %s closed: the requests of unauthenticated clients take more than %d bytes, and this "
            "client has the largest part",
            self.client_host, unauthenticated.MAX_BYTES, connection=self.connection_id,
        )  # fmt: skip
        self.abort()

    def _at_gate(self, frame: bytes) -> None:
        """Handles a frame that arrives before the authentication is complete."""
        exchange = self._exchange
        if exchange.state is SaslState.RAW:
            served = self._dispatch.find(ApiKey.SASL_AUTHENTICATE, 0)
            assert served is not None, "SaslAuthenticate is always served"
            self._token(frame, RawResponseSlot(self._queue, served, 0, 0))
            return
        if exchange.complete:
            now_ms = self.server.engine.now.now_ms
            again = int.from_bytes(frame[:2], "big") == ApiKey.SASL_HANDSHAKE and exchange.may_reauthenticate(now_ms)
            if not again:
                if exchange.expired(now_ms):
                    self.server.authentications.expired += 1
                    raise RefusedError("the SASL session has expired and the client did not re-authenticate")
                self._queue.request(frame)
                return
        self._negotiate(frame)

    def _negotiate(self, frame: bytes) -> None:
        """Handles a request of the SASL exchange."""
        api_key, version, correlation_id, client_id, position = decode_request_header(frame, 0)
        exchange = self._exchange
        served = self._dispatch.find(api_key, version)
        if served is None:
            if not exchange.accepts(api_key):
                raise RefusedError(f"the client sent a request with API key {api_key} before it authenticated")
            response, served, version = self._dispatch.unsupported(api_key, version)
            self._queue.respond(served, version, correlation_id, response)
            return
        if not (exchange.accepts(api_key) or exchange.complete):
            self._unexpected(frame, served, version, correlation_id, client_id, position)
            return
        served.requests += 1
        request: Any = served.decode(frame, version, position)
        if api_key == ApiKey.API_VERSIONS:
            response = self.server.engine.submit(self.make_context(version, client_id), request)
            if not response.error_code:
                exchange.negotiated()
            self._queue.respond(served, version, correlation_id, response)
        elif api_key == ApiKey.SASL_HANDSHAKE:
            response = exchange.handshake(version, request.mechanism, self.server.engine.now.now_ms)
            if response.error_code:
                slot = ResponseSlot(self._queue, served, version, correlation_id)
                self._fail(slot, response, f"SASL mechanism {request.mechanism[:MAX_SHOWN_NAME]!r} is not enabled")
            else:
                self._queue.respond(served, version, correlation_id, response)
        else:
            self._token(bytes(request.auth_bytes), ResponseSlot(self._queue, served, version, correlation_id))

    def _unexpected(
        self, frame: bytes, served: Served, version: int, correlation_id: int, client_id: str, position: int
    ) -> None:
        """Refuses a request that is invalid in this state.

        As in Kafka, the request gets a response only if the client has already chosen a mechanism. Before that, the
        server does not decode the invalid request of an unauthenticated client.
        """
        response = None
        if self._exchange.state is SaslState.TOKENS:
            request = served.decode(frame, version, position)
            response = served.api.error(self.make_context(version, client_id), request, ErrorCode.ILLEGAL_SASL_STATE)
        name = api_name(served.key)
        self._fail(
            ResponseSlot(self._queue, served, version, correlation_id),
            response,
            f"the client sent {name} before it authenticated",
        )

    def _token(self, token: bytes, slot: ResponseSlot) -> None:
        exchange = self._exchange
        if exchange.threads:
            login = Login(self.client_host, partial(exchange.evaluate, token), partial(self._evaluated, slot))
            if not self.server.logins(exchange.mechanism_name, exchange.threads).add(login):
                # A failed authentication would be final for the client; without a response it tries again.
                raise RefusedError(f"{login_queue.MAX_WAITING} logins from this address are already waiting")
            self._login, self._token_bytes = login, len(token)
            self._queue.defer(slot, parked=True)
            return
        try:
            self._settle(slot, exchange.evaluate(token))
        except AuthenticationError as error:
            self._not_authenticated(slot, error)

    def _evaluated(self, slot: ResponseSlot, future: asyncio.Future[bytes]) -> None:
        """Handles a token that was evaluated on another thread.

        An exception, for example a MemoryError, closes the connection, because otherwise the client would wait for a
        response.
        """
        self._login, self._token_bytes = None, 0
        try:
            self._finish(slot, future)
        except Exception as error:
            self._close_without_response(error)

    def _finish(self, slot: ResponseSlot, future: asyncio.Future[bytes]) -> None:
        error = None if future.cancelled() else future.exception()
        if self._closing or future.cancelled():
            return
        self.server.engine.now.update()
        if error is None:
            try:
                self._settle(slot, future.result())
            except AuthenticationError as refused:
                self._not_authenticated(slot, refused)
        elif isinstance(error, AuthenticationError):
            self._not_authenticated(slot, error)
        else:
            # The error text may contain bytes that the client sent: log only the error's type.
            self.server.client_log.log(
                logging.ERROR,
                self.client_host,
                "connection from %s: internal error in SASL mechanism %s (%s); the login fails; please report the "
                "error",
                self.client_host,
                self._exchange.mechanism_name,
                type(error).__name__,
                connection=self.connection_id,
            )
            self._not_authenticated(slot, AuthenticationError("the server could not check the credentials"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Handles the loss of the connection: cancels a login that is in progress."""
        if not self._authenticated:
            self._queue.clear()  # no further request of the client is served
        super().connection_lost(exc)
        self.server.unauthenticated.claim(self, 0)
        if self._login is not None:
            self.server.logins(self._exchange.mechanism_name, self._exchange.threads).cancel(self._login)

    def _settle(self, slot: ResponseSlot, reply: bytes) -> None:
        """Handles a valid token, which continues or completes the exchange."""
        exchange, now = self._exchange, self.server.engine.now
        lifetime_ms = exchange.evaluated(now.now_ms, now.wall_ms)
        if exchange.complete:
            self.principal = exchange.principal
            self.server.authentications.ended(exchange.mechanism_name, again=self._authenticated, success=True)
            self._authenticated = True
            self.server.unauthenticated.claim(self, 0)
            self._queue.clear_cache()
            self._queue.set_max_frame_bytes(self.server.config.socket_request_max_bytes)
            if exchange.expires_at_ms < 0:
                self._queue.gate = None  # permanently: the session never expires
            logger.debug(
                "connection from %s: authenticated with %s", self.client_host, exchange.mechanism_name,
                extra=fields(connection=self.connection_id, principal=self.principal),
            )  # fmt: skip
        response = SaslAuthenticateResponse(error_message=None, auth_bytes=reply, session_lifetime_ms=lifetime_ms)
        self._queue.defer(slot)
        self._respond(slot, response)

    def _respond(self, slot: ResponseSlot, response: Any) -> None:
        """Completes a response. Closes the connection if that fails, for example for lack of memory."""
        try:
            slot.respond(response)
        except Exception as error:
            self._close_without_response(error)

    def _close_without_response(self, error: Exception) -> None:
        """Closes the connection, because an internal error prevented the response to a login."""
        self.abort()
        # The error text may contain bytes that the client sent: log only the error's type.
        self.server.client_log.log(
            logging.ERROR,
            self.client_host,
            "connection from %s closed: an internal error prevented the response to a login (%s); please report the "
            "error",
            self.client_host,
            type(error).__name__,
            connection=self.connection_id,
        )

    def _not_authenticated(self, slot: ResponseSlot, error: AuthenticationError) -> None:
        self._exchange.fail()
        response = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error))
        self._fail(slot, response, f"{error} ({error.reason})" if error.reason else str(error))

    def _fail(self, slot: ResponseSlot, response: Any, reason: str) -> None:
        """Responds after a delay and closes the connection.

        The delay slows down the guessing of passwords (KIP-306).
        """
        if self._exchange.state is not SaslState.FAILED:
            self._exchange.fail()
        self.server.authentications.ended(self._exchange.mechanism_name, again=self._authenticated, success=False)
        self._queue.defer(slot)
        self._refuse(f"SASL exchange failed: {reason}")
        delay_ms = self.server.config.connection_failed_authentication_delay_ms
        self.server.loop.call_later(delay_ms / 1000, self._send_failure, slot, response)

    def _send_failure(self, slot: ResponseSlot, response: Any) -> None:
        if not self._closing:
            self._respond(slot, response)
