"""Waits on an event loop, for an event of the client and for a response that never arrives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kcore.client.aio.connection import AsyncConnection
from kcore.errors import ConnectionClosedError
from kcore.node._async.backend import Event
from kcore.protocol.messages.api_versions import ApiVersionsRequest


async def turn() -> None:
    """Lets all ready tasks run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_all_waiting_tasks_wake_even_if_the_flag_is_cleared_at_once() -> None:
    event = Event()
    tasks = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(event.wait(3_600.0))]
    await turn()
    assert not any(task.done() for task in tasks)
    event.set()
    event.clear()
    await turn()
    assert [task.result() for task in tasks] == [True, True]
    assert not event.is_set()


async def test_a_wait_returns_at_once_if_the_flag_is_set_and_false_after_its_time() -> None:
    event = Event()
    assert await event.wait(0.0) is False
    assert await event.wait(-1.0) is False
    event.set()
    assert await event.wait(0.0) is True
    assert await event.wait() is True


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    event = Event()
    task = asyncio.ensure_future(event.wait(3_600.0))
    await turn()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert event._waiting == []
    event.set()
    assert event.is_set()


async def test_an_overdue_response_fails_all_requests_of_its_connection() -> None:
    class Silent(asyncio.Protocol):
        """A server that never responds."""

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = AsyncConnection("127.0.0.1", port, "test")
    await loop.create_connection(lambda: connection, "127.0.0.1", port)
    request: Any = ApiVersionsRequest()
    patient = asyncio.ensure_future(connection.send(request, 0, 3_600.0))
    await turn()
    with pytest.raises(TimeoutError, match=r"no response to ApiVersionsRequest within 0\.01 s"):
        await connection.send(request, 0, 0.01)
    with pytest.raises(ConnectionClosedError, match="a response did not arrive in time"):
        await patient
    with pytest.raises(ConnectionClosedError, match="a response did not arrive in time"):
        await connection.send(request, 0, 1.0)
    assert connection.closed
    server.close()
