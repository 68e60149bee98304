"""The responses that clients leave unread are bounded in total: fetches shrink, slow readers wait, and finally
connections are closed.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.fetch import FetchRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.runtime import RequestContext
from kcore.server.memory import ResponseMemory
from kcore_ext.batch import iter_records, split_batches
from kcore_ext.server.connection import UNREAD_CHECK_BYTES
from tests.kit import batch, commit, committed, create, fetch, produce, wait_until
from tests.security.certificates import Authority
from tests.server.live import LiveServer, Raw

BEAT = HeartbeatRequest(group_id="g", member_id="m")
RECORD = 400_000
RECORDS = 10
LIMIT = 8_000_000
PEERS = 30
WHOLE = RECORDS * (RECORD + 100)
SMALL_SOCKET, LARGE_SOCKET = 65_536, 1 << 22  # the smaller one holds a segment of the loopback

Serve = Callable[..., LiveServer]


def fill(live: LiveServer, records: int = RECORDS) -> None:
    with live.connect() as connection:
        connection.send(create("t"))
        for number in range(records):
            connection.send(produce("t", batch([number.to_bytes(4, "big") + b"x" * (RECORD - 4)])), 9)


def memory(live: LiveServer) -> ResponseMemory:
    found = live.server.responses
    assert found is not None
    return found


def size_sockets(live: LiveServer, peers: list[Raw], size: int) -> None:
    """Sets the sizes of the socket buffers. With small buffers, unread bytes stay in the server; with large buffers,
    the system stores these bytes.
    """

    def resize() -> None:
        for connection in live.server.connections:
            fd = os.dup(connection.transport.get_extra_info("socket").fileno())
            with socket.socket(fileno=fd) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    live.call(resize)
    for peer in peers:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def peers_of(live: LiveServer, count: int, tls: ssl.SSLContext | None = None) -> list[Raw]:
    peers = []
    for _ in range(count):
        peer = Raw(live.port if tls is None else live.server.addresses["SSL"][1])
        if tls is not None:
            peer.socket = tls.wrap_socket(peer.socket, server_hostname="127.0.0.1")
        peers.append(peer)
    wait_until(lambda: live.connections >= count, f"{count} connections")
    size_sockets(live, peers, SMALL_SOCKET)
    return peers


def unread(live: LiveServer) -> int:
    """Returns the number of response bytes in the server: in queues, delayed, and in transports."""
    return live.call(lambda: sum(c._queue.held_bytes + c._unsent() for c in live.server.connections))


def most(peers: int = PEERS) -> int:
    """Returns the number of unread response bytes that the server may hold: the limit and, for each client, one batch
    and the bytes that are sent between two checks.
    """
    return LIMIT + peers * (RECORD + 1_000 + 2 * UNREAD_CHECK_BYTES)


def read_from(peer: Raw, offset: int = 0) -> list[int]:
    """Reads the response to a fetch that the client has already sent, then fetches until all records have arrived.
    Returns their numbers.
    """
    found: list[int] = []
    while True:
        response = peer.receive(FetchRequest(), 12)[1]
        data = response.responses[0].partitions[0].records or b""
        for start, size in split_batches(data).batches:
            found += [
                int.from_bytes((record.value or b"")[:4], "big") for record in iter_records(data[start : start + size])
            ]
        if offset + len(found) >= RECORDS:
            return found
        peer.send(peer.request(fetch("t", offset + len(found), max_bytes=WHOLE), 12))


@pytest.fixture(params=["plain", "tls"])
def kind(request: pytest.FixtureRequest, tmp_path: Any) -> tuple[dict[str, str], ssl.SSLContext | None]:
    """Returns the settings of a server with or without TLS, and the TLS context of its clients (None without TLS)."""
    if request.param == "plain":
        return {}, None
    authority = Authority(tmp_path)
    from cryptography.x509.oid import NameOID

    keystore = authority.issue("server.pem", (NameOID.COMMON_NAME, "server"))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(keystore),
    }
    return settings, ssl.create_default_context(cafile=str(authority.file))


def test_peers_that_never_read_hold_at_most_the_limit(
    serve: Serve, kind: tuple[dict[str, str], ssl.SSLContext | None]
) -> None:
    """Thirty clients fetch all data and read nothing, while other clients are served. When they begin to read, each
    gets all data in order, and all memory is released.
    """
    settings, tls = kind
    live = serve({"kcore.max.response.memory.bytes": str(LIMIT), **settings})
    fill(live)
    live.wait_for_connections(0)
    peers = peers_of(live, PEERS, tls)
    one = fetch("t", max_bytes=WHOLE)
    for peer in peers:
        peer.send(peer.request(one, 12))
    wait_until(lambda: memory(live).held_bytes > LIMIT // 2, "unread responses use half of the limit")
    with live.connect() as other:
        for number in range(50):
            assert other.send(BEAT).error_code == 25
            assert unread(live) <= most()
            assert live.call(lambda: memory(live).held_bytes) <= most()
            assert other.send(commit("g", {("t", 0): number}), 9).topics[0].partitions[0].error_code == 0
        assert committed(other, "g") == {("t", 0): 49}
        response = other.send(fetch("t", max_bytes=WHOLE), 12).responses[0].partitions[0]
        assert len(split_batches(response.records).batches) >= 1, "a peer that reads gets one batch at least (KIP-74)"
    size_sockets(live, peers, LARGE_SOCKET)
    read: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda at=at, peer=peer: read.update({at: read_from(peer)}))  # type: ignore[misc]
        for at, peer in enumerate(peers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert read == {at: list(range(RECORDS)) for at in range(PEERS)}
    wait_until(lambda: live.call(lambda: memory(live).held_bytes) == 0, "everything is given back")
    for peer in peers:
        peer.socket.close()
    live.wait_for_connections(0)


def test_polls_completed_by_one_commit_share_the_remaining_memory(serve: Serve) -> None:
    """Thirty parked polls get their responses in one turn, before the first response is sent."""
    live = serve({"kcore.max.response.memory.bytes": str(LIMIT)})
    fill(live, 0)
    live.wait_for_connections(0)
    peers = peers_of(live, PEERS)
    for peer in peers:
        peer.send(peer.request(fetch("t", max_bytes=WHOLE, wait_ms=600_000), 12))
    polls = live.engine.apis[ApiKey.FETCH]
    wait_until(lambda: live.call(lambda: polls._purgatory.num_delayed) == PEERS, "all of them wait")

    def produce_all() -> None:
        live.driver.begin_round()
        for number in range(RECORDS):
            records = batch([number.to_bytes(4, "big") + b"x" * (RECORD - 4)])
            live.engine.submit(RequestContext(9), produce("t", records))

    live.call(produce_all)
    wait_until(lambda: live.call(lambda: polls._purgatory.num_delayed) == 0, "all polls have a response")
    with live.connect() as other:
        for _ in range(50):
            assert other.send(BEAT).error_code == 25
            assert unread(live) <= most()
    size_sockets(live, peers, LARGE_SOCKET)
    sizes = [len(peer.receive(FetchRequest(), 12)[1].responses[0].partitions[0].records) // RECORD for peer in peers]
    assert sizes[0] > sizes[-1] == 1, "the first client gets more, the last one a single batch"
    assert sorted(sizes, reverse=True) == sizes
    for peer in peers:
        peer.socket.close()
    live.wait_for_connections(0)
    assert live.call(lambda: memory(live).held_bytes) == 0


def test_a_peer_that_reads_nothing_is_closed_when_memory_is_short(serve: Serve, log_lines: list[str]) -> None:
    """The test does not wait: it moves the time of the client's last read into the past."""
    live = serve({"kcore.max.response.memory.bytes": str(LIMIT)})
    fill(live)
    live.wait_for_connections(0)

    def grow_old() -> list[int]:
        """Ages the connections by half a minute. Returns the number of response bytes of the remaining connections."""
        for connection in live.server.connections:
            connection.report_unread()
            connection.taken_s -= 31
        memory(live).look()
        return [connection.unread_bytes for connection in memory(live)._unread]

    (alone,) = peers_of(live, 1)
    one = fetch("t", max_bytes=WHOLE)
    alone.send(alone.request(one, 12))
    wait_until(lambda: memory(live).held_bytes > 0, "it has left something")
    wait_until(lambda: unread(live) == memory(live).held_bytes, "it is measured")
    assert len(live.call(grow_old)) == 1, "there is space for one client that does not read"
    log_lines.clear()
    more = peers_of(live, PEERS)
    live.wait_for_connections(1 + PEERS)
    for peer in more:
        peer.send(peer.request(one, 12))
    wait_until(lambda: live.call(grow_old) and memory(live).stalled_connections, "memory is short")
    left = live.call(grow_old)
    assert 0 < sum(left) <= LIMIT // 2, "the oldest connections are closed until enough memory is free"
    wait_until(lambda: live.connections == 1 + PEERS - memory(live).stalled_connections, "they are closed")
    assert memory(live).stalled_connections == len(log_lines) > 0
    assert all(
        "connection from /127.0.0.1 closed: the client read none of its" in line and "for 30000 ms" in line
        for line in log_lines
    )
    assert not alone_is_open(alone)
    for peer in [alone, *more]:
        peer.socket.close()
    live.wait_for_connections(0)
    assert live.call(lambda: memory(live).held_bytes) == 0


def alone_is_open(peer: Raw) -> bool:
    """Reads all buffered bytes of a connection. Returns True if the server has not closed it."""
    try:
        while peer.socket.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return True
    return False


def test_without_room_connections_with_unread_responses_wait_and_others_are_served(serve: Serve) -> None:
    """With a limit of 0, every connection with unread responses waits until its client has read them."""
    live = serve({"kcore.max.response.memory.bytes": "0"})
    fill(live)
    live.wait_for_connections(0)
    (slow,) = peers_of(live, 1)
    slow.send(b"".join(slow.request(fetch("t", max_bytes=WHOLE), 12) for _ in range(20)))
    wait_until(lambda: memory(live).held_bytes > 0, "it has left something")
    with live.connect() as other:
        for _ in range(20):
            assert other.send(BEAT).error_code == 25
            assert unread(live) <= 2 * (RECORD + 1_000) + UNREAD_CHECK_BYTES
    size_sockets(live, [slow], LARGE_SOCKET)
    for number in range(1, 21):
        correlation_id, response = slow.receive(FetchRequest(), 12)
        assert correlation_id == number
        assert len(split_batches(response.responses[0].partitions[0].records).batches) == 1
    slow.socket.close()


def test_without_a_limit_unread_bytes_are_not_counted(serve: Serve) -> None:
    live = serve({"kcore.max.response.memory.bytes": "-1"})
    fill(live)
    with live.raw() as peer:
        peer.send(peer.request(fetch("t", max_bytes=WHOLE), 12))
        assert len(split_batches(peer.receive(FetchRequest(), 12)[1].responses[0].partitions[0].records).batches) > 1
    assert live.server.responses is None
