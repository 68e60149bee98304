"""Responses have the order of the requests; a parked request delays later ones of its own connection only."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from typing import Any

import pytest

from kcore.log import FailureReason, MemoryLogEngine
from kcore.log.faults import FaultInjectingEngine
from kcore.protocol import EncodeError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import FetchRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.offset_commit import OffsetCommitRequest
from kcore.protocol.messages.produce import ProduceRequest
from kcore.server.connection import Connection
from kcore_ext.server.connection import READ_AHEAD_BYTES
from tests.kit import batch, commit, committed, create, fetch, heartbeat, produce, read_all, wait_until
from tests.server.live import LiveServer

BEAT = HeartbeatRequest(group_id="g", member_id="m")


def test_thousands_of_pipelined_requests_get_responses_in_order(live: LiveServer) -> None:
    """The client reads only after it has sent all requests. Commits, which wait for the disk, alternate with
    heartbeats.
    """
    with live.connect() as other, live.raw() as raw:
        other.send(create("t"))
        requests: list[tuple[Any, int]] = [
            (commit(f"g{n % 7}", {("t", 0): n}), 8) if n % 3 == 0 else (BEAT, 4) for n in range(4_000)
        ]
        data = b"".join(raw.request(*request) for request in requests)
        sender = threading.Thread(target=raw.send, args=(data,))
        sender.start()
        for number, request in enumerate(requests, 1):
            correlation_id, response = raw.receive(*request)
            assert correlation_id == number
            code = response.topics[0].partitions[0].error_code if isinstance(request[0], OffsetCommitRequest) else 0
            assert code == 0
        sender.join()
        for group in range(7):
            newest = max(n for n in range(0, 4_000, 3) if n % 7 == group)
            assert committed(other, f"g{group}") == {("t", 0): newest}


def test_a_parked_request_delays_later_ones_of_its_connection_only(live: LiveServer) -> None:
    with live.connect() as other, live.raw() as raw:
        other.send(create("t"))
        poll = fetch("t", wait_ms=600_000)
        raw.send(raw.request(BEAT, 4) + raw.request(poll, 12) + raw.request(produce("t", batch([b"mine"])), 9))
        raw.send(raw.request(BEAT, 4))
        assert raw.receive(BEAT, 4)[0] == 1
        for _ in range(20):
            other.send(BEAT)
        assert read_all(other, "t") == [], "the Produce request after the poll was not served"
        other.send(produce("t", batch([b"theirs"])), 9)
        assert raw.receive(poll, 12)[0] == 2
        assert raw.receive(ProduceRequest(), 9)[0] == 3
        assert raw.receive(BEAT, 4)[0] == 4
        assert read_all(other, "t") == [(0, b"theirs"), (1, b"mine")]


def test_reading_stops_after_a_parked_request(live: LiveServer) -> None:
    """After a parked request, the server reads at most once more from the connection. The remaining bytes stay in the
    socket buffers.
    """
    with live.connect() as other, live.raw() as raw:
        other.send(create("t"))
        raw.send(raw.request(fetch("t", wait_ms=600_000), 12))
        live.wait_for_connections(2)
        raw.socket.setblocking(False)
        beat, sent = raw.request(BEAT, 4) * 1_000, 0
        try:
            while sent < 1 << 27:
                sent += raw.socket.send(beat)
        except BlockingIOError:
            pass
        assert sent < 1 << 27, "the server took 128 MiB after a parked request"
        for _ in range(5):
            other.send(BEAT)
        buffered = live.call(lambda: max(len(connection._queue) for connection in live.server.connections))
        assert 0 < buffered <= READ_AHEAD_BYTES + (1 << 18)


def test_a_client_that_ends_its_sending_side_gets_all_responses(live: LiveServer) -> None:
    with live.connect() as other, live.raw() as raw:
        other.send(create("t"))
        last = raw.request(commit("g", {("t", 0): 9}), 8)
        requests = [raw.request(BEAT, 4) for _ in range(50)] + [last]
        raw.send(b"".join(requests) + b"\0\0\0\x20half a frame")
        raw.socket.shutdown(socket.SHUT_WR)
        ids = [struct.unpack(">i", frame[:4])[0] for frame in raw.frames()]
        assert ids == [*range(2, 52), 1]
        assert committed(other, "g") == {("t", 0): 9}


def test_a_client_that_ends_its_sending_side_after_a_poll_gets_its_response(live: LiveServer) -> None:
    with live.connect() as other, live.raw() as raw:
        other.send(create("t"))
        raw.send(raw.request(fetch("t", wait_ms=200), 12) + raw.request(BEAT, 4))
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.receive(FetchRequest(), 12)[0] == 1
        assert raw.receive(BEAT, 4)[0] == 2
        assert raw.closed


def test_requests_are_executed_even_if_the_client_disconnects(live: LiveServer) -> None:
    with live.connect() as other:
        other.send(create("t"))
        for n in range(20):
            with live.raw() as raw:
                raw.send(raw.request(commit("g", {("t", 0): n}), 8))
        live.wait_for_connections(1, came=21)
        assert committed(other, "g")[("t", 0)] in range(20)


def test_a_poll_of_a_broken_connection_is_dropped(live: LiveServer) -> None:
    with live.connect() as other:
        other.send(create("t"))
        raw = live.raw()
        raw.send(raw.request(fetch("t", wait_ms=600_000), 12))
        wait_until(lambda: live.call(lambda: len(live.engine.purgatory)), "the poll is parked")
        raw.reset()
        live.wait_for_connections(1)
        assert live.call(lambda: len(live.engine.purgatory)) == 0


# ---- Produce and its acks


def test_produce_without_acks_has_no_response(live: LiveServer) -> None:
    """The next response on the wire belongs to the next request."""
    with live.connect() as other, live.raw() as raw:
        other.send(create("t"))
        silent = [raw.request(produce("t", batch([b"%d" % n]), acks=0), 9) for n in range(3)]
        raw.send(b"".join(silent) + raw.request(BEAT, 4) + raw.request(produce("t", batch([b"3"])), 9))
        assert raw.receive(BEAT, 4)[0] == 4
        correlation_id, response = raw.receive(ProduceRequest(), 9)
        assert (correlation_id, response.responses[0].partition_responses[0].base_offset) == (5, 3)
        assert [value for _, value in read_all(other, "t")] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("acks", [1, -1])
def test_produce_with_acks_gets_its_response_when_it_is_durable(acks: int, live: LiveServer) -> None:
    with live.connect() as other:
        other.send(create("t"))
        response = other.send(produce("t", batch([b"v"]), acks=acks), 9).responses[0].partition_responses[0]
        assert (response.error_code, response.base_offset) == (0, 0)
        assert read_all(other, "t") == [(0, b"v")]


def test_a_failing_produce_without_acks_closes_the_connection(live: LiveServer, log_lines: list[str]) -> None:
    """Since there is no response, only the closed connection signals the error: the client reconnects and requests the
    metadata again.
    """
    with live.connect() as other, live.raw() as raw:
        raw.send(raw.request(BEAT, 4) + raw.request(produce("nowhere", batch([b"v"]), acks=0), 9))
        raw.send(raw.request(BEAT, 4))
        assert raw.receive(BEAT, 4)[0] == 1
        assert raw.closed
        assert other.send(BEAT).error_code == 25
    assert [line for line in log_lines if "closed" in line] == [
        "connection from /127.0.0.1 closed: a Produce request with acks=0 failed"
    ]


# ---- failing responses


def test_a_failed_commit_gives_all_responses_in_order(serve) -> None:  # type: ignore[no-untyped-def]
    log = FaultInjectingEngine(MemoryLogEngine())
    live: LiveServer = serve(log=log)
    with live.connect() as other, live.raw() as raw:
        other.send(create("t"))
        live.call(lambda: log.fail_commit(1, FailureReason.DISK_FULL))
        raw.send(b"".join(raw.request(commit("g", {("t", 0): n}), 8) for n in range(3)) + raw.request(BEAT, 4))
        codes = [raw.receive(OffsetCommitRequest(), 8)[1].topics[0].partitions[0].error_code for _ in range(3)]
        assert codes == [16, 16, 16], "NOT_COORDINATOR: clients look up the coordinator again, and retry"
        assert raw.receive(BEAT, 4)[0] == 4
        assert other.send(commit("g", {("t", 0): 7}), 8).topics[0].partitions[0].error_code in (0, 14)


def test_the_response_to_a_change_on_a_full_disk_has_the_cause(serve) -> None:  # type: ignore[no-untyped-def]
    """NOT_CONTROLLER lets clients try again, but does not tell an operator what to do. Other failures have no text,
    because clients can only try again.
    """
    log = FaultInjectingEngine(MemoryLogEngine())
    live: LiveServer = serve(log=log)
    with live.connect() as client:
        results = []
        for reason in (FailureReason.DISK_FULL, FailureReason.IO_ERROR):
            live.call(lambda reason=reason: log.fail_commit(1, reason))
            (topic,) = client.send(create("t"), 7).topics
            results.append((topic.error_code, topic.error_message))
        (topic,) = client.send(create("t"), 7).topics
    full = "the server cannot write the change, because its disk is full"
    assert results == [(41, full), (41, ErrorCode.NOT_CONTROLLER.message)]


@pytest.mark.parametrize("later", [False, True])
def test_a_response_that_cannot_be_encoded_closes_its_connection(
    later: bool, live: LiveServer, log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response cannot be encoded, so the server closes its connection. Earlier responses on this connection are still
    sent, and other connections are not affected.
    """

    def fail(response: Any, counts: Any) -> None:
        if not later or next(turns) == 2:
            raise EncodeError("name", "the test wants it")

    turns = itertools.count(1)
    with live.connect() as other, live.raw() as raw:
        other.send(create("t", partitions=2))
        monkeypatch.setattr(live.server.dispatch.route(8 if later else 3), "count_errors", fail)
        front = raw.request(commit("g", {("t", 0): 1}), 8)
        # Another partition: a response from the cache is neither checked nor encoded again.
        bad = raw.request(commit("g", {("t", 1): 2}), 8) if later else raw.request(MetadataRequest(topics=None), 9)
        behind = raw.request(commit("g", {("t", 0): 3}), 8)
        raw.send(front + bad + behind)
        assert raw.receive(OffsetCommitRequest(), 8)[0] == 1
        assert raw.closed
        assert other.send(heartbeat("g", "m", 1)).error_code == 25
    assert any("closed: " in line for line in log_lines)


def test_a_bug_in_an_api_is_an_error_code_and_the_connection_stays_open(live: LiveServer) -> None:
    def broken(context: Any, request: Any) -> Any:
        raise RuntimeError("a bug")

    with live.connect() as connection:
        route = live.server.dispatch.route(12)
        assert route is not None
        real = route.handle
        live.call(lambda: setattr(route, "handle", broken))
        assert connection.send(BEAT).error_code == -1
        live.call(lambda: setattr(route, "handle", real))
        assert connection.send(BEAT).error_code == 25


def test_a_bug_outside_of_apis_closes_one_connection(
    live: LiveServer, log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with live.connect() as other, live.raw() as raw:
        other.send(create("t"))
        assert other.send(BEAT).error_code == 25
        monkeypatch.setattr(Connection, "make_context", lambda *arguments: 1 / 0)
        raw.send(raw.request(BEAT, 4))
        assert raw.closed
        assert other.send(BEAT).error_code == 25
    assert any(line.endswith("closed: internal server error") for line in log_lines)
