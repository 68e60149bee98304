"""One node of a cluster with its server, on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kcore.broker.cluster.membership import Timing, log_error_of
from kcore.clock import SystemClock
from kcore.cluster.store import Endpoint, NodeDescription
from kcore.cluster_engine import ClusterEngine
from kcore.drivers.event_loop import AsyncDriver
from kcore.errors import ConfigError
from kcore.log.errors import LogError, NodeAliveError, StoreUnavailableError
from kcore.server.inter_node import inter_node_listener, inter_node_security
from kcore.server.listeners import parse_listeners
from kcore.server.peers import TcpPeers
from kcore.server.server import Server
from kcore_ext.util.lock import Lock

if TYPE_CHECKING:
    from kcore.cluster.store import ClusterStore, Lease
    from kcore.config.node import Config
    from kcore.metrics import Histogram

logger = logging.getLogger(__name__)

RETRY_S = 0.3
"""Time between two attempts to register the node, or to read the metadata of a cluster that is being created."""
MIN_SESSION_MS = 1_000
"""Minimum duration of a node's lease. A short pause of the process or of the store must not end a lease."""
SECRET_BYTES = 16
HAND_OVER_S = 10.0
"""Maximum time for which a stopping node waits until other nodes lead its partitions."""


class ClusterNode:
    """One incarnation of a node: its registration, engine, driver and server.

    Args:
        open_store: returns the cluster's store.
        config: the node's settings; `node_id` and fixed ports are required.
        timing: the intervals of leases and polls; None: the settings determine them.

    Raises:
        ConfigError: a listener has port 0, or the listener for other nodes or its credentials are missing.

    Attributes:
        ended: an event that is set when this incarnation was fenced, or when an exception has interrupted the engine.
    """

    def __init__(self, open_store: Callable[[], ClusterStore], config: Config, timing: Timing | None = None) -> None:
        self._open_store = open_store
        self._timing = timing or configured_timing(config)
        self.config = config
        self.listeners = parse_listeners(config)
        self.inter_listener = inter_node_listener(config, self.listeners)
        self._security = inter_node_security(config, self.inter_listener)
        self._secret = secrets.token_hex(SECRET_BYTES)
        self.ended = asyncio.Event()
        self.store: ClusterStore | None = None
        self._lease: Lease | None = None  # the lease of the registration, for a stop before there is an engine
        self._engine: ClusterEngine | None = None
        self._driver: AsyncDriver | None = None
        self._server: Server | None = None
        self._peers: TcpPeers | None = None
        self._serves = False  # True from the end of `start` on

    @property
    def engine(self) -> ClusterEngine:
        """The engine; available after `start`."""
        assert self._engine is not None, "start the node first"
        return self._engine

    @property
    def driver(self) -> AsyncDriver:
        """The engine's driver; available after `start`."""
        assert self._driver is not None, "start the node first"
        return self._driver

    @property
    def server(self) -> Server:
        """The server; available after `start`."""
        assert self._server is not None, "start the node first"
        return self._server

    async def start(self) -> None:
        """Registers the node, loads the metadata and starts to serve. Waits until the store and the cluster are ready.

        Raises:
            LogError: the store refuses the node permanently, for example because its schema is unknown.
            OSError: the server cannot listen.
        """
        loop = asyncio.get_running_loop()
        self.store = store = self._open_store()
        lease, register_sent_ms = await self._registered(store)
        self._engine = engine = await self._opened(store, lease, register_sent_ms)
        self._driver = driver = AsyncDriver(engine, loop)
        driver.when_broken(self.ended.set)
        engine.when_fenced(self.ended.set)
        run = ThreadRunner(driver, engine.store_time)
        renew = ThreadRunner(driver, engine.store_time) if store.renews_concurrently else run
        engine.use(run=run, renew=renew, peers=self._made_peers(driver, engine))
        self._server = Server(driver, self.listeners)
        await self._server.start()
        driver.start()

        def look() -> None:
            if not self.ended.is_set() and self._server is not None:
                driver.begin_round()
                engine.membership.refresh()

        store.listen(lambda: _call(loop, look))
        self._serves = True

    def _made_peers(self, driver: AsyncDriver, engine: ClusterEngine) -> TcpPeers:
        self._peers = TcpPeers(driver, engine, self.inter_listener.name, self._secret, self._security)
        return self._peers

    async def _registered(self, store: ClusterStore) -> tuple[Lease, int]:
        """Registers the node; waits while an earlier incarnation is alive or the store cannot be reached."""
        clock = SystemClock()
        warned = False
        while True:
            register_sent_ms = clock.monotonic_ms()
            register = asyncio.to_thread(store.register, self.config.node_id, self._description(), self._timing.ttl_ms)
            registering = asyncio.ensure_future(register)
            try:
                self._lease = lease = await asyncio.shield(registering)
            except asyncio.CancelledError:
                with contextlib.suppress(Exception):
                    self._lease = await registering  # the thread continues, and may take a lease
                raise
            except (NodeAliveError, StoreUnavailableError) as error:
                if not warned:
                    logger.warning(
                        "cluster: node %d waits to register: %s; %s",
                        self.config.node_id,
                        error,
                        "if that process is another node, give one of them another node.id"
                        if isinstance(error, NodeAliveError)
                        else "check the store and the network to it",
                    )
                    warned = True
                await asyncio.sleep(RETRY_S)
            else:
                return lease, register_sent_ms

    async def _opened(self, store: ClusterStore, lease: Lease, register_sent_ms: int) -> ClusterEngine:
        """Opens the engine; waits while no controller has prepared the cluster."""
        clock = SystemClock()
        warned = False
        while True:
            try:
                return ClusterEngine(store, lease, register_sent_ms, self.config, clock, timing=self._timing)
            except StoreUnavailableError as error:
                if not warned:
                    logger.warning(
                        "cluster: node %d cannot open its logs yet: %s; the node tries again; if this takes longer "
                        "than a minute, check the cluster's store and the network to it",
                        self.config.node_id,
                        error,
                    )
                    warned = True
            await asyncio.sleep(RETRY_S)
            sent_ms = clock.monotonic_ms()
            try:
                [renewed] = await asyncio.to_thread(store.renew, [lease], self._timing.ttl_ms)
            except StoreUnavailableError:
                continue
            if renewed:
                register_sent_ms = sent_ms
            else:
                lease, register_sent_ms = await self._registered(store)

    def _description(self) -> NodeDescription:
        endpoints = tuple(
            Endpoint(
                listener.name,
                listener.protocol.name,
                listener.advertised_host,
                listener.advertised_port or listener.port,
            )
            for listener in self.listeners
        )
        return NodeDescription(endpoints, self.config.broker_rack, self.inter_listener.name, self._secret)

    async def stop(self, *, hand_over: bool = True) -> None:
        """Stops the node: hands the partitions over while the node still serves, then unregisters the node.

        Args:
            hand_over: True to move the partitions to other nodes first; False if all nodes end.
        """
        try:
            if hand_over and self._serves and not self.ended.is_set():
                await self._hand_over(self.engine)
        finally:
            try:
                await self._close_server()
            finally:
                if self._engine is not None:
                    self._engine.close()
                elif self.store is not None:
                    self._give_up_lease(self.store)
                    self.store.close()

    def _give_up_lease(self, store: ClusterStore) -> None:
        """Unregisters a node whose start failed or was cancelled before it had an engine.

        Otherwise, the next start would wait until the lease ends.
        """
        if self._lease is None:
            return
        try:
            store.unregister(self._lease)
        except LogError as error:
            logger.warning(
                "cluster: node %d ends without unregistering: %s; other nodes take over its partitions when its lease "
                "expires",
                self.config.node_id,
                error,
            )

    async def _hand_over(self, engine: ClusterEngine) -> None:
        """Hands the partitions over. Waits at most `HAND_OVER_S` until other nodes lead them."""
        handed_over = asyncio.Event()
        self.driver.begin_round()
        engine.hand_over(handed_over.set)
        waits = [asyncio.ensure_future(event.wait()) for event in (handed_over, self.ended)]
        await asyncio.wait(waits, timeout=HAND_OVER_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not handed_over.is_set():
            logger.warning(
                "cluster: node %d has waited for %g s and ends now, although other nodes have not taken over all its "
                "partitions. Clients of the remaining partitions get retriable errors until the node's lease expires "
                "and the controller moves the partitions. `kcore cluster status` shows the nodes that are alive",
                self.config.node_id,
                HAND_OVER_S,
            )

    async def abort(self) -> None:
        """Ends an incarnation that was fenced, without further writes."""
        try:
            await self._close_server()
        finally:
            if self._engine is not None:
                self._engine.abandon()

    def abandon(self) -> None:
        """Ends the node after the end of its event loop, without further writes; clients get no further responses."""
        if self._server is not None:
            self._server.abandon()
        if self._driver is not None:
            self._driver.leave_loop()
        if self._engine is not None:
            self._engine.abandon()

    async def _close_server(self) -> None:
        if self._engine is not None:
            self._engine.membership.stop()
        if self._peers is not None:
            self._peers.close()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        if self._driver is not None:
            self._driver.close()


class ThreadRunner:
    """A `Runner` that runs calls of the store on threads, one at a time.

    Args:
        driver: the driver; the results arrive in its rounds.
        times: the histogram to which the duration of each call is added, in seconds.
    """

    def __init__(self, driver: AsyncDriver, times: Histogram) -> None:
        self._driver = driver
        self._times = times
        self._lock = Lock()

    def __call__(self, call: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Runs `call` on a thread. Then passes its result or its LogError to `done` in a round of the driver."""

        took_s: list[float] = []

        def timed() -> Any:
            with self._lock:
                started_s = time.perf_counter()
                try:
                    return call()
                finally:
                    took_s.append(time.perf_counter() - started_s)

        def finished(result: Any) -> None:
            for each_s in took_s:
                self._times.observe(each_s)
            done(log_error_of(result) if isinstance(result, BaseException) else result)

        self._driver.compute_beside(timed, finished)


def configured_timing(config: Config) -> Timing:
    """Returns the intervals of a node's membership.

    The settings `broker.session.timeout.ms` and `broker.heartbeat.interval.ms` determine the intervals. A setting that
    was not set leaves the default interval unchanged.

    Raises:
        ConfigError: the session is shorter than `MIN_SESSION_MS`, or too short for its heartbeats.
    """
    timing = Timing()
    ttl_ms, renew_ms = timing.ttl_ms, timing.renew_ms
    if config.source("broker.session.timeout.ms") != "default":
        ttl_ms = config.get("broker.session.timeout.ms")
        renew_ms = ttl_ms // 4
    if config.source("broker.heartbeat.interval.ms") != "default":
        renew_ms = config.get("broker.heartbeat.interval.ms")
    if renew_ms < 1 or ttl_ms < MIN_SESSION_MS or 2 * renew_ms > ttl_ms:
        raise ConfigError(
            f"broker.session.timeout.ms={ttl_ms}, broker.heartbeat.interval.ms={renew_ms}: a session must have at "
            f"least {MIN_SESSION_MS} ms and two heartbeat intervals"
        )
    return timing._replace(
        ttl_ms=ttl_ms,
        margin_ms=max(100, ttl_ms // 12),
        renew_ms=renew_ms,
        controller_ttl_ms=max(MIN_SESSION_MS, ttl_ms // 3),
    )


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Calls a function on the loop from any thread; does nothing once the loop is closed."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        logger.debug("cluster: a notification came after the end of the event loop")
