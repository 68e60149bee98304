"""The server: an engine behind listeners."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcore.server.connection import Connection
from kcore.server.dispatch import Dispatch
from kcore.server.listeners import Listener

if TYPE_CHECKING:
    from kcore.config import Config
    from kcore.drivers import AsyncDriver

logger = logging.getLogger(__name__)


class Server:
    """Serves Kafka clients over TCP.

    Args:
        driver: runs the engine on this event loop.
        listeners: where to listen; a port of 0 takes a free one.

    Attributes:
        addresses: listener name -> (host, port) that is listened on, once started.
    """

    def __init__(self, driver: AsyncDriver, listeners: list[Listener]) -> None:
        self.driver = driver
        self.engine = driver.engine
        self.config: Config = driver.engine.config
        self.loop = driver.loop
        self.dispatch = Dispatch(driver.engine)
        self.connections: set[Connection] = set()
        self.addresses: dict[str, tuple[str, int]] = {}
        self._listeners = listeners
        self._servers: list[asyncio.Server] = []
        self._to_flush: dict[Connection, None] = {}
        self._next_connection_id = 1
        driver.at_end_of_round(self._flush)

    async def start(self) -> None:
        """Opens the listeners; clients are told their addresses, or the advertised ones.

        Raises:
            OSError: an address cannot be listened on; nothing is left open.
        """
        try:
            for listener in self._listeners:
                await self._listen(listener)
        except OSError:
            await self.stop()
            raise

    async def _listen(self, listener: Listener) -> None:
        server = await self.loop.create_server(
            lambda: self._connection(listener.name), listener.host or None, listener.port, backlog=1024
        )
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        self.addresses[listener.name] = (listener.host, port)
        self.engine.cluster.advertise(listener.name, listener.advertised_host, listener.advertised_port or port)
        logger.info("%s listens on %s:%d", listener.name, listener.host, port)

    def _connection(self, listener: str) -> Connection:
        connection_id = self._next_connection_id
        self._next_connection_id += 1
        return Connection(self, listener, connection_id)

    def wants_flush(self, connection: Connection) -> None:
        """`connection` has answers to send at the end of this round."""
        self._to_flush[connection] = None
        self.driver.round_is_open()

    def _flush(self) -> None:
        while self._to_flush:
            connections, self._to_flush = self._to_flush, {}
            for connection in connections:
                connection.flush_and_continue()

    async def stop(self) -> None:
        """Closes the listeners, then the connections. What was acknowledged is in the log already."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
