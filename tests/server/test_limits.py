"""Memory and connections are bounded for any behaviour of clients. Well-behaved clients are not affected."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kcore.broker.data.client_quotas import CONNECTION_CREATION_RATE
from kcore.client import ConnectionClosedError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.fetch import FetchRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.testing import ServerProcess
from tests.kit import batch, create, fetch, produce, wait_until
from tests.server.live import LiveServer, Raw

BEAT = HeartbeatRequest(group_id="g", member_id="m")
BUFFER = 100_000
RECORD = 50_000


def fill(live: LiveServer, records: int = 4) -> None:
    with live.connect() as connection:
        connection.send(create("t"))
        for _ in range(records):
            connection.send(produce("t", batch([b"x" * RECORD])), 9)


def buffered(live: LiveServer) -> int:
    """Returns the largest number of response bytes of any connection, in its queue and in its transport."""
    return live.call(
        lambda: max(
            (c._queue.held_bytes + c.transport.get_write_buffer_size() for c in live.server.connections), default=0
        )
    )


@pytest.mark.parametrize("behind_a_commit", [False, True])
def test_responses_of_a_client_that_never_reads_are_bounded(behind_a_commit: bool, serve: Any) -> None:
    """A client sends a thousand fetches of thirty bytes and reads no response. The server holds only a few responses of
    50 KB instead of 50 MB.
    """
    live: LiveServer = serve({"kcore.connection.buffer.bytes": str(BUFFER)})
    fill(live)
    one = fetch("t", max_bytes=RECORD)
    with live.connect() as other, live.raw() as greedy:
        greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        many = b"".join(greedy.request(one, 12) for _ in range(1_000))
        if behind_a_commit:
            greedy.correlation_id = 5_000
            many = greedy.request(produce("t", batch([b"first"])), 9) + many
        threading.Thread(target=greedy.try_send, args=(many,), daemon=True).start()
        most = 0
        for _ in range(200):
            assert other.send(BEAT).error_code == 25
            most = max(most, buffered(live))
        assert 0 < most <= 3 * BUFFER + 2 * RECORD, f"{most} bytes of responses are buffered for one connection"


def test_a_client_that_reads_late_gets_everything_in_order(serve: Any) -> None:
    live: LiveServer = serve({"kcore.connection.buffer.bytes": str(BUFFER)})
    fill(live)
    one = fetch("t", max_bytes=RECORD)
    with live.connect() as other, live.raw() as late:
        many = b"".join(late.request(one, 12) for _ in range(300))
        threading.Thread(target=late.send, args=(many,), daemon=True).start()
        for _ in range(20):
            other.send(BEAT)
        for number in range(1, 301):
            correlation_id, response = late.receive(FetchRequest(), 12)
            assert correlation_id == number
            assert len(response.responses[0].partitions[0].records) > RECORD


def test_connections_beyond_the_limit_wait_for_a_slot(serve: Any, log_lines: list[str]) -> None:
    """As in Kafka, the listener accepts no further connection until a connection ends. The listener refuses no
    connection.
    """
    live: LiveServer = serve({"max.connections": "3"})
    kept = [live.raw() for _ in range(3)]
    live.wait_for_connections(3)
    waiting = [live.raw() for _ in range(2)]
    for raw in waiting:
        raw.send(raw.request(BEAT, 4))
    wait_until(lambda: log_lines, "the listener stops")
    for raw in kept:
        raw.send(raw.request(BEAT, 4))
        assert raw.receive(BEAT, 4)[1].error_code == 25
    assert live.call(lambda: (live.server.quota.total, live.server.accepted_connections)) == (3, 3)
    for raw, served in zip(kept, waiting, strict=False):
        raw.socket.close()
        assert served.receive(BEAT, 4)[1].error_code == 25
    for raw in (*kept, *waiting):
        raw.socket.close()
    live.wait_for_connections(0, came=5)
    assert live.call(lambda: (live.server.quota.total, live.server.quota.by_host)) == (0, {})
    assert log_lines[0] == (
        "new connections wait: the limit of 3 connections (max.connections) is reached; raise the limit, or close "
        "connections of clients"
    )


def test_a_higher_limit_applies_at_once(serve: Any) -> None:
    """`max.connections` can be raised while the server runs."""
    live: LiveServer = serve({"max.connections": "1"})
    with live.raw() as first, live.raw() as second:
        live.wait_for_connections(1)
        second.send(second.request(BEAT, 4))
        live.call(lambda: live.config.set("max.connections", "2", "test"))
        assert second.receive(BEAT, 4)[1].error_code == 25
        first.send(first.request(BEAT, 4))
        assert first.receive(BEAT, 4)[1].error_code == 25


def test_connections_of_one_address_beyond_its_limit_are_closed_at_once(serve: Any, log_lines: list[str]) -> None:
    live: LiveServer = serve({"max.connections.per.ip": "2", "listeners": "PLAINTEXT://0.0.0.0:0"})
    first, second = live.raw(), live.raw()
    live.wait_for_connections(2)
    with live.raw() as more:
        assert more.closed
    other = Raw(live.port, source="127.0.0.2")
    other.send(other.request(BEAT, 4))
    assert other.receive(BEAT, 4)[1].error_code == 25, "another address has its own count"
    for raw in (first, second, other):
        raw.socket.close()
    live.wait_for_connections(0)
    assert log_lines == ["connection from /127.0.0.1 refused: the address has 2 connections (max.connections.per.ip)"]


@pytest.mark.parametrize("state", ["silent", "in a frame", "parked", "unread"])
def test_idle_connections_are_closed(state: str, serve: Any, log_lines: list[str]) -> None:
    live: LiveServer = serve({"connections.max.idle.ms": "300", "kcore.connection.buffer.bytes": "1024"})
    fill(live)
    with live.raw() as idle:
        if state == "in a frame":
            idle.send(struct.pack(">i", 100) + b"half")
        elif state == "parked":
            idle.send(idle.request(fetch("t", 4, wait_ms=600_000), 12))
        elif state == "unread":
            threading.Thread(
                target=idle.try_send, args=(idle.request(fetch("t", max_bytes=200_000), 12) * 500,), daemon=True
            ).start()
        live.wait_for_connections(1)
        if state != "unread":
            assert idle.closed
        live.wait_for_connections(0)
    assert log_lines[-1] == "connection from /127.0.0.1 closed: no traffic for 300 ms"


def test_an_active_connection_is_not_idle(serve: Any) -> None:
    """The test does not wait: it moves the time of the connection's last byte into the past."""
    live: LiveServer = serve({"connections.max.idle.ms": "60000"})

    def pass_s(seconds: float) -> bool:
        """Moves the time of the last byte back. Returns True if the connection is still open after its next check."""
        (connection,) = live.server.connections
        connection._last_byte_s -= seconds
        connection._watch_idle()
        return not connection._closing

    with live.raw() as raw:
        for number in range(1, 6):
            raw.send(raw.request(BEAT, 4))
            assert raw.receive(BEAT, 4)[0] == number
            assert live.call(lambda: pass_s(50))
        assert not live.call(lambda: pass_s(50))
        assert raw.closed


# ---- incomplete frames


def data_bytes(pid: int) -> int:
    """Returns the size of the private memory that a process has allocated, used or not."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmData:")[1].split()[0]) * 1024


def test_an_announced_frame_takes_no_memory_before_it_arrives() -> None:
    """A hundred clients announce 95 MB each and send two bytes. The announced 9.5 GB must not be allocated."""
    with ServerProcess() as server, ExitStack() as stack:

        def announce(count: int) -> None:
            for _ in range(count):
                raw = stack.enter_context(Raw(server.port))
                raw.send(raw.request(BEAT, 4) + struct.pack(">i", 95 << 20) + b"\0\1")
                assert raw.receive(BEAT, 4)[1].error_code == 25

        announce(10)
        before_bytes = data_bytes(server.pid)
        announce(100)
        assert data_bytes(server.pid) - before_bytes < 100 << 20


# ---- queued.max.request.bytes


def large(raw: Raw, size: int) -> bytes:
    """Makes a request of `size` bytes that is refused with an error code: a batch for a missing topic."""
    return raw.request(produce("nowhere", bytes(size)), 9)


def test_requests_of_all_connections_together_are_bounded(serve: Any) -> None:
    """Two clients send only the beginning of large requests, which reaches the memory limit. The server does not read
    requests of other connections until one of the two requests is served.
    """
    live: LiveServer = serve({"queued.max.request.bytes": "150000"})
    with live.raw() as first, live.raw() as second, live.raw() as third:
        begun = large(first, 100_000)
        first.send(begun[:10])
        wait_until(lambda: live.call(lambda: live.server.memory.held_bytes) > 100_000, "the first frame begins")
        two = large(second, 100_000)
        second.send(two[:10])
        wait_until(lambda: live.call(lambda: live.server.memory._full), "the limit is reached")
        third.send(third.request(BEAT, 4))
        third.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            third.frame()
        third.socket.settimeout(20)
        first.send(begun[10:])
        assert first.receive(produce("", b""), 9)[1].responses[0].partition_responses[0].error_code
        assert third.receive(BEAT, 4)[1].error_code == 25, "there is space again, so the request is read"
        second.send(two[10:])
        assert second.receive(produce("", b""), 9)[0] == 1
        wait_until(lambda: live.call(lambda: live.server.memory.held_bytes) == 0, "everything is given back")


def test_a_closed_connection_releases_its_memory(serve: Any) -> None:
    live: LiveServer = serve({"queued.max.request.bytes": "1000"})
    with live.connect() as other:
        with live.raw() as hoarder:
            hoarder.send(large(hoarder, 5_000)[:100])
            wait_until(lambda: live.call(lambda: live.server.memory._full), "the limit is reached")
            with pytest.raises((ConnectionClosedError, TimeoutError)), live.connect(timeout_s=0.2) as kept_waiting:
                kept_waiting.send(BEAT)
        assert other.send(BEAT).error_code == 25


def test_many_connections_share_a_small_memory_and_all_are_served(serve: Any) -> None:
    live: LiveServer = serve({"queued.max.request.bytes": "50000"})
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with live.raw() as raw:
                for _ in range(10):
                    raw.send(large(raw, 30_000))
                    raw.receive(produce("", b""), 9)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    wait_until(lambda: live.call(lambda: live.server.memory.held_bytes) == 0, "everything is given back")


def test_an_error_message_that_repeats_a_long_name_is_truncated(serve: Any) -> None:
    """A message with the longest possible name does not fit into a string field. The response is sent nevertheless."""
    live: LiveServer = serve({})
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        server_assignor="x" * 32_767,
        topic_partitions=[],
    )
    with live.connect() as connection:
        response = connection.send(beat)
        assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
        assert 0 < len(response.error_message) <= 1_000


def test_single_addresses_have_their_own_limit(serve: Any) -> None:
    """`max.connections.per.ip.overrides` applies at once. All other addresses keep `max.connections.per.ip`."""
    live: LiveServer = serve({"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.2:2"})
    with live.raw(), Raw(live.port, source="127.0.0.2"), Raw(live.port, source="127.0.0.2") as second:
        live.wait_for_connections(3)
        for source in ("127.0.0.1", "127.0.0.2"):
            with Raw(live.port, source=source) as more:
                assert more.closed
        live.call(lambda: live.config.set("max.connections.per.ip.overrides", "127.0.0.1:2", "test"))
        with live.raw() as more:
            more.send(more.request(BEAT, 4))
            assert more.receive(BEAT, 4)[1].error_code == 25
        with Raw(live.port, source="127.0.0.2") as more:
            assert more.closed
        second.send(second.request(BEAT, 4))
        assert second.receive(BEAT, 4)[1].error_code == 25, "open connections stay"


def test_connections_beyond_the_rate_of_the_server_wait(serve: Any) -> None:
    """`max.connection.creation.rate` limits the connections per second. As in Kafka, the server first accepts as many
    as the rate allows in ten seconds. Then each connection waits, for at most a second.
    """
    live: LiveServer = serve({"max.connection.creation.rate": "1"})
    quota = live.server.quota
    pauses = live.call(lambda: [quota.creation_pause_ms(1_000) for _ in range(12)])
    assert pauses == [0] * 10 + [1_000, 1_000]
    assert live.call(lambda: quota.creation_pause_ms(100_000)) == 0
    live.call(lambda: live.config.set("max.connection.creation.rate", str(2**31 - 1), "test"))
    assert live.call(lambda: quota.creation_pause_ms(100_000)) == 0
    live.call(lambda: live.config.set("max.connection.creation.rate", "0", "test"))
    with live.raw() as first, live.raw() as second:
        for raw in (first, second):
            raw.send(raw.request(BEAT, 4))
            assert raw.receive(BEAT, 4)[1].error_code == 25, "the connection waits and is not refused"


def test_connections_beyond_the_quota_of_their_address_are_closed_unread(serve: Any) -> None:
    """An address exceeds its quota `connection_creation_rate`. Its next connection is closed without a response, and
    counts neither for the limits of connections nor for the server's own rate.

    Other addresses are not affected.
    """
    live: LiveServer = serve({"max.connection.creation.rate": "1000"})

    def set_quota(rate: float) -> None:
        live.server.engine.topics.image.put_quota((("ip", "127.0.0.1"),), CONNECTION_CREATION_RATE, rate)

    live.call(lambda: set_quota(0.1))
    with live.raw() as first:
        first.send(first.request(BEAT, 4))
        assert first.receive(BEAT, 4)[1].error_code == 25
        with live.raw() as second:
            second.send(second.request(BEAT, 4))
            assert second.closed
        assert live.call(lambda: (live.server.quota.total, live.server.accepted_connections)) == (1, 1)
        assert live.call(lambda: sum(sample[2] for sample in live.server.quota._rate._samples)) == 1
        with Raw(live.port, source="127.0.0.2") as other:
            other.send(other.request(BEAT, 4))
            assert other.receive(BEAT, 4)[1].error_code == 25
        live.call(lambda: set_quota(1_000))
        with live.raw() as third:
            third.send(third.request(BEAT, 4))
            assert third.receive(BEAT, 4)[1].error_code == 25
