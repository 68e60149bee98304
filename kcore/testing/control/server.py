"""The HTTP server of the controls: a thread for each connection, on loopback addresses only."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader, RawIOBase
from socket import AF_INET, AF_INET6, SHUT_RDWR, SHUT_WR, socket
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kcore.errors import ConfigError, KafkaError, KcoreError
from kcore.json_text import parse_json
from kcore.process_logging import next_step
from kcore.server.listeners import parse_address
from kcore.testing.control.fields import InvalidRequestError, check_object, check_text
from kcore.testing.control.openapi import text
from kcore.testing.control.operations import OPERATIONS, Operation

if TYPE_CHECKING:
    from kcore.testing.control.control import Control

logger = logging.getLogger(__name__)

MAX_BODY: Final = 1 << 20
MAX_DIGITS: Final = 12  # of a Content-Length
MAX_CONNECTIONS: Final = 64
IDLE_S: Final = 30.0  # time for which a connection may send nothing, and in which it must read a response
REQUEST_S: Final = 10.0  # time from the first byte of a request to its last
CLOSE_S: Final = 2.0  # time that a client has to end a connection after the last response
SKIP_LIMIT: Final = 16 * MAX_BODY  # bytes of a refused request that are read, so that the client reads the response

BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error": "service_unavailable", "message": "%d connections are open already"}' % MAX_CONNECTIONS
)

Reply = tuple[int, Any]


class RefusedRequestError(Exception):
    """A request that is refused with a status other than 400.

    Args:
        status: the HTTP status code.
        message: the reason, which is sent to the client.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def loopback_address(address: str) -> tuple[str, int]:
    """Parses HOST:PORT and checks that the host is a loopback address.

    Raises:
        ConfigError: the host is not a loopback address; the control server has no access control.
    """
    host, port = parse_address(address, "--control")
    if not _is_loopback(host):
        raise ConfigError(
            f"--control {address}: only loopback addresses are valid, such as 127.0.0.1:{port}, because the control "
            "server has no access control"
        )
    return "127.0.0.1" if host == "localhost" else host, port


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ControlServer(ThreadingHTTPServer):
    """The server of a broker's controls. It runs on separate threads.

    Args:
        control: the broker and its faults.
        address: HOST:PORT, or [HOST]:PORT for IPv6; the host must be a loopback address, and port 0 selects a free one.

    Raises:
        ConfigError: the address is not valid.
        OSError: the process cannot listen on the address.

    Attributes:
        control: the broker and its faults.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, control: Control, address: str) -> None:
        self.control = control
        self._free = threading.Semaphore(MAX_CONNECTIONS)
        self._open: set[socket] = set()
        host, port = loopback_address(address)
        self.address_family = AF_INET6 if ":" in host else AF_INET
        super().__init__((host, port), ControlHandler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="kcore-control", daemon=True)

    @property
    def url(self) -> str:
        """The address for requests: http://HOST:PORT."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_address[1]}"

    def server_bind(self) -> None:
        """Binds the socket without the DNS lookup of the host name, which the base class would make."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def __enter__(self) -> ControlServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):  # its thread has closed it meanwhile
                connection.shutdown(SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection on a new thread; refuses the connection if too many are open."""
        if not self._free.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(BUSY)
                request.shutdown(SHUT_WR)
            self.close_request(request)
            return
        self._open.add(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._open.discard(request)
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._free.release()

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection after reading the bytes that its client still sends.

        Closing a socket with unread bytes resets the connection, and the client may lose the response to a refused
        request.
        """
        deadline = time.monotonic() + CLOSE_S
        size = 0
        with contextlib.suppress(OSError):
            request.shutdown(SHUT_WR)
            while size < SKIP_LIMIT and (left := deadline - time.monotonic()) > 0:
                request.settimeout(left)
                if not (data := request.recv(1 << 16)):
                    break
                size += len(data)
        self.close_request(request)

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Logs the failure of a connection, unless the client has closed it."""
        logger.debug("control server: connection from %s failed", client_address, exc_info=True)


def find(method: str, path: str) -> tuple[Operation, dict[str, str]]:
    """Returns the operation of a request and the parameters in its path.

    Raises:
        InvalidRequestError: the path is not valid UTF-8.
        RefusedRequestError: no operation has this path, or none with this method.
    """
    words = path.partition("?")[0].split("/")
    methods = []
    for operation in OPERATIONS:
        pattern = operation.path.split("/")
        if len(pattern) != len(words):
            continue
        if any(expected != word and expected[:1] != "{" for expected, word in zip(pattern, words, strict=True)):
            continue
        methods.append(operation.method)
        if operation.method == method:
            pairs = zip(pattern, words, strict=True)
            return operation, {name[1:-1]: _decoded(word) for name, word in pairs if name[:1] == "{"}
    if methods:
        raise RefusedRequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"valid methods of this path: {', '.join(methods)}")
    raise RefusedRequestError(HTTPStatus.NOT_FOUND, "this path does not exist; GET /openapi.json describes all paths")


def _decoded(word: str) -> str:
    try:
        decoded = unquote(word, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequestError("the path is not UTF-8") from None
    check_text(decoded, "a parameter of the path")
    return decoded


def parse_body(body: bytes) -> Any:
    """Parses a body of JSON; an empty body counts as an empty object.

    Raises:
        InvalidRequestError: the body is not JSON.
    """

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    if not body.strip():
        return {}
    try:
        return parse_json(body.decode(), parse_constant=refuse)
    except ValueError as error:
        raise InvalidRequestError(f"the body is not valid JSON: {str(error)[:200]}") from None


def reply_to_error(error: Exception) -> Reply:
    """Returns the status and the body for a failed request."""
    status, kind, message = HTTPStatus.CONFLICT, "conflict", str(error)
    if isinstance(error, RefusedRequestError):
        status, kind = error.status, error.status.phrase.lower().replace(" ", "_")
    elif isinstance(error, KafkaError):
        kind = error.code.name
    elif isinstance(error, AssertionError):
        kind = "assertion_failed"
    elif isinstance(error, LookupError):
        status, kind, message = HTTPStatus.NOT_FOUND, "not_found", str(error.args[0]) if error.args else "not found"
    elif isinstance(error, ValueError):
        status, kind = HTTPStatus.BAD_REQUEST, "bad_request"
    elif not isinstance(error, KcoreError | TimeoutError | OSError):
        logger.error(
            "control server: an internal error; the client gets status 500%s",
            next_step(error),
            exc_info=error,
        )
        status, kind = HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error"
    return status, {"error": kind, "message": message or kind}


class _TimedReader(RawIOBase):
    """The reader of a connection. It limits the time between the first and the last byte of a request."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self.expect()

    def expect(self) -> None:
        """Begins to wait for a request."""
        self._until_s = time.monotonic() + IDLE_S
        self._has_begun = False

    def readable(self) -> bool:
        """Returns True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Reads the available bytes into `buffer`, and returns their number.

        Raises:
            TimeoutError: the request comes too slowly.
        """
        self._connection.settimeout(max(0.001, self._until_s - time.monotonic()))
        size = self._connection.recv_into(buffer)
        if not self._has_begun:
            self._has_begun = True
            self._until_s = time.monotonic() + REQUEST_S
        return size


class ControlHandler(BaseHTTPRequestHandler):
    """One connection of the control server."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    server: ControlServer

    def __getattr__(self, name: str) -> Any:
        """Returns `_reply` for every HTTP method, so that requests with unknown methods get a response in JSON."""
        if name.startswith("do_"):
            return self._reply
        raise AttributeError(name)

    def setup(self) -> None:
        """Limits the time of each request."""
        super().setup()
        self.rfile.close()
        self._reader = _TimedReader(self.connection)
        self.rfile = BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        """Reads and serves a request."""
        self._reader.expect()
        super().handle_one_request()

    def _reply(self) -> None:
        self.close_connection = self.close_connection or self.request_version != "HTTP/1.1"
        try:
            status, reply = self._run()
        except Exception as error:
            status, reply = reply_to_error(error)
        body = b"" if reply is None else reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self._send(status, body)

    def _send(self, status: int, body: bytes) -> None:
        self.connection.settimeout(IDLE_S)
        self.send_response(status)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _run(self) -> tuple[int, Any]:
        body = self._body()
        self._check_origin()
        if self.command == "GET" and self.path.partition("?")[0] == "/openapi.json":
            return HTTPStatus.OK, text().encode()
        operation, parameters = find(self.command, self.path)
        values = check_object(operation.body, parse_body(body))
        result = operation.run(self.server.control, parameters, values)
        return (HTTPStatus.NO_CONTENT, None) if not operation.response else (operation.status, result)

    def _body(self) -> bytes:
        """Reads the body of the request."""
        if self.headers.get("Transfer-Encoding") is not None:
            self.close_connection = True
            raise RefusedRequestError(HTTPStatus.LENGTH_REQUIRED, "the body needs a Content-Length")
        lengths = self.headers.get_all("Content-Length") or ["0"]
        digits = lengths[0]
        if len(lengths) > 1 or not (digits.isascii() and digits.isdigit()) or len(digits) > MAX_DIGITS:
            self.close_connection = True
            raise InvalidRequestError("Content-Length is not valid")
        size = int(digits)
        if size > MAX_BODY:
            self.close_connection = True
            raise RefusedRequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have at most {MAX_BODY} bytes"
            )
        try:
            body = self.rfile.read(size)
        except TimeoutError:
            self.close_connection = True
            message = f"the body did not arrive within {REQUEST_S:g} s"
            raise RefusedRequestError(HTTPStatus.REQUEST_TIMEOUT, message) from None
        if len(body) < size:
            self.close_connection = True
            raise InvalidRequestError("the body is shorter than its Content-Length")
        return body

    def _check_origin(self) -> None:
        """Refuses the requests of web pages, because any page in a browser of this machine could control the broker."""
        host = self.headers.get("Host", "127.0.0.1").rpartition(":")
        name = host[0] if host[2].isdigit() and host[0] else "".join(host)
        if self.headers.get("Origin") is not None or not _is_loopback(name.lower().strip("[]")):
            raise RefusedRequestError(HTTPStatus.FORBIDDEN, "requests of web pages, or for other hosts, are refused")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Responds in JSON to a request whose head is malformed."""
        self.close_connection = True
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = "HTTP/1.1"
        kind = HTTPStatus(code).phrase.lower().replace(" ", "_")
        self._send(code, json.dumps({"error": kind, "message": message or explain or kind}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Logs a request."""
        logger.debug("control server: %s", format % args)
