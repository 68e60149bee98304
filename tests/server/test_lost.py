"""Requests of a connection that its client has closed: requests that wait for a turn or for the end of a pause are
still served.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.server import turns
from kcore.server.connection import Connection
from tests.kit import commit, committed, wait_until
from tests.nodes import node_of
from tests.server.live import LiveServer, Raw

VERSION = 8
LARGE = FindCoordinatorRequest(coordinator_keys=["k" * 2_000], key_type=0)


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Makes every connection serve two requests in a turn. Returns a list of the connections that got a turn."""
    monkeypatch.setattr(turns, "TURN_NS", 1)
    monkeypatch.setattr(turns, "SHORTEST_NS", 1)
    continued: list[Connection] = []
    continue_requests = Connection.continue_requests

    def counted(self: Connection) -> None:
        continued.append(self)
        continue_requests(self)

    monkeypatch.setattr(Connection, "continue_requests", counted)
    return continued


def lose(live: LiveServer, data: bytes, before: Callable[[Connection], None] = lambda _: None) -> Connection:
    """Passes received `data` to the only connection when no time is left to serve it in this turn. Closes the
    connection's socket before the next turn.
    """

    def receive() -> Connection:
        (connection,) = live.server.connections
        before(connection)
        live.server.flushes.time_budget_ns = 0
        live.server.turns._scheduled = True  # no turn comes before `run_turns`
        connection.data_received(data)
        connection.transport.abort()  # as after a reset by the client
        run_turns(connection)
        return connection

    def run_turns(connection: Connection) -> None:
        if connection._closing:
            live.server.turns._run()
        else:
            live.loop.call_soon(run_turns, connection)

    return live.call(receive)


def test_requests_that_wait_for_a_turn_are_served(serve: Callable[..., LiveServer]) -> None:
    """A member that stops sends a commit and a leave, and closes its connection without waiting for the responses."""
    live = serve({"auto.create.topics.enable": "true"})
    with live.connect() as client, live.raw() as raw:
        node_of(client).topics.create("t", partitions=2)
        client.close()
        live.wait_for_connections(1)
        data = raw.request(commit("g", {("t", 0): 5}), VERSION) + raw.request(commit("g", {("t", 1): 7}), VERSION)
        lose(live, data)
        live.wait_for_connections(0)
    with live.connect() as client:
        assert committed(client, "g") == {("t", 0): 5, ("t", 1): 7}


def test_many_requests_of_a_lost_connection_share_the_turns(
    serve: Callable[..., LiveServer], no_time: list[Connection]
) -> None:
    """However many requests wait, a turn serves only as many as fit into its time. Afterwards the connection's slot and
    memory are free.
    """
    live = serve({"kcore.connection.buffer.bytes": "1024"})
    with live.raw() as raw:
        live.wait_for_connections(1)
        lost = lose(live, b"".join(raw.request(LARGE, 4) for _ in range(200)))
        live.wait_for_connections(0)
    route = live.server.dispatch.route(10)
    assert route is not None
    assert route.requests == 200
    assert no_time.count(lost) >= 200 // 2
    assert (live.server.quota.total, live.server.unserved.held_bytes, live.server.turns.waiting) == (0, 0, {})


def test_requests_that_wait_for_the_end_of_a_pause_are_served_after_it(
    serve: Callable[..., LiveServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver pauses, for example while it writes a round, so the engine must not be called. The requests of a
    closed connection are served after the pause.
    """
    live = serve()
    beat = HeartbeatRequest(group_id="g", member_id="m")
    with live.raw() as raw:
        live.wait_for_connections(1)
        resume = live.driver._resume
        monkeypatch.setattr(live.driver, "_resume", lambda: None)  # as if a round were written
        lost = lose(live, raw.request(beat, 4), lambda _: live.driver._pause())
        wait_until(lambda: live.call(lambda: lost._lost), "the socket is lost")
        wait_until(lambda: live.call(lambda: live.server.turns.waiting == {}), "its turn came")
        route = live.server.dispatch.route(12)
        assert route is None or route.requests == 0
        live.call(resume)
        live.wait_for_connections(0)
    route = live.server.dispatch.route(12)
    assert route is not None
    assert route.requests == 1


def test_requests_behind_a_malformed_one_are_not_served(serve: Callable[..., LiveServer], log_lines: list[str]) -> None:
    live = serve()
    beat = HeartbeatRequest(group_id="g", member_id="m")
    with live.raw() as raw:
        live.wait_for_connections(1)
        lose(live, raw.request(beat, 4) + b"\xff\xff\xff\xff" + raw.request(beat, 4))
        live.wait_for_connections(0)
    route = live.server.dispatch.route(12)
    assert route is not None
    assert route.requests == 1
    assert live.server.refused_requests == 1
    (line,) = log_lines
    assert "a frame of -1 bytes" in line


def test_nothing_is_served_for_a_client_that_has_not_authenticated(serve: Callable[..., LiveServer]) -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    live = serve({"listeners": listeners, "sasl.enabled.mechanisms": "PLAIN"})
    with Raw(live.server.addresses["SASL_PLAINTEXT"][1]) as raw:
        live.wait_for_connections(1)
        lose(live, raw.request(HeartbeatRequest(group_id="g", member_id="m"), 4))
        live.wait_for_connections(0)
    assert live.server.authentications.results == {}
    assert live.server.unauthenticated.held_bytes == 0


def test_a_stop_drops_the_requests_of_lost_connections(serve: Callable[..., LiveServer]) -> None:
    """The server has committed all earlier requests, and serves no further request after the stop."""
    live = serve()
    with live.raw() as raw:
        live.wait_for_connections(1)

        def stopping(_: Connection) -> None:
            live.server.stopping = True

        lose(live, raw.request(LARGE, 4), stopping)
        live.wait_for_connections(0)
    route = live.server.dispatch.route(10)
    assert route is None or route.requests == 0


def test_a_connection_whose_turn_fails_is_closed(serve: Callable[..., LiveServer], log_lines: list[str]) -> None:
    """Serving a connection in its turn raises an exception. The server closes the connection, because its requests
    would never be served.
    """
    live = serve()
    with live.raw() as raw, pytest.MonkeyPatch.context() as patch:
        live.wait_for_connections(1)

        def fail(_: Connection, shares_time: bool = True) -> None:
            raise MemoryError

        def receive() -> None:
            (connection,) = live.server.connections
            live.server.flushes.time_budget_ns = 0
            connection.data_received(raw.request(LARGE, 4))
            patch.setattr(Connection, "flush_and_serve", fail)

        live.call(receive)
        live.wait_for_connections(0)
        assert raw.closed
    (line,) = log_lines
    assert re.fullmatch(
        r"connection \d+ from /127.0.0.1 closed: cannot send responses; the client connects again; .+", line
    )


def test_turns_that_could_not_be_scheduled_are_scheduled_again(serve: Callable[..., LiveServer]) -> None:
    live = serve()

    def schedule(patch: pytest.MonkeyPatch) -> None:
        shared = live.server.turns
        (connection,) = live.server.connections

        def no_memory(_: object) -> None:
            raise MemoryError

        class Loop:
            call_soon = staticmethod(no_memory)

        patch.setattr(shared, "_loop", Loop)
        with pytest.raises(MemoryError):
            shared.add(connection)
        patch.undo()
        shared.add(connection)

    with live.raw(), pytest.MonkeyPatch.context() as patch:
        live.wait_for_connections(1)
        live.call(lambda: schedule(patch))
        wait_until(lambda: live.call(lambda: live.server.turns.waiting == {}), "its turn came")
