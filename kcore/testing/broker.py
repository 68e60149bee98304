"""A broker in this process for real clients. It starts in milliseconds, and a test controls its faults and its time."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeVar

from kcore.config.node import Config
from kcore.errors import ConfigError, KafkaError, KcoreError, ReentrantCallError
from kcore.node._sync.transactional_producer import transactional_producer
from kcore.node._sync.transactions import Transaction
from kcore.node.embedded import EmbeddedNode
from kcore.node.listening import NAME, run_on_thread
from kcore.protocol.compression import CompressionType
from kcore.protocol.topic_partition import TopicPartition
from kcore.security.protocols import SecurityProtocol
from kcore.server.listeners import ANYWHERE, Listener, parse_listeners
from kcore.server.server import Server
from kcore.testing import faults
from kcore.testing.arguments import (
    check_count,
    check_function,
    check_seconds,
    check_text,
    check_type,
    setting_texts,
    topic_sizes,
)
from kcore.testing.checks import Checks, name_of
from kcore.testing.clock import BrokerClock, SteppableClock
from kcore.testing.faults import ActiveFault, ErrorOf, Fault, RandomFaults
from kcore.testing.groups import TestGroups
from kcore.testing.history import History
from kcore.testing.interceptor import HeldRequest, Interceptor
from kcore.testing.recorder import ObservedEngine, Recorder
from kcore.testing.requests import groups_of
from kcore.testing.storage import Disk

T = TypeVar("T")

HOST = "127.0.0.1"
CALL_TIMEOUT_S = 30.0
FENCE_TIMEOUT_S = 60.0  # timeout of the transaction that fences a producer, which is aborted at once
MAX_PORT = 65_535
UNUSED_SETTINGS = ("kcore.data.dir", "kcore.http.listen")
RECHECK_S = 0.05  # a condition may depend on something that is not a round of the engine, such as a closed connection

FAST_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "kcore.durability": "memory",
}
"""Settings of a test broker that differ from a server's.

Groups form without delay, timeouts may be short, and the broker's clock may be behind the clocks of the clients.
"""

Restart = Literal["clean", "kill", "power"]


class Broker(Checks):
    """A Kafka broker on a thread of this process, in memory. Any Kafka client can connect to `bootstrap`.

    It is a context manager, also for `async with`. Its methods may be called from any thread, and from coroutines: they
    return within a millisecond or so, except `wait_for` (for coroutines: `wait_for_async`).

    Args:
        settings: settings by Kafka's names; they override `FAST_SETTINGS`.
        topics: the topics to create: names, or a mapping from names to numbers of partitions.
        port: the TCP port for clients; 0 selects a free port, which `restart` keeps.

    Attributes:
        groups: the state of each group, and the faults of its coordinator: `broker.groups["workers"]`.
        clock: the broker's clock.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        topics: Iterable[str] | Mapping[str, int] = (),
        port: int = 0,
    ) -> None:
        check_count("port", port, 0)
        if port > MAX_PORT:
            raise ValueError(f"port={port}: the maximum is {MAX_PORT}")
        self._settings = {**FAST_SETTINGS, **setting_texts(settings)}
        for name in UNUSED_SETTINGS:
            if self._settings.get(name):
                raise ConfigError(f"{name}: a test broker keeps all data in memory and serves no metrics")
        self._topics = topic_sizes(topics)
        self._port = port
        self._host = HOST
        self._ports: dict[str, int] = {}  # ports of the listeners in `settings`, which a restart keeps
        self._steppable = SteppableClock()
        self._disk = Disk()
        self._recorder = Recorder(self._steppable)
        self._interceptor = Interceptor()
        self._node: EmbeddedNode | None = None
        self._lifecycle = threading.RLock()
        self._rounds = _Rounds()
        self._refusing = False
        self.clock = BrokerClock(self._steppable, self._advance)
        self.groups = TestGroups(self)

    # ---- life

    def start(self) -> Broker:
        """Starts the broker, and creates the topics at the first start.

        Raises:
            ConfigError: a setting is unknown or not valid.
            KafkaError: a topic cannot be created.
            OSError: the port is in use.
        """
        with self._lifecycle:
            if self._node is not None:
                raise KcoreError("the broker runs already")
            self._start()
        return self

    def _start(self) -> None:
        engine = ObservedEngine(self._disk.open(), Config.of(self._settings), self._steppable, self._recorder)
        node = EmbeddedNode(engine)
        try:
            driver = run_on_thread(node._engine)
            self._driver, self._node = driver, node
            driver.run_on_loop(partial(self._listen, engine))
        except BaseException:
            self._node = None
            node.close()
            raise
        try:
            for name, partitions in self._topics.items():
                node.topics.create(name, partitions=partitions, exist_ok=True)
        except BaseException:
            self._end("kill")
            raise
        self._topics = {}

    async def _listen(self, engine: ObservedEngine) -> None:
        listeners = parse_listeners(engine.config) if "listeners" in self._settings else [self._listener()]
        listeners = [listener._replace(port=self._ports.get(listener.name, listener.port)) for listener in listeners]
        self._server = Server(self._driver.driver, listeners)
        self._interceptor.attach(self._server)
        await self._server.start()
        # A later import on this thread could break pytest's report of a failed test on the main thread: pytest's import
        # hook and its report build syntax trees, and Python 3.11 cannot do that on two threads at once (gh-106905).
        for _ in self._server.preload_modules():
            pass
        self._listener_name = listeners[0].name
        self._host = HOST if listeners[0].host in ANYWHERE else listeners[0].host
        self._ports = {name: port for name, (_, port) in self._server.addresses.items()}
        self._port = self._ports[self._listener_name]
        self._driver.driver.at_end_of_round(self._rounds.ended)

    def _listener(self) -> Listener:
        return Listener(NAME, HOST, self._port, HOST, 0, SecurityProtocol.PLAINTEXT)

    def stop(self) -> None:
        """Stops the broker and forgets its records. It does nothing if the broker does not run."""
        with self._lifecycle:
            if self._node is not None:
                self._end("kill")

    def _end(self, how: Restart) -> None:
        node = self.node
        if self._driver.is_own_thread:
            raise ReentrantCallError
        self._node = None
        try:
            self._driver.run_on_loop(partial(self._close, how), CALL_TIMEOUT_S)
        finally:
            node.close()
        self._refusing = False

    async def _close(self, how: Restart) -> None:
        if how != "clean":  # responses that clients have not received are lost
            self._driver.engine.abandon()
            self._driver.driver.close()  # an abandoned engine commits nothing
            for connection in list(self._server.connections):
                connection.abort()
        await self._server.stop()

    def restart(self, *, kill: bool = False, power: bool = False) -> None:
        """Restarts the broker on the same port. Committed records survive; held requests are lost.

        Args:
            kill: True to end the broker as SIGKILL does: it neither commits requests in progress nor responds to them.
            power: True for a power failure, which also loses the records written since `stop_syncing`.
        """
        check_type("kill", kill, bool)
        check_type("power", power, bool)
        how: Restart = "power" if power else "kill" if kill else "clean"
        with self._lifecycle:
            self._end(how)
            if power:
                self._disk.fail_power()
            for group_id in self._recorder.groups:
                self._recorder.add(group_id, "control", cause=f"test: restart ({how})")
            self._start()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is None:
            self._check_functions()

    def __del__(self) -> None:
        if getattr(self, "_node", None) is not None and not sys.is_finalizing():
            warnings.warn(f"the test broker at {self.bootstrap} was not stopped", ResourceWarning, stacklevel=1)
            # This may be any thread, also that of the broker's own engine.
            threading.Thread(target=self.stop, name="kcore-stop", daemon=True).start()

    async def __aenter__(self) -> Broker:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            self.stop()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    # ---- access

    @property
    def bootstrap(self) -> str:
        """The HOST:PORT that clients connect to; with the setting `listeners`, the address of the first listener."""
        return f"{self._host}:{self._port}"

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """The (host, port) on which each listener listens, by its name."""
        return self.call(lambda _: dict(self._server.addresses))

    @property
    def node(self) -> EmbeddedNode:
        """kcore's client API for this broker: `broker.node.topics.create("jobs")`. No fault applies to its requests.

        Raises:
            KcoreError: the broker does not run.
        """
        if self._node is None:
            raise KcoreError("the broker does not run: use `with Broker() as broker`, or start()")
        return self._node

    def call(self, function: Callable[[ObservedEngine], T]) -> T:
        """Calls `function` with the engine, on the engine's thread and between two requests."""
        _ = self.node

        async def run() -> T:
            engine = self._driver.engine
            engine.now.update()
            return function(engine)  # type: ignore[arg-type]

        return self._driver.run_on_loop(run, CALL_TIMEOUT_S)

    def _advance(self, ms: int) -> None:
        _ = self.node
        self._driver.advance(ms)
        self.call(lambda _: self._driver.driver.schedule_round_end())  # its end sends responses and sets a timer

    # ---- protocol faults

    def inject(self, *given: Fault) -> list[ActiveFault]:
        """Injects faults of `kcore.testing.faults`. Of the faults that match a request, only the first applies."""
        for fault in given:
            check_type("a fault", fault, Fault)
        return self.call(lambda _: self._interceptor.add(given))

    def script(self, *given: Fault) -> list[ActiveFault]:
        """Injects faults one after another: each becomes active when the one before it is exhausted."""
        for fault in given:
            check_type("a fault", fault, Fault)
        if any(fault.times is None for fault in given[:-1]):
            raise ValueError("only the last fault of a script may have no limit (times=None)")
        return self.call(lambda _: self._interceptor.script(given))

    def fail(
        self, api: str | Iterable[str], error: str | int | type[KafkaError] | ErrorOf, **options: Any
    ) -> ActiveFault:
        """Refuses requests with an error; see `kcore.testing.faults.fail`."""
        return self.inject(faults.fail(api, error, **options))[0]

    def delay(self, api: str | Iterable[str], seconds: float, **options: Any) -> ActiveFault:
        """Delays requests; see `kcore.testing.faults.delay`."""
        return self.inject(faults.delay(api, seconds, **options))[0]

    def hold(self, api: str | Iterable[str], **options: Any) -> ActiveFault:
        """Holds all matching requests until `release`; see `kcore.testing.faults.hold`."""
        return self.inject(faults.hold(api, **options))[0]

    def disconnect(
        self, api: str | Iterable[str] | None = None, *, client_id: str | None = None, **options: Any
    ) -> ActiveFault | None:
        """Closes connections: at the next request of `api`, or at once if `api` is None.

        Args:
            api: the APIs at whose requests the broker closes the connection; None: it closes the connections now.
            client_id: only the connections of this client; None: all.
            options: the other arguments of `kcore.testing.faults.disconnect`; valid only with `api`.

        Raises:
            LookupError: the broker has never had a request of this client.
            TypeError: there are options without `api`.
        """
        if api is not None:
            return self.inject(faults.disconnect(api, client_id=client_id, **options))[0]
        check_text("client_id", client_id, optional=True)
        if options:
            raise TypeError(f"disconnect() without an API takes only client_id, not {', '.join(options)}")

        def close(_: ObservedEngine) -> None:
            self._interceptor.require_client(client_id)
            for connection in self._interceptor.connections(client_id):
                connection.abort()

        self.call(close)
        return None

    def corrupt(self, api: str | Iterable[str], **options: Any) -> ActiveFault:
        """Damages the records of Fetch responses, and truncates other responses; see `kcore.testing.faults.corrupt`."""
        return self.inject(faults.corrupt(api, **options))[0]

    def throttle(self, api: str | Iterable[str], seconds: float, **options: Any) -> ActiveFault:
        """Sends clients a throttle time in seconds; see `kcore.testing.faults.throttle`."""
        return self.inject(faults.throttle(api, seconds, **options))[0]

    def random_faults(self, seed: int | None = None, **options: Any) -> RandomFaults:
        """Injects faults at random from now on, and prints the seed; see `kcore.testing.faults.RandomFaults`."""
        chosen = RandomFaults(seed, **options)
        print(f"kcore: random faults with seed {chosen.seed}")
        self.call(lambda _: self._interceptor.random(chosen))
        return chosen

    def clear_faults(self, fault: ActiveFault | None = None) -> None:
        """Removes `fault`; None: all faults, including the script and random faults. Held requests stay held."""
        check_type("fault", fault, ActiveFault, optional=True)
        self.call(lambda _: self._interceptor.clear(fault))

    @property
    def active_faults(self) -> list[ActiveFault]:
        """The faults that still apply to requests."""
        return self.call(lambda _: self._interceptor.active)

    @property
    def held(self) -> list[HeldRequest]:
        """The requests and responses that wait for `release`."""
        return self.call(lambda _: list(self._interceptor.held))

    def release(self, *, group: str | None = None, client_id: str | None = None, keep_holding: bool = False) -> int:
        """Carries out held requests, and sends held responses, in the order of their arrival.

        Args:
            group: the group whose requests are released; None: all.
            client_id: the client whose requests are released; None: all.
            keep_holding: True to continue to hold later requests; False to end the faults that hold requests.

        Returns:
            The number of released requests.
        """
        check_text("group", group, optional=True)
        check_text("client_id", client_id, optional=True)
        check_type("keep_holding", keep_holding, bool)

        def run(_: ObservedEngine) -> int:
            if not keep_holding:
                for active in self._interceptor.active:
                    if active.fault.action == "hold":
                        self._interceptor.clear(active)
            return self._interceptor.release(
                lambda held: (
                    (group is None or group in groups_of(held.request))
                    and (client_id is None or held.context.client_id == client_id)
                )
            )

        return self.call(run)

    def refuse_connections(self, *, close: bool = True) -> None:
        """Refuses new connections (ECONNREFUSED) until `accept_connections`; with `close`, ends open connections."""

        check_type("close", close, bool)

        def refuse(_: ObservedEngine) -> None:
            self._close_listeners()
            for connection in list(self._server.connections) if close else ():
                connection.abort()

        with self._lifecycle:
            self.call(refuse)
            self._refusing = True

    def accept_connections(self) -> None:
        """Accepts connections again, on the same port.

        Raises:
            OSError: another process has taken the port; a later call tries again.
        """
        _ = self.node
        with self._lifecycle:
            if not self._refusing:
                return

            async def listen() -> None:
                try:
                    for listener, security in self._server._listeners:
                        await self._server._listen(listener._replace(port=self._ports[listener.name]), security)
                except OSError:
                    self._close_listeners()
                    raise

            self._driver.run_on_loop(listen, CALL_TIMEOUT_S)
            self._refusing = False

    def _close_listeners(self) -> None:
        for acceptor in self._server.acceptors:
            acceptor.close()
        self._server.acceptors.clear()

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return self.call(lambda _: len(self._server.connections))

    # ---- faults of the coordinator and of the disk

    def fence_producer(self, transactional_id: str) -> None:
        """Fences the producers of a transactional id, as a new producer does at its start. Aborts an open transaction.

        Raises:
            KcoreError: the disk is full.
        """
        check_text("transactional_id", transactional_id)
        self.check_disk()
        # A new producer each time: the node's own one fences others only at its first transaction.
        producer = transactional_producer(self.node._calls, {}, transactional_id, FENCE_TIMEOUT_S)
        with Transaction(producer, CompressionType.NONE) as transaction:
            transaction.abort()

    def fill_disk(self) -> None:
        """Makes every write fail for lack of space, until `free_disk`."""
        self._set_full(True)

    def free_disk(self) -> None:
        """Ends `fill_disk`."""
        self._set_full(False)

    def check_disk(self) -> None:
        """Raises KcoreError if the disk is full.

        Without this check, a call of `node` would retry its write until `free_disk`.
        """
        if self._disk.log is not None and self._disk.log.full:
            raise KcoreError("the disk is full: call free_disk() first")

    def _set_full(self, full: bool) -> None:
        def run(_: ObservedEngine) -> None:
            assert self._disk.log is not None, "an open broker has a log"
            self._disk.log.full = full

        self.call(run)

    def stop_syncing(self) -> None:
        """Acknowledges later records without writing them to the disk: `restart(power=True)` loses them."""

        def run(engine: ObservedEngine) -> None:
            engine.commit()
            self._disk.stop_syncing()

        self.call(run)

    def sync(self) -> None:
        """Writes everything to the disk, and ends `stop_syncing`."""
        self.call(lambda _: self._disk.sync())

    # ---- observation

    def history(self, group_id: str) -> History:
        """Returns the history of a group: joins, generations, owners, commits and fencing, with their causes."""
        return self._recorder.history(group_id)

    def histories(self) -> list[History]:
        """Returns the histories of all groups."""
        return [self.history(group_id) for group_id in self._recorder.groups]

    def wait_for(self, condition: Callable[[Broker], T], timeout: float = 10.0, *, message: str = "") -> T:
        """Waits until `condition(broker)` returns a true value, and returns this value.

        The condition is evaluated after each round of the broker, so that a test needs no pauses.

        On an event loop use `wait_for_async`: this method blocks the loop, and with it the clients on the loop.

        Args:
            condition: a function that receives the broker.
            timeout: the maximum time in seconds, measured with the system's clock.
            message: a name for the condition in the error text; "": the name of the function.

        Raises:
            AssertionError: the condition is still false. The text has its last value, and the histories of all groups.
            KcoreError: a function of a fault has failed.
            TypeError: the condition is not a function, or it is a coroutine function.
        """
        return self._wait(condition, timeout, message, lambda: False)

    async def wait_for_async(self, condition: Callable[[Broker], T], timeout: float = 10.0, *, message: str = "") -> T:
        """Waits as `wait_for` does, without blocking the event loop; the condition runs in a thread."""
        cancelled = threading.Event()
        try:
            return await asyncio.to_thread(self._wait, condition, timeout, message, cancelled.is_set)
        finally:
            cancelled.set()

    def _wait(self, condition: Callable[[Broker], T], timeout: float, message: str, stopped: Callable[[], bool]) -> T:
        check_function("condition", condition)
        check_seconds("timeout", timeout)
        until_s = time.monotonic() + timeout
        while True:
            count = self._rounds.count
            self._check_functions()
            if value := condition(self):
                if inspect.isawaitable(value):
                    getattr(value, "close", lambda: None)()
                    raise TypeError("the condition is a coroutine function: it must be a function")
                return value
            left_s = until_s - time.monotonic()
            if left_s <= 0 or stopped():
                text = f"{message or name_of(condition)} is still false after {timeout} s"
                text += "" if value is False else f": its last value was {value!r}"
                self.fail_with(f"{text}{_blocked_loop()}", self._recorder.groups)
            self._rounds.wait(count, min(left_s, RECHECK_S))

    def _check_functions(self) -> None:
        """Raises the first error that a function of a fault, such as `where`, has raised."""
        if self._interceptor.failures:
            raise self._interceptor.failures[0]

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Returns the committed offsets of a group."""
        return self.groups[group_id].offsets


class _Rounds:
    """The number of completed rounds of the engine.

    This object has no reference to the broker, so that a broker without other references can be garbage-collected.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def ended(self) -> None:
        """Counts a completed round, and wakes waiting tests."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, count: int, timeout_s: float) -> None:
        """Waits until the number differs from `count`."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != count, timeout_s)


def _blocked_loop() -> str:
    """Returns a hint for the error text if this thread runs an event loop, whose clients the wait has blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return "; it blocked the event loop: use `await broker.wait_for_async(...)`"
