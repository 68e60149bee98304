"""Many requests of few connections are served in several turns of the event loop, and all of them get responses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.server import connection, turns
from kcore.server.connection import Connection
from kcore.server.turns import SHARED_NS, SHORTEST_NS, TURN_NS, Turns
from kcore_ext.server.request_queue import RequestQueue
from tests.kit import wait_until
from tests.server.live import LiveServer, Raw

REQUESTS = 2_000
MILLISECOND_NS = 1_000_000


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("ends", [False, True])
def test_pipelined_requests_get_responses_in_order(loop: str, ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order also holds if the client closes its sending side before the server has served all requests."""
    monkeypatch.setattr(turns, "TURN_NS", 1)
    continued = 0
    continue_requests = Connection.continue_requests

    def counted(self: Any) -> None:
        nonlocal continued
        continued += 1
        continue_requests(self)

    monkeypatch.setattr(Connection, "continue_requests", counted)
    request = FindCoordinatorRequest(coordinator_keys=[f"group-{number}" for number in range(20)], key_type=0)
    with LiveServer(loop=loop) as live, live.raw() as raw:
        raw.send(b"".join(raw.request(request, 4) for _ in range(REQUESTS)))
        if ends:
            raw.socket.shutdown(socket.SHUT_WR)
        responses = [raw.receive(request, 4) for _ in range(REQUESTS)]
        assert live.call(lambda: live.server.turns.waiting) == {}
    assert [correlation_id for correlation_id, _ in responses] == list(range(1, REQUESTS + 1))
    assert {len(response.coordinators) for _, response in responses} == {20}
    assert continued > 0


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_single_request_does_not_wait_for_those_of_other_connections(loop: str) -> None:
    """Other connections wait for their turn. A small request on a new connection is served at once, and a large request
    waits for its turn.
    """
    small, large = HeartbeatRequest(group_id="g", member_id="m"), HeartbeatRequest(group_id="g" * 2_000, member_id="m")
    with LiveServer(loop=loop) as live, live.raw() as first, live.raw() as second:
        held = Waiting(live)
        live.call(held.start)
        first.send(first.request(large, 4))
        wait_until(lambda: live.call(lambda: len(live.server.turns.waiting)) == 2, "the large one waits")
        second.send(second.request(small, 4))
        assert second.receive(small, 4)[1].error_code == 25
        assert live.call(lambda: len(live.server.turns.waiting)) == 2
        live.call(held.run_turns)
        assert first.receive(large, 4)[1].error_code == 25
        assert live.call(lambda: live.server.turns.waiting) == {}


def test_requests_with_long_responses_also_share_the_time_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that fills the buffer is sent at once. The time of its request still counts for the turn."""
    now_ns, continued = 0, 0
    continue_requests = Connection.continue_requests

    def slow_clock_ns() -> int:
        nonlocal now_ns
        now_ns += TURN_NS
        return now_ns

    def counted(self: Any) -> None:
        nonlocal continued
        continued += 1
        continue_requests(self)

    monkeypatch.setattr(connection, "RequestQueue", partial(RequestQueue, clock_ns=slow_clock_ns))
    monkeypatch.setattr(Connection, "continue_requests", counted)
    request = FindCoordinatorRequest(coordinator_keys=[f"group-{number}" for number in range(40)], key_type=0)
    with LiveServer({"kcore.connection.buffer.bytes": "1024"}) as live, live.raw() as raw:
        raw.send(b"".join(raw.request(request, 4) for _ in range(64)))
        responses = [raw.receive(request, 4) for _ in range(64)]
    assert [correlation_id for correlation_id, _ in responses] == list(range(1, 65))
    assert continued >= 64 // 4, "at most two requests a turn, also if the requests arrive in pieces"


class Waiting:
    """A waiting connection of a server. It gets its turn only when the test calls `run_turns`."""

    def __init__(self, live: LiveServer) -> None:
        self._turns = live.server.turns

    def start(self) -> None:
        """Adds a waiting connection that gets no turn."""
        self._turns._scheduled = True
        self._turns.add(self)  # type: ignore[arg-type]

    def run_turns(self) -> None:
        """Lets the turns begin."""
        self._turns._run()

    def continue_requests(self) -> None:
        """Does nothing, because the connection has no requests."""


class Busy:
    """A connection whose requests take some time in each of its turns."""

    def __init__(self, turns: Turns, now_ns: list[int], order: list[int], number: int) -> None:
        self._turns, self._now_ns, self._order, self._number = turns, now_ns, order, number
        self.left = 3

    def continue_requests(self) -> None:
        """Uses up the connection's time in this turn. Queues the connection again while requests are left."""
        self._order.append(self._number)
        self._now_ns[0] += self._turns.turn_ns
        self.left -= 1
        if self.left:
            self._turns.add(self)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_waiting_connections_share_a_bounded_time_of_each_turn(count: int) -> None:
    """However many connections wait, a turn takes at most the shared time and the time of one connection."""
    loop = asyncio.new_event_loop()
    now_ns, order = [0], []
    shared = Turns(loop, lambda: now_ns[0])
    longest_ns, took = 0, 0
    for number in range(count):
        shared.add(Busy(shared, now_ns, order, number))  # type: ignore[arg-type]
    assert shared.turn_ns == min(TURN_NS, max(SHORTEST_NS, SHARED_NS // count))
    while shared.waiting:
        before_ns = now_ns[0]
        loop.call_soon(loop.stop)
        loop.run_forever()
        longest_ns = max(longest_ns, now_ns[0] - before_ns)
        took += 1
    loop.close()
    assert order == [*range(count)] * 3, "each has its turn, in order"
    assert longest_ns <= SHARED_NS + TURN_NS
    assert took >= count * 3 * SHORTEST_NS // (SHARED_NS + TURN_NS)
    assert shared.turn_ns == TURN_NS


def test_a_closed_connection_has_no_turn() -> None:
    loop = asyncio.new_event_loop()
    now_ns, order = [0], []
    shared = Turns(loop, lambda: now_ns[0])
    first, second = (Busy(shared, now_ns, order, number) for number in range(2))
    shared.add(first)  # type: ignore[arg-type]
    shared.add(second)  # type: ignore[arg-type]
    shared.remove(first)  # type: ignore[arg-type]
    shared.remove(first)  # type: ignore[arg-type]
    while shared.waiting:
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    assert order == [1, 1, 1]


def test_connections_with_many_requests_leave_the_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections have requests, only a few of them continue between two turns of the loop."""
    now_ns = [0]
    monkeypatch.setattr(turns.Turns.__init__, "__defaults__", (lambda: now_ns[0],))
    request = FindCoordinatorRequest(coordinator_keys=[f"group-{number}" for number in range(20)], key_type=0)
    in_turn, most = [0], [0]
    continue_requests = Connection.continue_requests

    def counted(self: Any) -> None:
        now_ns[0] += 10 * MILLISECOND_NS
        in_turn[0] += 1
        most[0] = max(most[0], in_turn[0])
        continue_requests(self)

    def next_turn(live: LiveServer) -> None:
        in_turn[0] = 0
        if not live.server.stopping:
            live.loop.call_soon(next_turn, live)

    monkeypatch.setattr(Connection, "continue_requests", counted)
    monkeypatch.setattr(turns, "TURN_NS", 1)
    monkeypatch.setattr(turns, "SHORTEST_NS", 1)
    with LiveServer() as live:
        live.call(lambda: next_turn(live))
        peers = [Raw(live.port) for _ in range(20)]
        for raw in peers:
            raw.send(b"".join(raw.request(request, 4) for _ in range(300)))
        for raw in peers:
            assert len([raw.receive(request, 4) for _ in range(300)]) == 300
            raw.socket.close()
    assert 1 <= most[0] <= 2


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_one_read_of_a_connection_is_served_in_a_turn(loop: str) -> None:
    """A client fills the socket's buffer with requests. Each turn of the event loop serves only one read of the socket,
    although uvloop would read again.
    """
    request = FindCoordinatorRequest(coordinator_keys=["k" * 32_000], key_type=0)
    with LiveServer(loop=loop) as live, live.raw() as raw:
        raw.socket.setblocking(False)
        data = b"".join(raw.request(request, 4) for _ in range(200))
        served: list[int] = []

        def requests() -> int:
            entry = live.server.dispatch.route(10)
            return 0 if entry is None else entry.requests

        def next_turn() -> None:
            served.append(requests())
            if not live.server.stopping:
                live.loop.call_soon(next_turn)

        def fill() -> int:
            """Fills the socket's buffers while the loop does not run."""
            sent = 0
            with contextlib.suppress(BlockingIOError):
                while sent < len(data):
                    sent += raw.socket.send(data[sent:])
            next_turn()
            return sent

        sent = live.call(fill)
        assert sent > 1 << 20
        raw.socket.settimeout(20)
        for _ in range(sent // (len(data) // 200)):
            raw.receive(request, 4)
    assert max(after - before for before, after in pairwise(served)) <= 2 * 262_144 // 32_000 + 1


BEAT = HeartbeatRequest(group_id="g", member_id="m")


@pytest.mark.parametrize("time_budget_ns", [0, 10**12])
def test_connections_that_are_read_together_share_the_time_of_a_turn(time_budget_ns: int) -> None:
    """Thousands of connections may be readable at once. If no time remains for some of them, they are served in later
    turns.
    """
    with LiveServer() as live, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(live.raw()) for _ in range(5)]
        live.wait_for_connections(5)

        def read_all() -> int:
            live.server.flushes.time_budget_ns = time_budget_ns
            for connection in live.server.connections:
                connection.data_received(peers[0].request(BEAT, 4))
            return len(live.server.turns.waiting)

        assert live.call(read_all) == (0 if time_budget_ns else 5)
        for peer in peers:
            assert peer.receive(BEAT, 4)[1].error_code == 25
        assert live.call(lambda: live.server.turns.waiting) == {}


def test_connections_that_continue_together_share_the_time_of_a_turn() -> None:
    """The end of a rebalance completes the joins of thousands of connections at once. Their further requests are served
    in several turns of the event loop.
    """
    with LiveServer() as live, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(live.raw()) for _ in range(5)]
        live.wait_for_connections(5)

        def flush_all() -> int:
            for connection in live.server.connections:
                connection.stop_requests()
                connection.data_received(peers[0].request(BEAT, 4))
            live.server.flushes.time_budget_ns = 0
            live.server.flushes.renew_time_budget()
            for connection in live.server.connections:
                connection._stopped = connection._unread = False
                connection.flush_and_serve()
            return len(live.server.turns.waiting)

        assert live.call(flush_all) == 5
        for peer in peers:
            assert peer.receive(BEAT, 4)[1].error_code == 25


def test_a_connection_that_has_its_turn_does_not_wait_again() -> None:
    with LiveServer() as live, live.raw() as first, live.raw() as second:
        live.wait_for_connections(2)

        def take_turn() -> int:
            live.server.flushes.time_budget_ns = 0
            one, other = live.server.connections
            one.data_received(first.request(BEAT, 4))
            other.data_received(second.request(BEAT, 4))
            live.server.turns.remove(one)
            one.continue_requests()
            return len(one._queue)

        assert live.call(take_turn) == 0
        assert first.receive(BEAT, 4)[1].error_code == second.receive(BEAT, 4)[1].error_code == 25
