"""Calls of coroutine functions on the event loop of another thread, and their interruption at every line."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import linecache
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import kcore
from kcore.client.aio.threads import Cluster
from kcore.drivers.loop_calls import start_on_loop
from kcore.node.embedded import EmbeddedNode
from kcore.protocol.messages.metadata import MetadataRequest
from tests.node.conftest import SETTINGS

LIMIT_S = 60.0
"""Time limit of a call. Only a call that never ends reaches it."""

CALLING_FILES = ("client/aio/threads.py", "drivers/loop_calls.py", "node/listening.py")
"""Files in whose lines the tests raise an exception on the caller's thread."""


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join()
    running.close()


def test_the_coroutine_is_created_on_the_thread_of_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    def function() -> Any:
        ident = threading.get_ident()

        async def run() -> tuple[bool, bool]:
            return ident == threading.get_ident(), asyncio.get_running_loop() is loop

        return run()

    assert start_on_loop(loop, function).result(LIMIT_S) == (True, True)


def test_an_exception_of_the_coroutine_reaches_the_caller(loop: asyncio.AbstractEventLoop) -> None:
    async def fail() -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError, match=r"^refused$"):
        start_on_loop(loop, fail).result(LIMIT_S)


def test_an_exception_of_the_function_reaches_the_caller_and_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    logged: list[Any] = []
    loop.set_exception_handler(lambda _, context: logged.append(context["exception"]))

    def fail() -> Any:
        raise MemoryError

    with pytest.raises(MemoryError) as raised:
        start_on_loop(loop, fail).result(LIMIT_S)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(LIMIT_S)
    assert logged == [raised.value]


def test_cancelling_the_future_cancels_the_task(loop: asyncio.AbstractEventLoop) -> None:
    started = threading.Event()
    cancelled = threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    future = start_on_loop(loop, wait)
    assert started.wait(LIMIT_S)
    assert future.cancel()
    assert cancelled.wait(LIMIT_S)


def test_a_task_that_is_cancelled_cancels_the_future(loop: asyncio.AbstractEventLoop) -> None:
    async def give_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(concurrent.futures.CancelledError):
        start_on_loop(loop, give_up).result(LIMIT_S)


def test_a_closed_loop_refuses_the_call() -> None:
    closed = asyncio.new_event_loop()
    closed.close()
    with pytest.raises(RuntimeError, match="closed"):
        start_on_loop(closed, lambda: asyncio.sleep(0))


def run_with_interrupt(call: Callable[[], object], at_line: int) -> bool:
    """Runs a call, and raises KeyboardInterrupt on this thread before the line `at_line` of CALLING_FILES.

    Lines with `with` do not count: Python handles no signal between the body of a block and the release of its lock.

    Returns:
        True if the call was interrupted; False if it executed fewer lines.
    """
    left = at_line

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(CALLING_FILES):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not line.lstrip().startswith("with "):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(previous)
    return False


def interrupt_every_line(call: Callable[[], object]) -> int:
    """Interrupts a call at each of its lines. Returns the number of the lines."""
    at_line = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        while run_with_interrupt(call, at_line):
            at_line += 1
            call()
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    return at_line


@pytest.fixture
def node() -> Iterator[EmbeddedNode]:
    with kcore.open(config=SETTINGS) as opened:
        opened.topics.create("t")
        yield opened


def test_a_request_over_tcp_that_is_interrupted_leaves_no_coroutine(node: EmbeddedNode) -> None:
    cluster = Cluster(node.listen().bootstrap)
    request = MetadataRequest(topics=None)
    assert interrupt_every_line(lambda: cluster.send(request)) >= 10
    cluster.close()


def test_a_request_to_a_listening_node_that_is_interrupted_leaves_no_coroutine(node: EmbeddedNode) -> None:
    node.listen()
    request = MetadataRequest(topics=None)
    assert interrupt_every_line(lambda: node.send(request)) >= 10
