"""Open TLS connections: messages other than data take a bounded time, and renegotiation is refused."""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kcore.server.tls_session import MAX_EXCESS_BYTES, PIECE_BYTES, RECORD_OVERHEAD_BYTES, BoundedSession
from kcore_ext.codec.frames import encode_request
from tests.kit import fetch, wait_until
from tests.server.half_open import BEAT, Tls, ended
from tests.server.live import Raw
from tests.server.test_unread import RECORD, SMALL_SOCKET, WHOLE, fill, size_sockets

MakeTls = Callable[..., Tls]

REQUEST = encode_request(BEAT, 4, 1, "c")
KEY_UPDATE = bytes.fromhex("1800000100")
HANDSHAKE, DATA = b"\x16", b"\x17"
RECORD_BYTES = RECORD_OVERHEAD_BYTES + len(KEY_UPDATE)


def expand(secret: bytes, label: bytes, size: int) -> bytes:
    """Computes HKDF-Expand-Label of RFC 8446, 7.1, with SHA-384 and no context."""
    full = b"tls13 " + label
    info = size.to_bytes(2, "big") + bytes([len(full)]) + full + b"\x00"
    return hmac.digest(secret, info + b"\x01", hashlib.sha384)[:size]


class Sender:
    """A TLS 1.3 client that encrypts its records itself, because Python's module sends no KeyUpdate messages."""

    def __init__(self, server: Tls, folder: Path) -> None:
        context = server.context
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(folder / "keys")
        raw = socket.create_connection(("127.0.0.1", server.port), 20)
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as secure:
            assert secure.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
            self.socket = socket.socket(fileno=secure.detach())
        self.socket.settimeout(20)
        lines = (line.split() for line in (folder / "keys").read_text().splitlines())
        self._secret = next(bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._sequence = 0

    def record(self, data: bytes, kind: bytes = DATA) -> bytes:
        """Encrypts one record."""
        key, start = expand(self._secret, b"key", 32), int.from_bytes(expand(self._secret, b"iv", 12), "big")
        nonce = (start ^ self._sequence).to_bytes(12, "big")
        self._sequence += 1
        header = b"\x17\x03\x03" + (len(data) + 17).to_bytes(2, "big")
        return header + AESGCM(key).encrypt(nonce, data + kind, header)

    def key_updates(self, count: int) -> bytes:
        """Creates records with KeyUpdate messages."""
        made = []
        for _ in range(count):
            made.append(self.record(KEY_UPDATE, HANDSHAKE))
            self._secret, self._sequence = expand(self._secret, b"traffic upd", 48), 0
        return b"".join(made)


def test_a_client_may_change_its_key(tls: MakeTls, peers: ExitStack, tmp_path: Path) -> None:
    server = tls()
    sender = Sender(server, tmp_path)
    peer = peers.enter_context(sender.socket)
    for number, count in enumerate((1, 100), start=1):
        peer.sendall(sender.key_updates(count) + sender.record(REQUEST))
        assert wait_until(partial(has_received, server, number * len(REQUEST)), "the request")


def has_received(server: Tls, size: int) -> bool:
    """Returns True if the server has received this number of bytes."""
    return server.live.call(lambda: server.live.server.traffic.received_bytes) == size


def test_a_client_that_sends_only_changes_of_the_key_is_closed(
    tls: MakeTls, peers: ExitStack, tmp_path: Path, log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each KeyUpdate takes 27 µs, and 10,000 of them fit into one read."""
    sizes = []
    add = BoundedSession._add_excess

    def noted(self: BoundedSession, excess_bytes: int) -> None:
        sizes.append(excess_bytes)
        add(self, excess_bytes)

    monkeypatch.setattr(BoundedSession, "_add_excess", noted)
    server = tls()
    sender = Sender(server, tmp_path)
    peer = peers.enter_context(sender.socket)
    peer.sendall(sender.key_updates(MAX_EXCESS_BYTES // RECORD_BYTES + 10))
    assert ended(peer)
    assert max(sizes) < 2 * PIECE_BYTES
    assert server.served()
    (line,) = log_lines
    assert re.fullmatch(
        rf"connection \d+ from /127.0.0.1 closed: the client sent more than {MAX_EXCESS_BYTES} bytes of TLS records "
        r"without data \(key updates or padding\)",
        line,
    )


def test_a_client_that_hides_changes_of_the_key_between_data_is_closed(
    tls: MakeTls, peers: ExitStack, tmp_path: Path
) -> None:
    server = tls()
    sender = Sender(server, tmp_path)
    peer = peers.enter_context(sender.socket)
    rounds = MAX_EXCESS_BYTES // RECORD_BYTES // 10 + 1
    peer.sendall(b"".join(sender.key_updates(10) + sender.record(b"\0") for _ in range(rounds)))
    assert ended(peer)


def test_data_in_small_records_do_not_close_the_connection(tls: MakeTls, peers: ExitStack, tmp_path: Path) -> None:
    server = tls()
    sender = Sender(server, tmp_path)
    peer = peers.enter_context(sender.socket)
    data = b"".join(sender.record(REQUEST[at : at + 1]) for _ in range(200) for at in range(len(REQUEST)))
    assert len(data) > 2 * MAX_EXCESS_BYTES
    peer.sendall(data)
    assert peer.recv(1) == b"\x17"


def test_renegotiation_is_off(tls: MakeTls) -> None:
    """Each renegotiation would cost the server a signature, and a client could repeat it without limit on one
    connection.
    """
    server = tls()
    context = server.acceptor._security.tls
    assert context is not None
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_a_client_that_ends_its_tls_session_gets_no_further_responses(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client ends its TLS session while up to 48 MB of responses wait for it. The server drops them: to encrypt all
    of them would block the event loop for 50 ms.
    """
    sizes: list[int] = []
    write = ssl.SSLObject.write

    def noted(self: BoundedSession, data: memoryview) -> int:
        sizes.append(len(data))
        return write(self, data)

    monkeypatch.setattr(BoundedSession, "write", noted)
    server = tls({"kcore.connection.buffer.bytes": "16384"})
    fill(server.live)
    peer = Raw(server.port)
    peer.socket = server.context.wrap_socket(peer.socket, server_hostname="127.0.0.1")
    peers.enter_context(peer)
    server.live.wait_for_connections(1, came=2)
    size_sockets(server.live, [peer], SMALL_SOCKET)
    peer.send(peer.request(fetch("t", max_bytes=WHOLE), 12))
    [connection] = server.live.call(lambda: list(server.live.server.connections))
    wait_until(lambda: server.live.call(lambda: connection._unsent() > RECORD), "an unread response")
    peer.socket.settimeout(0)
    with pytest.raises(ssl.SSLError):
        peer.socket.unwrap()
    wait_until(lambda: server.live.call(lambda: connection._closing), "the end of the connection")
    server.live.call(connection.report_unread)  # asyncio's transport has no session any more; timers still call this
    assert sum(sizes) < 2 * RECORD
    peer.socket.close()
    wait_until(lambda: server.counted == (0, {}), "nothing is counted")
