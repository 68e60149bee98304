"""A node on an event loop in virtual time: the time jumps ahead whenever every task waits.

All timeouts of the engine, of kcore's own client API and of `asyncio` follow the loop's time. A test of a session
timeout of 45 seconds, or of an hour of heartbeats, takes as long as its requests take.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import selectors
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from kcore.config.node import Config
from kcore.errors import KcoreError
from kcore.log import MemoryLogEngine
from kcore.node.embedded import CLIENT_ID, AsyncEmbeddedNode
from kcore.protocol.topic_partition import TopicPartition
from kcore.runtime import Pending
from kcore.testing.checks import Checks
from kcore.testing.groups import TestGroups
from kcore.testing.history import History
from kcore.testing.recorder import ObservedEngine, Recorder

T = TypeVar("T")

WALL_START_MS = 1_700_000_000_000
"""The wall time at the begin of each virtual time, in ms since the epoch: runs repeat with equal timestamps."""

MAX_VIRTUAL_S = 7 * 24 * 3600.0
"""The virtual time after which a scenario is considered stuck."""

NS_PER_S = 1_000_000_000
BUSY_WAIT_S = 0.05  # real time between two looks, while a thread computes for the loop

SETTINGS: Mapping[str, str] = {
    "log.message.timestamp.after.max.ms": "9223372036854775807",  # records may have the system's time
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "kcore.durability": "memory",
}
"""Settings of a virtual node that differ from a server's. Delays stay as they are: they take no time here."""


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that moves the loop's time instead of waiting, if no file is ready and no thread is working."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Returns the ready files; moves the time by `timeout` if there are none."""
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.loop.working or timeout is None:
            return super().select(BUSY_WAIT_S)
        self.loop.jump(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while a task runs, and jumps to the next timer when all tasks wait.

    Attributes:
        working: number of calls of `run_in_executor` that have not ended: the time stands still for them.
        jumps: number of jumps.
    """

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self._now_ns = 0  # an integer: sums of seconds would not be exact
        self.working = 0
        self.jumps = 0
        super().__init__(selector)

    def time(self) -> float:
        """Returns the virtual time in seconds since the loop was created."""
        return self._now_ns / NS_PER_S

    def jump(self, seconds: float) -> None:
        """Moves the time forward."""
        self._now_ns += round(seconds * NS_PER_S)
        self.jumps += 1

    def run_in_executor(  # type: ignore[override]
        self, executor: concurrent.futures.Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs a function on a thread; the time stands still until it has ended."""
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        self.working += 1

        def ended(_: asyncio.Future[T]) -> None:
            self.working -= 1

        future.add_done_callback(ended)
        return future


class LoopClock:
    """The clock of an engine on a `VirtualTimeLoop`.

    Args:
        loop: the loop.
    """

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def monotonic_ms(self) -> int:
        """Returns the loop's time in ms."""
        return round(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        """Returns the virtual time in ms since the epoch."""
        return WALL_START_MS + self.monotonic_ms()


class Repetition:
    """A request that is sent again and again in virtual time, such as the heartbeat of a member.

    It costs a few microseconds each time: no task and no client is involved.

    Args:
        node: sends the request.
        request: the request; the same object each time.
        version: its version; None: the newest.
        every_s: the interval in seconds.

    Attributes:
        count: number of times that the request was sent.
        response: the last response; None before the first one, and while it is parked.
    """

    __slots__ = ("_begin_round", "_call_at", "_context", "_every_s", "_handle", "_next_s", "_request", "_submit",
                 "count", "response")  # fmt: skip

    def __init__(self, node: AsyncEmbeddedNode, request: Any, version: int | None, every_s: float) -> None:
        loop = node._driver.loop
        self._context = node._engine._context(request, version, CLIENT_ID)
        self._request = request
        self._every_s = every_s
        self._submit = node.engine.submit
        self._begin_round = node._driver.begin_round
        self._call_at = loop.call_at
        self._next_s = loop.time() + every_s
        self.count = 0
        self.response: Any = None
        self._handle = loop.call_at(self._next_s, self._run)

    def _run(self) -> None:
        self._next_s += self._every_s
        self._handle = self._call_at(self._next_s, self._run)
        self._begin_round()
        self.count += 1
        response = self._submit(self._context, self._request)
        if isinstance(response, Pending):
            self.response = None
            response.on_complete(self._arrived)
        else:
            self.response = response

    def _arrived(self, response: Any) -> None:
        self.response = response

    def stop(self) -> None:
        """Sends the request no more."""
        self._handle.cancel()


class VirtualNode(Checks):
    """A node in virtual time, as a context manager.

    `run` runs a coroutine of the test; each `await` in it takes only virtual time. The node has its own event loop, so
    the test itself is an ordinary function, and the context manager is not for `async with`. Protocol faults need
    connections, which only a `Broker` has; `groups` has the faults of the coordinator.

    Args:
        settings: settings by Kafka's names, beside `SETTINGS`.
        topics: topics to create: their names, or names with numbers of partitions.

    Attributes:
        loop: the event loop.
        groups: the groups, their state and the faults of their coordinator.
    """

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, topics: Iterable[str] | Mapping[str, int] = ()
    ) -> None:
        self._settings = {**SETTINGS, **{name: str(value) for name, value in (settings or {}).items()}}
        self._topics = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        self._node: AsyncEmbeddedNode | None = None
        self.loop = VirtualTimeLoop()
        self._recorder = Recorder(LoopClock(self.loop))
        self.groups = TestGroups(self)

    def __enter__(self) -> VirtualNode:
        self.loop.run_until_complete(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.loop.run_until_complete(self._close())
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    async def _open(self) -> None:
        clock = LoopClock(self.loop)
        engine = ObservedEngine(MemoryLogEngine(), Config.of(self._settings), clock, self._recorder)
        self._node = AsyncEmbeddedNode(engine, self.loop)
        for name, partitions in self._topics.items():
            await self._node.topics.create(name, partitions=partitions, exist_ok=True)

    async def _close(self) -> None:
        node, self._node = self.node, None
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await node.close()

    @property
    def node(self) -> AsyncEmbeddedNode:
        """The node, for coroutines that `run` runs.

        Raises:
            KcoreError: the node is not open.
        """
        if self._node is None:
            raise KcoreError("the node is not open: use `with VirtualNode() as virtual`")
        return self._node

    @property
    def now(self) -> float:
        """The virtual time in seconds since the node was created."""
        return self.loop.time()

    def run(
        self,
        scenario: Callable[[AsyncEmbeddedNode], Awaitable[T]] | Awaitable[T],
        *,
        max_seconds: float = MAX_VIRTUAL_S,
    ) -> T:
        """Runs a coroutine to its end in virtual time, and returns its result.

        Args:
            scenario: a coroutine function, which gets the node, or a coroutine, as for `asyncio.run`.
            max_seconds: the maximum virtual time.

        Raises:
            TimeoutError: the coroutine takes longer: it waits for a condition that never becomes true.
        """

        async def limited() -> T:
            async with asyncio.timeout(max_seconds):
                return await (scenario(self.node) if callable(scenario) else scenario)

        return self.loop.run_until_complete(limited())

    def repeat(self, request: Any, every: float, *, version: int | None = None) -> Repetition:
        """Sends a request again and again, for scenarios with many members; the first time after one interval.

        Args:
            request: the request, as for `AsyncNode.send`.
            every: the interval in seconds.
            version: the version of the request; None: the newest.
        """
        return Repetition(self.node, request, version, every)

    def call(self, function: Callable[[ObservedEngine], T]) -> T:
        """Calls `function` with the engine, between two requests."""
        engine = self.node.engine
        engine.now.update()
        return function(engine)  # type: ignore[arg-type]

    def history(self, group_id: str) -> History:
        """Returns the history of a group: joins, generations, owners, commits and fencing, with their causes."""
        return self._recorder.history(group_id)

    def histories(self) -> list[History]:
        """Returns the histories of all groups."""
        return [self.history(group_id) for group_id in self._recorder.groups]

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Returns the committed offsets of a group."""
        return self.groups[group_id].offsets
