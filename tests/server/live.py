"""A server on an event loop in its own thread, whose state tests can inspect, and a client that sends arbitrary
bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from kcore.client import Connection
from kcore.clock import Clock, SystemClock
from kcore.config.node import Config
from kcore.drivers.event_loop import AsyncDriver
from kcore.engine import Engine
from kcore.log import LogEngine, MemoryLogEngine
from kcore.protocol.api_keys import response_class, response_header_version
from kcore.server.listeners import parse_listeners
from kcore.server.server import Server
from kcore_ext.codec.frames import encode_request
from tests.kit import QUICK, wait_until

T = TypeVar("T")

SMALL = {**QUICK, "offsets.topic.num.partitions": "3", "listeners": "127.0.0.1:0"}


def loop_of(name: str) -> asyncio.AbstractEventLoop:
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


class LiveServer:
    """A server that runs until the end of the `with` block. All data is in memory unless a log is given."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        loop: str = "asyncio",
        log: LogEngine | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = Config.of({**SMALL, **(settings or {})})
        self.loop = loop_of(loop)
        self.log = log or MemoryLogEngine()
        self.clock = clock or SystemClock()
        self.port = 0
        self.errors: list[dict[str, Any]] = []
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> LiveServer:
        self._thread.start()
        assert self._up.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        assert self.errors == [], self.errors

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(lambda _, what: self.errors.append(what))
        self.engine = Engine(self.log, self.config, self.clock)
        self.driver = AsyncDriver(self.engine, self.loop)
        self.server = Server(self.driver, parse_listeners(self.config))
        self.loop.run_until_complete(self.server.start())
        self.driver.start()
        self.port = self.server.addresses["PLAINTEXT"][1]
        self._up.set()
        self.loop.run_forever()
        # asyncio reports an unfinished task only when the garbage collector finds it, which is after the check.
        self.errors += [{"message": "a task is still pending", "task": task} for task in asyncio.all_tasks(self.loop)]
        self.loop.close()

    async def _stop(self) -> None:
        await self.server.stop()
        self.driver.close()
        self.engine.close()

    def call(self, function: Callable[[], T]) -> T:
        """Runs `function` on the loop's thread."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)

    def wait_for(self, task: asyncio.Task[T]) -> T:
        """Waits until a task of the loop is done, and returns its result."""

        async def run() -> T:
            return await task

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)

    @property
    def connections(self) -> int:
        return self.call(lambda: len(self.server.connections))

    def wait_for_connections(self, count: int, came: int = 0) -> None:
        """Waits until `count` connections are open, and the server has accepted at least `came` connections since its
        start.

        The wait is necessary because a client's connect returns before the server's accept.
        """
        wait_until(lambda: self.server.accepted_connections >= came, f"{came} connections that came")
        wait_until(lambda: self.connections == count, f"{count} connections")

    def connect(self, **options: Any) -> Connection:
        return Connection("127.0.0.1", self.port, **options)

    def raw(self, timeout_s: float = 20.0) -> Raw:
        return Raw(self.port, timeout_s)


class Raw:
    """A socket that sends frames and bytes, and reads frames."""

    def __init__(self, port: int, timeout_s: float = 20.0, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0
        self._buffer = b""

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def try_send(self, data: bytes) -> None:
        """Sends bytes. Ignores the error if the server has closed the connection."""
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            self.socket.sendall(data)

    def request(self, request: Any, version: int, client_id: str | None = "raw") -> bytes:
        """Encodes a request with the next correlation id."""
        self.correlation_id += 1
        return encode_request(request, version, self.correlation_id, client_id)

    def reset(self) -> None:
        """Aborts the connection, so that the server receives a reset in place of the end of the stream."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def frame(self) -> bytes | None:
        """Reads the next frame. Returns None if the server closed the connection."""
        length = self._exactly(4)
        return None if length is None else self._exactly(struct.unpack(">i", length)[0])

    def frames(self) -> Iterator[bytes]:
        """Yields every frame up to the end of the connection."""
        while (frame := self.frame()) is not None:
            yield frame

    def receive(self, request: Any, version: int) -> tuple[int, Any]:
        """Sends a request. Returns the correlation id and the response."""
        frame = self.frame()
        assert frame is not None, "the server closed the connection"
        key = type(request).API_KEY
        position = 4 + (1 if response_header_version(key, version) else 0)
        return struct.unpack(">i", frame[:4])[0], response_class(key).decode(frame, version, position)

    @property
    def closed(self) -> bool:
        """Returns True if the server closes the connection without another response."""
        return self.frame() is None

    def _exactly(self, size: int) -> bytes | None:
        while len(self._buffer) < size:
            try:
                part = self.socket.recv(1 << 18)
            except ConnectionResetError:
                part = b""
            if not part:
                assert not self._buffer, f"the connection ended in the middle of a frame: {self._buffer!r}"
                return None
            self._buffer += part
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data


class Lines(logging.Handler):
    """A collector of the server's log lines about connections."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.getMessage().endswith("server: imported all APIs") and "listens on" not in record.getMessage():
            self.lines.append(record.getMessage())


@contextlib.contextmanager
def server_log() -> Iterator[list[str]]:
    """Collects the lines of `kcore.server` from all threads."""
    logger, handler = logging.getLogger("kcore.server"), Lines()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
