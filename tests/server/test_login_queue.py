"""Logins that take long run on separate threads. Addresses take turns, and the number of waiting logins is limited."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial

import pytest

from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kcore.security.mechanism import PostponedError
from kcore.security.plain import Plain
from kcore.server import login_queue, sasl, unauthenticated
from kcore.server.login_queue import Login, LoginQueue
from kcore.server.sasl import SaslConnection
from kcore_ext.server.request_queue import ResponseSlot
from tests.kit import wait_until
from tests.nodes import node_of
from tests.server.live import LiveServer, Raw

SASL = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "connection.failed.authentication.delay.ms": "0",
}


class Held:
    """A login queue with one thread, which blocks until `free` is called."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.queue = LoginQueue(self.loop, "TEST", 1)
        self.order: list[str] = []
        self.results: list[bytes] = []
        self._gate = threading.Event()
        self.first = self.login("first", "/0", gate=self._gate)

    def login(self, name: str, host: str, gate: threading.Event | None = None) -> Login:
        def evaluate() -> bytes:
            if gate is not None:
                assert gate.wait(30)
            self.order.append(name)
            return name.encode()

        login = Login(host, evaluate, lambda future: self.results.append(future.result()))
        assert self.queue.add(login)
        return login

    def free(self, count: int) -> None:
        """Unblocks the thread, waits until it has checked `count` logins, and closes the queue."""
        self._gate.set()

        async def until_done() -> None:
            while len(self.order) < count or len(self.results) < count:
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(until_done(), 30))
        self.queue.close()
        self.loop.close()


def test_addresses_take_turns() -> None:
    logins = Held()
    for number in range(6):
        logins.login(f"a{number}", "/1")
    logins.login("b", "/2")
    assert len(logins.queue) == 7
    logins.free(8)
    assert sorted(logins.order[1:3]) == ["a0", "b"]
    assert [name.encode() for name in logins.order] == logins.results


def test_the_oldest_and_the_newest_of_an_address_take_turns() -> None:
    logins = Held()
    for number in range(6):
        logins.login(f"a{number}", "/1")
    logins.free(7)
    assert logins.order == ["first", "a0", "a5", "a1", "a4", "a2", "a3"]


def test_a_login_whose_client_has_gone_is_not_evaluated() -> None:
    logins = Held()
    gone, stays = logins.login("gone", "/1"), logins.login("stays", "/1")
    alone = logins.login("alone", "/2")
    logins.queue.cancel(gone)
    logins.queue.cancel(alone)
    logins.queue.cancel(gone)
    logins.queue.cancel(logins.login("late", "/3"))
    assert len(logins.queue) == 1
    logins.free(2)
    assert logins.order == ["first", "stays"]
    assert stays.done is not None


def test_a_running_login_whose_client_has_gone_has_no_effect() -> None:
    logins = Held()
    wait_until(lambda: logins.queue._free == 0, "the first one runs")
    logins.queue.cancel(logins.first)
    logins.login("next", "/1")
    logins._gate.set()

    async def until_done() -> None:
        while not logins.results:
            await asyncio.sleep(0.001)

    logins.loop.run_until_complete(asyncio.wait_for(until_done(), 30))
    assert (logins.order, logins.results) == (["first", "next"], [b"next"])
    logins.queue.close()
    logins.loop.close()


@pytest.mark.parametrize("count", [1, 3])
def test_logins_for_which_no_thread_can_start_are_evaluated_later(
    count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If no thread can start, the queue keeps the logins and tries again later. Otherwise each failed start would
    permanently count as a busy thread, until no client could log in.
    """
    monkeypatch.setattr(login_queue, "RETRY_S", 0.0)
    loop = asyncio.new_event_loop()
    queue = LoginQueue(loop, "TEST", 2)
    evaluated: list[int] = []
    results: list[bytes] = []

    def login(number: int) -> Login:
        def evaluate() -> bytes:
            evaluated.append(number)
            return b"%d" % number

        return Login("/1", evaluate, lambda future: results.append(future.result()))

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def until_done() -> None:
        while len(results) < count:
            await asyncio.sleep(0.001)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert all(queue.add(login(number)) for number in range(count))
        loop.run_until_complete(asyncio.sleep(0.01))
        assert (len(queue), evaluated) == (count, [])
    loop.run_until_complete(asyncio.wait_for(until_done(), 30))
    assert sorted(evaluated) == list(range(count)), "each login is evaluated once"
    assert sorted(results) == [b"%d" % number for number in range(count)]
    assert queue._free == 2
    assert "cannot start a thread for a login with TEST" in caplog.text
    queue.close()
    loop.close()


def test_a_postponed_login_holds_no_thread() -> None:
    """A postponed login is evaluated again once the cause of the delay has ended, unless its client
    has disconnected.
    """
    logins = Held()
    over: Future[None] = Future()
    evaluated: list[str] = []

    def postponed(name: str) -> Login:
        def evaluate() -> bytes:
            evaluated.append(name)
            if not over.done():
                raise PostponedError(over)
            logins.order.append(name)
            return name.encode()

        login = Login("/1", evaluate, lambda future: logins.results.append(future.result()))
        assert logins.queue.add(login)
        return login

    postponed("a")
    gone = postponed("gone")
    logins.login("b", "/2")
    logins._gate.set()

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    logins.loop.run_until_complete(
        asyncio.wait_for(until(lambda: len(logins.results) == 2 and len(evaluated) == 2), 30)
    )
    assert (sorted(evaluated), logins.order, len(logins.queue)) == (["a", "gone"], ["first", "b"], 0)
    logins.queue.cancel(gone)
    over.set_result(None)
    logins.free(3)
    assert logins.order == ["first", "b", "a"]
    assert evaluated.count("gone") == 1


def test_postponed_logins_count_as_waiting_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_queue, "MAX_WAITING", 3)
    loop = asyncio.new_event_loop()
    queue = LoginQueue(loop, "TEST", 1)
    evaluated: list[int] = []

    def postpone() -> bytes:
        evaluated.append(0)
        raise PostponedError(Future())

    async def until_evaluated(count: int) -> None:
        while len(evaluated) < count or not queue._free:
            await asyncio.sleep(0.001)

    for number in range(3):
        assert queue.add(Login("/1", postpone, pytest.fail))
        loop.run_until_complete(asyncio.wait_for(until_evaluated(number + 1), 30))
    assert not queue.add(Login("/1", postpone, pytest.fail))
    assert queue.add(Login("/2", postpone, pytest.fail))
    loop.run_until_complete(asyncio.wait_for(until_evaluated(4), 30))
    queue.close()
    loop.close()


def log_in(live: LiveServer, user: str, source: str = "127.0.0.1") -> Raw:
    """Sends a token of PLAIN without reading the response."""
    raw = Raw(live.server.addresses["SASL"][1], source=source)
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    raw.send(raw.request(handshake, 1))
    assert raw.receive(handshake, 1)[1].error_code == 0
    raw.send(raw.request(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0secret".encode()), 2))
    return raw


def error_of(raw: Raw) -> int:
    return int(raw.receive(SaslAuthenticateRequest(), 2)[1].error_code)


def test_a_flood_of_logins_delays_neither_other_addresses_nor_the_engine(
    serve: Callable[..., LiveServer], monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
) -> None:
    """One address sends many wrong passwords. Meanwhile a client of another address can log in, and the event loop's
    default threads stay free.
    """
    monkeypatch.setattr(login_queue, "MAX_WAITING", 40)
    monkeypatch.setattr(Plain, "threads", 1)
    turns = threading.Semaphore(0)
    fits = Plain._fits

    def wait_and_fit(self: Plain, user: str, password: str) -> bool:
        assert turns.acquire(timeout=30)
        return fits(self, user, password)

    monkeypatch.setattr(Plain, "_fits", wait_and_fit)
    live = serve(SASL)
    with live.connect() as connection:
        node_of(connection).users.set_password("alice", "secret")
    with ExitStack() as stack:
        flood = [stack.enter_context(log_in(live, f"guess{number}")) for number in range(41)]
        queue = live.server.logins("PLAIN", 1)
        wait_until(lambda: live.call(lambda: len(queue)) == 40, "forty of the flood wait, one runs")
        one_more = stack.enter_context(log_in(live, "guess"))
        assert one_more.closed
        assert log_lines == ["connection from /127.0.0.1 closed: 40 logins from this address are already waiting"]
        alice = stack.enter_context(log_in(live, "alice", "127.0.0.2"))
        wait_until(lambda: live.call(lambda: len(queue)) == 41, "alice waits")
        task = live.call(lambda: live.loop.run_in_executor(None, partial(int, "5")))
        assert live.wait_for(task) == 5, "a thread is free"
        turns.release(3)
        assert error_of(alice) == 0
        for raw in flood[20:]:
            raw.reset()
        wait_until(lambda: live.call(lambda: len(queue)) <= 20, "those that have gone wait no more")
        turns.release(100)
        assert {error_of(raw) for raw in flood[:20]} == {58}


def test_unauthenticated_clients_hold_a_bounded_amount_of_memory(
    serve: Callable[..., LiveServer], monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
) -> None:
    """Clients send large requests before they log in and exceed the memory limit for such clients. The server closes
    the connection with the largest part. Clients with messages of a common size can log in.
    """
    monkeypatch.setattr(unauthenticated, "MAX_BYTES", 1_000_000)
    live = serve(SASL)
    with live.connect() as connection:
        node_of(connection).users.set_password("alice", "secret")
    memory = live.server.unauthenticated

    def received_bytes() -> int:
        return live.call(lambda: memory.held_bytes)

    with ExitStack() as stack:
        for _ in range(5):
            raw = stack.enter_context(Raw(live.server.addresses["SASL"][1]))
            raw.send(struct.pack(">i", 524_288) + bytes(300_000))
        live.wait_for_connections(3, came=6)
        wait_until(lambda: received_bytes() == 3 * 300_004, "the bytes of three")
        assert log_lines == 2 * [
            "connection from /127.0.0.1 closed: the requests of unauthenticated clients take more than 1000000 bytes, "
            "and this client has the largest part"
        ]
        alice = stack.enter_context(log_in(live, "alice"))
        assert error_of(alice) == 0
        assert received_bytes() == 3 * 300_004
        body = alice.request(HeartbeatRequest(group_id="g", member_id="m"), 4)
        alice.send(struct.pack(">i", 2_000_000) + body[4:])
        alice.send(bytes(2_000_000 - len(body) + 4))
        assert alice.receive(HeartbeatRequest(), 4)[1].error_code == 25
    wait_until(lambda: received_bytes() == 0, "no request bytes are buffered")


def test_the_token_of_a_waiting_login_counts(serve: Callable[..., LiveServer], monkeypatch: pytest.MonkeyPatch) -> None:
    turn = threading.Event()
    monkeypatch.setattr(Plain, "_fits", lambda *_: turn.wait(30))
    live = serve(SASL)
    with log_in(live, "a" * 100_000) as raw:
        size = len("a" * 100_000) + len("\0\0secret")
        wait_until(lambda: live.call(lambda: live.server.unauthenticated.held_bytes) == size, "its bytes")
        turn.set()
        assert error_of(raw) == 0
        assert live.call(lambda: live.server.unauthenticated.held_bytes) == 0


def test_a_client_that_does_not_authenticate_is_idle_whatever_it_sends(
    serve: Callable[..., LiveServer], log_lines: list[str]
) -> None:
    """A client that sends bytes but does not authenticate is closed after the idle time.

    The test does not wait: it moves the times at which the connections were opened into the past.
    """
    live = serve({**SASL, "connections.max.idle.ms": "60000"})
    with live.connect() as connection:
        node_of(connection).users.set_password("alice", "secret")
    live.wait_for_connections(0)

    def pass_s(seconds: float) -> int:
        """Moves the opening times of the connections back. Returns the number of connections that are open after their
        next check.
        """
        for each in list(live.server.connections):
            assert isinstance(each, SaslConnection)
            each._opened_s -= seconds
            each._watch_idle()
        return sum(not each._closing for each in live.server.connections)

    with log_in(live, "alice") as alice, Raw(live.server.addresses["SASL"][1]) as stranger:
        assert error_of(alice) == 0
        for count, still_open in ((1, 2), (2, 2), (3, 1)):
            stranger.send(b"\0")
            wait_until(lambda count=count: live.server.unauthenticated.held_bytes == count, "its byte")  # type: ignore[misc]
            assert live.call(lambda: pass_s(29)) == still_open
        assert stranger.closed
        alice.send(alice.request(HeartbeatRequest(group_id="g", member_id="m"), 4))
        assert alice.receive(HeartbeatRequest(), 4)[1].error_code == 25
    assert log_lines == ["connection from /127.0.0.1 closed: no authentication for 60000 ms"]


@pytest.mark.parametrize("password", ["secret", "wrong"])
@pytest.mark.parametrize("threads", [0, 1])
def test_a_login_without_memory_for_its_response_closes_the_connection(
    serve: Callable[..., LiveServer],
    monkeypatch: pytest.MonkeyPatch,
    log_lines: list[str],
    password: str,
    threads: int,
) -> None:
    """There is no memory for the response to a login, so the server closes the connection. Otherwise the client would
    wait until its own time limit.
    """
    monkeypatch.setattr(Plain, "threads", threads)
    live = serve(SASL)
    with live.connect() as connection:
        node_of(connection).users.set_password("alice", password)
    live.wait_for_connections(0)
    failures: list[str] = []

    class Slot(ResponseSlot):
        def respond(self, response: object) -> None:
            failures.append(type(response).__name__)
            raise MemoryError

    monkeypatch.setattr(sasl, "ResponseSlot", Slot)
    with log_in(live, "alice") as raw:
        assert raw.closed
    assert failures == ["SaslAuthenticateResponse"]
    assert log_lines[-1] == (
        "connection from /127.0.0.1 closed: an internal error prevented the response to a login (MemoryError); please "
        "report the error"
    )
    live.wait_for_connections(0)
