"""A blocking connection to any Kafka-compatible server, for tools and tests: typed requests and responses."""

from __future__ import annotations

import socket
import time
from typing import Any, TypeVar

from kcore.client.aio.receive_buffer import MAX_FRAME_BYTES
from kcore.client.sasl import MECHANISMS
from kcore.client.security import ClientSecurity
from kcore.errors import AuthenticationError, ConnectionClosedError
from kcore.protocol.api_keys import ApiKey, api_name, response_class, response_header_version
from kcore.protocol.error_codes import code_name
from kcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kcore.protocol.schema import Request
from kcore.version import VERSION
from kcore_ext.codec.frames import encode_request

R = TypeVar("R")

HANDSHAKE_VERSION = 1  # tokens are sent in SaslAuthenticate (KIP-152)
AUTHENTICATE_VERSION = 1
API_VERSIONS_VERSION = 3  # the first version with the client's software name (KIP-511); older servers return an error
SOFTWARE_NAME, SOFTWARE_VERSION = "kcore", VERSION
RECEIVE_BYTES = 1 << 20
"""Maximum number of bytes of a single read from the socket."""
MAX_VARINT_SHIFT = 28
"""Maximum shift of a byte of an unsigned varint, in bits. A varint has at most five bytes, each with seven bits."""


class Connection:
    """A blocking connection to one server. Not thread-safe.

    Args:
        host: the server's host name or IP address.
        port: the server's TCP port.
        client_id: the client id in every request.
        timeout_s: time limit of one response.
        security: TLS and SASL; None: neither.

    Raises:
        ConnectionClosedError: no server listens there, or the TLS handshake failed.
        AuthenticationError: the server refuses the client's credentials, or does not prove its own identity.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str = "kcore",
        timeout_s: float = 30.0,
        security: ClientSecurity | None = None,
    ) -> None:
        self.client_id = client_id
        self._correlation_id = 0
        self._responded = False
        self._secure = security is not None
        self._versions: dict[int, tuple[int, int]] | None = None
        self._timeout_s = timeout_s
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise ConnectionClosedError(f"cannot connect to {host}:{port}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security is not None:
            try:
                self._authenticate(security, host)
            except BaseException:
                self.close()
                raise

    def _authenticate(self, security: ClientSecurity, host: str) -> None:
        """Performs the TLS handshake, then SASL (KIP-43, KIP-152)."""
        if security.tls is not None:
            try:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
            except OSError as error:  # ssl's own errors are OSErrors
                raise ConnectionClosedError(f"{host}: TLS handshake failed: {error}") from error
        if not security.mechanism:
            return
        handshake = self.send(SaslHandshakeRequest(mechanism=security.mechanism), HANDSHAKE_VERSION)
        if handshake.error_code:
            names = ", ".join(handshake.mechanisms) or "none"
            raise AuthenticationError(
                f"{host}: the server does not support SASL mechanism {security.mechanism}; it supports {names}"
            )
        exchange = MECHANISMS[security.mechanism](security.user, security.password)
        token = next(exchange)
        while True:
            response = self.send(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)
            if response.error_code:
                raise AuthenticationError(response.error_message or code_name(response.error_code))
            try:
                token = exchange.send(response.auth_bytes)
            except StopIteration:
                return

    @classmethod
    def to(cls, bootstrap: str, **options: Any) -> Connection:
        """Connects to `HOST:PORT`."""
        host, _, port = bootstrap.rpartition(":")
        if not port.isdigit():
            raise ConnectionClosedError(f"{bootstrap!r} is not HOST:PORT")
        return cls(host.strip("[]") or "127.0.0.1", int(port), **options)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    @property
    def closed(self) -> bool:
        """True if the client closed the connection: by `close`, or because a wait for a response was interrupted."""
        return self._socket.fileno() < 0

    def send(self, request: Request[R], version: int | None = None) -> R:
        """Sends a typed request and waits for its response.

        Args:
            request: a request message.
            version: the request version; None: the newest that the client and the server support.

        Returns:
            The response message.

        Raises:
            ConnectionClosedError: the server closed the connection, e.g. because it cannot decode the request.
            TimeoutError: no response arrived in time; the connection is closed.
        """
        key = type(request).API_KEY
        if version is None:
            version = self._newest(request)
        self._correlation_id += 1
        data = encode_request(request, version, self._correlation_id, self.client_id)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(data)
            frame = self._frame(time.monotonic() + self._timeout_s)
            response: R = self._decode(frame, key, version)
        except BaseException as error:  # including interrupts
            self.close()  # the response may still arrive, and the next request would read it
            if isinstance(error, OSError) and not isinstance(error, TimeoutError | ConnectionClosedError):
                raise ConnectionClosedError(f"the connection broke: {error}") from error
            raise
        self._responded = True
        return response

    def _decode(self, frame: bytes, key: int, version: int) -> Any:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id != self._correlation_id:
            raise ConnectionClosedError(
                f"the response has correlation id {correlation_id} instead of {self._correlation_id}"
            )
        try:
            return response_class(key).decode(frame, version, body_position(key, version, frame))
        except (ValueError, IndexError) as error:
            raise ConnectionClosedError(
                f"malformed response to {api_name(key)} in version {version}: {error}"
            ) from error

    def _newest(self, request: Any) -> int:
        """Returns the newest version that the client and the server support."""
        key = type(request).API_KEY
        if key == ApiKey.API_VERSIONS:
            return int(type(request).MAX_VERSION)
        if self._versions is None:
            response: ApiVersionsResponse = self.send(
                ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION),
                API_VERSIONS_VERSION,
            )
            self._versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        low, high = self._versions.get(key, (0, -1))
        version = min(high, type(request).MAX_VERSION)
        if version < max(low, type(request).MIN_VERSION):
            raise ConnectionClosedError(f"the server does not support {type(request).__name__}")
        return int(version)

    def _frame(self, deadline_s: float) -> bytes:
        size = int.from_bytes(self._exactly(4, deadline_s), "big")
        if size > MAX_FRAME_BYTES:
            raise ConnectionClosedError(f"a response of {size} bytes: the server does not use Kafka's protocol")
        return self._exactly(size, deadline_s)

    def _why_closed(self) -> str:
        closed = "the server closed the connection"
        if self._responded or self._secure:
            return closed
        return (
            f"{closed} without a response; if the server requires TLS or a password, set security.protocol in the "
            "file of --command-config, or pass security=ClientSecurity.of(...)"
        )

    def _exactly(self, size: int, deadline_s: float) -> bytes:
        """Receives `size` bytes. All of them must arrive before the deadline, even if the server sends single bytes."""
        parts: list[bytes] = []
        while size:
            if parts:
                self._socket.settimeout(max(deadline_s - time.monotonic(), 0.001))
            part = self._socket.recv(min(size, RECEIVE_BYTES))
            if not part:
                raise ConnectionClosedError(self._why_closed())
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def body_position(key: int, version: int, frame: bytes | memoryview) -> int:
    """Returns the position of a response's body, after the correlation id and the header's tags."""
    return 4 if response_header_version(key, version) == 0 else end_of_tags(frame, 4)


def end_of_tags(frame: bytes | memoryview, position: int) -> int:
    """Returns the end of a tag section that begins at `position` (KIP-482). Servers may send tags in headers."""
    if not frame[position]:
        return position + 1
    count, position = _uvarint(frame, position)
    for _ in range(count):
        _, position = _uvarint(frame, position)
        size, position = _uvarint(frame, position)
        position += size
    return position


def _uvarint(frame: bytes | memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > MAX_VARINT_SHIFT:  # a longer number would take time with the square of its length
            raise ValueError("an unsigned varint has more than 5 bytes")
