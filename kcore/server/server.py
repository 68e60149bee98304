"""The server: an engine behind listeners."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from kcore.server.accept import Acceptor, ConnectionQuota, listening_sockets, resolve
from kcore.server.authentication import ListenerSecurity
from kcore.server.connection import Connection
from kcore.server.dispatch import Dispatch
from kcore.server.listeners import Listener
from kcore.server.memory import RequestMemory, ResponseMemory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcore.config.node import Config
    from kcore.drivers.event_loop import AsyncDriver

logger = logging.getLogger(__name__)

PRELOAD_AFTER_S = 1.0
"""Time from the end of all loads until modules are imported that requests need: waiting clients come first."""

PRELOAD_AGAIN_S = 10.0
"""Time until imports that failed are tried again."""

PRELOADED = ("kcore.protocol.compression_cramjam", "kcore.security.scram")
"""Modules that the APIs import when a request first needs them."""

SHUTDOWN_WAIT_S = 1.0  # how long a stop waits for peers to take their last answers ...
SHUTDOWN_POLL_S = 0.005  # ... and how often it looks whether they have


class Server:
    """Serves Kafka clients over TCP.

    Args:
        driver: runs the engine on this event loop.
        listeners: where to listen; a port of 0 takes a free one.

    Raises:
        ConfigError: what the settings say of a listener's security cannot be done.

    Attributes:
        addresses: listener name -> (host, port) that is listened on, once started.
        connections: those that are open, without those in a TLS handshake.
        quota: counts connections from their accept on.
        acceptors: accept connections, one for each address that is listened on.
        accepted_connections: how many were accepted; those that were closed at once are not counted.
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
        self.quota = ConnectionQuota(self.config)
        self.acceptors: list[Acceptor] = []
        self.stopping = False
        self._preload: asyncio.TimerHandle | None = None
        self._listeners = [(listener, ListenerSecurity(listener, self.engine)) for listener in listeners]
        self._to_flush: dict[Connection, None] = {}
        self.accepted_connections = 0
        self.refused_requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        driver.at_end_of_round(self._flush)

    def _response_memory(self) -> ResponseMemory | None:
        limit_bytes = self.config.kcore_max_response_memory_bytes
        if limit_bytes < 0:
            return None
        return ResponseMemory(
            limit_bytes, self.config.kcore_response_stall_ms, self.engine.fetch_memory_budget, self.loop
        )

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
        self.engine.when_loaded(lambda: self._preload_later(PRELOAD_AFTER_S))

    async def _listen(self, listener: Listener, security: ListenerSecurity) -> None:
        sockets = listening_sockets(await resolve(listener.host, self.loop), listener.port)
        for listening in sockets:
            make = partial(self._connection, security)
            self.acceptors.append(Acceptor(listening, security, self.quota, make, self.loop))
        port = sockets[0].getsockname()[1]
        self.addresses[listener.name] = (listener.host, port)
        self.engine.cluster.advertise(listener.name, listener.advertised_host, listener.advertised_port or port)
        for acceptor in self.acceptors[-len(sockets) :]:
            acceptor.resume()
        logger.info("%s listens on %s:%d", listener.name, listener.host, port)

    def _preload_later(self, delay_s: float) -> None:
        if self.stopping:
            return

        def begin() -> None:
            self.engine.slices.add(self._preload_modules())
            self.driver.round_is_open()

        self._preload = self.loop.call_later(delay_s, begin)

    def _preload_modules(self) -> Iterator[None]:
        """Imports every module that serves requests, so that none of them needs a file descriptor for it."""
        if self.stopping:
            return
        try:
            yield from self.engine.apis.make_all()
            for name in PRELOADED:
                import_module(name)
                yield
        except (ImportError, OSError) as error:
            logger.warning("not every API can be imported now, tried again in %g s: %s", PRELOAD_AGAIN_S, error)
            self._preload_later(PRELOAD_AGAIN_S)
        else:
            logger.info("every API is imported")

    def _connection(self, security: ListenerSecurity, host: str) -> Connection:
        self.accepted_connections += 1
        connection = security.connection(self, security, self.accepted_connections)
        connection.client_host = host
        return connection

    # ---- what connections tell

    def came(self, connection: Connection) -> None:
        """Adds a connection that is open."""
        self.connections.add(connection)

    def went(self, connection: Connection) -> None:
        """Removes a connection that has ended, and gives back what it held."""
        self.connections.discard(connection)
        if self.responses is not None and connection.unread_bytes:
            self.responses.claim(connection, 0)
        self.engine.fetch_sessions.connection_closed(connection.connection_id)
        self._to_flush.pop(connection, None)
        self.quota.release(connection.client_host)
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
        """Closes the listeners, then the connections: what was decided is committed and its responses are sent.

        The connections of an engine that was interrupted half way are closed without a commit.
        """
        self.stopping = True
        if self._preload is not None:
            self._preload.cancel()
        for acceptor in self.acceptors:
            acceptor.close()
        if not self.engine.pipeline.settling:
            self.engine.commit()
        for connection in list(self.connections):
            connection.close()
        until_s = self.loop.time() + SHUTDOWN_WAIT_S
        while self.connections and self.loop.time() < until_s:
            await asyncio.sleep(SHUTDOWN_POLL_S)
        for connection in list(self.connections):
            connection.abort()
        if self.responses is not None:
            self.responses.close()
        for acceptor in self.acceptors:
            await acceptor.wait_closed()
