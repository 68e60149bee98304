"""A server with TLS, and clients that begin a TLS handshake and never finish it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.server.handshake import Handshakes
from tests.security.certificates import Authority
from tests.server.live import LiveServer, Raw

BEAT = HeartbeatRequest(group_id="g", member_id="m")
HELLO = bytes.fromhex("160301020001000202fc0303")  # the beginning of a ClientHello whose rest never comes


def client_hello() -> bytes:
    """Creates a complete ClientHello. The client may stay silent after it."""
    sent = ssl.MemoryBIO()
    peer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), sent, server_hostname="kcore")
    with pytest.raises(ssl.SSLWantReadError):
        peer.do_handshake()
    return sent.read()


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
        assert self.acceptor.handshakes is not None
        self.all: Handshakes = self.acceptor.handshakes

    def half_open(self, sent: bytes | None = None, source: str = "127.0.0.1") -> socket.socket:
        """Creates a client that begins a TLS handshake and never finishes it."""
        peer = socket.create_connection(("127.0.0.1", self.port), 20, (source, 0))
        peer.sendall(client_hello() if sent is None else sent)
        return peer

    def served(self, source: str = "127.0.0.1") -> bool:
        """Sends a request through TLS. Returns True if a response arrives."""
        raw = Raw(self.port, source=source)
        raw.socket = self.context.wrap_socket(raw.socket, server_hostname="127.0.0.1")
        with raw:
            raw.send(raw.request(BEAT, 4))
            return bool(raw.receive(BEAT, 4)[1].error_code == 25)

    @property
    def handshakes(self) -> int:
        return self.live.call(lambda: len(self.all))

    @property
    def running(self) -> int:
        return self.live.call(lambda: len(self.all.running))

    @property
    def counted(self) -> tuple[int, dict[str, int]]:
        quota = self.live.server.quota
        return self.live.call(lambda: (quota.total, dict(quota.by_host)))


def ended(peer: socket.socket) -> bool:
    """Waits until the server closes a connection. Skips the server's part of the handshake."""
    try:
        while peer.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return True
