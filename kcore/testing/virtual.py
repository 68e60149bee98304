"""A node on an event loop in virtual time: the time jumps ahead whenever every task waits.

All timeouts of the engine, of kcore's own client API and of `asyncio` follow the loop's time. A test of a session
timeout of 45 seconds, or of an hour of heartbeats, takes as long as its requests take.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from heapq import heappop, heappush
from types import TracebackType
from typing import Any, TypeVar

from kcore.config.node import Config
from kcore.errors import KcoreError
from kcore.log import MemoryLogEngine
from kcore.node.embedded import CLIENT_ID, AsyncEmbeddedNode
from kcore.protocol.topic_partition import TopicPartition
from kcore.runtime import Pending
from kcore.testing.arguments import check_function, check_seconds, setting_texts, topic_sizes
from kcore.testing.checks import Checks
from kcore.testing.groups import TestGroups
from kcore.testing.history import History
from kcore.testing.recorder import ObservedEngine, Recorder

T = TypeVar("T")

WALL_START_MS = 1_700_000_000_000
"""The wall time, in ms since the epoch, at which every virtual time begins. It makes the timestamps of all runs equal.
"""

MAX_VIRTUAL_S = 7 * 24 * 3600.0
"""Maximum virtual time of a scenario in seconds. A scenario that takes longer is considered stuck."""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
MAX_WHEN_S = 1e9  # 31 years: the time of timers that never end
BUSY_WAIT_S = 0.05  # real time between two looks, while a thread computes for the loop
MIN_CANCELLED = 100  # cancelled timers below which it does not pay to remove them

MAX_TURNS = 5_000_000
"""Maximum number of turns of the event loop without a change of the virtual time. So many turns take almost a minute of
real time. If a task needs more turns, the loop assumes that the task runs forever."""

SETTINGS: Mapping[str, str] = {
    "log.message.timestamp.after.max.ms": "9223372036854775807",  # records may have the system's time
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "kcore.durability": "memory",
}
"""Settings of a virtual node that differ from a server's. Delays keep their defaults: they take no real time."""


class _Timer(asyncio.TimerHandle):
    """A timer of `VirtualTimeLoop.call_at`."""

    __slots__ = ()

    _cancelled: bool
    _scheduled: bool


class _RepeatingHandle(_Timer):
    """A timer of `VirtualTimeLoop.call_every`, which arms itself again before each call."""

    __slots__ = ("_due_ns", "_interval_ns")

    _loop: VirtualTimeLoop

    def __init__(self, interval_ns: int, callback: Callable[[], object], loop: VirtualTimeLoop) -> None:
        self._interval_ns = interval_ns
        self._due_ns = loop.now_ns + interval_ns
        super().__init__(self._due_ns / NS_PER_S, callback, (), loop)
        loop.arm(self, self._due_ns)

    def _run(self) -> None:
        self._due_ns = due_ns = self._due_ns + self._interval_ns
        self._loop.arm(self, due_ns)
        super()._run()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while a task runs, and jumps to the next timer when all tasks wait.

    In virtual time, many timers are due at the same instant. So the loop has a list of timers for each instant in ns,
    and a heap of the instants. Timers of one instant run in the order in which they were set.

    Attributes:
        now_ns: the virtual time in ns since the loop was created.
        now_ms: the same time in ms, rounded.
        working: the number of calls of `run_in_executor` that have not ended. The time stands still until they end.
        jumps: the number of times that the time jumped to a timer.
    """

    # Of asyncio's base classes, whose declarations do not have them.
    _check_closed: Callable[[], None]
    _process_events: Callable[[list[tuple[selectors.SelectorKey, int]]], None]
    _ready: deque[asyncio.Handle]
    _selector: selectors.BaseSelector
    _stopping: bool

    def __init__(self) -> None:
        self.now_ns = 0  # an integer: sums of seconds would not be exact
        self._at_ns: dict[int, list[_Timer]] = {}
        self._times_ns: list[int] = []
        self._turns = 0  # since the last jump
        self._timer_count = self._cancelled_count = 0
        self.now_ms = 0
        self.working = 0
        self.jumps = 0
        super().__init__(selectors.DefaultSelector())

    def __len__(self) -> int:
        """Returns the number of timers, including cancelled timers that are not removed yet."""
        return self._timer_count

    def __bool__(self) -> bool:
        """Returns True, also for a loop without timers."""
        return True

    def time(self) -> float:
        """Returns the virtual time in seconds since the loop was created."""
        return self.now_ns / NS_PER_S

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Calls `callback(*args)` at a virtual time."""
        self._check_closed()
        handle = _Timer(when, callback, args, self, context)
        self.arm(handle, round(min(when, MAX_WHEN_S) * NS_PER_S))
        return handle

    def call_every(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Calls `callback` after each interval until the handle is cancelled."""
        self._check_closed()
        interval_ns = round(seconds * NS_PER_S) if 0 < seconds <= MAX_WHEN_S else 0
        if not interval_ns:
            raise ValueError(f"every={seconds} seconds: valid are 1 ns to {MAX_WHEN_S:g} s")
        return _RepeatingHandle(interval_ns, callback, self)

    def arm(self, handle: _Timer, when_ns: int) -> None:
        """Schedules a handle for a virtual time."""
        handle._scheduled = True
        due = self._at_ns.get(when_ns)
        if due is None:
            self._at_ns[when_ns] = [handle]
            heappush(self._times_ns, when_ns)
        else:
            due.append(handle)
        self._timer_count += 1

    def _timer_handle_cancelled(self, handle: _Timer) -> None:
        """Counts a cancelled timer. Removes all cancelled timers when they are the majority."""
        if not handle._scheduled:
            return
        self._cancelled_count += 1
        if self._cancelled_count < MIN_CANCELLED or 2 * self._cancelled_count < self._timer_count:
            return
        handle._scheduled = False
        lists = (
            (when_ns, [each for each in due if each is not handle and not each._cancelled])
            for when_ns, due in self._at_ns.items()
        )
        self._at_ns = {when_ns: due for when_ns, due in lists if due}
        self._times_ns = sorted(self._at_ns)  # a sorted list is a heap
        self._timer_count = sum(map(len, self._at_ns.values()))
        self._cancelled_count = 0

    def _run_once(self) -> None:
        """Runs one turn: reads ready files, and runs ready callbacks and due timers.

        If no file or callback is ready, the time first jumps to the next timer. It stands still while a thread of
        `run_in_executor` works.
        """
        ready = self._ready
        events = self._selector.select(0)
        if not (events or ready or self._stopping):
            if self.working or not self._times_ns:
                events = self._selector.select(BUSY_WAIT_S)
            else:
                self._jump()
        self._process_events(events)
        times_ns = self._times_ns
        while times_ns and times_ns[0] <= self.now_ns:
            due = self._at_ns.pop(heappop(times_ns))
            self._timer_count -= len(due)
            for handle in due:
                handle._scheduled = False
                if handle._cancelled:
                    self._cancelled_count -= 1
                else:
                    ready.append(handle)
        self._turns += 1
        if self._turns > MAX_TURNS:
            self._turns = 0
            raise RuntimeError(
                f"the virtual time did not change in {MAX_TURNS} iterations of the event loop: a task never "
                "waits, or only for sleep(0)"
            )
        for _ in range(len(ready)):  # callbacks that these callbacks add run in the next turn
            callback = ready.popleft()
            if not callback.cancelled():
                callback._run()

    def _jump(self) -> None:
        self.now_ns = max(self.now_ns, self._times_ns[0])
        self.now_ms = round(self.now_ns / NS_PER_MS)
        self.jumps += 1
        self._turns = 0

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
        loop: the loop whose virtual time the engine follows.
    """

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def monotonic_ms(self) -> int:
        """Returns the loop's time in ms."""
        return self._loop.now_ms

    def wall_ms(self) -> int:
        """Returns the virtual time in ms since the epoch."""
        return WALL_START_MS + self._loop.now_ms


class Repetition:
    """A request that is sent again and again in virtual time, such as the heartbeat of a member.

    Each repetition takes a few microseconds, because it needs no task and no client.

    Args:
        node: sends the request.
        request: a typed request, of which the same object is sent each time.
        version: the version of the request; None: the newest.
        every_s: the interval in seconds.

    Attributes:
        count: number of times that the request was sent.
        response: the last response; None before the first response, and while the response is parked.
    """

    __slots__ = ("_begin_round", "_context", "_handle", "_request", "_submit", "count", "response")

    def __init__(self, node: AsyncEmbeddedNode, request: Any, version: int | None, every_s: float) -> None:
        loop = node._driver.loop
        assert isinstance(loop, VirtualTimeLoop), loop
        self._context = node._engine._context(request, version, CLIENT_ID)
        self._request = request
        self._submit = node.engine.submit
        self._begin_round = node._driver.round_clock.begin
        self.count = 0
        self.response: Any = None
        self._handle = loop.call_every(every_s, self._run)

    def _run(self) -> None:
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
        """Ends the repetition of the request."""
        self._handle.cancel()


class VirtualNode(Checks):
    """A node in virtual time, as a context manager.

    `run` runs a coroutine of the test; each `await` in it takes only virtual time. The node has its own event loop, so
    the test itself is an ordinary function, and the context manager is not for `async with`. Protocol faults need
    connections, which only a `Broker` has; `groups` has the faults of the coordinator.

    Args:
        settings: settings by Kafka's names; they override `SETTINGS`.
        topics: the topics to create: names, or a mapping from names to numbers of partitions.

    Attributes:
        loop: the node's event loop, whose time is virtual.
        groups: the state of each group, and the faults of its coordinator.
    """

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, topics: Iterable[str] | Mapping[str, int] = ()
    ) -> None:
        self._settings = {**SETTINGS, **setting_texts(settings)}
        self._topics = topic_sizes(topics)
        self._node: AsyncEmbeddedNode | None = None
        self.loop = VirtualTimeLoop()
        self._recorder = Recorder(LoopClock(self.loop))
        self.groups = TestGroups(self)

    def __enter__(self) -> VirtualNode:
        self._check_outside()
        if self._node is not None or self.loop.is_closed():
            raise KcoreError("a VirtualNode can be entered only once: create a new one")
        try:
            self.loop.run_until_complete(self._open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._check_outside()
        self._end()

    def _end(self) -> None:
        try:
            self.loop.run_until_complete(self._close())
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def _check_outside(self) -> None:
        """Raises KcoreError if this thread has a running event loop, because the caller is in a coroutine."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise KcoreError(
                "a VirtualNode has an event loop of its own: open it and call run() in a function, not in a coroutine"
            )

    async def _open(self) -> None:
        clock = LoopClock(self.loop)
        engine = ObservedEngine(MemoryLogEngine(), Config.of(self._settings), clock, self._recorder)
        self._node = AsyncEmbeddedNode(engine, self.loop)
        for name, partitions in self._topics.items():
            await self._node.topics.create(name, partitions=partitions, exist_ok=True)

    async def _close(self) -> None:
        node, self._node = self._node, None
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if node is not None:
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
            scenario: a coroutine function, which receives the node, or a coroutine, as for `asyncio.run`.
            max_seconds: the maximum time that the coroutine may take, in seconds of virtual time.

        Raises:
            TimeoutError: the coroutine takes longer, probably because it waits for a condition that never becomes true.
        """
        if not inspect.iscoroutine(scenario):
            check_function("scenario", scenario)
        check_seconds("max_seconds", max_seconds, maximum=MAX_WHEN_S)
        self._check_outside()
        node = self.node
        limits: list[asyncio.Timeout] = []

        async def limited() -> T:
            async with asyncio.timeout(max_seconds) as limit:
                limits.append(limit)
                return await (scenario(node) if callable(scenario) else scenario)

        try:
            return self.loop.run_until_complete(limited())
        except TimeoutError as error:
            if not limits[0].expired():
                raise
            text = (
                f"the scenario has not ended after {max_seconds:g} s of virtual time: it probably waits for an event "
                "that"
            )
            raise TimeoutError(f"{text} never happens") from error

    def repeat(self, request: Any, every: float, *, version: int | None = None) -> Repetition:
        """Sends a request once per interval, for scenarios with many members. An interval precedes the first request.

        Args:
            request: a typed request, as for `AsyncNode.send`.
            every: the interval in seconds.
            version: the version of the request; None: the newest.

        Raises:
            TypeError: `request` is not a request, or `every` is not a number.
            ValueError: `every` is not positive.
            KcoreError: the API is not served in this version.
        """
        check_seconds("every", every, 1e-9)
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
