"""Requests to other nodes of the cluster over TCP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kcore.client.aio.connection import AsyncConnection
from kcore.errors import AuthenticationError, KafkaError, KcoreError
from kcore.process_logging import log_failure, next_step
from kcore.protocol.api_keys import api_name
from kcore.runtime.peers import NODE_PREFIX, REQUEST_TIMEOUT_MS

if TYPE_CHECKING:
    from kcore.client.security import ClientSecurity
    from kcore.cluster_engine import ClusterEngine
    from kcore.drivers.event_loop import AsyncDriver

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
RECONNECT_AFTER_S = 0.1


class TcpPeers:
    """The `Peers` of a node that listens: one connection to each other node, opened at the first request.

    If a connection breaks, its requests fail, and the next request opens a new connection.

    Args:
        driver: runs the engine; responses arrive in its rounds.
        engine: has the addresses of the nodes.
        listener: the name of the listener that nodes use among themselves.
        secret: the secret with which this node has registered; it identifies the node to the other nodes.
        security: the TLS and SASL configuration of the connections to other nodes; None: neither TLS nor SASL.
    """

    def __init__(
        self,
        driver: AsyncDriver,
        engine: ClusterEngine,
        listener: str,
        secret: str,
        security: ClientSecurity | None = None,
    ) -> None:
        self._client_id = NODE_PREFIX + secret
        self._driver = driver
        self._engine = engine
        self._listener = listener
        self._security = security
        self._connections: dict[int, AsyncConnection] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def send(self, node_id: int, request: Any, version: int, done: Callable[[Any | None], None]) -> None:
        """Implements `Peers.send`."""
        if self._closed:
            return
        task = self._driver.loop.create_task(self._send(node_id, request, version, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, node_id: int, request: Any, version: int, done: Callable[[Any | None], None]) -> None:
        response = None
        try:
            response = await self._response(node_id, request, version)
        finally:
            if not self._closed:  # the sender waits for `done`, even if there is no memory for a log line
                try:
                    self._driver.begin_round()
                finally:
                    done(response)

    async def _response(self, node_id: int, request: Any, version: int) -> Any | None:
        """Sends a request, and returns its response; None if there is no response."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1_000):
                async with self._locks.setdefault(node_id, asyncio.Lock()):  # keeps the order of requests
                    connection = await self._connected(node_id)
                    future = connection.start(request, version)
                return await future
        except (KcoreError, KafkaError, TimeoutError, OSError) as error:
            # Wrong credentials need an operator; other failures end when the node is reachable again.
            level = logging.ERROR if isinstance(error, AuthenticationError) else logging.INFO
            logger.log(
                level,
                "cluster: node %d did not respond to %s: %s; if this repeats, check that the node runs, the network to "
                "it, and the credentials",
                node_id,
                api_name(request.API_KEY),
                error,
            )
            self._forget(node_id)
        except Exception as error:  # the sender waits for `done`
            log_failure(
                logger,
                error,
                "cluster: an internal error prevented the exchange of %s with node %d; this node handles the request "
                "as if the connection had been lost%s",
                api_name(request.API_KEY),
                node_id,
                next_step(error),
            )
            self._forget(node_id)
        return None

    async def _connected(self, node_id: int) -> AsyncConnection:
        """Returns the connection to a node; opens it if there is none."""
        connection = self._connections.get(node_id)
        if connection is not None and not connection.closed:
            return connection
        broker = self._engine.cluster.broker(node_id, self._listener)
        if broker is None:
            await asyncio.sleep(RECONNECT_AFTER_S)  # an immediate retry would fail too
            raise KcoreError(f"node {node_id} has no listener {self._listener}, or is not alive")
        connection = await AsyncConnection.open(
            broker.host, broker.port, self._client_id, CONNECT_TIMEOUT_S, self._security
        )
        self._connections[node_id] = connection
        return connection

    def _forget(self, node_id: int) -> None:
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Closes all connections. Does not call `done` for their outstanding requests."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        for node_id in list(self._connections):
            self._forget(node_id)
