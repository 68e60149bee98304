"""The first message (ClientHello) of a TLS client: the server detects whether it makes the handshake expensive, or
postpones the server's signature.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.server import handshake
from kcore.server.client_hello import FirstMessage, classify
from tests.kit import wait_until
from tests.server.client_hellos import FFDHE_2048, FFDHE_8192, P_256, UNKNOWN, X25519, message, record
from tests.server.half_open import Tls, client_hello, ended

MakeTls = Callable[..., Tls]

HELLO = record(message((X25519, P_256), (X25519,)))
FINITE_FIELD = record(message((FFDHE_8192, X25519), (FFDHE_8192,)))
RETRIED = record(message((X25519,), ()))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (client_hello(), FirstMessage.PROMPT),
        (HELLO, FirstMessage.PROMPT),
        (record(message((UNKNOWN, X25519, FFDHE_2048), (X25519,))), FirstMessage.PROMPT),
        (record(message((X25519, FFDHE_8192), (), versions=(0x0303,))), FirstMessage.PROMPT),
        (RETRIED, FirstMessage.LATER),
        (b"GET / HTTP/1.1\r\n", FirstMessage.LATER),
        (FINITE_FIELD, FirstMessage.COSTLY),
        (record(message((X25519, FFDHE_2048), (X25519, FFDHE_2048))), FirstMessage.COSTLY),
        (record(message((FFDHE_8192, UNKNOWN), ())), FirstMessage.COSTLY),
        (HELLO[:-1], FirstMessage.UNCLEAR),
        (record(message((X25519,), (X25519,))[:20]), FirstMessage.UNCLEAR),
        (record(b"\x01\x00", kind=21), FirstMessage.UNCLEAR),
        (record(b"\x02" + message((X25519,), (X25519,))[1:]), FirstMessage.UNCLEAR),
        (record(b""), FirstMessage.UNCLEAR),
        (b"", FirstMessage.UNCLEAR),
    ],
)  # fmt: skip
def test_a_first_message_determines_the_cost_of_the_handshake(data: bytes, kind: FirstMessage) -> None:
    assert classify(data) is kind


@given(st.binary(max_size=200), st.integers(0, len(FINITE_FIELD)))
def test_any_bytes_have_a_kind(data: bytes, kept: int) -> None:
    assert classify(FINITE_FIELD[:kept] + data) in FirstMessage


def test_a_client_that_demands_a_finite_field_is_closed(tls: MakeTls, peers: ExitStack, log_lines: list[str]) -> None:
    """A client that offers only finite-field key exchange (FFDHE) is refused, because its handshake would block the
    event loop for 140 ms.
    """
    server = tls()
    for hello in (FINITE_FIELD, HELLO[:-1], record(HELLO[5:20]) + record(HELLO[20:])):
        peer = peers.enter_context(server.half_open(hello))
        if hello == HELLO[:-1]:
            peer.shutdown(1)
        assert ended(peer)
    assert server.served()
    wait_until(lambda: server.running == 0, "no handshake")
    assert log_lines[0].endswith(
        "the client offers only finite-field key exchange (FFDHE); it must offer an elliptic curve"
    )
    assert [line.rpartition(": ")[2] for line in log_lines[1:]] == 2 * [
        "the client's first TLS record is not a complete ClientHello"
    ]


def test_few_clients_may_postpone_the_signature(
    tls: MakeTls, peers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handshake whose signature the client postpones is called late. While the listener has its maximum of late
    handshakes, it closes further clients that postpone the signature.

    Without this limit, many clients could make the server compute their signatures at the same moment.
    """
    monkeypatch.setattr(handshake, "MAX_LATE", 3)
    server = tls()
    postponed = [peers.enter_context(server.half_open(RETRIED)) for _ in range(3)]
    for peer in postponed:
        assert peer.recv(1) == b"\x16", "the server sends a HelloRetryRequest"
    for _ in range(2):
        assert ended(peers.enter_context(server.half_open(RETRIED)))
    assert server.served()
    wait_until(lambda: (server.running, server.all.failed) == (3, 2), "only the postponed handshakes")
    postponed[0].close()
    wait_until(lambda: server.running == 2, "a client has gone")
    assert peers.enter_context(server.half_open(RETRIED)).recv(1) == b"\x16"
