"""Accepting connections: TLS handshakes count, have a time limit, and do not keep other clients out."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.server import accept
from kcore.server.accept import QUIET_S, QuietLog, listening_sockets
from kcore.server.connection import Connection
from tests.kit import wait_until
from tests.security.certificates import Authority
from tests.server.live import LiveServer, Raw

BEAT = HeartbeatRequest(group_id="g", member_id="m")
HELLO = bytes.fromhex("160301020001000202fc0303")  # the beginning of a ClientHello, without the rest

Serve = Callable[..., LiveServer]


class Tls:
    """A server with a TLS listener, and its clients."""

    def __init__(self, serve: Serve, folder: Path, settings: dict[str, str]) -> None:
        authority = Authority(folder)
        keystore = authority.issue("server.pem", (NameOID.COMMON_NAME, "server"))
        listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
        self.live = serve({"listeners": listeners, "ssl.keystore.location": str(keystore), **settings})
        self.context = ssl.create_default_context(cafile=str(authority.file))
        self.port = self.live.server.addresses["SSL"][1]
        self.acceptor = self.live.server.acceptors[1]

    def half_open(self, timeout_s: float = 20.0) -> socket.socket:
        """Starts a handshake without ending it."""
        peer = socket.create_connection(("127.0.0.1", self.port), timeout_s)
        peer.sendall(HELLO)
        return peer

    def served(self) -> bool:
        """Sends a request through TLS; returns True if it gets a response."""
        raw = Raw(self.port)
        raw.socket = self.context.wrap_socket(raw.socket, server_hostname="127.0.0.1")
        with raw:
            raw.send(raw.request(BEAT, 4))
            return bool(raw.answer(BEAT, 4)[1].error_code == 25)

    @property
    def handshakes(self) -> int:
        return self.live.call(lambda: len(self.acceptor.handshakes))

    @property
    def counted(self) -> tuple[int, dict[str, int]]:
        quota = self.live.server.quota
        return self.live.call(lambda: (quota.total, dict(quota.by_host)))


@pytest.fixture
def tls(serve: Serve, tmp_path: Path) -> Callable[..., Tls]:
    return lambda settings=None: Tls(serve, tmp_path, settings or {})


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ended(peer: socket.socket) -> bool:
    """Waits until the server closes a connection without sending anything."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_handshakes_count_for_their_address(tls: Callable[..., Tls], peers: ExitStack, log_lines: list[str]) -> None:
    """A client without a certificate cannot open more connections than an address may have."""
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
    assert server.acceptor.failed_handshakes == 2


def test_handshakes_count_for_the_server(tls: Callable[..., Tls], peers: ExitStack) -> None:
    """If `max.connections` handshakes are open, every listener waits for a slot."""
    server = tls({"max.connections": "2"})
    first, _ = (peers.enter_context(server.half_open()) for _ in range(2))
    wait_until(lambda: server.handshakes == 2, "two handshakes")
    waiting = peers.enter_context(server.live.raw())
    waiting.send(waiting.request(BEAT, 4))
    assert server.live.call(lambda: server.live.server.accepted_connections) == 2
    first.close()
    assert waiting.answer(BEAT, 4)[1].error_code == 25
    assert server.counted == (2, {"/127.0.0.1": 2})


def test_a_handshake_that_exceeds_its_time_limit_is_closed(
    tls: Callable[..., Tls], log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert accept.HANDSHAKE_TIMEOUT_S == 10
    monkeypatch.setattr(accept, "HANDSHAKE_TIMEOUT_S", 0.2)
    server = tls()
    with server.half_open() as peer:
        assert ended(peer)
    wait_until(lambda: server.counted == (0, {}), "nothing is counted")
    assert log_lines == ["connection from /127.0.0.1 closed: its TLS handshake took longer than 0.2 s"]
    assert server.acceptor.failed_handshakes == 1


def test_the_oldest_handshake_makes_room_for_other_clients(
    tls: Callable[..., Tls], peers: ExitStack, log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients with unfinished handshakes take a bounded amount of memory, and keep no other client out."""
    monkeypatch.setattr(accept, "MAX_HANDSHAKES", 4)
    monkeypatch.setattr(accept, "HANDSHAKE_GRACE_S", 0.1)
    server = tls()
    idle = [peers.enter_context(server.half_open()) for _ in range(12)]
    for peer in idle[:8]:
        assert ended(peer)
        assert server.handshakes <= 4
    assert server.served()
    assert server.handshakes <= 4
    assert log_lines[0] == (
        "connection from /127.0.0.1 closed: its TLS handshake was aborted because other clients wait"
    )


def test_young_handshakes_are_not_closed_for_others(
    tls: Callable[..., Tls], peers: ExitStack, log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many clients that reconnect at once are no attack: none is closed, each gets its turn."""
    monkeypatch.setattr(accept, "MAX_HANDSHAKES", 2)
    monkeypatch.setattr(accept, "HANDSHAKE_GRACE_S", 3_600.0)
    server = tls()
    crowd = []
    for _ in range(10):
        raw = peers.enter_context(Raw(server.port))
        crowd.append(raw)
    for raw in crowd:
        raw.socket = server.context.wrap_socket(raw.socket, server_hostname="127.0.0.1")
        raw.send(raw.request(BEAT, 4))
        assert raw.answer(BEAT, 4)[1].error_code == 25
        assert server.handshakes <= 2
        raw.socket.close()
    wait_until(lambda: server.counted == (0, {}), "nothing is counted")
    assert (server.acceptor.failed_handshakes, log_lines) == (0, [])


def test_a_stop_ends_handshakes(tls: Callable[..., Tls], peers: ExitStack) -> None:
    server = tls()
    idle = [peers.enter_context(server.half_open()) for _ in range(3)]
    wait_until(lambda: server.handshakes == 3, "three handshakes")
    asyncio.run_coroutine_threadsafe(server.live.server.stop(), server.live.loop).result(30)
    assert all(ended(peer) for peer in idle)
    assert (server.live.server.quota.total, server.acceptor.handshakes) == (0, {})


def test_either_all_addresses_of_a_listener_are_opened_or_none() -> None:
    """All have the same port; if one address is taken, none stays open."""
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
    """A machine without IPv6 listens on IPv4; a single address of another machine is an error."""
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
            assert raw.answer(BEAT, 4)[1].error_code == 25


def test_accepted_sockets_have_keepalive_and_nodelay(live: LiveServer) -> None:
    """Kafka sets SO_KEEPALIVE and TCP_NODELAY, too."""
    with live.raw() as raw:
        raw.send(raw.request(BEAT, 4))
        assert raw.answer(BEAT, 4)[1].error_code == 25

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
        assert second.answer(BEAT, 4)[1].error_code == 25
        assert live.call(lambda: live.server.quota.total) == 1
    assert [type(what["exception"]) for what in live.errors] == [MemoryError]
    live.errors.clear()


def test_repeated_warnings_are_counted(log_lines: list[str]) -> None:
    now_s = 0.0
    log = QuietLog(lambda: now_s)
    for number in range(5):
        log.warn("%d closes", number)
    now_s += QUIET_S
    log.warn("%d closes", 5)
    now_s += QUIET_S
    log.warn("%d closes", 6)
    assert log_lines == ["0 closes", "5 closes (4 similar warnings suppressed)", "6 closes"]
