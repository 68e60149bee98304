"""An engine in the caller's process, for threads or for an event loop: the transport of an embedded node.

Requests and responses are the typed messages of the protocol; no socket is involved. One process may have several
engines, each with its own folder (or none), settings and clock.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from kcore.clock import ManualClock, check_advance
from kcore.config.node import Config
from kcore.drivers.event_loop import AsyncDriver
from kcore.drivers.loop_calls import foreign_call, loop_has_ended
from kcore.drivers.offload import call_on_thread
from kcore.drivers.threads import ThreadDriver
from kcore.engine import Engine
from kcore.errors import ConfigError, KcoreError, ReentrantCallError
from kcore.group.consumer.events import GroupChanged
from kcore.protocol.schema import Request, check_request
from kcore.runtime import Pending, RequestContext, TopicImage

R = TypeVar("R")

EMBEDDED = "EMBEDDED"  # the listener of callers in the same process


class _Caller:
    """The base class of `SyncEngine` and `AsyncEngine`. It has the engine, and creates the contexts of requests."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._contexts: dict[tuple[type, int | None, str], RequestContext] = {}  # by request class, version, client id
        engine.cluster.advertise(EMBEDDED, "localhost", 0)

    @property
    def config(self) -> Config:
        """The effective settings."""
        return self.engine.config

    @property
    def topics(self) -> TopicImage:
        """The topics. Call only `by_name`, `by_id` and `all`; all other attributes are internal to the engine.

        To change topics, send requests (`CreateTopicsRequest`).
        """
        return self.engine.topics

    def watch_group(self, group_id: str, watcher: Callable[[GroupChanged], None]) -> Callable[[], None]:
        """Calls `watcher` after each durable change of a consumer group (KIP-848), so that callers need not poll.

        Args:
            group_id: the id of the group, which need not exist yet.
            watcher: called with the epochs and the assigned, revoked and target partitions of each member. It runs
                inside the engine and must not call the engine (`ReentrantCallError`); it may only pass the event to
                other code.

        Returns:
            A function that ends the watch.

        Raises:
            ConfigError: the group's id is empty.
            TypeError: `group_id` is not a string, or `watcher` is not a function, or it is a coroutine function.
        """
        if not isinstance(group_id, str):
            raise TypeError(f"group_id: {group_id!r} is not a string")
        if not group_id:
            raise ConfigError("group_id is empty; valid: a name")
        if not callable(watcher) or inspect.iscoroutinefunction(watcher):
            raise TypeError(f"watcher: {watcher!r}; valid: a function that is not a coroutine function")
        return self.engine.consumer_groups.events.watch(group_id, watcher)

    def _context(self, request: Any, version: int | None, client_id: str) -> RequestContext:
        key = (request.__class__, version, client_id)
        context = self._contexts.get(key)
        if context is None:
            served = _served_version(self.engine, request, version)  # raises first: refused requests are not cached
            if len(self._contexts) > 1024:
                self._contexts.clear()
            context = self._contexts[key] = RequestContext(served, client_id, listener=EMBEDDED)
        return context

    def _require_manual_clock(self) -> None:
        if not isinstance(self.engine.clock, ManualClock):
            raise TypeError("the time can only be moved for an engine that was opened with a ManualClock")


def _served_version(engine: Engine, request: Any, version: int | None) -> int:
    """Returns the version in which a request is decided.

    Raises:
        TypeError: the argument is not a request message.
        KcoreError: the engine does not serve the API or the version.
    """
    check_request(request)
    newest = engine.newest_version(request)
    api = engine.apis[request.API_KEY]
    if not isinstance(request, api.request_type):
        raise TypeError(f"expected a request message, got {type(request).__name__}")
    if version is None:
        return newest
    low, high = max(api.versions[0], request.MIN_VERSION), min(newest, request.MAX_VERSION)
    if not low <= version <= high:
        raise KcoreError(f"{type(request).__name__} is supported in versions {low} to {high}, not in version {version}")
    return version


class SyncEngine(_Caller):
    """An engine for threads. Any thread may call it; a call blocks until its response is complete."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._driver: Any = ThreadDriver(engine)  # or kcore.node.listening.LoopThreadDriver, once the node listens
        self._driver.run()

    def send(
        self,
        request: Request[R],
        version: int | None = None,
        *,
        client_id: str = "kcore",
        timeout_s: float | None = None,
    ) -> R:
        """Processes a request, and returns its response when its records are as durable as the settings require.

        Responses are read-only: the engine may return the same object again, or share parts of it with later responses.
        Copy a response before changing it (`copy.deepcopy`).

        Args:
            request: a request message.
            version: the version of the request; None: the newest. In the newest versions some APIs name topics by id,
                not by name. The request's file in `kcore.protocol.messages` shows the fields of each version.
            client_id: the client's id; member ids begin with it.
            timeout_s: the maximum time for which a join, sync or long poll may be parked, in real time; None: no limit.

        Raises:
            TimeoutError: the request is still parked after `timeout_s`. The operation continues.
            EngineClosedError: the engine was closed before or during the call.
            EngineInterruptedError: an exception, such as a KeyboardInterrupt, interrupted an earlier call within a
                change. Close the engine and open it again; every acknowledged write is in its log.
            ReentrantCallError: this thread is inside the engine: the call comes from a signal handler or a watcher.
            KcoreError: the engine does not serve the API or the version.
            TypeError: `request` is not a request message.
            CloseConnectionError: a Produce with acks=0 failed, and the protocol has no response for it.
        """
        response: R = self._driver.submit(self._context(request, version, client_id), request, timeout_s)
        return response

    def start(self, request: Request[R], version: int | None = None, *, client_id: str = "kcore") -> Pending | R:
        """Processes a request as `send` does, but returns a `Pending` instead of waiting if the response is parked.

        `Pending.on_complete` sets a callback. With a `ManualClock` and one thread, a test can let several members join
        a group. To do so, it starts the joins and then calls `advance`.
        """
        response: Pending | R = self._driver.start(self._context(request, version, client_id), request)
        return response

    def advance(self, ms: int) -> None:
        """Moves a `ManualClock` by `ms`. Every timer fires at its own time, and its decisions are committed."""
        self._require_manual_clock()
        check_advance(ms)
        self._driver.advance(ms)

    def close(self) -> None:
        """Commits the open round and closes the log. Calls of parked callers raise EngineClosedError.

        `close` may be called again after an exception, for example a KeyboardInterrupt.

        Raises:
            ReentrantCallError: this thread is inside the engine: the call comes from a signal handler or a watcher.
        """
        driver = self._driver
        driver.close()
        if self._driver is not driver:  # another thread has moved the engine meanwhile: see `run_on_thread`
            self._driver.close()


class AsyncEngine(_Caller):
    """An engine on an asyncio event loop."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(engine)
        self._driver = AsyncDriver(engine, loop, shared=True)
        self._driver.start()

    async def send(self, request: Request[R], version: int | None = None, *, client_id: str = "kcore") -> R:
        """Processes a request, and returns its response when its records are as durable as the settings require.

        Cancelling the await does not undo the request, because the request is decided already. Responses are read-only:
        the engine may return the same object again, or share parts of it with later responses. Copy a response before
        changing it (`copy.deepcopy`).

        Args:
            request: a request message.
            version: the version of the request; None: the newest. In the newest versions some APIs name topics by id,
                not by name. The request's file in `kcore.protocol.messages` shows the fields of each version.
            client_id: the client's id; member ids begin with it.

        Raises:
            ConcurrentCallError: the call is not made on the engine's event loop, so two threads could be inside the
                engine at the same time.
            EngineClosedError: the engine was closed before or during the call.
            EngineInterruptedError: an exception interrupted a change of the engine's state in an earlier call. Close
                the engine and open it again; every acknowledged write is in its log.
            KcoreError: the engine does not serve the API or the version.
            TypeError: `request` is not a request message.
            CloseConnectionError: a Produce with acks=0 failed, and the protocol has no response for it.
        """
        if asyncio._get_running_loop() is not self._driver.loop:
            raise foreign_call(self._driver.loop)
        response: R = await self._driver.submit(self._context(request, version, client_id), request)
        return response

    def advance(self, ms: int) -> None:
        """Moves a `ManualClock` by `ms`. Every timer fires at its own time, and its decisions are committed.

        Raises:
            ConcurrentCallError: the engine's event loop is running in another thread.
        """
        self.loop_has_ended()  # refuses other threads
        self._require_manual_clock()
        check_advance(ms)
        self._driver.advance(ms)

    def loop_has_ended(self) -> bool:
        """Returns True if the engine's event loop has ended, so that another loop has to close the engine.

        Raises:
            ConcurrentCallError: the engine's event loop is running in another thread.
        """
        return loop_has_ended(self._driver.loop)

    async def close_without_loop(self) -> None:
        """Closes the engine as `close` does, after the end of its event loop. Parked requests receive no response."""
        self._driver.leave_loop()
        await call_on_thread(self.close)

    def close(self) -> None:
        """Commits the open round and closes the log. Parked requests fail with an EngineClosedError.

        `close` may be called again after an exception.

        Raises:
            ReentrantCallError: this thread is inside the engine: the call comes from a signal handler or a watcher.
        """
        try:
            self._driver.close()
        except ReentrantCallError:
            raise
        except BaseException:
            self.engine.close()
            raise
        self.engine.close()

    async def close_async(self) -> None:
        """Closes the engine as `close` does, but does not block the event loop during the last commit and the closing
        of the log.

        Raises:
            ReentrantCallError: this thread is inside the engine: the call comes from a signal handler or a watcher.
        """
        try:
            await self._driver.finish_rounds()
        finally:
            self._driver.close()
        if self.engine.log.durability == "memory":
            self.engine.close()
        else:
            await call_on_thread(self.engine.close)
