"""TLS handshakes: clients that do not finish a handshake use bounded memory and hardly delay other clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from kcore.server import handshake
from kcore.server.handshake import Handshakes
from tests.kit import wait_until
from tests.server.half_open import BEAT, HELLO, Tls, client_hello, ended
from tests.server.live import LiveServer, Raw

MakeTls = Callable[..., Tls]

NEVER_S = 3_600.0
"""A grace period that is longer than any test."""


@pytest.mark.parametrize("sent", [b"", HELLO[:3], HELLO], ids=["silent", "part of a header", "part of a record"])
def test_clients_without_a_first_message_take_no_slot(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(handshake, "MAX_HANDSHAKES", 1)
    monkeypatch.setattr(handshake, "HANDSHAKE_GRACE_S", NEVER_S)
    server = tls()
    for _ in range(20):
        peers.enter_context(server.half_open(sent))
    wait_until(lambda: server.handshakes == 20, "twenty clients")
    assert server.served()
    assert (server.handshakes, server.running, server.all.failed) == (20, 0, 0)


def test_a_first_message_may_arrive_in_any_pieces(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first message of a TLS client arrives in pieces. The server does not examine each piece, and starts the
    handshake with the last byte.
    """
    looks, look = [], Handshakes._look

    def counted(self: Handshakes, client: Any) -> None:
        looks.append(client)
        look(self, client)

    monkeypatch.setattr(Handshakes, "_look", counted)
    server = tls()
    hello = client_hello()
    peer = peers.enter_context(server.half_open(b""))
    for piece in (hello[:1], hello[1:4], hello[4:5], hello[5:90], hello[90:-1]):
        peer.sendall(piece)
        peer.settimeout(0.02)
        with pytest.raises(TimeoutError):
            peer.recv(1)
    assert (server.handshakes, server.running) == (1, 0)
    assert len(looks) == 2, "the socket is read at the accept, and for the header"
    peer.settimeout(20)
    peer.sendall(hello[-1:])
    assert peer.recv(1) == b"\x16"
    assert (server.running, len(looks)) == (1, 3)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16", HELLO])
def test_a_stream_that_ends_in_its_first_message_is_closed(tls: MakeTls, peers: ExitStack, sent: bytes) -> None:
    server = tls()
    peer = peers.enter_context(server.half_open(sent))
    peer.shutdown(1)
    assert ended(peer)
    wait_until(lambda: server.counted == (0, {}), "nothing is counted")
    assert (server.handshakes, server.all.failed) == (0, 1)


def test_the_oldest_handshake_makes_room_for_other_clients(
    tls: MakeTls, peers: ExitStack, log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve clients begin a handshake and stay silent, and the server permits four handshakes at a time. It closes the
    oldest ones after a grace period, so that other clients are served.
    """
    monkeypatch.setattr(handshake, "MAX_HANDSHAKES", 4)
    monkeypatch.setattr(handshake, "HANDSHAKE_GRACE_S", 0.1)
    server = tls()
    idle = [peers.enter_context(server.half_open()) for _ in range(12)]
    for peer in idle[:8]:
        assert ended(peer)
        assert server.running <= 4
    assert server.served()
    assert server.running <= 4
    assert (
        log_lines[0]
        == "connection from /127.0.0.1 closed before its TLS handshake ended: the server needs the place for other "
        "clients that wait"
    )


def test_an_address_with_many_handshakes_makes_room_for_another_one_sooner(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "MAX_HANDSHAKES", 4)
    monkeypatch.setattr(handshake, "HANDSHAKE_GRACE_S", NEVER_S)
    monkeypatch.setattr(handshake, "UNFAIR_GRACE_S", 0.05)
    server = tls()
    idle = [peers.enter_context(server.half_open()) for _ in range(40)]
    wait_until(lambda: server.handshakes == 40 and server.running == 4, "all slots are taken and clients wait")
    assert server.served("127.0.0.2")
    assert server.handshakes >= 30, "the 36 earlier clients have not all had a turn"
    assert idle[-1].getpeername()[1] == server.port


def test_a_new_client_is_served_despite_stalled_clients_of_its_address(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "MAX_HANDSHAKES", 4)
    monkeypatch.setattr(handshake, "HANDSHAKE_GRACE_S", 0.05)
    server = tls()
    for _ in range(60):
        peers.enter_context(server.half_open())
    wait_until(lambda: server.running == 4, "all slots are taken")
    began = server.all.failed
    assert server.served()
    assert server.all.failed - began < 30, "the client did not wait for all earlier clients"


def test_young_handshakes_are_not_closed_for_others(
    tls: MakeTls, peers: ExitStack, log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten clients connect at the same time, and the server permits two handshakes at a time. Within the grace period it
    closes no client, and all handshakes complete.
    """
    monkeypatch.setattr(handshake, "MAX_HANDSHAKES", 2)
    monkeypatch.setattr(handshake, "HANDSHAKE_GRACE_S", NEVER_S)
    server = tls()
    crowd = [peers.enter_context(Raw(server.port)) for _ in range(10)]
    for raw in crowd:
        raw.socket = server.context.wrap_socket(raw.socket, server_hostname="127.0.0.1")
        raw.send(raw.request(BEAT, 4))
        assert raw.receive(BEAT, 4)[1].error_code == 25
        assert server.running <= 2
        raw.socket.close()
    wait_until(lambda: server.counted == (0, {}), "nothing is counted")
    assert (server.all.failed, log_lines) == (0, [])


def test_too_many_silent_clients_lose_the_oldest_of_the_busiest_address(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "MAX_SILENT", 4)
    server = tls()
    other = peers.enter_context(server.half_open(b"", "127.0.0.2"))
    wait_until(lambda: server.handshakes == 1, "one client")
    crowd = []
    for number in range(1, 8):
        crowd.append(peers.enter_context(server.half_open(b"")))
        wait_until(lambda: server.counted[0] + server.all.failed == 1 + number, "the next client")  # noqa: B023
    for peer in crowd[:4]:
        assert ended(peer)
    assert server.counted == (4, {"/127.0.0.1": 3, "/127.0.0.2": 1})
    other.sendall(client_hello())
    assert other.recv(1) == b"\x16"


def test_silent_clients_make_room_for_connections_of_any_listener(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes silent clients before their time limit if `max.connections` is reached."""
    monkeypatch.setattr(handshake, "HANDSHAKE_TIMEOUT_S", NEVER_S)
    monkeypatch.setattr(handshake, "SILENT_GRACE_S", 0.1)
    server = tls({"max.connections": "3"})
    silent = [peers.enter_context(server.half_open(b"")) for _ in range(3)]
    wait_until(lambda: server.handshakes == 3, "three clients")
    with server.live.raw() as raw:
        raw.send(raw.request(BEAT, 4))
        assert raw.receive(BEAT, 4)[1].error_code == 25
        assert ended(silent[0])
        assert server.counted == (3, {"/127.0.0.1": 3})


def test_silent_clients_make_room_for_others_of_a_full_listener(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server also closes silent clients before their time limit if the limit of their listener is reached."""
    monkeypatch.setattr(handshake, "HANDSHAKE_TIMEOUT_S", NEVER_S)
    monkeypatch.setattr(handshake, "SILENT_GRACE_S", 0.1)
    server = tls({"listener.name.ssl.max.connections": "2"})
    silent = [peers.enter_context(server.half_open(b"")) for _ in range(2)]
    wait_until(lambda: server.handshakes == 2, "two clients")
    other = peers.enter_context(server.half_open())
    assert other.recv(1) == b"\x16", "the server begins the handshake"
    assert ended(silent[0])
    assert server.counted == (2, {"/127.0.0.1": 2})
    assert server.live.call(lambda: server.live.server.quota.of_listener("SSL").count) == 2


def test_clients_that_wait_for_a_slot_make_room_as_well(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients wait until the server may begin their handshake, and occupy all connections. The server closes the oldest
    of them when another client connects.
    """
    monkeypatch.setattr(handshake, "MAX_HANDSHAKES", 0)
    monkeypatch.setattr(handshake, "HANDSHAKE_GRACE_S", 0.1)
    monkeypatch.setattr(Handshakes, "_abort_oldest", lambda _: NEVER_S)
    server = tls({"max.connections": "3"})
    waiting = [peers.enter_context(server.half_open()) for _ in range(3)]
    wait_until(lambda: server.handshakes == 3, "three clients")
    with server.live.raw() as raw:
        raw.send(raw.request(BEAT, 4))
        assert raw.receive(BEAT, 4)[1].error_code == 25
        assert ended(waiting[0])
        assert server.counted == (3, {"/127.0.0.1": 3})
        assert (server.handshakes, server.all.failed) == (2, 1)


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_client_that_ends_while_it_waits_for_a_slot_is_closed_at_once(
    tls: MakeTls, peers: ExitStack, log_lines: list[str], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Clients disconnect while they wait until the server begins their handshake. The server frees their connections at
    once.
    """
    monkeypatch.setattr(handshake, "MAX_HANDSHAKES", 0)
    monkeypatch.setattr(Handshakes, "_abort_oldest", lambda _: NEVER_S)
    server = tls()
    waiting = [peers.enter_context(server.half_open()) for _ in range(20)]
    wait_until(lambda: server.handshakes == 20, "twenty clients")
    for peer in waiting[1:]:
        if end == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    wait_until(lambda: server.counted == (1, {"/127.0.0.1": 1}), "the end of nineteen clients")
    assert (server.handshakes, server.running, server.all.failed) == (1, 0, 19)
    assert log_lines == []


def test_a_client_that_sends_more_while_it_waits_for_a_slot_does_not_keep_the_loop_busy(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes a TLS client that sends more than its first message before its handshake begins.

    The server examines a client that does not use TLS only once, and does not close it.
    """
    monkeypatch.setattr(handshake, "MAX_HANDSHAKES", 0)
    monkeypatch.setattr(Handshakes, "_abort_oldest", lambda _: NEVER_S)
    server = tls()
    looks, look = [], Handshakes._look_again

    def counted(self: Handshakes, client: Any, needed_bytes: int) -> None:
        looks.append(client)
        look(self, client, needed_bytes)

    monkeypatch.setattr(Handshakes, "_look_again", counted)
    plain = peers.enter_context(server.half_open(b"GET / HTTP/1.1\r\n"))
    wait_until(lambda: len(looks) == 1, "a look at the client without TLS")
    hasty = peers.enter_context(server.half_open(client_hello()))
    wait_until(lambda: server.handshakes == 2, "two clients")
    hasty.sendall(b"\x17")
    assert ended(hasty)
    assert (server.handshakes, server.all.failed, len(looks)) == (1, 1, 2)
    plain.close()


def test_a_connection_that_cannot_be_made_frees_its_slot(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tls()
    make, failures = server.all._make, [MemoryError()]

    def fail_once(host: str) -> object:
        if failures:
            raise failures.pop()
        return make(host)

    monkeypatch.setattr(server.all, "_make", fail_once)
    first = peers.enter_context(server.half_open())
    assert ended(first)
    assert server.served()
    wait_until(lambda: server.counted == (0, {}), "nothing is counted")
    assert [type(what["exception"]) for what in server.live.errors] == [MemoryError]
    server.live.errors.clear()


def test_a_failed_handshake_is_logged_with_the_address(tls: MakeTls, log_lines: list[str]) -> None:
    server = tls()
    with server.half_open(b"GET / HTTP/1.1\r\n\r\n", "127.0.0.3") as peer:
        assert ended(peer)
    wait_until(lambda: bool(log_lines), "a line")
    assert log_lines == ["TLS handshake with /127.0.0.3 failed: HTTP_REQUEST; the client may not use TLS"]


def test_a_client_that_closes_its_connection_during_the_handshake_is_logged(tls: MakeTls, log_lines: list[str]) -> None:
    """Clients of asyncio, kcore's own included, end a handshake without an alert if they do not trust the server."""
    server = tls()

    async def connect() -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", server.port, ssl=ssl.create_default_context())

    asyncio.run(connect())
    line = "connection from /127.0.0.1 closed before its TLS handshake ended: the client closed it; perhaps the "
    wait_until(lambda: bool(log_lines), "a line")
    assert log_lines == [f"{line}client does not trust the server's certificate"]
    with socket.create_connection(("127.0.0.1", server.port)):
        pass  # without a byte, as probes of load balancers do
    assert server.served()
    assert len(log_lines) == 1


def test_no_client_fills_the_log(live: LiveServer, log_lines: list[str]) -> None:
    """Each refused request logs one line, up to a limit for the address."""
    refused = 40
    for _ in range(refused):
        with live.raw() as raw:
            raw.send(b"\x00\x00\x00\x02ab")
            assert raw.closed
    assert 20 <= len(log_lines) < refused
