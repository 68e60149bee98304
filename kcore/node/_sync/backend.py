"""Concurrency on threads: the counterpart of `kcore.node._async.backend`. Written by hand."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, TypeVar

from kcore.client.aio.results import OnDone
from kcore.embed import SyncEngine as EmbeddedEngine
from kcore.errors import KcoreError
from kcore.node.task_names import described_owner, task_name
from kcore_ext.util.lock import Lock, RLock

__all__ = [
    "CancelledError",
    "EmbeddedEngine",
    "Event",
    "Lock",
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


class CancelledError(BaseException):
    """The counterpart of asyncio's error. No code raises it, because threads are not cancelled."""


def interpreter_ends() -> bool:
    """Returns True while the interpreter shuts down.

    Background threads no longer run then, so a wait for a background thread would never end.
    """
    return sys.is_finalizing()


def running_loop() -> object:
    """Returns None: a node for threads belongs to no event loop."""


def loop_has_ended(loop: object) -> bool:
    """Returns False: a node for threads belongs to no event loop."""
    return False


def foreign_call(loop: object) -> NoReturn:
    """Raises an AssertionError, because any thread may call a node for threads."""
    raise AssertionError(f"a node for threads does not belong to {loop!r}")


def guard() -> RLock:
    """Returns a lock for state machines, which user threads and background threads call."""
    return RLock()


class Event:
    """A flag that threads wait for.

    A KeyboardInterrupt may come between any two steps of a call. It could leave the lock of a `threading.Event` held,
    and all later calls would wait for ever. Here each waiting thread has a lock of its own.
    """

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Lock] = []

    def set(self) -> None:
        """Sets the flag and wakes the waiting threads."""
        self._set = True
        for lock in list(self._waiting):
            with suppress(RuntimeError):  # another call has released it
                lock.release()

    def clear(self) -> None:
        """Clears the flag."""
        self._set = False

    def is_set(self) -> bool:
        """Returns True if the flag is set."""
        return self._set

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the flag. Returns True once the flag is set, or False if `timeout_s` passes first."""
        if self._set:
            return True
        lock = Lock()
        lock.acquire()
        try:
            self._waiting.append(lock)
            if self._set:  # checked last: `set` may have copied the list before
                return True
            left_s = -1.0 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX)
            return lock.acquire(timeout=left_s) or self._set
        finally:
            if lock in self._waiting:
                self._waiting.remove(lock)


class SingleTask:
    """A function that runs in a separate thread, at most once.

    The caller may call `start` again after an interrupt, because the thread may or may not have started.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self._begun = Lock()  # the thread that runs the function acquires it
        self.__name__ = function.__name__

    def start(self) -> None:
        """Starts a thread, which runs the function unless another thread has begun to run it."""
        spawn(self)

    def withdraw(self) -> bool:
        """Prevents the function from running. Returns False if a thread has begun to run it."""
        return self._begun.acquire(blocking=False)

    def __call__(self) -> None:
        if self._begun.acquire(blocking=False):
            self.function()


class Stepper:
    """A thread that runs a state machine's steps when they are due, and when an input of the machine has changed.

    Args:
        step: makes one step. Returns the seconds until the next step, None to wait for an input, or END after the last
            step.
        ended: called once, after the last step or after a step that raised an exception.
    """

    END = -1.0

    def __init__(self, step: Callable[[], float | None], ended: Callable[[], None]) -> None:
        self._step = step
        self._ended = ended
        self._described = described_owner(step)
        self._wakeup = Event()
        self._task = SingleTask(self._drive)

    def start(self) -> None:
        """Starts the thread. The caller may call `start` again after an interrupt."""
        self._task.start()

    def wake(self) -> None:
        """Makes a step soon, because an input of the machine has changed."""
        self._wakeup.set()

    def run(self) -> None:
        """Makes the background thread run a step soon, because user threads do not run steps themselves."""
        self._wakeup.set()

    def _drive(self) -> None:
        try:
            while True:
                pause_s = self._step()
                if pause_s is not None and pause_s < 0:
                    return
                self._wakeup.wait(pause_s)
                self._wakeup.clear()
        finally:
            self._ended()


def acquire_within(lock: Lock, timeout_s: float) -> bool:
    """Acquires a lock. Returns False if another thread still holds the lock after `timeout_s`."""
    return lock.acquire(timeout=timeout_s)


class Task:
    """A function that runs in a separate thread."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._function = function
        self._args = args
        self._thread = threading.Thread(target=self._run, name=f"kcore-{function.__name__.strip('_')}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._function(*self._args)
        except Exception:
            logger.exception(
                "client: the background task %s failed, and its thread has ended; close the client object that ran it, "
                "and create another one; please report the error",
                task_name(self._function),
            )

    def join(self) -> None:
        """Waits until the function has ended, unless this thread runs it."""
        if self._thread is not threading.current_thread():
            self._thread.join()

    def cancel(self) -> None:
        """Does nothing: the function ends by itself when its owner is closed."""


def spawn(function: Callable[..., Any], *args: Any) -> Task:
    """Runs a function in a new thread."""
    return Task(function, *args)


def gather(calls: Iterable[T]) -> list[T]:
    """Returns the results of several calls, which the running thread makes one after another."""
    return list(calls)


def sleep(seconds: float) -> None:
    """Pauses the thread."""
    time.sleep(seconds)


def monotonic() -> float:
    """Returns the time of the system's monotonic clock, in seconds."""
    return time.monotonic()


def now_ms() -> int:
    """Returns the time of `monotonic` in milliseconds."""
    return round(monotonic() * 1000)


def caller() -> object:
    """Returns a value that identifies the running thread."""
    return threading.get_ident()


def is_cancelled() -> bool:
    """Returns False: threads are not cancelled."""
    return False


def invoke(callback: Callable[..., Any], *args: Any) -> Any:
    """Calls a function of the user.

    Raises:
        TypeError: the function is a coroutine function, which needs `kcore.open_async` or `kcore.connect_async`.
    """
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"{callback!r} is a coroutine function: it needs an asynchronous node")
    return callback(*args)


def let_others_run() -> None:
    """Does nothing: threads take turns by themselves."""


def start_request(transport: Any, request: Any, on_done: OnDone, **options: Any) -> None:
    """Sends a request in a new thread, which calls `on_done` with the result. A separate thread is necessary because
    `on_done` may run the user's code.

    Args:
        transport: sends the request; see `Transport`.
        request: the request.
        on_done: gets the result.
        options: the options of `Transport.send`.
    """
    spawn(call_and_report, partial(transport.send, request, **options), on_done)


def call_and_report(call: Callable[[], Any], on_done: OnDone) -> None:
    """Calls a function, and passes its result to `on_done` before returning.

    Code that an embedded engine calls may raise KeyboardInterrupt or SystemExit. `on_done` then gets a KcoreError.
    """
    try:
        response = call()
    except Exception as error:
        on_done(None, error)
    except BaseException as error:
        interrupted = KcoreError(f"the request was interrupted by {error!r}")
        interrupted.__cause__ = error
        on_done(None, interrupted)
        raise
    else:
        on_done(response, None)
