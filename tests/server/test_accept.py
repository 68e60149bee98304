"""Accepting connections: TLS handshakes count towards limits, have a time limit, and do not lock out other clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import pairwise

import pytest

from kcore.server import handshake
from kcore.server.accept import listening_sockets
from kcore.server.connection import Connection
from kcore.server.listeners import own_address
from tests.kit import wait_until
from tests.server.half_open import BEAT, HELLO, Serve, Tls, client_hello, ended
from tests.server.live import LiveServer, Raw


def test_handshakes_count_for_their_address(tls: Callable[..., Tls], peers: ExitStack, log_lines: list[str]) -> None:
    """A client without a certificate cannot open more connections than its address may have."""
    server = tls({"max.connections.per.ip": "2"})
    first, second = (peers.enter_context(server.half_open()) for _ in range(2))
    wait_until(lambda: server.handshakes == 2, "two handshakes")
    for _ in range(3):
        with server.half_open() as more:
            assert ended(more)
    assert server.acceptor.refused == 3
    assert server.counted == (2, {"/127.0.0.1": 2})
    assert log_lines == ["connection from /127.0.0.1 refused: the address has 2 connections (max.connections.per.ip)"]
    first.close()
    wait_until(lambda: server.counted[0] == 1, "the slot is free")
    assert server.served()
    second.close()
    wait_until(lambda: server.counted == (0, {}), "nothing is counted")
    assert server.all.failed == 2


def test_the_log_has_the_advertised_address(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A listener on all addresses (0.0.0.0) without an advertised address computes one, and the log contains it."""
    caplog.set_level("INFO", "kcore.server")
    live = serve({"listeners": "PLAINTEXT://0.0.0.0:0"})
    address = f"{own_address('0.0.0.0')}:{live.port}"
    assert f"listener PLAINTEXT listens on 0.0.0.0:{live.port} and advertises {address}" in caplog.messages


def test_handshakes_count_for_the_server(tls: Callable[..., Tls], peers: ExitStack) -> None:
    """If `max.connections` handshakes are open, every listener waits until one of them ends."""
    server = tls({"max.connections": "2"})
    first, _ = (peers.enter_context(server.half_open()) for _ in range(2))
    wait_until(lambda: server.handshakes == 2, "two handshakes")
    waiting = peers.enter_context(server.live.raw())
    waiting.send(waiting.request(BEAT, 4))
    assert server.live.call(lambda: server.live.server.accepted_connections) == 2
    first.close()
    assert waiting.receive(BEAT, 4)[1].error_code == 25
    assert server.counted == (2, {"/127.0.0.1": 2})


@pytest.mark.parametrize("sent", [b"", HELLO[:3], HELLO, client_hello()])
def test_a_handshake_that_takes_too_long_is_closed(
    tls: Callable[..., Tls], log_lines: list[str], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    assert handshake.HANDSHAKE_TIMEOUT_S == 10
    monkeypatch.setattr(handshake, "HANDSHAKE_TIMEOUT_S", 0.2)
    server = tls()
    with server.half_open(sent) as peer:
        assert ended(peer)
    wait_until(lambda: server.counted == (0, {}), "nothing is counted")
    assert log_lines == [
        "connection from /127.0.0.1 closed before its TLS handshake ended: the handshake took longer than 0.2 s"
    ]
    assert server.all.failed == 1


def test_a_stop_ends_handshakes(tls: Callable[..., Tls], peers: ExitStack) -> None:
    server = tls()
    idle = [peers.enter_context(server.half_open(sent)) for sent in (b"", HELLO, client_hello(), client_hello())]
    wait_until(lambda: server.running == 2 and server.handshakes == 4, "two handshakes and two silent clients")
    asyncio.run_coroutine_threadsafe(server.live.server.stop(), server.live.loop).result(30)
    assert all(ended(peer) for peer in idle)
    assert (server.live.server.quota.total, len(server.all)) == (0, 0)


def test_either_all_addresses_of_a_listener_are_opened_or_none() -> None:
    """All addresses have the same port. If one address is in use, no address stays open."""
    both = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2")]
    first, second = listening_sockets(both, 0)
    with closing(first), closing(second):
        port = first.getsockname()[1]
        assert second.getsockname() == ("127.0.0.2", port)
    with socket.create_server(("127.0.0.2", port)), pytest.raises(OSError, match="Address already in use"):
        listening_sockets(both, port)
    (again,) = listening_sockets(both[:1], port)
    again.close()


def test_unavailable_addresses_are_skipped_if_others_remain() -> None:
    """A machine without IPv6 listens on IPv4. A listener whose only address belongs to another machine is an error."""
    elsewhere = (socket.AF_INET, "192.0.2.1")
    (only,) = listening_sockets([elsewhere, (socket.AF_INET, "127.0.0.1")], 0)
    with closing(only):
        assert only.getsockname()[0] == "127.0.0.1"
    with pytest.raises(OSError, match="Cannot assign requested address"):
        listening_sockets([elsewhere], 0)


def test_all_addresses_of_a_listener_have_the_same_port(serve: Serve) -> None:
    live = serve({"listeners": "PLAINTEXT://:0"})
    names = {acceptor._socket.getsockname()[:2] for acceptor in live.server.acceptors}
    assert {port for _, port in names} == {live.port}
    assert ("0.0.0.0", live.port) in names
    for host in ("127.0.0.2", *("::1" for name, _ in names if name == "::")):
        with Raw(live.port) as raw:
            raw.socket.close()
            raw.socket = socket.create_connection((host, live.port), 20)
            raw.send(raw.request(BEAT, 4))
            assert raw.receive(BEAT, 4)[1].error_code == 25


def test_accepted_sockets_have_keepalive_and_nodelay(live: LiveServer) -> None:
    """As Kafka's brokers do, the server sets SO_KEEPALIVE and TCP_NODELAY."""
    with live.raw() as raw:
        raw.send(raw.request(BEAT, 4))
        assert raw.receive(BEAT, 4)[1].error_code == 25

        def options() -> list[int]:
            (connection,) = live.server.connections
            accepted = connection.transport.get_extra_info("socket")
            return [
                accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            ]

        assert live.call(options) == [1, 1]


def test_a_connection_that_cannot_be_set_up_is_not_counted(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    (acceptor,) = live.server.acceptors
    make, failures = acceptor._make, [MemoryError()]

    def fail_once(host: str) -> Connection:
        if failures:
            raise failures.pop()
        return make(host)

    monkeypatch.setattr(acceptor, "_make", fail_once)
    with live.raw() as first:
        assert ended(first.socket)
    with live.raw() as second:
        second.send(second.request(BEAT, 4))
        assert second.receive(BEAT, 4)[1].error_code == 25
        assert live.call(lambda: live.server.quota.total) == 1
    assert [type(what["exception"]) for what in live.errors] == [MemoryError]
    live.errors.clear()


def test_many_connections_are_accepted_in_several_turns_of_the_loop(live: LiveServer, peers: ExitStack) -> None:
    """The server accepts at most 32 connections in a turn of the event loop, so that other connections are served
    between turns.
    """
    (acceptor,) = live.server.acceptors

    def crowd() -> list[int]:
        """Connects 200 clients while the loop does not run. Then accepts them in several calls, as in several turns of
        the loop.
        """
        for _ in range(200):
            peers.enter_context(socket.create_connection(("127.0.0.1", live.port), 20))
        totals = [live.server.quota.total]
        while totals[-1] < 200:
            acceptor._accept()
            totals.append(live.server.quota.total)
        return totals

    totals = live.call(crowd)
    assert max(after - before for before, after in pairwise(totals)) <= 32
    live.wait_for_connections(200)


def fail_once(patch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    """Makes the first call of a function raise an exception."""
    works, failures = getattr(owner, name), [MemoryError()]

    def function(*arguments: object) -> object:
        if failures:
            raise failures.pop()
        return works(*arguments)

    patch.setattr(owner, name, function)


def check_that_no_slot_is_lost(live: LiveServer, raw: Raw) -> None:
    assert ended(raw.socket)
    wait_until(lambda: live.call(lambda: live.server.quota.total) == 0, "the slot is free")
    assert live.server.quota.by_host == {}
    assert [type(what["exception"]) for what in live.errors] == [MemoryError]
    live.errors.clear()


@pytest.mark.parametrize("step", ["_open", "add_connection"])
def test_a_beginning_that_raises_loses_no_slot(live: LiveServer, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_once(monkeypatch, live.server.acceptors[0] if step == "_open" else live.server, step)
    with live.raw() as raw:
        check_that_no_slot_is_lost(live, raw)


@pytest.mark.parametrize("step", ["_Client", "_look", "_become_ready", "_shake_hands"])
def test_a_beginning_of_a_handshake_that_raises_loses_no_slot(
    tls: Callable[..., Tls], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tls()
    fail_once(monkeypatch, handshake if step == "_Client" else server.all, step)
    with Raw(server.port) as raw:
        raw.send(client_hello())
        check_that_no_slot_is_lost(server.live, raw)
    assert server.handshakes == 0
    assert server.served()


def test_an_end_that_raises_loses_no_slot(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_once(monkeypatch, live.engine, "connection_closed")
    with live.raw() as raw:
        live.wait_for_connections(1)
        raw.socket.shutdown(socket.SHUT_RDWR)
        check_that_no_slot_is_lost(live, raw)
