"""Closing a node: calls on a closed node fail at once, and callers that close at the same time do not disturb each
other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.errors import ConnectionClosedError, EngineClosedError, KcoreError
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
    """A call on a closed node fails at once. A call after a lost connection would be repeated until `call_timeout`."""
    node = kcore.connect(served, call_timeout=60.0)
    node.close()
    began_s = time.monotonic()
    with pytest.raises(ConnectionClosedError, match="the node is closed"):
        call(node)
    assert time.monotonic() - began_s < 30


def test_a_transaction_of_a_closed_node_does_not_begin() -> None:
    """Before, the second transaction of an id began without a request, and failed only at its end."""
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 1)
        with node.transaction("x") as transaction:
            transaction.append("t", "v")
    with pytest.raises(EngineClosedError, match="the node is closed"):
        transaction.__enter__()
    with pytest.raises(EngineClosedError, match="the node is closed"):
        node.transaction("x").init()


class Resource:
    """A resource of a node, like a member. Its `close` waits until the test permits its end."""

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


async def test_an_object_that_cannot_be_closed_leaves_no_other_object_open() -> None:
    node = await kcore.open_async(config=SETTINGS)
    closed = []

    class Resource:
        def __init__(self, number: int) -> None:
            self.number = number

        async def close(self) -> None:
            closed.append(self.number)
            if self.number:
                raise KcoreError(f"object {self.number}")

    for number in range(3):
        node._calls.resources[Resource(number)] = None
    with pytest.raises(KcoreError, match="object 2"):
        await node.close()
    assert closed == [2, 1, 0]
    with pytest.raises(EngineClosedError):
        await node.topics.list()


async def test_a_node_is_closed_while_a_loop_consumes(bootstrap: str) -> None:
    """The loop closes its consumer, too. Before, the slower of both received a CancelledError."""
    name = f"loop-{uuid.uuid4().hex}"
    async with kcore.connect_async(bootstrap) as node:
        await (await node.topics.create(name, partitions=1)).append("a")
    for _ in range(5):
        node = await kcore.connect_async(bootstrap)
        first = asyncio.Event()

        async def consume(node: kcore.AsyncNode = node, first: asyncio.Event = first) -> None:
            async for _ in node.group(name).consume([name], auto_commit=None):
                first.set()

        loop = asyncio.ensure_future(consume())
        await asyncio.wait_for(first.wait(), 30)
        await asyncio.wait_for(node.close(), 30)
        await asyncio.wait_for(loop, 30)
        assert loop.exception() is None
        with pytest.raises(ConnectionClosedError, match="the node is closed"):
            await node.topics.list()


@pytest.mark.filterwarnings("ignore::kcore.errors.ImplausibleTimeWarning")  # the record must not be sent
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "stopped"])
def test_a_node_whose_event_loop_has_ended_is_closed_by_another_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_closed: bool
) -> None:
    """The node's members and connections belong to the ended loop. A close that waited for them would fail, or take 40
    s.

    With `is_closed`, the loop was closed without cancelling its tasks, so requests are still parked.
    """
    loop = asyncio.new_event_loop()

    async def begin() -> tuple[Any, list[Any], socket.socket]:
        node = await kcore.open_async(tmp_path)
        topic = await node.topics.create("t", 1)
        await topic.append("a")
        consumer = node.group("g").consume("t", auto_commit=None)
        await consumer.__aenter__()
        assert len(await consumer.poll(60)) == 1
        queue = await node.queue("t", group="s").__aenter__()
        producer = await node.producer(linger=600).__aenter__()
        await producer.append("t", "b")
        listening = await node.listen()
        host, _, port = listening.bootstrap.partition(":")
        client = socket.create_connection((host, int(port)))
        client.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(client, b"\0")
        while not listening._server.connections:
            await asyncio.sleep(0)
        return node, [consumer, queue, producer, listening], client

    node, members, client = loop.run_until_complete(begin())
    if is_closed:
        loop.close()

    async def end() -> None:
        await node.close()
        for member in members:
            await member.close()
        await node.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(end())
    assert [record.getMessage() for record in caplog.records] == [
        "node: the event loop ended before the node was closed, so AsyncConsumer, AsyncListening, AsyncMember, "
        "AsyncProducer, AsyncQueue were not closed: groups remove their members after the session timeout, and "
        "records that producers have not stored are lost; close the node before its loop ends, for example with "
        "`async with`"
    ]
    client.setblocking(True)
    client.settimeout(60)
    assert client.recv(1) == b""
    client.close()
    loop.close()
    with kcore.open(tmp_path) as reopened:
        assert [record.value for record in reopened.topics["t"].read(0, 0)] == [b"a"]


def test_a_member_that_waits_for_a_rebalance_leaves_at_once(bootstrap: str) -> None:
    """The first member does not poll, so the coordinator holds the join of the second one. Before, the second member
    sent its LeaveGroup on the connection of this join, and its close took 30 s.
    """
    name = f"join-{uuid.uuid4().hex}"
    with kcore.connect(bootstrap) as first, kcore.connect(bootstrap) as second:
        first.topics.create(name, 2)
        group = first.group(name)
        with group.consume(name, protocol="classic") as owner:
            wait_until(lambda: owner.poll(0.1) == [] and len(owner.assignment) == 2, "the first member owns partitions")
            member = second.group(name).join(name, protocol="classic")
            member.start(timeout=0)
            wait_until(lambda: member.member_id and group.describe().state == "PreparingRebalance", "the join waits")
            began_s = time.monotonic()
            second.close()
            assert time.monotonic() - began_s < 20
            wait_until(lambda: len(group.describe().members) == 1, "the second member has left")
