"""Concurrency on an asyncio event loop: the counterpart of `kcore.node._sync.backend`, which uses threads."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import nullcontext
from typing import Any, TypeVar

from kcore.client.aio.results import OnDone, report_result
from kcore.drivers.loop_calls import foreign_call, loop_has_ended
from kcore.embed import AsyncEngine as EmbeddedEngine
from kcore.node.task_names import task_name

__all__ = [
    "AsyncLock",
    "CancelledError",
    "EmbeddedEngine",
    "Event",
    "SingleTask",
    "Stepper",
    "Task",
    "acquire_within",
    "call_and_report",
    "caller",
    "foreign_call",
    "gather",
    "guard",
    "interpreter_ends",
    "invoke",
    "is_cancelled",
    "let_others_run",
    "loop_has_ended",
    "monotonic",
    "now_ms",
    "running_loop",
    "sleep",
    "spawn",
    "start_request",
]

T = TypeVar("T")

logger = logging.getLogger(__name__)

CancelledError = asyncio.CancelledError


def interpreter_ends() -> bool:
    """Returns True while the interpreter shuts down, when no event loop runs any more."""
    return sys.is_finalizing()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Returns the event loop of the calling code, to which a node and its objects belong; None: no loop is running."""
    return asyncio._get_running_loop()


def guard() -> nullcontext[None]:
    """Returns a context manager in place of a lock for state machines.

    The context manager does nothing, because no other task runs between two awaits.
    """
    return nullcontext()


class Event:
    """A flag that tasks wait for.

    This class is faster than `asyncio.Event` with `asyncio.timeout`. The speed matters, because most steps of a member,
    a consumer or a producer wait for a flag with a time limit.

    The flag belongs to the event loop on which it was created. Code on another loop cannot wait for it.
    """

    __slots__ = ("_loop", "_set", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio._get_running_loop()
        self._set = False
        self._waiting: list[asyncio.Future[bool]] = []

    def set(self) -> None:
        """Sets the flag and wakes the waiting tasks."""
        self._set = True
        for future in self._waiting:
            _complete(future, True)

    def clear(self) -> None:
        """Clears the flag."""
        self._set = False

    def is_set(self) -> bool:
        """Returns True if the flag is set."""
        return self._set

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the flag. Returns True once the flag is set, or False if `timeout_s` passes first.

        Raises:
            ConcurrentCallError: the flag belongs to another event loop, which could not wake this task.
        """
        if self._set:
            return True
        loop = asyncio.get_running_loop()
        if self._loop is not loop and self._loop is not None:
            raise foreign_call(self._loop)
        future: asyncio.Future[bool] = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(max(timeout_s, 0), _complete, future, False)
        self._waiting.append(future)
        try:
            return await future or self._set
        finally:
            self._waiting.remove(future)
            if timer is not None:
                timer.cancel()


def _complete(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)


class SingleTask:
    """A coroutine function that runs at most once, in a separate task.

    If an exception interrupts `start`, the caller may call it again.
    """

    def __init__(self, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self.function = function
        self._begun = False
        self.__name__ = function.__name__

    def start(self) -> None:
        """Starts a task, which runs the function unless another task has begun to run it."""
        spawn(self)

    def withdraw(self) -> bool:
        """Prevents the function from running. Returns False if a task has begun to run it."""
        begun, self._begun = self._begun, True
        return not begun

    async def __call__(self) -> None:
        if not self._begun:
            self._begun = True
            await self.function()


class Stepper:
    """A runner of a state machine's steps on the event loop, without a separate task.

    The runner makes a step when the step is due, and when an input of the machine has changed.

    Args:
        step: makes one step. Returns the seconds until the next step, None to wait for an input, or END after the last
            step.
        ended: called once, after the last step or after a step that raised an exception.
    """

    END = -1.0

    def __init__(self, step: Callable[[], float | None], ended: Callable[[], None]) -> None:
        self._step = step
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._woken = False
        self._done = False

    def start(self) -> None:
        """Makes the first step soon."""
        self.wake()

    def wake(self) -> None:
        """Makes a step soon, because an input of the machine has changed."""
        if not self._woken and not self._done:
            self._woken = True
            self._loop.call_soon(self._wake)

    def run(self) -> None:
        """Makes a step now. The function `step` must not call this method."""
        if self._done:
            return
        try:
            pause_s = self._step()
            if pause_s is None or pause_s >= 0:
                self._set_timer(pause_s)
                return
        except Exception:
            logger.exception(
                "client: the background task %s failed and has ended; close the client object that ran it, and create "
                "another one; please report the error",
                task_name(self._step),
            )
        except BaseException:
            self._end()
            raise
        self._end()

    def _wake(self) -> None:
        self._woken = False
        self.run()

    def _set_timer(self, pause_s: float | None) -> None:
        """Sets the timer of the next step. A timer that is due earlier stays, because its step sets the next timer."""
        timer = self._timer
        if pause_s is None:
            if timer is not None:
                self._timer = None
                timer.cancel()
            return
        at_s = self._loop.time() + pause_s
        if timer is not None:
            if timer.when() <= at_s:
                return
            timer.cancel()
        self._timer = self._loop.call_at(at_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self.run()

    def _end(self) -> None:
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ended()


class AsyncLock(asyncio.Lock):
    """A lock that one task holds at a time."""


async def acquire_within(lock: AsyncLock, timeout_s: float) -> bool:
    """Acquires a lock. Returns False if another task still holds the lock after `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            await lock.acquire()
    except TimeoutError:
        return False
    return True


class Task:
    """A coroutine function that runs in a separate task."""

    def __init__(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        self._task: asyncio.Task[Any] = asyncio.ensure_future(_logged(function, *args))

    async def join(self) -> None:
        """Waits until the function has ended."""
        await asyncio.wait([self._task])

    def cancel(self) -> None:
        """Ends the function at its next wait."""
        self._task.cancel()


async def _logged(function: Callable[..., Awaitable[Any]], *args: Any) -> None:
    try:
        await function(*args)
    except CancelledError:
        raise
    except Exception:
        logger.exception(
            "client: the background task %s failed and has ended; close the client object that ran it, and create "
            "another one; please report the error",
            task_name(function),
        )


_tasks: set[Task] = set()


def spawn(function: Callable[..., Awaitable[Any]], *args: Any) -> Task:
    """Runs a coroutine function in a new task."""
    task = Task(function, *args)
    _tasks.add(task)  # asyncio itself holds tasks weakly
    task._task.add_done_callback(lambda _: _tasks.discard(task))
    return task


async def gather(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Awaits several calls concurrently, and returns their results."""
    return list(await asyncio.gather(*calls))


async def sleep(seconds: float) -> None:
    """Pauses the task."""
    await asyncio.sleep(seconds)


def monotonic() -> float:
    """Returns the time of the running event loop, in seconds. A loop of the testing kit has its own time."""
    return asyncio.get_running_loop().time()


def now_ms() -> int:
    """Returns the time of `monotonic` in milliseconds."""
    return round(monotonic() * 1000)


def caller() -> object:
    """Returns a value that identifies the running task."""
    return asyncio.current_task()


def is_cancelled() -> bool:
    """Returns True if the running task is being cancelled.

    The cancellation of a task that the running task awaits does not count.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def invoke(callback: Callable[..., Any], *args: Any) -> Any:
    """Calls a function or a coroutine function of the user."""
    result = callback(*args)
    return await result if inspect.isawaitable(result) else result


async def let_others_run() -> None:
    """Lets other tasks run."""
    await asyncio.sleep(0)


def start_request(transport: Any, request: Any, on_done: OnDone, **options: Any) -> None:
    """Sends a request. The event loop calls `on_done` with the result.

    Args:
        transport: sends the request; see `AsyncTransport`.
        request: a typed request.
        on_done: called with the response or the error.
        options: the options of `AsyncTransport.start`.
    """
    transport.start(request, on_done, **options)


def call_and_report(call: Callable[[], Awaitable[Any]], on_done: OnDone) -> None:
    """Runs a coroutine function in a new task, and passes the result to `on_done`."""
    report_result(asyncio.ensure_future(call()), on_done)
