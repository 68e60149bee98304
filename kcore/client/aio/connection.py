"""A pipelined connection to one broker, on an asyncio event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, TypeVar, cast

from kcore.client.aio.receive_buffer import ReceiveBuffer
from kcore.client.connection import (
    API_VERSIONS_VERSION,
    AUTHENTICATE_VERSION,
    HANDSHAKE_VERSION,
    SOFTWARE_NAME,
    SOFTWARE_VERSION,
    body_position,
)
from kcore.client.sasl import MECHANISMS
from kcore.client.security import ClientSecurity
from kcore.errors import ConnectionClosedError, KafkaError
from kcore.protocol.api_keys import ApiKey, response_class
from kcore.protocol.error_codes import ErrorCode, code_name
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kcore.protocol.schema import Request
from kcore.security.mechanism import AuthenticationError
from kcore_ext.codec.frames import encode_request

R = TypeVar("R")


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
        self._transport: asyncio.Transport | None = None
        self._received = ReceiveBuffer()
        self._correlation_id = 0
        self._waiting: dict[int, tuple[asyncio.Future[Any], int, int]] = {}
        self._error: Exception | None = None
        self._writable: asyncio.Future[None] | None = None
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}

    @classmethod
    async def open(
        cls, host: str, port: int, client_id: str, timeout_s: float, security: ClientSecurity | None
    ) -> AsyncConnection:
        """Connects, performs the TLS handshake and SASL, and asks for the served versions.

        Raises:
            ConnectionClosedError: no server listens there, or the TLS handshake failed.
            AuthenticationError: the server refuses the credentials, or does not prove its own identity.
        """
        self = cls(host, port, client_id)
        tls = None if security is None else security.tls
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(
                    lambda: self, host, port, ssl=tls, server_hostname=host if tls is not None else None
                )
        except TimeoutError:
            raise ConnectionClosedError(f"cannot connect to {host}:{port} within {timeout_s:g} s") from None
        except (OverflowError, ValueError) as error:  # a port or a host name that cannot be, from a broker's response
            raise ConnectionClosedError(f"cannot connect to {host!r}:{port}: {error}") from error
        except OSError as error:
            cause = str(error) or type(error).__name__
            if tls is not None and isinstance(error, ConnectionResetError):
                cause = "the server closed the connection during the TLS handshake; its listener may not use TLS"
            raise ConnectionClosedError(f"cannot connect to {host}:{port}: {cause}") from error
        try:
            if security is not None and security.mechanism:
                await self._authenticate(security, timeout_s)
            await self._ask_versions(timeout_s)
        except BaseException:
            self.close()
            raise
        return self

    async def _authenticate(self, security: ClientSecurity, timeout_s: float) -> None:
        handshake = SaslHandshakeRequest(mechanism=security.mechanism)
        offered = await self.send(handshake, HANDSHAKE_VERSION, timeout_s)
        if offered.error_code:
            names = ", ".join(offered.mechanisms) or "none"
            raise AuthenticationError(f"{self._host}: {security.mechanism} is not served; the server has {names}")
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

    async def _ask_versions(self, timeout_s: float) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        response = await self.send(request, API_VERSIONS_VERSION, timeout_s)
        if response.error_code:
            raise KafkaError.of(response.error_code)
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self.features = {row.name: row.max_version_level for row in response.finalized_features}

    def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version of a request that both sides know, not above `at_most`.

        Raises:
            UnsupportedVersionError: both sides have no version in common.
        """
        low, high = self.versions.get(request_type.API_KEY, (0, -1))
        version = min(high, request_type.MAX_VERSION)
        if at_most is not None and at_most < version:
            version = at_most
        if version < low or version < request_type.MIN_VERSION:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self._host}:{self._port} does not serve a known version of {request_type.__name__}",
            )
        return int(version)

    async def send(self, request: Request[R], version: int, timeout_s: float) -> R:
        """Sends a request and returns its response.

        Raises:
            ConnectionClosedError: the connection was closed before the response arrived.
            TimeoutError: no response arrived in time. The connection is closed, and all its requests fail.
        """
        if self._error is not None:
            raise ConnectionClosedError(str(self._error))
        if self._writable is not None:
            await self._writable
        future = self.start(request, version)
        timer = asyncio.get_running_loop().call_later(timeout_s, self._expire, future, type(request), timeout_s)
        try:
            response: R = await future
            return response
        finally:
            timer.cancel()

    def _expire(self, future: asyncio.Future[Any], request_type: type, timeout_s: float) -> None:
        """Fails a request whose response is overdue, and closes the connection."""
        if not future.done():
            address = f"{self._host}:{self._port}"
            future.set_exception(
                TimeoutError(f"{address}: no response to {request_type.__name__} within {timeout_s:g} s")
            )
            self._close(ConnectionClosedError(f"{address}: a response is overdue"))

    def start(self, request: Any, version: int) -> asyncio.Future[Any]:
        """Sends a request; the returned future gets the response."""
        if self._error is not None or self._transport is None:
            raise ConnectionClosedError(str(self._error))
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFFFFFF
        data = encode_request(request, version, number, self._client_id)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if request.API_KEY == 0 and not request.acks:
            future.set_result(None)  # Produce with acks=0 has no response
        else:
            self._waiting[number] = (future, request.API_KEY, version)
        self._transport.write(data)
        return future

    @property
    def closed(self) -> bool:
        """True if no more requests can be sent."""
        return self._error is not None

    def close(self) -> None:
        """Closes the connection; requests without a response fail."""
        self._close(ConnectionClosedError(f"{self._host}:{self._port}: the connection was closed"))

    def _close(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, {}
        for future, _, _ in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # an abandoned request is no reason for a warning at exit
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
        self._close(ConnectionClosedError(f"{self._host}:{self._port}: {reason}"))

    def pause_writing(self) -> None:
        """Holds new requests back while the socket's buffer is full."""
        if self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Lets waiting requests continue."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

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

    def _complete(self, frame: memoryview) -> None:
        number = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.get(number)
        if waiting is None:
            raise ValueError(f"with the correlation id {number}, which no request has")
        future, key, version = waiting
        if not future.done():  # it is not cancelled
            # If this fails, the request still waits, and fails with the connection.
            try:
                response = response_class(key).decode(frame, version, body_position(key, version, frame))
            except (IndexError, ValueError) as error:
                raise ValueError(f"to {ApiKey(key).name} in version {version}: {error}") from error
            future.set_result(response)
        del self._waiting[number]
