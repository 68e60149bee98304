"""The server: an engine behind listeners."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcore.server.authentication import ListenerSecurity
from kcore.server.connection import Connection
from kcore.server.dispatch import Dispatch
from kcore.server.listeners import Listener
from kcore.server.memory import RequestMemory, ResponseMemory

if TYPE_CHECKING:
    from kcore.config import Config
    from kcore.drivers import AsyncDriver

logger = logging.getLogger(__name__)

BACKLOG = 1_024  # connections that the system keeps until they are accepted
FAREWELL_S = 1.0  # how long a stop waits for peers to take their last answers ...
FAREWELL_LOOK_S = 0.005  # ... and how often it looks whether they have


class Server:
    """Serves Kafka clients over TCP.

    Args:
        driver: runs the engine on this event loop.
        listeners: where to listen; a port of 0 takes a free one.

    Raises:
        ConfigError: what the settings say of a listener's security cannot be done.

    Attributes:
        addresses: listener name -> (host, port) that is listened on, once started.
        connections: those that are open.
        accepted_connections: how many came, refused ones included.
        refused_connections: how many of them were too many.
        refused_requests: how many requests closed their connection: not served, or not to be read.
        received_bytes: what clients sent.
        sent_bytes: what they were answered.
        memory: what they hold of requests; None where there is no limit.
        responses: what they have left unread of answers; None where there is no limit.
    """

    def __init__(self, driver: AsyncDriver, listeners: list[Listener]) -> None:
        self.driver = driver
        self.engine = driver.engine
        self.config: Config = driver.engine.config
        self.loop = driver.loop
        self.responses = self._response_memory()
        self.dispatch = Dispatch(driver.engine, None if self.responses is None else self.responses.note)
        self.connections: set[Connection] = set()
        self.addresses: dict[str, tuple[str, int]] = {}
        limit_bytes = self.config.queued_max_request_bytes
        self.memory = RequestMemory(limit_bytes, self.connections) if limit_bytes >= 0 else None
        self._by_host: dict[str, int] = {}
        self._listeners = [(listener, ListenerSecurity(listener, self.engine)) for listener in listeners]
        self._servers: list[asyncio.Server] = []
        self._to_flush: dict[Connection, None] = {}
        self.accepted_connections = 0
        self.refused_connections = 0
        self.refused_requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        driver.at_end_of_round(self._flush)

    def _response_memory(self) -> ResponseMemory | None:
        limit_bytes = self.config.kcore_max_response_memory_bytes
        if limit_bytes < 0:
            return None
        return ResponseMemory(limit_bytes, self.config.kcore_response_stall_ms, self.engine.fetch_room, self.loop)

    async def start(self) -> None:
        """Opens the listeners; clients are told their addresses, or the advertised ones.

        Raises:
            OSError: an address cannot be listened on; nothing is left open.
        """
        try:
            for listener, security in self._listeners:
                await self._listen(listener, security)
        except OSError:
            await self.stop()
            raise

    async def _listen(self, listener: Listener, security: ListenerSecurity) -> None:
        server = await self.loop.create_server(
            lambda: self._connection(security),
            listener.host or None,
            listener.port,
            backlog=BACKLOG,
            ssl=security.tls,
        )
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        self.addresses[listener.name] = (listener.host, port)
        self.engine.cluster.advertise(listener.name, listener.advertised_host, listener.advertised_port or port)
        logger.info("%s listens on %s:%d", listener.name, listener.host, port)

    def _connection(self, security: ListenerSecurity) -> Connection:
        self.accepted_connections += 1
        return security.connection(self, security, self.accepted_connections)

    # ---- what connections tell

    def refusal(self, host: str) -> str | None:
        """Why a new connection from `host` is not served; None if it is."""
        config = self.config
        if len(self.connections) >= config.max_connections:
            return f"there are {len(self.connections)} connections, as many as max.connections allows"
        from_host = self._by_host.get(host, 0)
        if from_host >= config.max_connections_per_ip:
            return f"it has {from_host} connections, as many as max.connections.per.ip allows"
        return None

    def came(self, connection: Connection) -> None:
        """`connection` is open."""
        self.connections.add(connection)
        self._by_host[connection.client_host] = self._by_host.get(connection.client_host, 0) + 1

    def went(self, connection: Connection) -> None:
        """`connection` is gone."""
        self.connections.discard(connection)
        if self.responses is not None and connection.unread_bytes:
            self.responses.claim(connection, 0)
        self.engine.fetch_sessions.connection_closed(connection.connection_id)
        self._to_flush.pop(connection, None)
        left = self._by_host[connection.client_host] - 1
        if left:
            self._by_host[connection.client_host] = left
        else:
            del self._by_host[connection.client_host]
        if self.memory is not None:
            self.memory.claim(connection, 0)

    def wants_flush(self, connection: Connection) -> None:
        """`connection` has answers to send at the end of this round."""
        self._to_flush[connection] = None
        self.driver.round_is_open()

    def _flush(self) -> None:
        while self._to_flush:
            connections, self._to_flush = self._to_flush, {}
            for connection in connections:
                try:
                    connection.go_on()
                except Exception:
                    logger.exception("a connection of %s failed", connection.client_host)
                    connection.abort()
        if self.responses is not None:
            self.responses.end_round()

    async def stop(self) -> None:
        """Closes the listeners, then the connections: what was decided is committed and its answers are sent."""
        for server in self._servers:
            server.close()
        self.engine.commit()
        for connection in list(self.connections):
            connection.close()
        until_s = self.loop.time() + FAREWELL_S
        while self.connections and self.loop.time() < until_s:
            await asyncio.sleep(FAREWELL_LOOK_S)
        for connection in list(self.connections):
            connection.abort()
        if self.responses is not None:
            self.responses.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
