"""Calls of asynchronous nodes from another event loop than their own: each is refused before it sends or changes
anything, and another loop can close a node whose loop has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

import kcore
from kcore.client.aio.cluster import AsyncCluster
from kcore.client.aio.connection import AsyncConnection
from kcore.errors import ConcurrentCallError, ConnectionClosedError
from kcore.protocol.messages.metadata import MetadataRequest
from tests.node.conftest import REMOTE, SETTINGS, TARGETS, bootstrap_of

LIMIT_S = 60.0
ELSEWHERE = (
    "the node belongs to another event loop: call it in a coroutine of that loop, or from another thread with "
    "asyncio.run_coroutine_threadsafe; any thread may call the nodes of kcore.open and kcore.connect"
)
ENDED = (
    "the node belongs to an event loop that has ended, for example of an earlier asyncio.run: open or connect a node "
    "on the event loop that uses it"
)


@pytest.fixture(params=TARGETS)
def opening(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Returns a function that opens an asynchronous node."""
    if request.param == "embedded":
        return lambda: kcore.open_async(config=SETTINGS)
    address = bootstrap_of(request.param, request)
    return lambda: kcore.connect_async(address)


class Objects:
    """One object of each kind of an asynchronous node."""

    def __init__(self, node: kcore.AsyncNode, name: str) -> None:
        self.node = node
        self.name = name
        self.topic = node.topics[name]
        self.group = node.group(name)
        self.producer = node.producer()
        self.consumer = self.group.consume(name, reset="earliest", auto_commit=None)
        self.member = node.group(f"{name}-m").join(name)
        self.new_consumer = self.group.consume(name)
        self.new_member = self.group.join(name)
        self.queue = node.queue(name, group=f"{name}-s")
        self.transaction = node.transaction(f"{name}-t")
        self.open = node.transaction(f"{name}-o")

    def calls(self) -> dict[str, Callable[[], Coroutine[Any, Any, Any]]]:
        """Returns the calls that need the node's event loop."""
        node, name = self.node, self.name
        return {
            "send": lambda: node.send(MetadataRequest()),
            "append": lambda: self.topic.append("x", partition=0),
            "create": lambda: node.topics.create(f"{name}-new"),
            "read": lambda: self.topic.read(0, 0),
            "commit of a group": lambda: self.group.commit({(name, 0): 7}),
            "first append of a producer": lambda: self.producer.append(name, "x"),
            "flush": self.producer.flush,
            "poll": self.consumer.poll,
            "commit of a consumer": lambda: self.consumer.commit({(name, 0): 7}),
            "close of a consumer": self.consumer.close,
            "poll of a member": self.member.poll,
            "close of a member": self.member.close,
            "get": lambda: self.queue.get(0),
            "close of a queue": self.queue.close,
            "close of a producer": self.producer.close,
            "transaction": self.transaction.__aenter__,
            "init": self.transaction.init,
            "append of a transaction": lambda: self.open.append(name, "x", partition=0),
            "commit of a transaction": self.open.commit,
            "abort of a transaction": self.open.abort,
            "start of a consumer": self.new_consumer.__aenter__,
            "loop of a consumer": lambda: anext(aiter(self.consumer)),
            "start of a member": self.new_member.start,
            "events": lambda: anext(aiter(self.member.events())),
        } | {what: partial(_call, function) for what, function in self.local_calls().items()}

    def local_calls(self) -> dict[str, Callable[[], object]]:
        """Returns the functions that send no request. They read or change the state of the consumer or the member."""
        consumer, partition = self.consumer, (self.name, 0)
        return {
            "seek": lambda: consumer.seek(partition, 0),
            "seek to a time": lambda: consumer.seek(partition, datetime.now(UTC)),
            "seek to the beginning": consumer.seek_to_beginning,
            "seek to the end": consumer.seek_to_end,
            "pause": lambda: consumer.pause(partition),
            "resume": lambda: consumer.resume(partition),
            "paused": consumer.paused,
            "position": lambda: consumer.position(partition),
            "positions": consumer.positions,
            "assignment of a consumer": lambda: consumer.assignment,
            "metadata of a consumer": lambda: consumer.group_metadata,
            "assignment of a member": lambda: self.member.assignment,
            "join": lambda: self.group.join(self.name),
        }


async def _call(function: Callable[[], object]) -> object:
    return function()


@asynccontextmanager
async def opened(node: kcore.AsyncNode, name: str) -> AsyncIterator[Objects]:
    """Starts the objects, and puts a record into the topic."""
    await node.topics.create(name, 1)
    objects = Objects(node, name)
    await objects.topic.append("first")
    async with objects.producer, objects.consumer, objects.member, objects.queue, objects.open:
        await objects.producer.flush()
        await objects.open.append(name, "second", partition=0)
        yield objects


def errors_of(calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]]) -> dict[str, str]:
    """Makes each call on an event loop of its own. Returns the texts of the errors."""
    errors = {}
    for name, call in calls.items():
        try:
            result = asyncio.run(asyncio.wait_for(call(), LIMIT_S))
        except ConcurrentCallError as error:
            errors[name] = str(error)
        except Exception as error:
            errors[name] = repr(error)
        else:
            errors[name] = f"returned {result!r}"
    return errors


@pytest.mark.filterwarnings("ignore::kcore.errors.ImplausibleTimeWarning")  # the record must wait
def test_calls_from_the_loop_of_another_thread_are_refused(opening: Callable[[], Any], name: str) -> None:
    """Before, a connected node stored the record and then raised an error of asyncio, or waited for ever."""

    async def scenario() -> tuple[Any, ...]:
        async with opening() as node, opened(node, name) as objects:
            refused = await asyncio.to_thread(errors_of, objects.calls())
            producer = node.producer(linger=600)
            delivery = await producer.append(name, "third")
            refused |= await asyncio.to_thread(
                errors_of,
                {
                    "append of a producer": lambda: producer.append(name, "y"),
                    "result": delivery.result,
                    "close": node.close,
                },
            )
            await producer.flush()
            assert (await delivery.result()).partition == 0
            await objects.open.commit()
            values: list[bytes | None] = []
            while len(values) < 3:
                values += [record.value for record in await objects.consumer.poll(LIMIT_S)]
            names = [topic.name for topic in await node.topics.list() if topic.name.startswith(name)]
            return refused, sorted(str(value) for value in values), names, await objects.group.committed()

    refused, values, names, committed = asyncio.run(scenario())
    assert refused == dict.fromkeys(refused, ELSEWHERE)
    assert len(refused) == 40
    assert (values, names, committed) == (["b'first'", "b'second'", "b'third'"], [name], {})


def test_a_thread_without_a_loop_cannot_change_a_consumer_of_a_loop(opening: Callable[[], Any], name: str) -> None:
    """Before, the calls changed the consumer while its event loop used it, and could not wake the loop."""

    async def scenario() -> tuple[Any, ...]:
        async with opening() as node, opened(node, name) as objects:
            while not objects.consumer.assignment:
                await objects.consumer.poll(0.01)
            position = objects.consumer.position((name, 0))
            errors = await asyncio.to_thread(lambda: [_error_of(call) for call in objects.local_calls().values()])
            return errors, objects.consumer.paused(), objects.consumer.position((name, 0)) == position

    errors, paused, unchanged = asyncio.run(scenario())
    assert errors == [ELSEWHERE] * 13
    assert (paused, unchanged) == (set(), True)


def _error_of(call: Callable[[], object]) -> str:
    try:
        return repr(call())
    except ConcurrentCallError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_calls_after_the_end_of_the_loop_are_refused_and_the_node_can_be_closed(
    opening: Callable[[], Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the close of a connected node raised "Event loop is closed", and the close of a member took 40 s."""
    stack: list[Any] = []

    async def begin() -> Objects:
        node = await opening()
        context = opened(node, name)
        stack.append(context)
        return await context.__aenter__()

    loop = asyncio.new_event_loop()
    objects = loop.run_until_complete(begin())
    refused = errors_of(objects.calls())
    assert refused == dict.fromkeys(refused, ENDED)
    loop.close()
    refused = errors_of(objects.calls())
    assert refused == dict.fromkeys(refused, ENDED)
    assert len(refused) == 37

    async def end() -> None:
        await objects.node.close()
        for each in (objects.consumer, objects.member, objects.queue, objects.producer, objects.node):
            await each.close()

    with caplog.at_level(logging.WARNING, "kcore"):
        asyncio.run(asyncio.wait_for(end(), LIMIT_S))
    assert [record.getMessage() for record in caplog.records] == [
        "node: the event loop ended before the node was closed, so AsyncConsumer, AsyncMember, AsyncProducer, "
        "AsyncQueue were not closed: groups remove their members after the session timeout, and records that "
        "producers have not stored are lost; close the node before its loop ends, for example with `async with`"
    ]


@pytest.mark.parametrize("target", REMOTE)
def test_the_connections_of_an_ended_loop_are_shut_down(target: str, request: pytest.FixtureRequest) -> None:
    """The server then ends the connections, even if the program keeps the closed node."""
    address = bootstrap_of(target, request)

    async def begin() -> tuple[kcore.AsyncNode, AsyncConnection]:
        node = await kcore.connect_async(address)
        await node.topics.list()
        transport = node._calls.transport
        assert isinstance(transport, AsyncCluster)
        (future, *_) = transport._connections._openings.values()
        return node, future.result()

    loop = asyncio.new_event_loop()
    node, connection = loop.run_until_complete(begin())
    asyncio.run(node.close())

    async def lost() -> None:
        while connection._transport is not None and not connection._transport.is_closing():
            await asyncio.sleep(0)

    loop.run_until_complete(asyncio.wait_for(lost(), LIMIT_S))
    loop.close()


def test_an_embedded_node_listens_and_advances_only_on_its_loop() -> None:
    async def scenario() -> dict[str, str]:
        async with kcore.open_async(clock=kcore.ManualClock()) as node:

            async def advance() -> None:
                node.advance(1)

            return await asyncio.to_thread(errors_of, {"listen": node.listen, "advance": advance})

    assert asyncio.run(scenario()) == {"listen": ELSEWHERE, "advance": ELSEWHERE}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("target", REMOTE)
def test_a_forked_child_leaves_the_connections_to_the_parent(target: str, request: pytest.FixtureRequest) -> None:
    """Before, a close in the child removed the parent's sockets from the poller that both processes share."""
    address = bootstrap_of(target, request)

    async def in_child(node: kcore.AsyncNode) -> None:
        with pytest.raises(ConnectionClosedError):
            await node.send(MetadataRequest())
        await node.close()

    async def scenario() -> bool:
        async with kcore.connect_async(address) as node:
            await node.topics.list()
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    asyncio._set_running_loop(None)
                    thread = threading.Thread(target=lambda: asyncio.run(in_child(node)))
                    thread.start()
                    thread.join()
                    asyncio.new_event_loop().run_until_complete(in_child(node))
                    status = 0
                finally:
                    os._exit(status)
            status = os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1])
            await asyncio.wait_for(node.topics.list(), LIMIT_S)
            return status == 0

    assert asyncio.run(scenario())
