"""The close of a node: calls on a closed node fail at once, and callers that close at the same time do not disturb each
other."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import kcore
from kcore.errors import ConnectionClosedError
from tests.kit import wait_until
from tests.node.conftest import SETTINGS


@pytest.mark.parametrize(
    "call",
    [
        lambda node: node.topics.list(),
        lambda node: node.topics["t"].append("x"),
        lambda node: node.group("g").committed(),
        lambda node: node.transaction("x").__enter__(),
    ],
    ids=["metadata", "leader", "coordinator", "transaction"],
)
def test_a_call_on_a_closed_connection_to_a_cluster_is_not_repeated(served: str, call: Any) -> None:
    """It would be repeated for the whole `call_timeout`."""
    node = kcore.connect(served, call_timeout=60.0)
    node.close()
    began_s = time.monotonic()
    with pytest.raises(ConnectionClosedError, match="the node is closed"):
        call(node)
    assert time.monotonic() - began_s < 30


class Resource:
    """A member, say, whose close takes until the test ends it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.ended_open: bool | None = None
        self.node: Any = None

    def close(self) -> None:
        self.begun.set()
        assert self.may_end.wait(30)
        self.node.topics.list()  # needs the engine, as the leave of a member does
        self.ended_open = True


def test_a_second_close_waits_for_the_first_one() -> None:
    node, resource = kcore.open(config=SETTINGS), Resource()
    resource.node = node
    node._calls.resources[resource] = None
    errors: list[BaseException] = []

    def close() -> None:
        try:
            node.close()
        except BaseException as error:
            errors.append(error)

    closers = [threading.Thread(target=close) for _ in range(2)]
    closers[0].start()
    assert resource.begun.wait(30)
    closers[1].start()
    wait_until(lambda: len(node._calls._closings._queue) == 2, "the second close waits", 30)
    resource.may_end.set()
    for closer in closers:
        closer.join(30)
    assert (resource.ended_open, errors) == (True, [])


def test_a_close_within_the_close_of_the_same_thread_does_not_wait() -> None:
    """A signal handler may close the node while the thread already closes it."""
    node = kcore.open(config=SETTINGS)

    class Nested:
        closed = False

        def close(self) -> None:
            node.close()
            self.closed = True

    nested = Nested()
    node._calls.resources[nested] = None
    node.close()
    assert nested.closed


async def test_a_cancelled_close_is_continued_by_the_next_one() -> None:
    node = await kcore.open_async(config=SETTINGS)
    begun, closed = asyncio.Event(), []

    class Slow:
        async def close(self) -> None:
            begun.set()
            await asyncio.sleep(3_600)

    class Quick:
        async def close(self) -> None:
            closed.append(1)

    node._calls.resources[Quick()] = None
    node._calls.resources[Slow()] = None
    first = asyncio.ensure_future(node.close())
    await begun.wait()
    second = asyncio.ensure_future(node.close())
    await asyncio.sleep(0)
    assert closed == []
    first.cancel()
    await second
    assert closed == [1]
    assert node._calls.resources == {}
