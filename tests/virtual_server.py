"""A server and its clients in virtual time, in one thread and without sockets.

The server is that of `kcore serve`, with an engine in memory. A `VirtualSocket` has the methods of a blocking socket,
so clients for sockets can use it unchanged. While a client waits, the event loop runs and its time advances.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kcore.clock import Clock
from kcore.config.node import Config
from kcore.drivers.event_loop import AsyncDriver
from kcore.engine import Engine
from kcore.log import MemoryLogEngine
from kcore.server.connection import Connection
from kcore.server.listeners import parse_listeners
from kcore.server.server import Server
from kcore.testing.virtual import LoopClock, VirtualTimeLoop

CLIENT_HOST = "/127.0.0.1"
DEFAULT_TIMEOUT_S = 3600.0


def _in_memory(config: Config, clock: Clock) -> Engine:
    return Engine(MemoryLogEngine(), config, clock)


class VirtualServer:
    """A server in virtual time.

    Args:
        settings: by Kafka's names.
        make_engine: makes the engine; by default one in memory.

    Attributes:
        engine: the engine.
        loop: the event loop.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, make_engine: Callable[[Config, Clock], Engine] = _in_memory
    ) -> None:
        config = Config.of({"listeners": "PLAINTEXT://localhost:9092", **(settings or {})})
        self.loop = VirtualTimeLoop()
        self.engine = make_engine(config, LoopClock(self.loop))
        self._driver = AsyncDriver(self.engine, self.loop)
        self._server = Server(self._driver, parse_listeners(config))
        for listener in parse_listeners(config):
            self.engine.cluster.advertise(listener.name, listener.advertised_host, listener.advertised_port or 9092)

    def connect(self) -> VirtualSocket:
        """Opens a connection to the first listener."""
        _, security = self._server._listeners[0]
        assert self._server.quota.of_listener(security.name).admit(CLIENT_HOST), "the server has room for a connection"
        return VirtualSocket(self.loop, self._server._connection(security, CLIENT_HOST))

    def sleep(self, seconds: float) -> None:
        """Lets virtual time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        """Stops the server and closes the engine."""
        self.loop.run_until_complete(self._server.stop())
        self._driver.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class VirtualSocket(asyncio.Transport):
    """A connection, which is a blocking socket for the client and an asyncio transport for the server.

    Args:
        loop: the server's event loop.
        connection: the server's end.
    """

    def __init__(self, loop: VirtualTimeLoop, connection: Connection) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000)})
        self._loop = loop
        self._connection = connection
        self._timeout_s = DEFAULT_TIMEOUT_S
        self._unread = bytearray()  # by the client
        self._unsent: list[bytes] = []  # what the server has not read, because it has paused
        self._paused = False
        self._closing = False
        self._changed = asyncio.Event()
        loop.call_soon(connection.connection_made, self)

    # ---- the client's calls

    def settimeout(self, timeout_s: float) -> None:
        """Limits the virtual time of `recv`."""
        self._timeout_s = timeout_s

    def setsockopt(self, *_: int) -> None:
        """Does nothing: a virtual connection has no delays."""

    def sendall(self, data: bytes) -> None:
        """Sends bytes. Runs the loop until the server has nothing more to do."""
        if self._closing:
            raise ConnectionResetError("the server has closed the connection")
        self._unsent.append(bytes(data))
        self._loop.call_soon(self._deliver)
        self._loop.run_until_complete(asyncio.sleep(0))

    def recv(self, max_bytes: int) -> bytes:
        """Returns received bytes, or b"" once the server has closed the connection.

        Raises:
            TimeoutError: no bytes arrived within the timeout.
        """
        if not self._unread and not self._closing:
            self._loop.run_until_complete(self._wait())
        data = bytes(self._unread[:max_bytes])
        del self._unread[:max_bytes]
        return data

    async def _wait(self) -> None:
        async with asyncio.timeout(self._timeout_s):
            while not self._unread and not self._closing:
                self._changed.clear()
                await self._changed.wait()

    def close(self) -> None:
        """Closes the connection. Both ends call this method."""
        if not self._closing:
            self._closing = True
            self._changed.set()
            self._loop.call_soon(self._connection.connection_lost, None)

    # ---- the server's calls

    def _deliver(self) -> None:
        while self._unsent and not self._paused and not self._closing:
            self._connection.data_received(self._unsent.pop(0))

    def write(self, data: Any) -> None:
        """Sends bytes to the client, which reads them at once."""
        if not self._closing:
            self._unread += data
            self._changed.set()

    def abort(self) -> None:
        """Closes the connection."""
        self.close()

    def is_closing(self) -> bool:
        """Returns True once either end has closed the connection."""
        return self._closing

    def pause_reading(self) -> None:
        """Holds bytes of the client back until `resume_reading`."""
        self._paused = True

    def resume_reading(self) -> None:
        """Delivers bytes of the client again."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        """Returns True unless the server has paused."""
        return not self._paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing, because the client reads at once."""

    def get_write_buffer_size(self) -> int:
        """Returns 0, because the client reads at once."""
        return 0


class VirtualClock:
    """The functions of the module `time`, in the virtual time of a server."""

    def __init__(self, server: VirtualServer) -> None:
        self._server = server
        self.sleep: Callable[[float], None] = server.sleep
        self.monotonic: Callable[[], float] = server.loop.time

    def time(self) -> float:
        """Returns the virtual time in seconds since the epoch."""
        return LoopClock(self._server.loop).wall_ms() / 1000
