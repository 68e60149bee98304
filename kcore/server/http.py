"""A minimal HTTP server for operators: the console, metrics, liveness and readiness of the node.

It serves GET and HEAD, one request per connection, on the engine's event loop. Therefore, any response proves that the
loop runs. The server has no access control; bind it to an address that only operators can reach. Metrics and the
documents of the console are made in slices. In each turn of the loop one slice runs, even if many documents are
requested at the same time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kcore.metrics import CONTENT_TYPE
from kcore.process_logging import limited_logger
from kcore.server.console import DOCUMENTS, STATIC, BadQueryError, Query, read_static
from kcore.server.listeners import format_address, listen_error, parse_address

if TYPE_CHECKING:
    from kcore.server.console.paging import Steps
    from kcore.server.observe import Observer

logger = limited_logger(__name__)

MAX_REQUEST_BYTES: Final = 8_192
MAX_CONNECTIONS: Final = 32
TIME_LIMIT_S: Final = 10.0  # time limit of a request and its response, so that no client can keep a connection slot
PLAIN: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
SECURITY_HEADERS: Final = (
    "Cache-Control: no-store",
    # The page never inserts client-chosen names as markup. If it did, this policy would keep the browser from running
    # it.
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
)
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

WRITE_BYTES: Final = 1_048_576
"""Number of bytes of a page that the server writes in one turn of the event loop. Further pieces wait for the next
turn.
"""

Page = tuple[int, str, str | list[bytes]]
"""A page: the status, the content type, and the body as a text or as pieces of bytes."""

BAD_QUERY: Final[Page] = (400, PLAIN, "the query is not valid\n")
PATHS: Final = sorted({"/healthz", "/metrics", "/readyz", *DOCUMENTS, *STATIC})
NOT_FOUND: Final[Page] = (404, PLAIN, f"not found; valid paths: {', '.join(PATHS)}\n")
MISDIRECTED: Final[Page] = (421, PLAIN, "the header Host names no address of this machine\n")
PROBES: Final = frozenset({"/healthz", "/readyz"})
UNKNOWN: Final[Page] = (404, JSON, "null\n")


class HttpServer:
    """The HTTP server of the console, /metrics, /healthz and /readyz.

    Args:
        observer: reads the engine.
        address: HOST:PORT; port 0 selects a free port.

    Raises:
        ConfigError: the address is invalid.

    Attributes:
        address: (host, port) on which the server listens, once started.
        connections: the open connections, oldest first.
        observer: reads the engine.
        pages: path -> function that renders the page in one step.
    """

    def __init__(self, observer: Observer, address: str) -> None:
        self.address = parse_address(address, "kcore.http.listen")
        self.connections: dict[HttpConnection, None] = {}
        self.observer = observer
        self._server: asyncio.Server | None = None
        self.pages: dict[str, Callable[[], Page]] = {
            "/healthz": lambda: (200, PLAIN, "ok\n"),
            "/readyz": self._ready,
            **{path: partial(_static, *file) for path, file in STATIC.items()},
        }
        self._work: deque[tuple[HttpConnection, str, Steps]] = deque()

    async def start(self) -> None:
        """Opens the address.

        Raises:
            OSError: the server cannot listen on the address.
        """
        host, port = self.address
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: HttpConnection(self), host or None, port)
        except OSError as error:
            raise listen_error("kcore.http.listen", host, port, error) from error
        self.address = (host, self._server.sockets[0].getsockname()[1])
        logger.info("HTTP server: console and metrics at http://%s/", format_address(*self.address))

    async def stop(self) -> None:
        """Stops listening and closes every connection."""
        self.observer.close()
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.abort()
            await self._server.wait_closed()

    def add_work(self, connection: HttpConnection, method: str, work: Steps) -> None:
        """Queues `work`, a generator that makes a page in slices. The server sends the page when the generator ends."""
        self._work.append((connection, method, work))
        if len(self._work) == 1:
            asyncio.get_running_loop().call_soon(self._slice)

    def _slice(self) -> None:
        """Runs one slice of the first document, and moves this document to the end of the queue."""
        connection, method, work = self._work[0]
        page: Page | None = None
        try:
            if connection in self.connections:
                self.observer.settle()
                next(work)
        except StopIteration as done:
            page = done.value
        except BadQueryError:
            page = BAD_QUERY
        except Exception:
            _log_failed_page(connection.path)
            page = (500, PLAIN, "internal server error\n")
        self._work.popleft()
        if page is None and connection in self.connections:
            self._work.append((connection, method, work))
        if page is not None:
            try:
                connection.respond(method, page)
            except Exception:  # otherwise no call would continue with the other documents
                logger.exception(
                    "HTTP server: cannot send page %r; the connection is closed; load the page again", connection.path
                )
                connection.abort()
        if self._work:
            asyncio.get_running_loop().call_soon(self._slice)

    def metrics(self) -> Steps:
        """Makes the page of /metrics, in slices."""
        pieces = yield from self.observer.scrape()
        return 200, CONTENT_TYPE, pieces

    def document(self, make: Callable[[Observer, Query], Steps], query: Query) -> Steps:
        """Makes the HTTP page of a document of the console, in slices."""
        value = yield from make(self.observer, query)
        return UNKNOWN if value is None else (200, JSON, json.dumps(value) + "\n")

    def _ready(self) -> Page:
        missing = self.observer.not_ready()
        if not missing:
            return 200, PLAIN, "ready\n"
        return 503, PLAIN, "".join(f"{topic}: {count} {state}\n" for (topic, state), count in missing.items())


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(text: str) -> bool:
    return _is_address(text) and ipaddress.ip_address(text).is_loopback


def _static(name: str, content_type: str) -> Page:
    return 200, content_type, read_static(name)


def _log_failed_page(path: str) -> None:
    logger.exception("HTTP server: cannot make page %r; the client gets status 500; please report the error", path)


class HttpConnection(asyncio.Protocol):
    """One connection, which serves one request.

    Attributes:
        path: the path of the request; empty until the request is complete.
    """

    __slots__ = ("_buffer", "_responded", "_server", "_time_limit", "_transport", "path")

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: Any = None
        self._buffer = b""
        self._responded = False
        self.path = ""
        self._time_limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the time limit of a new connection, and closes the oldest connection if too many are open.

        A health probe sends its request at once, so its connection is not the oldest, and silent connections cannot
        make the health check fail.
        """
        self._transport = transport
        if len(self._server.connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self._server.connections))
            del self._server.connections[oldest]
            oldest.abort()
        self._server.connections[self] = None
        self._time_limit = asyncio.get_running_loop().call_later(TIME_LIMIT_S, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Removes a closed connection."""
        self._server.connections.pop(self, None)
        if self._time_limit is not None:
            self._time_limit.cancel()

    def eof_received(self) -> bool:
        """Handles the client's end of stream. Keeps the connection open if a response is still to be sent."""
        return self._responded

    def data_received(self, data: bytes) -> None:
        """Collects received bytes until the request is complete."""
        if self._responded:
            return
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if (len(self._buffer) if end < 0 else end) > MAX_REQUEST_BYTES:
            self.respond("GET", (431, PLAIN, "the request is too long\n"))
        elif end >= 0:
            self._request(*self._buffer[:end].split(b"\r\n"))

    def _request(self, line: bytes, *headers: bytes) -> None:
        words = line.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self.respond("GET", (400, PLAIN, "this is not HTTP/1.x\n"))
            return
        method, target, _ = words
        if method not in {"GET", "HEAD"}:
            self.respond("GET", (405, PLAIN, "only GET and HEAD\n"))
            return
        path, _, query = target.partition("?")
        self.path = path
        if path not in PROBES and self._is_rebound(headers):
            self.respond(method, MISDIRECTED)
            return
        if path in DOCUMENTS or path == "/metrics":
            self._begin(method, path, query)
            return
        page = self._server.pages.get(path)
        if page is None:
            self.respond(method, NOT_FOUND)
            return
        self._responded = True
        # Records that are decided but not durable do not count yet: an open round ends first, within this turn of the
        # loop.
        if self._server.observer.round_is_open:
            asyncio.get_running_loop().call_soon(self._serve, method, page)
        else:
            self._serve(method, page)

    def _is_rebound(self, headers: tuple[bytes, ...]) -> bool:
        """Returns True if a browser sent the request to this machine for the page of another site.

        Such a site resolves its own name to a loopback address, so that its page may read this server's responses (DNS
        rebinding). The header Host then has the name of the site. Returns False for a connection to any other address
        than a loopback address, because all machines of the network can reach the other addresses anyway.
        """
        local = self._transport.get_extra_info("sockname")
        if not local or not _is_loopback(local[0]):
            return False
        for header in headers:
            name, _, value = header.decode("latin-1").partition(":")
            if name.strip().lower() == "host":
                host = value.strip().lower()
                host = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
                if host != "localhost" and not host.endswith(".localhost") and not _is_address(host):
                    return True
        return False

    def _begin(self, method: str, path: str, query: str) -> None:
        """Begins to make a page in slices."""
        server = self._server
        try:
            work = server.metrics() if path == "/metrics" else server.document(DOCUMENTS[path], Query(query))
        except BadQueryError:
            self.respond(method, BAD_QUERY)
            return
        self._responded = True
        server.add_work(self, method, work)

    def _serve(self, method: str, page: Callable[[], Page]) -> None:
        try:
            self._server.observer.settle()
            self.respond(method, page())
        except Exception:
            _log_failed_page(self.path)
            self.respond(method, (500, PLAIN, "internal server error\n"))

    def respond(self, method: str, page: Page) -> None:
        """Sends a page and closes the connection."""
        self._responded = True
        status, content_type, text = page
        body = [text.encode()] if isinstance(text, str) else text
        head = [
            f"HTTP/1.1 {status} {REASONS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {sum(map(len, body))}",
            *(["Allow: GET, HEAD"] if status == 405 else []),
            *SECURITY_HEADERS,
            "Connection: close",
            "",
            "",
        ]
        pieces = deque([] if method == "HEAD" else body)
        pieces.appendleft("\r\n".join(head).encode() + (pieces.popleft() if pieces else b""))
        self._write(pieces)

    def _write(self, pieces: deque[bytes]) -> None:
        """Sends the pieces of a page, a few in each turn of the event loop, and closes the connection."""
        size = 0
        while pieces and size < WRITE_BYTES:
            size += len(pieces[0])
            self._transport.write(pieces.popleft())
        if pieces:
            asyncio.get_running_loop().call_soon(self._write_rest, pieces)
        else:
            self._transport.close()

    def _write_rest(self, pieces: deque[bytes]) -> None:
        if not self._transport.is_closing():
            self._write(pieces)

    def abort(self) -> None:
        """Closes the connection immediately."""
        self._transport.abort()
