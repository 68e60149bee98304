"""TLS connections that end in any way: asyncio and uvloop log nothing, and report nothing to the loop's exception
handler.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kcore import process_logging
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from tests.kit import batch, create, fetch, produce, wait_until
from tests.server.half_open import Tls

MakeTls = Callable[..., Tls]
BEAT = HeartbeatRequest(group_id="g", member_id="m")
RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Configures the process log as `kcore serve` does. Yields the stream that receives its lines."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    process_logging.configure(stream, "info")
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


def of_asyncio(stream: io.StringIO) -> list[str]:
    return [line for line in stream.getvalue().splitlines() if " asyncio: " in line]


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    peer.close()


def bare(peer: ssl.SSLSocket) -> socket.socket:
    """Detaches a TLS connection from its TCP socket. Returns the TCP socket."""
    return socket.socket(fileno=peer.detach())


def connected(server: Tls, requests: int = 0) -> ssl.SSLSocket:
    """Returns a client after its handshake. The client has sent requests and does not read their responses."""
    peer = socket.create_connection(("127.0.0.1", server.port), 20)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    secure = server.context.wrap_socket(peer, server_hostname="127.0.0.1")
    with server.live.raw() as raw:
        data = b"".join(raw.request(fetch("t"), 12) for _ in range(requests))
    secure.sendall(data)
    return secure


def handshake_reset(server: Tls) -> None:
    reset(server.half_open())


def handshake_ends(server: Tls) -> None:
    with server.half_open() as peer:
        assert peer.recv(1)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(65_536):
            pass


def handshake_garbage(server: Tls) -> None:
    with server.half_open() as peer, contextlib.suppress(ConnectionResetError):
        assert peer.recv(1)
        peer.sendall(b"\x16\x03\x03\x00\x20" + b"x" * 32)
        while peer.recv(65_536):
            pass


def handshake_alert(server: Tls) -> None:
    with server.half_open() as peer, contextlib.suppress(ConnectionResetError):
        assert peer.recv(1)
        peer.sendall(b"\x15\x03\x03\x00\x02\x02\x30")
        while peer.recv(65_536):
            pass


def unread_and_reset(server: Tls) -> None:
    reset(bare(connected(server, 8)))


def unread_and_ended(server: Tls) -> None:
    with bare(connected(server, 8)) as peer:
        peer.shutdown(socket.SHUT_WR)


def unread_and_closed_by_the_server(server: Tls) -> None:
    with connected(server, 8) as peer:
        peer.sendall(b"\xff" * 16)


def unread_and_no_tls_any_more(server: Tls) -> None:
    with bare(connected(server, 8)) as peer, contextlib.suppress(OSError):
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4)
        while peer.recv(65_536):
            pass


def ended_by_tls(server: Tls) -> None:
    peer = connected(server)
    with contextlib.suppress(OSError):
        peer.unwrap().close()


@pytest.mark.parametrize(
    "client",
    [
        handshake_reset,
        handshake_ends,
        handshake_garbage,
        handshake_alert,
        unread_and_reset,
        unread_and_ended,
        unread_and_closed_by_the_server,
        unread_and_no_tls_any_more,
        ended_by_tls,
    ],
)
def test_the_end_of_a_tls_connection_causes_no_line_of_asyncio(
    tls: MakeTls, peers: ExitStack, lines: io.StringIO, client: Callable[[Tls], None]
) -> None:
    """`LiveServer` fails the test if anything is reported to the loop's exception handler."""
    server = tls({"kcore.max.response.memory.bytes": "4000000"})
    with server.live.connect() as connection:
        connection.send(create("t"))
        for _ in range(4):
            connection.send(produce("t", batch([b"x" * 400_000])), 9)
    for _ in range(6):
        client(server)
    wait_until(lambda: server.counted == (0, {}), "all connections have ended")
    assert server.served()
    assert of_asyncio(lines) == []


@pytest.mark.parametrize("text", ["socket.send() raised exception.", "SSL connection is closed"])
def test_writes_to_a_lost_connection_are_lines_at_level_debug(lines: io.StringIO, text: str) -> None:
    """asyncio warns of each write to a lost connection after the fifth one. kcore logs these warnings only at level
    DEBUG, because the server itself logs the end of the connection.
    """
    logger = logging.getLogger("asyncio")
    logger.warning(text)
    assert of_asyncio(lines) == []
    logger.warning("another warning")
    assert [line.partition(" asyncio: ")[2] for line in of_asyncio(lines)] == ["another warning"]
    process_logging.configure(lines, "debug")
    logger.warning(text)
    assert [line.split(" ", 2)[2] for line in of_asyncio(lines)[1:]] == [f"DEBUG asyncio: {text}"]


def test_asyncio_repeats_no_line_without_limit(lines: io.StringIO) -> None:
    """Without free descriptors, asyncio may log a hundred failed accepts of the HTTP address at once."""
    for _ in range(100):
        logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert len(of_asyncio(lines)) == process_logging.LINES_BURST
