"""Connections on an event loop: order, deadlines, backpressure, cancelled calls, and injected failures."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kcore.client.aio.broker import Broker
from kcore.client.aio.cluster import AsyncCluster
from kcore.client.aio.connection import AsyncConnection
from kcore.client.connection import end_of_tags
from kcore.errors import ConnectionClosedError, UnsupportedVersionError
from kcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

VERSIONS: Any = ApiVersionsRequest()
EMPTY = ApiVersionsResponse()
BODY = b"\0\0" + bytes(4)
LARGE = 4 << 20


class Stub(asyncio.Protocol):
    """A server that collects the correlation ids of requests, and responds when the test calls `respond`."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.data = b""
        self.received: list[int] = []
        self.frames: list[bytes] = []
        self.arrived = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 4 and len(self.data) >= 4 + (size := int.from_bytes(self.data[:4], "big")):
            self.received.append(int.from_bytes(self.data[8:12], "big"))
            self.frames.append(self.data[: 4 + size])
            self.data = self.data[4 + size :]
        self.arrived.set()

    async def take(self, count: int) -> list[int]:
        """Waits for `count` requests. Returns their correlation ids."""
        while len(self.received) < count:
            self.arrived.clear()
            await self.arrived.wait()
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def respond(self, *numbers: int, body: bytes = BODY) -> None:
        """Sends empty responses to ApiVersions 0, all in one write."""
        frames = [(4 + len(body)).to_bytes(4, "big") + number.to_bytes(4, "big") + body for number in numbers]
        self.transport.write(b"".join(frames))


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[AsyncConnection, Stub]]:
    stubs: asyncio.Queue[Stub] = asyncio.Queue()

    def accept() -> Stub:
        stub = Stub()
        stubs.put_nowait(stub)
        return stub

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = AsyncConnection("127.0.0.1", port, "test")
    await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", port)
    try:
        stub = await stubs.get()
        while stub.transport is None:
            await asyncio.sleep(0)
        yield connection, stub
    finally:
        connection.close()
        server.close()
        await asyncio.sleep(0)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_responses_of_one_read_complete_their_requests_in_order() -> None:
    async with connected() as (connection, stub):
        results: list[Any] = []
        futures = [connection.start(VERSIONS, 0, 60.0) for _ in range(3)]
        connection.call(VERSIONS, 0, 60.0, lambda response, error: results.append((response, error)))
        numbers = await stub.take(4)
        assert numbers == [1, 2, 3, 4]
        stub.respond(*numbers)
        assert [await future for future in futures] == [EMPTY] * 3
        assert results == [(EMPTY, None)]
        assert connection._waiting == {}


async def test_a_cancelled_request_leaves_the_connection_usable() -> None:
    async with connected() as (connection, stub):
        cancelled = asyncio.ensure_future(connection.send(VERSIONS, 0, 60.0))
        kept = asyncio.ensure_future(connection.send(VERSIONS, 0, 60.0))
        numbers = await stub.take(2)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        stub.respond(*numbers)
        assert await kept == EMPTY
        assert not connection.closed
        assert connection._waiting == {}


@pytest.mark.parametrize(
    ("reason", "accepted", "retriable"),
    [
        (ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]"), False, False),
        (ssl.SSLError(1, "[SSL: TLSV1_ALERT_INTERNAL_ERROR]"), True, True),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), False, True),
        (ConnectionResetError(104, "Connection reset by peer"), False, True),
    ],
)
async def test_only_a_refusal_of_tls_is_a_permanent_error(reason: Exception, accepted: bool, retriable: bool) -> None:
    """A TLS error is permanent if no broker of the cluster has served this client yet, because the listener refuses the
    client. Any other loss of the connection is retriable.
    """
    async with connected() as (connection, _):
        connection._accepted = accepted
        future = connection.start(VERSIONS, 0, 60.0)
        connection.connection_lost(reason)
        with pytest.raises(ConnectionClosedError) as lost:
            await future
        with pytest.raises(ConnectionClosedError) as again:
            await connection.send(VERSIONS, 0, 60.0)
        assert (lost.value.retriable, again.value.retriable) == (retriable, retriable)
        assert str(lost.value) == f"127.0.0.1:{connection._port}: the connection broke: {reason}" == str(again.value)


async def test_the_deadline_of_a_cancelled_request_does_not_close_the_connection() -> None:
    async with connected() as (connection, stub):
        future = connection.start(VERSIONS, 0, 0.001)
        other = connection.start(VERSIONS, 0, 60.0)
        future.cancel()
        assert connection._timer is not None
        connection._timer.cancel()
        connection._check_deadlines()
        assert not connection.closed
        stub.respond(*await stub.take(2))
        assert await other == EMPTY


async def test_one_timer_serves_all_requests_and_the_earliest_deadline_ends_the_connection() -> None:
    async with connected() as (connection, stub):
        results: list[Any] = []
        connection.call(VERSIONS, 0, 60.0, lambda response, error: results.append(error))
        first = connection._timer
        connection.call(VERSIONS, 0, 90.0, lambda response, error: results.append(error))
        assert connection._timer is first
        connection.call(VERSIONS, 0, 0.01, lambda response, error: results.append(error))
        assert first is not None
        assert first.cancelled()
        await stub.take(3)
        while not connection.closed:
            await asyncio.sleep(0.001)
        address = f"127.0.0.1:{connection._port}"
        assert [(type(error), str(error)) for error in results] == [
            (TimeoutError, f"{address}: no response to ApiVersionsRequest within 0.01 s"),
            (ConnectionClosedError, f"{address}: the connection was closed because a response did not arrive in time"),
            (ConnectionClosedError, f"{address}: the connection was closed because a response did not arrive in time"),
        ]
        assert connection._timer is None


async def test_a_handler_that_fails_is_logged_and_the_others_get_their_responses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(response: Any, error: BaseException | None) -> None:
        raise MemoryError("injected")

    async with connected() as (connection, stub):
        connection.call(VERSIONS, 0, 60.0, fail)
        future = connection.start(VERSIONS, 0, 60.0)
        stub.respond(*await stub.take(2))
        assert await future == EMPTY
        assert not connection.closed
    assert [record.message for record in caplog.records] == [
        f"client: the handler {fail.__qualname__} raised an error when it received {type(EMPTY).__name__}; the "
        "connection continues; please report the error"
    ]


async def test_an_interrupt_in_a_handler_closes_the_connection_and_completes_every_request() -> None:
    errors: list[BaseException | None] = []

    def interrupt(response: Any, error: BaseException | None) -> None:
        errors.append(error)
        if error is None:
            raise KeyboardInterrupt

    async with connected() as (connection, stub):
        connection.call(VERSIONS, 0, 60.0, interrupt)
        future = connection.start(VERSIONS, 0, 60.0)
        numbers = await stub.take(2)
        frames = b"".join((10).to_bytes(4, "big") + number.to_bytes(4, "big") + BODY for number in numbers)
        connection.get_buffer(-1)[: len(frames)] = frames
        with pytest.raises(KeyboardInterrupt):
            connection.buffer_updated(len(frames))
        assert connection.closed
        assert connection._waiting == {}
        assert errors[0] is None
        assert isinstance(errors[1], ConnectionClosedError)
        with pytest.raises(ConnectionClosedError):
            await future


async def test_a_cancelled_wait_for_a_full_socket_leaves_the_others_waiting() -> None:
    async with connected() as (connection, stub):
        connection.pause_writing()
        waiting = [asyncio.ensure_future(connection.send(VERSIONS, 0, 60.0)) for _ in range(3)]
        await turns()
        assert not connection.writable
        waiting[1].cancel()
        await turns()
        assert [task.done() for task in waiting] == [False, True, False]
        connection.resume_writing()
        stub.respond(*await stub.take(2))
        assert [await waiting[0], await waiting[2]] == [EMPTY, EMPTY]
        assert waiting[1].cancelled()


async def test_large_requests_are_held_back_and_arrive_whole_and_in_order() -> None:
    large: Any = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 30_000)] * (LARGE // 30_000))
    async with connected() as (connection, stub):
        stub.transport.pause_reading()
        futures = [connection.start(large, 1, 60.0) for _ in range(2)]
        last = asyncio.ensure_future(connection.send(VERSIONS, 0, 60.0))
        await turns()
        assert not connection.writable
        assert not last.done()
        stub.transport.resume_reading()
        assert await stub.take(3) == [1, 2, 3]
        assert connection.writable
        stub.respond(3)
        assert await last == EMPTY
        for future in futures:
            future.cancel()


async def test_the_end_of_the_stream_and_a_broken_connection_fail_every_request() -> None:
    for end, reason in (
        (lambda stub: stub.transport.close(), "the server closed the connection"),
        (reset, "the connection broke: "),
    ):
        async with connected() as (connection, stub):
            futures = [connection.start(VERSIONS, 0, 60.0) for _ in range(2)]
            await stub.take(2)
            end(stub)
            for future in futures:
                with pytest.raises(ConnectionClosedError, match=reason):
                    await future
            assert connection.closed
            with pytest.raises(ConnectionClosedError, match=reason):
                await connection.send(VERSIONS, 0, 60.0)


def reset(stub: Stub) -> None:
    raw = stub.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stub.transport.abort()


@pytest.mark.parametrize("error", [MemoryError("injected"), KeyboardInterrupt()], ids=["memory", "interrupt"])
async def test_a_request_that_could_not_be_written_closes_the_connection_and_is_not_reported(
    error: BaseException,
) -> None:
    class Failing:
        """A transport that sends nothing."""

        def __init__(self, real: Any) -> None:
            self.abort = real.abort

        def write(self, data: bytes) -> None:
            raise error

    async with connected() as (connection, _):
        earlier = connection.start(VERSIONS, 0, 60.0)
        connection._transport = Failing(connection._transport)  # type: ignore[assignment]
        with pytest.raises(type(error)):
            connection.call(VERSIONS, 0, 60.0, lambda response, error: pytest.fail("reported twice"))
        with pytest.raises(ConnectionClosedError):
            await earlier
        assert connection.closed


# ---- requests without a task


@asynccontextmanager
async def clustered() -> AsyncIterator[tuple[AsyncCluster, Broker, Stub]]:
    """Yields a cluster whose only broker is a stub, with an open connection."""
    async with connected() as (connection, stub):
        broker = Broker(0, "127.0.0.1", connection._port)
        cluster = AsyncCluster(f"127.0.0.1:{connection._port}")
        connection.versions = {18: (0, 0), 3: (1, 1)}
        opened: asyncio.Future[AsyncConnection] = asyncio.get_running_loop().create_future()
        opened.set_result(connection)
        cluster._connections._openings[broker.host, broker.port, ""] = opened
        yield cluster, broker, stub
        await cluster.close()


async def test_started_requests_of_an_open_connection_need_no_task() -> None:
    async with clustered() as (cluster, broker, stub):
        results: list[Any] = []
        tasks = len(asyncio.all_tasks())
        for _ in range(2):
            cluster.start(VERSIONS, lambda response, error: results.append((response, error)), broker=broker)
        assert len(asyncio.all_tasks()) == tasks
        stub.respond(*await stub.take(2))
        while len(results) < 2:
            await asyncio.sleep(0)
        assert results == [(EMPTY, None)] * 2


async def test_a_started_request_follows_those_that_wait_for_the_socket() -> None:
    async with clustered() as (cluster, broker, stub):
        errors: list[Any] = []
        connection = cluster._connections.get(broker, "")
        assert connection is not None

        def start(name: str) -> None:
            request: Any = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            cluster.start(request, lambda response, error: errors.append(error), broker=broker)

        connection.pause_writing()
        start("first")
        start("second")
        await turns()
        connection.resume_writing()
        start("third")  # before the two tasks continue
        await stub.take(3)
        assert [frame[-6:].lstrip(b"\0\x05\x06") for frame in stub.frames] == [b"first", b"second", b"third"]
        assert cluster._unsent == {}
        stub.transport.close()
        while len(errors) < 3:
            await asyncio.sleep(0)
        assert {type(error) for error in errors} == {ConnectionClosedError}


async def test_a_started_request_that_cannot_be_sent_is_reported_later() -> None:
    async with clustered() as (cluster, broker, _):
        errors: list[Any] = []
        cluster.start(HeartbeatRequest(group_id="g"), lambda response, error: errors.append(error), broker=broker)
        assert errors == []
        await turns(1)
        assert [type(error) for error in errors] == [UnsupportedVersionError]


async def test_a_started_request_whose_task_never_began_lets_later_ones_pass() -> None:
    async with clustered() as (cluster, broker, stub):
        connection = cluster._connections.get(broker, "")
        assert connection is not None
        connection.pause_writing()
        before = asyncio.all_tasks()
        errors: list[Any] = []
        cluster.start(VERSIONS, lambda response, error: errors.append(error), broker=broker)
        (task,) = asyncio.all_tasks() - before
        task.cancel()
        await turns()
        assert [str(error) for error in errors] == ["the node was closed"]
        assert cluster._unsent == {}
        connection.resume_writing()
        cluster.start(VERSIONS, lambda response, error: errors.append(error), broker=broker)
        stub.respond(*await stub.take(1))
        while len(errors) < 2:
            await asyncio.sleep(0)
        assert errors[1] is None


@pytest.mark.parametrize("end", ["node", "channel"])
async def test_the_end_of_a_connection_that_is_being_opened_does_not_look_like_a_cancellation(end: str) -> None:
    """A program takes CancelledError as the cancellation of its own task."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and sends no response
        broker = Broker(0, *silent.getsockname())
        cluster = AsyncCluster(f"127.0.0.1:{broker.port}")
        waits = [asyncio.ensure_future(cluster._connection(broker, "c")) for _ in range(2)]
        await asyncio.sleep(0)
        assert len(cluster._connections._openings) == 1
        if end == "node":
            await cluster.close()
        else:
            cluster.close_channel("c")
        for wait in waits:
            with pytest.raises(ConnectionClosedError, match="closed"):
                await wait
        await cluster.close()


async def test_a_cancelled_wait_for_a_connection_leaves_the_other_waits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = Broker(0, *silent.getsockname())
        cluster = AsyncCluster(f"127.0.0.1:{broker.port}")
        waits = [asyncio.ensure_future(cluster._connection(broker, "c")) for _ in range(2)]
        await asyncio.sleep(0)
        waits[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits[0]
        assert not waits[1].done()
        await cluster.close()
        with pytest.raises(ConnectionClosedError, match="the node is closed"):
            await waits[1]


async def test_a_cluster_with_a_cancelled_opening_can_be_closed() -> None:
    """At the end of a program, `asyncio.run` cancels all tasks, among them the tasks that open connections."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = Broker(0, *silent.getsockname())
        cluster = AsyncCluster(f"127.0.0.1:{broker.port}")
        wait = asyncio.ensure_future(cluster._connection(broker, "c"))
        await asyncio.sleep(0)
        (opening,) = cluster._connections._openings.values()
        for task in (wait, opening):
            task.cancel()
        await asyncio.wait([wait, opening])
        await cluster.close()
        assert (wait.cancelled(), opening.cancelled()) == (True, True)
        assert cluster._connections._openings == {}


def test_an_endless_number_in_a_response_header_is_refused_at_once() -> None:
    """A variable-length number in a response header has more than 5 bytes. The client refuses it at once, because the
    time to read it would grow with the square of its length.
    """
    with pytest.raises(ValueError, match="more than 5 bytes"):
        end_of_tags(b"\xff" * 1_000, 0)
    with pytest.raises(ValueError, match="more than 5 bytes"):
        end_of_tags(b"\x01\x00" + b"\xff" * 1_000, 0)
    assert end_of_tags(b"\x01\xff\xff\xff\xff\x0f\x01x rest", 0) == 8
