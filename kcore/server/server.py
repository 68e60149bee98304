"""The server: accepts the connections of Kafka clients on its listeners, and passes their requests to an engine."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kcore.broker.data.client_quotas import REQUEST_PERCENTAGE
from kcore.late_imports import RESERVE, import_late
from kcore.printable import counted
from kcore.process_logging import log_failure, next_step
from kcore.server.accept import Acceptor, listening_sockets, resolve
from kcore.server.authentication import Authentications, ListenerSecurity, ServerKeys
from kcore.server.connection import Connection
from kcore.server.connection_quota import ConnectionQuota
from kcore.server.dispatch import Dispatch
from kcore.server.listeners import Listener, format_address, listen_error
from kcore.server.log_limits import ClientLog
from kcore.server.memory import RequestMemory, ResponseMemory, UnservedMemory
from kcore.server.request_meter import RequestMeter
from kcore.server.turns import Turns
from kcore.server.unauthenticated import UnauthenticatedMemory
from kcore_ext.server.connection import FlushQueue, Traffic
from kcore_ext.server.request_queue import has_lost_responses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcore.config.node import Config
    from kcore.drivers.event_loop import AsyncDriver
    from kcore.server.login_queue import LoginQueue

logger = logging.getLogger(__name__)

PRELOAD_AFTER_S = 1.0
"""Time from the load of the last shard until the server imports API modules. Meanwhile, the server serves the clients
that have waited for the load.
"""

PRELOAD_AGAIN_S = 10.0
"""Time after which the server retries failed imports."""

PRELOADED = ("kcore.protocol.compression_cramjam", "kcore.security.decoys")
"""Modules that APIs import at their first request. The server imports them earlier."""

SHUTDOWN_WAIT_S = 1.0  # time for which `stop` waits until peers have read their last responses
SHUTDOWN_POLL_S = 0.005  # interval at which `stop` checks if they have


class Server:
    """The TCP server of a node for Kafka clients.

    Args:
        driver: runs the engine on this event loop.
        listeners: the addresses to listen on; port 0 selects a free one.

    Raises:
        ConfigError: the security settings of a listener are invalid.

    Attributes:
        addresses: listener name -> (host, port) on which it listens, once started.
        connections: the open connections, without connections in a TLS handshake.
        quota: the counts of connections. A connection counts from its acceptance to its end.
        turns: connections with more requests than fit into one turn of the event loop.
        unauthenticated: received bytes of clients that have not authenticated.
        acceptors: the acceptors of connections, one for each listening address.
        client_log: the log of events of single clients.
        accepted_connections: number of accepted connections, without connections that were closed immediately.
        refused_requests: number of requests that closed their connection: unsupported or malformed.
        authentications: the results of SASL exchanges.
        traffic: the bytes exchanged with clients.
        flushes: connections that send responses at the end of the round.
        memory: request bytes that connections hold; None without a limit.
        unserved: received bytes of unfinished and waiting requests.
        responses: response bytes that clients have not read; None without a limit.
    """

    def __init__(self, driver: AsyncDriver, listeners: list[Listener]) -> None:
        self.driver = driver
        self.engine = driver.engine
        self.config: Config = driver.engine.config
        self.loop = driver.loop
        self.client_log = ClientLog(self.loop.time)
        self.responses = self._response_memory()
        self.dispatch = Dispatch(driver.engine, None if self.responses is None else self.responses.reserve)
        self.connections: set[Connection] = set()
        self._by_id: dict[int, Connection] = {}
        self.addresses: dict[str, tuple[str, int]] = {}
        limit_bytes = self.config.queued_max_request_bytes
        self.memory = RequestMemory(limit_bytes, self.connections, self.loop) if limit_bytes >= 0 else None
        self.unserved = UnservedMemory(self.config.kcore_max_request_memory_bytes)
        self.quota = ConnectionQuota(self.config, self.engine.client_quotas)
        self.flushes = FlushQueue(driver.schedule_round_end)
        self.turns = Turns(self.loop, at_end=self.flushes.renew_time_budget)
        self.unauthenticated = UnauthenticatedMemory()
        self.acceptors: list[Acceptor] = []
        self.stopping = False
        self._logins: dict[str, LoginQueue] = {}
        self._preload: asyncio.TimerHandle | None = None
        self._holds_reserve = False
        self._listeners = [(listener, ListenerSecurity(listener, self.engine)) for listener in listeners]
        self.engine.control.broker_config.keys = ServerKeys([security for _, security in self._listeners])
        self.accepted_connections = 0
        self.refused_requests = 0
        self.authentications = Authentications()
        self.traffic = Traffic()
        driver.at_beginning_of_round(self.flushes.renew_time_budget)
        driver.at_end_of_round(self.flushes.flush)
        driver.at_end_of_round(self._after_flush)
        driver.when_paused(self._pause)
        driver.when_broken(self._end_service)
        driver.hold_late_timers(lambda: bool(self.turns.waiting))
        self.engine.client_quotas.mute = self._mute

    def _response_memory(self) -> ResponseMemory | None:
        limit_bytes = self.config.kcore_max_response_memory_bytes
        if limit_bytes < 0:
            return None
        return ResponseMemory(
            limit_bytes, self.config.kcore_response_stall_ms, self.engine.fetch_memory_budget, self.loop
        )

    async def start(self) -> None:
        """Opens the listeners. The server advertises the configured addresses, or those of the listeners.

        Raises:
            OSError: the server cannot listen on an address. It has closed the listeners that were already open.
        """
        self._holds_reserve = True
        RESERVE.hold()
        try:
            for listener, security in self._listeners:
                try:
                    await self._listen(listener, security)
                except OSError as error:
                    raise listen_error(f"listener {listener.name}", listener.host, listener.port, error) from error
        except OSError:
            await self.stop()
            raise
        self.engine.client_quotas.observe(self._follow_quotas)
        self.engine.when_loaded(lambda: self._preload_later(PRELOAD_AFTER_S))

    async def _listen(self, listener: Listener, security: ListenerSecurity) -> None:
        sockets = listening_sockets(await resolve(listener.host, self.loop), listener.port)
        for listening in sockets:
            make = partial(self._connection, security)
            quota = self.quota.of_listener(security.name)
            self.acceptors.append(Acceptor(listening, security, quota, make, self.client_log, self.loop))
        port = sockets[0].getsockname()[1]
        self.addresses[listener.name] = (listener.host, port)
        advertised = (listener.advertised_host, listener.advertised_port or port)
        self.engine.cluster.advertise(listener.name, *advertised)
        for acceptor in self.acceptors[-len(sockets) :]:
            acceptor.resume()
        addresses = format_address(listener.host, port), format_address(*advertised)
        logger.info("listener %s listens on %s and advertises %s", listener.name, *addresses)

    def _preload_later(self, delay_s: float) -> None:
        if self.stopping:
            return

        def begin() -> None:
            self.engine.slices.add(self.preload_modules())
            self.driver.schedule_round_end()

        self._preload = self.loop.call_later(delay_s, begin)

    def preload_modules(self) -> Iterator[None]:
        """Imports every module that serves requests, so that no later request needs a file descriptor for it."""
        if self.stopping:
            return
        try:
            yield from self.engine.apis.make_all()
            for name in PRELOADED:
                import_late(name)
                yield
        except (ImportError, OSError) as error:
            logger.warning(
                "server: the import of an API failed (%s), and the server tries again in %g s; if this repeats, check "
                "the limit of open files (ulimit -n)",
                error,
                PRELOAD_AGAIN_S,
            )
            self._preload_later(PRELOAD_AGAIN_S)
        else:
            self._drop_reserve()
            logger.info("server: imported all APIs")

    def _drop_reserve(self) -> None:
        if self._holds_reserve:
            self._holds_reserve = False
            RESERVE.drop()

    def _connection(self, security: ListenerSecurity, host: str) -> Connection:
        self.accepted_connections += 1
        connection = security.connection(self, security, self.accepted_connections)
        connection.client_host = host
        return connection

    # ---- called by connections

    def logins(self, mechanism: str, threads: int) -> LoginQueue:
        """Returns the queue of the tokens that other threads evaluate for a mechanism."""
        queue = self._logins.get(mechanism)
        if queue is None:
            from kcore.server.login_queue import LoginQueue  # noqa: PLC0415  # needed only by nodes with SASL

            queue = self._logins[mechanism] = LoginQueue(self.loop, mechanism, threads)
        return queue

    def _follow_quotas(self) -> None:
        """Measures the time of requests while any client has the quota `request_percentage`."""
        quotas = self.engine.client_quotas
        meters = quotas.has(REQUEST_PERCENTAGE)
        self.dispatch.measure(RequestMeter(quotas, self.engine.failed) if meters else None)

    def _mute(self, connection_id: int, duration_ms: int) -> None:
        """Serves no request of a connection for some time, because its client is above a quota."""
        connection = self._by_id.get(connection_id)
        if connection is not None:
            connection.mute(duration_ms)

    def add_connection(self, connection: Connection) -> None:
        """Adds an open connection."""
        self.connections.add(connection)
        self._by_id[connection.connection_id] = connection

    def remove_connection(self, connection: Connection) -> None:
        """Removes a closed connection and releases its memory."""
        self.connections.discard(connection)
        self._by_id.pop(connection.connection_id, None)
        self.flushes.discard(connection)
        self.unserved.claim(connection, 0)
        try:
            self.driver.after_pause(partial(self.engine.connection_closed, connection.connection_id))
            if self.memory is not None:
                self.memory.claim(connection, 0)
        finally:  # even if a call above raises, e.g. for lack of memory
            self.quota.of_listener(connection.listener).release(connection.client_host)

    def _pause(self, paused: bool) -> None:
        """Stops the requests of all connections while the driver writes a round; resumes the requests afterwards.

        A connection that cannot be resumed, because memory is exhausted, is closed.
        """
        if self.stopping:
            return  # they stay stopped
        for connection in self.connections:  # a copy would need memory; the calls add and remove no connection
            if paused:
                connection.stop_requests()
                continue
            try:
                connection.resume_requests()
            except Exception:
                connection.abort()

    def _after_flush(self) -> None:
        """Closes connections that lost a response, and releases the memory of responses, at the end of a round."""
        if has_lost_responses():
            self._close_lost()
        if self.responses is not None:
            self.responses.end_round()

    def _close_lost(self) -> None:
        """Closes the connections that have lost a response, because there was no memory to encode it."""
        closed = 0
        for connection in list(self.connections):
            if connection.lost_response:
                connection.abort()
                closed += 1
        has_lost_responses(reset=True)  # last: if there is no memory to close a connection, the next round tries again
        logger.error(
            "server: out of memory while encoding a response; closed %s; lower "
            "kcore.max.response.memory.bytes, or add memory to the machine",
            counted(closed, "connections"),
        )

    def abandon(self) -> None:
        """Closes the listeners and shuts the connections down after the end of the event loop."""
        self.stopping = True
        for acceptor in self.acceptors:
            acceptor.close()
        for connection in self.connections:
            with suppress(OSError):  # the client has closed the connection
                connection.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def _end_service(self) -> None:
        """Sends the responses that are complete, and closes the listeners and connections, because the engine refuses
        every call.
        """
        self.stopping = True
        for acceptor in self.acceptors:
            acceptor.close()
        for connection in list(self.connections):
            try:
                connection.close()
            except Exception as error:  # no memory for the responses
                connection.abort()
                log_failure(
                    logger,
                    error,
                    "server: cannot send the responses to connection %d from %s before closing it; the client connects "
                    "again%s",
                    connection.connection_id,
                    connection.client_host,
                    next_step(error),
                )

    async def stop(self) -> None:
        """Closes the listeners, commits the current round, sends its responses, and closes the connections.

        If an earlier commit was interrupted, this method closes the connections without another commit.
        """
        self.stopping = True
        if self._preload is not None:
            self._preload.cancel()
        self._drop_reserve()
        for acceptor in self.acceptors:
            acceptor.close()
        for connection in list(self.connections):
            connection.stop_requests()
        await self.driver.wait_for_rounds()
        for connection in list(self.connections):
            connection.close()
        until_s = self.loop.time() + SHUTDOWN_WAIT_S
        while self.connections and self.loop.time() < until_s:
            await asyncio.sleep(SHUTDOWN_POLL_S)
        for connection in list(self.connections):
            connection.abort()
        if self.responses is not None:
            self.responses.close()
        for logins in self._logins.values():
            logins.close()
        for acceptor in self.acceptors:
            await acceptor.wait_closed()
