"""A very small HTTP server for operators: metrics, and whether this node lives and is ready.

It answers GET and HEAD of three paths and nothing else, one request a connection, on the engine's own event loop: that
it answers at all says that the loop turns. It is no place for strangers; give it an address that only operators reach.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kcore.metrics import CONTENT_TYPE
from kcore.server.listeners import parse_address

if TYPE_CHECKING:
    from kcore.server.observe import Observer

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 8_192
MAX_CONNECTIONS: Final = 32
PATIENCE_S: Final = 10.0  # how long a request and its answer may take: nobody can hold a place here
PLAIN: Final = "text/plain; charset=utf-8"
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Page = tuple[int, str, str]
"""Status, content type, text."""


class HttpServer:
    """Serves /metrics, /healthz and /readyz.

    Args:
        observer: reads the engine.
        address: HOST:PORT; port 0 takes a free one.

    Raises:
        ConfigError: the address is none.

    Attributes:
        address: (host, port) that is listened on, once started.
        connections: those that are open.
        observer: reads the engine.
        pages: what makes each page, by path.
    """

    def __init__(self, observer: Observer, address: str) -> None:
        self.address = parse_address(address)
        self.connections: set[HttpConnection] = set()
        self.observer = observer
        self._server: asyncio.Server | None = None
        self.pages: dict[str, Callable[[], Page]] = {
            "/metrics": self._metrics,
            "/healthz": lambda: (200, PLAIN, "ok\n"),
            "/readyz": self._ready,
        }

    async def start(self) -> None:
        """Opens the address.

        Raises:
            OSError: it cannot be listened on.
        """
        host, port = self.address
        self._server = await asyncio.get_running_loop().create_server(lambda: HttpConnection(self), host or None, port)
        self.address = (host, self._server.sockets[0].getsockname()[1])
        logger.info("metrics at http://%s:%d/metrics", host or "0.0.0.0", self.address[1])

    async def stop(self) -> None:
        """Closes the address and every connection."""
        self.observer.close()
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.abort()
            await self._server.wait_closed()

    def _metrics(self) -> Page:
        return 200, CONTENT_TYPE, self.observer.text()

    def _ready(self) -> Page:
        missing = self.observer.not_ready()
        if not missing:
            return 200, PLAIN, "ready\n"
        return 503, PLAIN, "".join(f"{what}: {count} {state}\n" for (what, state), count in missing.items())


class HttpConnection(asyncio.Protocol):
    """One connection: one request, one answer."""

    __slots__ = ("_answered", "_buffer", "_patience", "_server", "_transport")

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: Any = None
        self._buffer = b""
        self._answered = False
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody came."""
        self._transport = transport
        if len(self._server.connections) >= MAX_CONNECTIONS:
            self.abort()
            return
        self._server.connections.add(self)
        self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._server.connections.discard(self)
        if self._patience is not None:
            self._patience.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._answered:
            return
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 and len(self._buffer) > MAX_REQUEST_BYTES:
            self._answer("GET", (431, PLAIN, "the request is too long\n"))
        elif end >= 0:
            self._request(self._buffer[: self._buffer.index(b"\r\n")])

    def _request(self, line: bytes) -> None:
        words = line.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._answer("GET", (400, PLAIN, "this is not HTTP/1.x\n"))
            return
        method, target, _ = words
        if method not in {"GET", "HEAD"}:
            self._answer("GET", (405, PLAIN, "only GET and HEAD\n"))
            return
        page = self._server.pages.get(target.partition("?")[0])
        if page is None:
            self._answer(method, (404, PLAIN, "/metrics, /healthz and /readyz are all there is\n"))
            return
        self._answered = True
        # Facts that are decided and not durable yet are none: a round that is open ends first, with this turn.
        if self._server.observer.round_is_open:
            asyncio.get_running_loop().call_soon(self._serve, method, page)
        else:
            self._serve(method, page)

    def _serve(self, method: str, page: Callable[[], Page]) -> None:
        try:
            self._server.observer.settle()
            self._answer(method, page())
        except Exception:
            logger.exception("a page cannot be made")
            self._answer(method, (500, PLAIN, "a failure of the server's own\n"))

    def _answer(self, method: str, page: Page) -> None:
        self._answered = True
        status, content_type, text = page
        body = text.encode()
        head = [
            f"HTTP/1.1 {status} {REASONS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            *(["Allow: GET, HEAD"] if status == 405 else []),
            "Connection: close",
            "",
            "",
        ]
        self._transport.write("\r\n".join(head).encode() + (b"" if method == "HEAD" else body))
        self._transport.close()

    def abort(self) -> None:
        """Closes at once."""
        self._transport.abort()
