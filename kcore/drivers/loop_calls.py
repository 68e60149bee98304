"""Calls of coroutine functions on the event loop of another thread, and the refusal of calls from a wrong event loop.

`asyncio.run_coroutine_threadsafe` takes a coroutine, which the caller has created on its own thread. A Ctrl-C between
the creation and the call leaves a coroutine that never runs, and Python warns about it. The functions here create the
coroutine on the loop's thread, which no signal interrupts.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from kcore.errors import ConcurrentCallError

T = TypeVar("T")


def start_on_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[[], Coroutine[Any, Any, T]]
) -> concurrent.futures.Future[T]:
    """Calls a coroutine function on a loop's thread, and runs its coroutine there as a task.

    Args:
        loop: an event loop that runs in another thread.
        function: the coroutine function. The loop calls it after all functions that were passed to the loop's
            `call_soon_threadsafe` before.

    Returns:
        A future of the coroutine's result. Cancelling the future cancels the task.

    Raises:
        RuntimeError: the loop is closed.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def start() -> None:
        try:
            task = loop.create_task(function())
        except BaseException as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
            raise

        def cancel(cancelled: concurrent.futures.Future[T]) -> None:
            if cancelled.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

        task.add_done_callback(lambda _: _copy_result(task, future))
        future.add_done_callback(cancel)

    loop.call_soon_threadsafe(start)
    return future


def _copy_result(task: asyncio.Task[T], future: concurrent.futures.Future[T]) -> None:
    if task.cancelled():
        future.cancel()
    if not future.set_running_or_notify_cancel():
        return
    if (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


def release_after_interrupt(future: concurrent.futures.Future[Any]) -> None:
    """Releases the lock of a future that an interrupted call of this thread may hold.

    A KeyboardInterrupt between the acquisition and the `with` block of `Future.result` leaves the lock held. The event
    loop that completes the future would then wait forever.
    """
    with suppress(RuntimeError):  # this thread does not hold the lock any more
        while True:
            future._condition.release()


def loop_has_ended(loop: asyncio.AbstractEventLoop) -> bool:
    """Returns True if an event loop has ended, so that code on another loop must close the objects of the ended loop.

    Returns False if the calling code runs on the loop.

    Raises:
        ConcurrentCallError: the loop is running in another thread.
    """
    if asyncio._get_running_loop() is loop:
        return False
    if loop.is_running():
        raise foreign_call(loop)
    return True


def foreign_call(loop: asyncio.AbstractEventLoop) -> ConcurrentCallError:
    """Returns the error for a call that comes from another event loop or thread than the node's.

    Args:
        loop: the event loop of the node.
    """
    if loop.is_running():
        return ConcurrentCallError(
            "the node belongs to another event loop: call it in a coroutine of that loop, or from another thread with "
            "asyncio.run_coroutine_threadsafe; any thread may call the nodes of kcore.open and kcore.connect"
        )
    return ConcurrentCallError(
        "the node belongs to an event loop that has ended, for example of an earlier asyncio.run: open or connect a "
        "node on the event loop that uses it"
    )
