"""Listeners of an embedded node: Kafka clients of any language reach its engine over TCP."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import enum
import logging
import sys
import threading
from _thread import get_ident
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kcore.drivers.event_loop import AsyncDriver
from kcore.drivers.forks import refuse_in_child
from kcore.drivers.loop_calls import release_after_interrupt, start_on_loop
from kcore.errors import EngineClosedError, KcoreError, ReentrantCallError
from kcore.node._sync.backend import Event
from kcore.process_logging import log_failure
from kcore.security.protocols import SecurityProtocol
from kcore.server.listeners import ANYWHERE, Listener, parse_address
from kcore.server.server import Server
from kcore_ext.util.lock import Lock

if TYPE_CHECKING:
    from kcore.drivers.threads import ThreadDriver
    from kcore.embed import SyncEngine
    from kcore.engine import Engine
    from kcore.runtime import Pending, RequestContext

logger = logging.getLogger(__name__)

NAME = "LISTEN"

T = TypeVar("T")


def listener_of(address: str) -> Listener:
    """Returns the listener for an address.

    Raises:
        ConfigError: the address is not HOST:PORT.
        TypeError: the address is not a string.
    """
    if not isinstance(address, str):
        raise TypeError(f"address: {address!r}; valid: HOST:PORT, for example 127.0.0.1:0")
    host, port = parse_address(address)
    return Listener(NAME, host, port, "127.0.0.1" if host in ANYWHERE else host, 0, SecurityProtocol.PLAINTEXT)


class AsyncListening:
    """An open listener of a node: use it with `async with`, or call `close`. The node closes it, too.

    Args:
        server: the running server of the listener.
        on_closed: called with the listener at its end.
    """

    def __init__(self, server: Server, on_closed: Callable[[AsyncListening], None]) -> None:
        self._server = server
        self._on_closed = on_closed
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncListening({self.bootstrap!r}{', closed' * self._closed})"

    async def __aenter__(self) -> AsyncListening:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def bootstrap(self) -> str:
        """The address for clients: HOST:PORT."""
        host, port = self._server.addresses[NAME]
        return f"{'127.0.0.1' if host in ANYWHERE else host}:{port}"

    async def close(self) -> None:
        """Closes the listener and its connections; the node stays open."""
        if not self._closed:
            self._closed = True
            self._on_closed(self)
            await self._server.stop()

    def abandon(self) -> None:
        """Closes the listener after the end of its event loop; clients get no further responses."""
        if not self._closed:
            self._closed = True
            self._server.abandon()


async def listen_async(
    driver: AsyncDriver, address: str, on_closed: Callable[[AsyncListening], None]
) -> AsyncListening:
    """Opens a listener.

    Args:
        driver: the driver of the engine, on the running event loop.
        address: HOST:PORT.
        on_closed: called with the listener at its end.

    Raises:
        ConfigError: the address is not HOST:PORT.
        OSError: the process cannot listen on the address.
    """
    server = Server(driver, [listener_of(address)])
    await server.start()
    return AsyncListening(server, on_closed)


def run_on_thread(sync: SyncEngine) -> LoopThreadDriver:
    """Moves an engine to an event loop in a separate thread, unless it runs there already.

    Calls of other threads meanwhile wait, and continue on the event loop, as do requests that are parked. After an
    exception, the engine either runs as before, or it refuses calls until it is closed.

    Raises:
        EngineClosedError, EngineInterruptedError, ReentrantCallError: see `ThreadDriver.submit`.
    """
    previous = sync._driver
    if isinstance(previous, LoopThreadDriver):
        return previous
    with previous.hold():
        if isinstance(sync._driver, LoopThreadDriver):  # another thread was faster
            return sync._driver
        sync._driver = driver = LoopThreadDriver(sync.engine, previous)
        try:
            previous.hand_over(driver)
        except Exception:
            sync._driver = previous
            raise
        driver.begin()
        return driver


class _State(enum.Enum):
    """The states of a `LoopThreadDriver`."""

    NEW = enum.auto()  # the thread has not begun
    BEGUN = enum.auto()  # the thread runs; calls wait until its loop has started the engine's driver
    OPEN = enum.auto()  # calls are accepted
    CLOSING = enum.auto()  # the thread closes the engine
    CLOSING_WITHOUT_THREAD = enum.auto()  # closed in state NEW: if the thread begins after all, it returns at once
    CLOSED = enum.auto()


class LoopThreadDriver:
    """A driver that runs an engine on an event loop in a separate thread, for callers on other threads.

    Args:
        engine: the engine to run on the loop.
        previous: the driver that ran the engine until now.
    """

    def __init__(self, engine: Engine, previous: ThreadDriver) -> None:
        self.engine = engine
        self._previous = previous
        self.driver: AsyncDriver
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="kcore-engine", daemon=True)
        self._state = _State.NEW
        self._changing = Lock()  # no call begins after the state is CLOSING
        self._close_requested = asyncio.Event()
        self._finished = Event()  # the thread has closed the engine and the loop
        self._failure: BaseException | None = None
        self._refusal = "the start of the engine's thread was interrupted; close the node"
        refuse_in_child(self)

    def begin(self) -> None:
        """Starts the thread. The previous driver must have handed over the engine."""
        self.driver = AsyncDriver(self.engine, self.loop)
        self._thread.start()
        _result(start_on_loop(self.loop, self._start), None)
        with self._changing:
            if self._state is _State.BEGUN:
                self._state = _State.OPEN

    def leave_to_parent(self, reason: str) -> None:
        """Implements `ForkedDriver.leave_to_parent`: the thread of the loop does not exist in the child."""
        self._changing = Lock()
        self._refusal = reason
        self._state = _State.CLOSED

    def _run_loop(self) -> None:
        """Runs the loop until `close` is called, and then closes the engine.

        An authorizer, an assignor or a watcher may raise KeyboardInterrupt or SystemExit, which ends the loop. This
        method then starts the loop again, because the threads that call the engine wait for their results.
        """
        with self._changing:
            if self._state is not _State.NEW:
                return
            self._state = _State.BEGUN
        closing = self.loop.create_task(self._close_when_requested())
        try:
            while not closing.done():
                try:
                    self.loop.run_until_complete(closing)
                except (KeyboardInterrupt, SystemExit) as error:
                    if closing.done():
                        raise
                    log_failure(
                        logger,
                        error,
                        "engine: a callback of the program raised %r on the engine's thread; the engine continues; to "
                        "end the engine, call `close`",
                        error,
                    )
        except BaseException as error:
            self._failure = error
        finally:
            try:
                self.loop.run_until_complete(self._cancel_calls())
            finally:
                self.loop.close()
                self._finished.set()

    async def _cancel_calls(self) -> None:
        """Cancels the unfinished calls of other threads, so that their callers do not wait forever."""
        await asyncio.sleep(0)  # calls that were passed to the loop begin
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    @property
    def closed(self) -> bool:
        """True if the driver refuses calls: before its thread has started, after `close`, and in a forked child."""
        return self._state is not _State.OPEN

    @property
    def is_own_thread(self) -> bool:
        """True on the thread of the engine's loop, from which no call may wait for the loop.

        The operating system gives the id of an ended thread to a later thread.
        """
        return get_ident() == self._thread.ident and self._thread.is_alive()

    async def _start(self) -> None:
        self.driver.start()

    def run_on_loop(self, function: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        """Calls a coroutine function on the engine's loop, and returns the result of its coroutine.

        Raises:
            EngineClosedError: the engine was closed, or the interpreter ends.
            ReentrantCallError: the call comes from the engine's own thread, for example from a watcher.
            TimeoutError: the coroutine has not ended after `timeout_s`.
        """
        if self.is_own_thread:
            raise ReentrantCallError
        if sys.is_finalizing():  # the loop does not run any more, so the call would never return
            raise EngineClosedError("the Python interpreter is shutting down")
        if self._state is _State.NEW or self._state is _State.BEGUN:
            with self._previous.hold():  # `run_on_thread` has the lock until the thread serves calls
                pass
        with self._changing:
            if self._state is not _State.OPEN:
                raise EngineClosedError(self._refusal)
            future = start_on_loop(self.loop, function)
        return _result(future, timeout_s)

    def submit(self, context: RequestContext, request: Any, timeout_s: float | None = None) -> Any:
        """Processes a request and returns its response once its records are durable; see `ThreadDriver.submit`."""
        return self.run_on_loop(partial(self._submit, context, request), timeout_s)

    async def _submit(self, context: RequestContext, request: Any) -> Any:
        return await self.driver.submit(context, request)

    def wait_for(self, pending: Pending, timeout_s: float | None) -> Any:
        """Implements `Successor.wait_for`."""
        return self.run_on_loop(partial(self._wait_for, pending), timeout_s)

    async def _wait_for(self, pending: Pending) -> Any:
        return await self.driver.wait_for(pending)

    def start(self, context: RequestContext, request: Any) -> Pending | Any:
        """Raises KcoreError: a node with a listener cannot return pending responses."""
        raise KcoreError("start() is not available on a node that listens; call send() in a thread")

    def run(self) -> None:
        """Does nothing: the loop runs in its own thread."""

    def advance(self, ms: int) -> None:
        """Moves a manual clock; see `AsyncDriver.advance`."""
        self.run_on_loop(partial(self._advance, ms))

    async def _advance(self, ms: int) -> None:
        self.driver.advance(ms)

    def close(self) -> None:
        """Closes the engine and ends the thread. Does nothing while the interpreter shuts down, when no thread runs.

        The engine is closed in its own thread, which no signal interrupts. If `close` raises, it may be called again.

        Raises:
            ReentrantCallError: the call comes from the engine's own thread.
        """
        if self._state is _State.CLOSED or sys.is_finalizing():
            return
        if self.is_own_thread:
            raise ReentrantCallError
        with self._changing:
            if self._state is _State.OPEN:
                self._refusal = "the engine is closed"
            if self._state in (_State.BEGUN, _State.OPEN):
                self._state = _State.CLOSING
            elif self._state is _State.NEW:
                self._state = _State.CLOSING_WITHOUT_THREAD
        if self._state is _State.CLOSING_WITHOUT_THREAD:
            self._previous.close()  # does nothing after the hand-over
            self.engine.close()
            self.loop.close()
        else:
            with contextlib.suppress(RuntimeError):  # the thread has closed the loop already
                self.loop.call_soon_threadsafe(self._close_requested.set)
            self._finished.wait()  # `Thread.join` may return too early after an interrupt in an earlier `join`
            self._thread.join()
        self._state = _State.CLOSED
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _close_when_requested(self) -> None:
        await self._close_requested.wait()
        try:
            self.driver.close()
        finally:
            self.engine.close()
        await asyncio.sleep(0)  # parked callers get their errors before the loop stops


def _result(future: concurrent.futures.Future[T], timeout_s: float | None) -> T:
    """Waits for the result of a coroutine on the engine's loop; cancels the coroutine after an interrupt."""
    try:
        return future.result(timeout_s)
    except concurrent.futures.CancelledError:
        raise EngineClosedError("the engine was closed during this call") from None
    except TimeoutError:
        if future.done():  # the coroutine raised it
            raise
        future.cancel()
        raise TimeoutError(f"the call has not ended within {timeout_s} s") from None
    except BaseException:
        release_after_interrupt(future)
        future.cancel()
        raise


class Listening:
    """An open listener of a node for threads: use it with `with`, or call `close`. The node closes it, too.

    Args:
        driver: the driver of the engine.
        address: HOST:PORT.
        on_closed: called with the listener at its end, on the thread of the engine.
    """

    def __init__(self, driver: LoopThreadDriver, address: str, on_closed: Callable[[Listening], None]) -> None:
        self._driver = driver
        self._listening = driver.run_on_loop(partial(listen_async, driver.driver, address, lambda _: on_closed(self)))

    def __repr__(self) -> str:
        return f"Listening({self.bootstrap!r}{', closed' * self._listening._closed})"

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The address for clients: HOST:PORT."""
        return self._listening.bootstrap

    def close(self) -> None:
        """Closes the listener and its connections; the node stays open. Does nothing if the node is closed already."""
        if not self._driver.closed:
            self._driver.run_on_loop(self._listening.close)
