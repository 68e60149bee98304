"""The end of a pause runs all queued work and resumes all connections, even if some of the work raises an exception."""

from __future__ import annotations

from typing import Any

import pytest

import kcore
from kcore.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kcore.runtime import RequestContext
from kcore.server.connection import Connection
from tests.drivers.test_shared_loop import LOOKUP, Client, lookup

CONTEXT = RequestContext(12, "c")


class WrongError(Exception):
    """The error of work that breaks its contract."""


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([WrongError("first"), WrongError("second")], WrongError),
        ([MemoryError()], MemoryError),
        ([WrongError(), KeyboardInterrupt()], KeyboardInterrupt),
    ],
)
async def test_work_that_raises_after_a_pause_does_not_drop_other_work(
    errors: list[BaseException], raised: type[BaseException]
) -> None:
    """Before, the rest of the queue was dropped, so that the future of a request in it never completed."""
    async with kcore.open_async() as node:
        driver: Any = node._driver
        done: list[object] = []

        def fail(error: BaseException) -> None:
            done.append(error)
            raise error

        driver.when_paused(done.append)
        driver._pause()
        for error in errors:
            driver.after_pause(lambda error=error: fail(error))
        driver.after_pause(lambda: done.append("work"))
        future = driver.submit(CONTEXT, MetadataRequest(topics=[]))
        with pytest.raises(raised) as caught:
            driver._resume()
        assert caught.value is next(error for error in errors if isinstance(error, raised))
        assert done == [True, *errors, "work", False]
        assert (await future).topics == []
        assert (driver.paused, driver._backlog) == (False, [])


async def test_a_callback_that_raises_after_a_pause_does_not_drop_others() -> None:
    async with kcore.open_async() as node:
        driver: Any = node._driver
        done: list[bool] = []

        def fail(paused: bool) -> None:
            if not paused:
                raise WrongError

        driver.when_paused(fail)
        driver.when_paused(done.append)
        driver._pause()
        with pytest.raises(WrongError):
            driver._resume()
        assert (done, driver.paused) == ([True, False], False)


async def test_a_connection_that_cannot_be_resumed_is_closed_and_the_others_serve_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, all later connections stayed stopped."""
    async with kcore.open_async() as node:
        listening = await node.listen()
        server = listening._server
        clients = [await Client.connected(listening.bootstrap) for _ in range(2)]
        for client in clients:
            client.send(lookup("t"), LOOKUP)
            await client.received(MetadataResponse, LOOKUP)
        failures = [MemoryError()]
        resume = Connection.resume_requests

        def resume_requests(connection: Connection) -> None:
            if failures:
                raise failures.pop()
            resume(connection)

        monkeypatch.setattr(Connection, "resume_requests", resume_requests)
        driver: Any = node._driver
        driver._pause()
        driver._resume()
        states = sorted((each._closing, each._stopped) for each in server.connections)
        assert states == [(False, False), (True, True)]
        for client in clients:
            client.writer.close()
