"""A pipelined connection to one broker, on an asyncio event loop."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from kcore.client.aio.receive_buffer import ReceiveBuffer
from kcore.client.aio.results import OnDone, call_with_result
from kcore.client.connection import (
    API_VERSIONS_VERSION,
    AUTHENTICATE_VERSION,
    HANDSHAKE_VERSION,
    SOFTWARE_NAME,
    SOFTWARE_VERSION,
    end_of_tags,
)
from kcore.client.sasl import MECHANISMS
from kcore.client.security import ClientSecurity
from kcore.errors import AuthenticationError, ConnectionClosedError, KafkaError
from kcore.protocol.api_keys import api_name, response_class, response_header_version
from kcore.protocol.error_codes import ErrorCode, code_name
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kcore.protocol.schema import Request
from kcore_ext.codec.frames import encode_request
from kcore_ext.codec.read import decode_with_views

R = TypeVar("R")

NO_TLS = "TLS or a password, set security.protocol"
NO_PASSWORD = "a password or a client's certificate, set security.protocol or ssl.keystore.location"
OVERDUE_S = 0.001  # timers of an event loop may fire this much early


class _Waiting(NamedTuple):
    """A request without a response.

    Attributes:
        future: receives the response; None: `on_done` receives it.
        on_done: called with the response; None: `future` receives it.
        request_type: the request's class.
        version: the version in which the request was sent.
        deadline_s: the event loop's time at which the response is overdue; infinity: never.
        timeout_s: the time limit of the response, for the error text.
        views: True if the records of the response may be views of the received bytes.
    """

    future: asyncio.Future[Any] | None
    on_done: OnDone | None
    request_type: Any
    version: int
    deadline_s: float
    timeout_s: float
    views: bool = False

    @property
    def abandoned(self) -> bool:
        """True if the caller was cancelled."""
        return self.future is not None and self.future.done()

    def complete(self, response: Any, error: Exception | None) -> None:
        """Passes the response or the error to the caller."""
        if self.on_done is not None:
            call_with_result(self.on_done, response, error)
        elif self.future is not None and not self.future.done():
            if error is None:
                self.future.set_result(response)
            else:
                self.future.set_exception(error)
                self.future.exception()  # marks it as retrieved: asyncio would log the error of an abandoned request


class AsyncConnection(asyncio.BufferedProtocol):
    """One connection, created by `open`. Requests are pipelined; the broker responds in order.

    Attributes:
        versions: API key -> the versions that the broker serves.
        features: finalized feature -> level, for example `transaction.version`.
    """

    def __init__(self, host: str, port: int, client_id: str) -> None:
        self._host = host
        self._port = port
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = ReceiveBuffer()
        self._correlation_id = 0
        self._waiting: dict[int, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None  # fires at the earliest deadline or before
        self._error: ConnectionClosedError | None = None
        self._full = False  # True while the socket's buffer is full
        self._writers: list[asyncio.Future[None]] = []  # the callers that wait for room in the buffer, in order
        self._accepted = True
        self._hint = ""  # the protection that the server may require and the client does not use, and its setting
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float,
        security: ClientSecurity | None,
        *,
        accepted: bool = False,
    ) -> AsyncConnection:
        """Connects, performs the TLS handshake and SASL, and requests the served versions.

        Args:
            host: the broker's host name or IP address.
            port: the broker's TCP port.
            client_id: the client id in every request.
            timeout_s: the time limit of the connection, and of each response.
            security: TLS and SASL; None: neither.
            accepted: True if the cluster has served this client with the same security before. The error of a lost
                connection then does not suggest another security protocol.

        Raises:
            ConnectionClosedError: no server listens there, or the TLS handshake failed.
            AuthenticationError: the server refuses the credentials, or does not prove its own identity.
        """
        self = cls(host, port, client_id)
        self._accepted = accepted
        tls = None if security is None else security.tls
        try:
            async with asyncio.timeout(timeout_s):
                await self._loop.create_connection(
                    lambda: self, host, port, ssl=tls, server_hostname=host if tls is not None else None
                )
        except TimeoutError:
            raise ConnectionClosedError(f"cannot connect to {host}:{port} within {timeout_s:g} s") from None
        except OSError as error:
            cause = str(error) or type(error).__name__
            if hasattr(error, "verify_message"):
                cause += "; ssl.truststore.location names the authorities that the client trusts"
            if tls is not None and isinstance(error, ConnectionResetError):
                cause = "the server closed the connection during the TLS handshake; its listener may not use TLS"
            raise _closed_error(f"cannot connect to {host}:{port}: {cause}", not self._refuses_tls(error)) from error
        except (OverflowError, ValueError) as error:  # a broker's response had an invalid address
            raise ConnectionClosedError(f"cannot connect to {host!r}:{port}: {error}") from error
        if not accepted and (security is None or not security.mechanism):
            self._hint = NO_TLS if tls is None else NO_PASSWORD
        try:
            if security is not None and security.mechanism:
                await self._authenticate(security, timeout_s)
            await self._request_versions(timeout_s)
        except BaseException:
            self.close()
            raise
        return self

    async def _authenticate(self, security: ClientSecurity, timeout_s: float) -> None:
        handshake = SaslHandshakeRequest(mechanism=security.mechanism)
        accepted = await self.send(handshake, HANDSHAKE_VERSION, timeout_s)
        if accepted.error_code:
            names = ", ".join(accepted.mechanisms) or "none"
            raise AuthenticationError(
                f"{self._host}: the server does not support SASL mechanism {security.mechanism}; it supports {names}"
            )
        exchange = MECHANISMS[security.mechanism](security.user, security.password)
        token = next(exchange)
        while True:
            response = await self.send(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION, timeout_s)
            if response.error_code:
                raise AuthenticationError(response.error_message or code_name(response.error_code))
            try:
                token = exchange.send(response.auth_bytes)
            except StopIteration:
                return

    async def _request_versions(self, timeout_s: float) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        response = await self.send(request, API_VERSIONS_VERSION, timeout_s)
        if response.error_code:
            raise KafkaError.of(response.error_code)
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self.features = {row.name: row.max_version_level for row in response.finalized_features}

    def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version of a request that the client and the broker support, not above `at_most`.

        Raises:
            UnsupportedVersionError: the client and the broker have no version in common.
        """
        low, high = self.versions.get(request_type.API_KEY, (0, -1))
        version = min(high, request_type.MAX_VERSION)
        if at_most is not None and at_most < version:
            version = at_most
        if version < low or version < request_type.MIN_VERSION:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self._host}:{self._port} supports no version of {request_type.__name__} that this client supports",
            )
        return int(version)

    async def send(self, request: Request[R], version: int, timeout_s: float) -> R:
        """Sends a request and returns its response.

        Raises:
            ConnectionClosedError: the connection was closed before the response arrived.
            TimeoutError: no response arrived in time. The connection is closed, and all its requests fail.
        """
        if self._error is not None:
            raise self._refusal()
        await self.wait_writable()
        response: R = await self.start(request, version, timeout_s)
        return response

    def start(
        self, request: Any, version: int, timeout_s: float = math.inf, *, views: bool = False
    ) -> asyncio.Future[Any]:
        """Sends a request. The returned future receives the response, or an error that `send` describes.

        Args:
            request: a request message.
            version: the version in which to encode the request.
            timeout_s: the time limit of the response.
            views: True if the records of the response may be views of the received bytes. A view keeps the memory
                of the whole response.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self._start(request, version, timeout_s, future, None, views)
        return future

    def call(self, request: Any, version: int, timeout_s: float, on_done: OnDone) -> None:
        """Sends a request. `on_done` is called with the response or the error, on the thread of the event loop.

        If this method raises an error, `on_done` is not called.

        Raises:
            ConnectionClosedError: the connection is closed.
            EncodeError: the request cannot be encoded.
        """
        self._start(request, version, timeout_s, None, on_done)

    def _start(
        self,
        request: Any,
        version: int,
        timeout_s: float,
        future: asyncio.Future[Any] | None,
        on_done: OnDone | None,
        views: bool = False,
    ) -> None:
        if self._error is not None or self._transport is None:
            raise self._refusal()
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFFFFFF
        data = encode_request(request, version, number, self._client_id)
        deadline_s = self._loop.time() + timeout_s
        if self._timer is None or deadline_s < self._timer.when():
            self._set_timer(deadline_s)
        waiting = _Waiting(future, on_done, type(request), version, deadline_s, timeout_s, views)
        try:
            if request.API_KEY == 0 and not request.acks:  # Produce with acks=0 has no response
                self._loop.call_soon(waiting.complete, None, None)
            else:
                self._waiting[number] = waiting
            self._transport.write(data)
        except BaseException:
            self._waiting.pop(number, None)
            self.close()  # a part of the request may have been sent
            raise

    def _set_timer(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_s < math.inf:
            self._timer = self._loop.call_at(deadline_s, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Fails a request whose response is overdue, and closes the connection."""
        self._timer = None
        now_s = self._loop.time()
        earliest: _Waiting | None = None
        for waiting in self._waiting.values():
            if not waiting.abandoned and (earliest is None or waiting.deadline_s < earliest.deadline_s):
                earliest = waiting
        if earliest is None:
            return
        if earliest.deadline_s > now_s + OVERDUE_S:
            self._set_timer(earliest.deadline_s)
            return
        address = f"{self._host}:{self._port}"
        self._waiting = {number: each for number, each in self._waiting.items() if each is not earliest}
        try:
            earliest.complete(
                None,
                TimeoutError(
                    f"{address}: no response to {earliest.request_type.__name__} within {earliest.timeout_s:g} s"
                ),
            )
        finally:
            self._close(
                ConnectionClosedError(f"{address}: the connection was closed because a response did not arrive in time")
            )

    @property
    def writable(self) -> bool:
        """True if the socket accepts more requests; otherwise `wait_writable` waits until it does."""
        return not self._full

    async def wait_writable(self) -> None:
        """Waits until the socket accepts more requests, or the connection is closed."""
        if self._full:
            writer: asyncio.Future[None] = self._loop.create_future()
            self._writers.append(writer)
            await writer

    @property
    def closed(self) -> bool:
        """True if no more requests can be sent."""
        return self._error is not None

    def close(self) -> None:
        """Closes the connection; requests without a response fail."""
        self._close(ConnectionClosedError(f"{self._host}:{self._port}: the connection was closed"))

    def abandon(self) -> None:
        """Ends the connection after the end of its event loop. Requests without a response are not completed."""
        raw = None if self._transport is None else self._transport.get_extra_info("socket")
        if self._error is None and raw is not None:
            self._error = ConnectionClosedError(f"{self._host}:{self._port}: the connection was closed")
            with suppress(OSError):  # the server has closed the connection
                raw.shutdown(socket.SHUT_RDWR)

    def _refusal(self) -> ConnectionClosedError:
        """Returns the error for a request on the closed connection."""
        return _closed_error(str(self._error), self._error is None or self._error.retriable)

    def _close(self, error: ConnectionClosedError) -> None:
        if self._error is None:
            self._error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        try:
            while self._waiting:
                self._waiting.pop(next(iter(self._waiting))).complete(None, error)
        finally:
            self.resume_writing()

    # ---- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not of this class
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails the requests that wait for a response."""
        reason = "the server closed the connection" if exc is None else f"the connection broke: {exc}"
        first = next(iter(self._waiting), math.inf)
        # A server refuses a missing certificate after the client's handshake.
        retriable = first > 2 or not self._refuses_tls(exc)
        # A listener with SASL responds to the first request, ApiVersions, and to no other one before the login. A
        # server that closes the connection before that may be starting, behind a proxy that accepts connections.
        if self._hint and first <= 2:
            reason += f"; if its listener requires {self._hint} in `security`, or in the file of --command-config"
            retriable = retriable and first < 2
        self._close(_closed_error(f"{self._host}:{self._port}: {reason}", retriable))

    def _refuses_tls(self, error: BaseException | None) -> bool:
        """Returns True if `error` shows that the client or the server refused TLS. A lost connection alone is no
        refusal.
        """
        if self._accepted:  # other errors of a listener that has served this client may end by themselves
            return isinstance(error, ssl.SSLCertVerificationError)
        return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)

    def pause_writing(self) -> None:
        """Holds new requests back while the socket's buffer is full."""
        self._full = True

    def resume_writing(self) -> None:
        """Lets waiting requests continue."""
        self._full = False
        writers, self._writers = self._writers, []
        for writer in writers:
            if not writer.done():
                writer.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the memory for the next bytes."""
        return self._received.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Completes the requests whose responses have arrived."""
        received = self._received
        received.add(nbytes)
        try:
            while (frame := received.next_frame()) is not None:
                self._complete(frame)
        except Exception as error:
            self._close(ConnectionClosedError(f"{self._host}:{self._port}: malformed response {error}"))
        except BaseException:
            self.close()  # after an interrupt, the other responses that have arrived would stay unread
            raise

    def _complete(self, frame: memoryview) -> None:
        number = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.get(number)
        if waiting is None:
            raise ValueError(f"with the unknown correlation id {number}")
        if not waiting.abandoned:
            version = waiting.version
            decode, tagged = _decoder(waiting.request_type, version)
            # If decoding fails, the request is still waiting, and the closing connection fails it.
            start = end_of_tags(frame, 4) if tagged else 4
            try:
                response = (
                    decode_with_views(decode, frame, version, start) if waiting.views else decode(frame, version, start)
                )
            except (IndexError, ValueError) as error:
                name = api_name(waiting.request_type.API_KEY)
                raise ValueError(f"to {name} in version {version}: {error}") from error
            waiting.complete(response, None)
        self._waiting.pop(number, None)  # a callback that closed the connection has removed it already


def _closed_error(text: str, retriable: bool) -> ConnectionClosedError:
    error = ConnectionClosedError(text)
    error.retriable = retriable
    return error


@cache
def _decoder(request_type: Any, version: int) -> tuple[Callable[[memoryview, int, int], Any], bool]:
    """Returns a pair: the function that decodes responses, and True if tags precede their body (KIP-482)."""
    key = request_type.API_KEY
    return response_class(key).decode, response_header_version(key, version) > 0
