"""Nodes with an engine in this process: the client API, and the operations that only an embedded engine has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import kcore
from kcore.config.node import Config
from kcore.embed import AsyncEngine, SyncEngine
from kcore.engine import Engine
from kcore.group.consumer.events import GroupChanged
from kcore.node._async.node import AsyncNode
from kcore.node._async.transport import AsyncEmbeddedTransport
from kcore.node._sync.node import Node
from kcore.node._sync.transport import EmbeddedTransport
from kcore.protocol.schema import Request
from kcore.runtime import Pending

if TYPE_CHECKING:
    from kcore.drivers.event_loop import AsyncDriver
    from kcore.node.listening import AsyncListening, Listening

R = TypeVar("R")

CLIENT_ID = "kcore"


class EmbeddedSend(Protocol):
    """The type of `EmbeddedNode.send`; see `kcore.embed.SyncEngine.send`."""

    def __call__(
        self,
        request: Request[R],
        version: int | None = None,
        *,
        client_id: str = CLIENT_ID,
        timeout_s: float | None = None,
    ) -> R:
        """Processes a request and returns its response once its records are durable."""
        ...


class AsyncEmbeddedSend(Protocol):
    """The type of `AsyncEmbeddedNode.send`; see `kcore.embed.AsyncEngine.send`."""

    async def __call__(self, request: Request[R], version: int | None = None, *, client_id: str = CLIENT_ID) -> R:
        """Processes a request and returns its response once its records are durable."""
        ...


class EmbeddedNode(Node):
    """A node with an engine in this process, for threads. `kcore.open` returns it.

    Attributes:
        engine: the engine that serves the requests. The engine's attributes are internal to kcore and may change.
    """

    send: EmbeddedSend

    def __init__(self, engine: Engine) -> None:
        self._engine = SyncEngine(engine)
        self.engine = engine
        super().__init__(EmbeddedTransport(self._engine, CLIENT_ID), local=True)
        self.send = self._engine.send

    @property
    def config(self) -> Config:
        """The effective settings."""
        return self.engine.config

    @property
    def _driver(self) -> Any:
        return self._engine._driver

    def listen(self, address: str = "127.0.0.1:0") -> kcore.Listening:
        """Opens a listener for Kafka clients of any language, without TLS and SASL.

        From now on, the engine runs in a separate thread. Members, consumers and waiting calls continue there.

        Args:
            address: HOST:PORT; port 0 selects a free port.

        Returns:
            The listener, with its address in `bootstrap`. The listener stays open until its `close` is called or the
            node is closed.

        Raises:
            ConfigError: the address is not HOST:PORT.
            EngineClosedError, EngineInterruptedError: see `kcore.embed.SyncEngine.send`.
            OSError: the process cannot listen on the address.
            TypeError: the address is not a string.
        """
        from kcore.node.listening import (  # noqa: PLC0415 - needs the whole server
            Listening,
            listener_of,
            run_on_thread,
        )

        listener_of(address)  # raises before the engine moves to the thread
        listening = Listening(run_on_thread(self._engine), address, self._forget)
        self._calls.resources[listening] = None
        return listening

    def _forget(self, listening: Listening) -> None:
        self._calls.resources.pop(listening, None)

    def start(self, request: Request[R], version: int | None = None, *, client_id: str = CLIENT_ID) -> Pending | R:
        """Processes a request as `send` does, but returns a `Pending` instead of waiting if the response is parked."""
        return self._engine.start(request, version, client_id=client_id)

    def advance(self, ms: int) -> None:
        """Moves a `ManualClock` forward by `ms`. Timers fire at their own times; the engine commits their decisions."""
        self._engine.advance(ms)

    def watch_group(self, group_id: str, watcher: Callable[[GroupChanged], None]) -> Callable[[], None]:
        """Calls `watcher` after each durable change of a consumer group; see `kcore.embed.SyncEngine.watch_group`."""
        return self._engine.watch_group(group_id, watcher)

    def __enter__(self) -> EmbeddedNode:
        return self


class AsyncEmbeddedNode(AsyncNode):
    """A node with an engine in this process, on an event loop. `kcore.open_async` returns it.

    Attributes:
        engine: the engine that serves the requests. The engine's attributes are internal to kcore and may change.
    """

    send: AsyncEmbeddedSend

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = AsyncEngine(engine, loop)
        self.engine = engine
        self._listening: list[AsyncListening] = []
        super().__init__(AsyncEmbeddedTransport(self._engine, CLIENT_ID), local=True)
        self.send = self._engine.send

    @property
    def config(self) -> Config:
        """The effective settings."""
        return self.engine.config

    @property
    def _driver(self) -> AsyncDriver:
        return self._engine._driver

    async def listen(self, address: str = "127.0.0.1:0") -> kcore.AsyncListening:
        """Opens a listener for Kafka clients of any language, without TLS and SASL.

        Args:
            address: HOST:PORT; port 0 selects a free port.

        Returns:
            The listener, with its address in `bootstrap`. The listener stays open until its `close` is called or the
            node is closed.

        Raises:
            ConcurrentCallError: the call is not made on the node's event loop.
            ConfigError: the address is not HOST:PORT.
            OSError: the process cannot listen on the address.
            TypeError: the address is not a string.
        """
        self._calls.require_owner()
        from kcore.node.listening import listen_async  # noqa: PLC0415 - needs the whole server

        listening = await listen_async(self._driver, address, self._forget)
        self._calls.resources[listening] = None
        self._listening.append(listening)
        return listening

    def _forget(self, listening: AsyncListening) -> None:
        self._calls.resources.pop(listening, None)
        self._listening.remove(listening)

    def advance(self, ms: int) -> None:
        """Moves a `ManualClock` forward by `ms`. Timers fire at their own times; the engine commits their decisions."""
        self._engine.advance(ms)

    def watch_group(self, group_id: str, watcher: Callable[[GroupChanged], None]) -> Callable[[], None]:
        """Calls `watcher` after each durable change of a consumer group; see `kcore.embed.SyncEngine.watch_group`."""
        return self._engine.watch_group(group_id, watcher)

    async def close(self) -> None:
        """Closes the node with its members, consumers and producers. Other requests that have no response yet fail.

        After the end of the node's event loop, another loop may close the node. `close` then logs a warning about open
        members, consumers and producers, which cannot leave their groups or store their records any more.

        Raises:
            ConcurrentCallError: the node's event loop is running in another thread. The node stays open.
        """
        if not self._calls.loop_has_ended():
            await super().close()
            return
        self._calls.abandon()
        for listening in self._listening:
            listening.abandon()
        await self._engine.close_without_loop()

    async def __aenter__(self) -> AsyncEmbeddedNode:
        return self


def _abandon_on_error(engine: Engine, make: Callable[[], Any]) -> Any:
    """Returns `make()`. If the call raises, releases the engine's data folder."""
    try:
        return make()
    except BaseException:
        engine.abandon()
        raise


def embedded_node(engine: Engine) -> EmbeddedNode:
    """Creates a node for threads. After an error, releases the engine's data folder."""
    node: EmbeddedNode = _abandon_on_error(engine, lambda: EmbeddedNode(engine))
    return node


def async_embedded_node(engine: Engine) -> AsyncEmbeddedNode:
    """Creates a node on the running event loop. After an error, releases the engine's data folder."""
    node: AsyncEmbeddedNode = _abandon_on_error(engine, lambda: AsyncEmbeddedNode(engine, asyncio.get_running_loop()))
    return node
