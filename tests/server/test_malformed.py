"""An undecodable request closes its own connection and logs one line. Other connections are served."""

from __future__ import annotations

import re
import struct

import pytest

from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.server.connection import Connection
from tests.kit import batch, create, produce, read_all
from tests.server.live import LiveServer, Raw


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, correlation_id: int = 1, client: bytes | None = b"me") -> bytes:
    name = struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    return struct.pack(">hhi", key, version, correlation_id) + name


HEARTBEAT = header(12, 3) + b"\0\1g" + b"\0\0\0\1" + b"\0\1m" + b"\xff\xff"

CASES: dict[str, tuple[bytes, str]] = {
    "negative length": (struct.pack(">i", -1), r"a frame of -1 bytes; valid: 0 to 100000 bytes"),
    "oversized length": (struct.pack(">i", 100_001), r"a frame of 100001 bytes; valid: 0 to 100000 bytes"),
    "text of another protocol": (
        b"GET / HTTP/1.1\r\n\r\n",
        r"a frame of 1195725856 bytes; valid: 0 to 100000 bytes; the client may use HTTP$",
    ),
    "TLS hello": (
        bytes.fromhex("16030100a5010000a10303"),
        r"a frame of 369295616 bytes; valid: 0 to 100000 bytes; the client may use TLS, which this listener does not",
    ),
    "empty frame": (framed(b""), r"cannot decode"),
    "half a header": (framed(b"\0\x0c\0"), r"cannot decode"),
    "client id beyond the frame": (framed(struct.pack(">hhih", 12, 3, 1, 500) + b"me"), r"cannot decode"),
    "no tag section": (framed(header(12, 4)), r"cannot decode"),
    "no body": (framed(header(12, 3)), r"cannot decode"),
    "half a body": (framed(HEARTBEAT[:-5]), r"cannot decode"),
    "array larger than its frame": (framed(header(3, 1) + struct.pack(">i", 2**31 - 1)), r"cannot decode"),
    "null where none may be": (framed(header(12, 3) + b"\xff\xff" + b"\0\0\0\1" + b"\0\1m\xff\xff"), r"cannot decode"),
    "unknown key": (framed(header(9_999, 0)), r"9999|cannot decode"),
    "negative key": (framed(header(-1, 0)), r"-1|cannot decode"),
    "key of controllers": (framed(header(52, 0) + bytes(50)), r"API key 52|cannot decode"),
    "version too new": (framed(header(12, 99) + bytes(50)), r"API key 12, version 99, is not supported"),
    "version too old": (framed(header(11, -1) + bytes(50)), r"API key 11, version -1, is not supported"),
    "advertised for old clients only": (framed(header(0, 2) + bytes(50)), r"API key 0, version 2, is not supported"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_unreadable_request_closes_its_connection_only(
    name: str,
    serve,
    log_lines: list[str],  # type: ignore[no-untyped-def]
) -> None:
    live: LiveServer = serve({"socket.request.max.bytes": "100000"})
    data, why = CASES[name]
    with live.connect() as other, live.raw() as parked, live.raw() as bad:
        other.send(create("t"))
        first = bad.request(HeartbeatRequest(group_id="g", member_id="m"), 4)
        bad.send(first + data + bad.request(MetadataRequest(topics=None), 9))
        correlation_id, response = bad.receive(HeartbeatRequest(), 4)
        assert (correlation_id, response.error_code) == (1, 25), "the earlier request gets its response"
        assert bad.closed, "the bytes after it are lost"
        parked.send(parked.request(MetadataRequest(topics=None), 9))
        assert parked.receive(MetadataRequest(), 9)[0] == 1
        assert other.send(HeartbeatRequest(group_id="g", member_id="m")).error_code == 25
    assert len(log_lines) == 1, log_lines
    assert re.match(rf"connection from /127\.0\.0\.1 closed: .*(?:{why})", log_lines[0])


def test_the_line_about_a_closed_connection_has_its_listener(
    live: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    with live.raw() as raw:
        raw.send(b"GET / HTTP/1.1\r\n\r\n")
        assert raw.closed
    (record,) = [record for record in caplog.records if "closed" in record.getMessage()]
    assert record.fields["listener"] == "PLAINTEXT"  # type: ignore[attr-defined]


def test_an_api_versions_request_of_a_newer_version_gets_a_response_in_version_0(live: LiveServer) -> None:
    """A newer client thus learns the server's versions (KIP-511)."""
    with live.raw() as raw:
        raw.send(framed(header(18, 77) + bytes(10)))
        _, response = raw.receive(ApiVersionsRequest(), 0)
        assert (
            response.error_code,
            [(row.api_key, row.min_version, row.max_version) for row in response.api_keys],
        ) == (
            35,
            [(18, 0, 4)],
        )
        request = ApiVersionsRequest(client_software_name="me", client_software_version="1")
        raw.send(raw.request(request, 4))
        assert raw.receive(request, 4)[1].error_code == 0


def test_bytes_after_a_body_are_ignored(live: LiveServer) -> None:
    with live.raw() as raw:
        raw.send(framed(HEARTBEAT + b"and more") + framed(HEARTBEAT))
        assert [raw.receive(HeartbeatRequest(), 3)[1].error_code for _ in range(2)] == [25, 25]


@pytest.mark.parametrize("client", [None, b"", b"\xff\xfe not utf-8", b"x" * 32_767])
def test_client_ids_may_be_any_text(client: bytes | None, live: LiveServer) -> None:
    with live.raw() as raw:
        body = HEARTBEAT[len(header(12, 3)) :]
        raw.send(framed(header(12, 3, -5, client) + body))
        assert raw.receive(HeartbeatRequest(), 3)[0] == -5


def test_client_ids_that_change_with_every_request_are_not_cached(live: LiveServer) -> None:
    body = HEARTBEAT[len(header(12, 3)) :]
    with live.raw() as raw:
        for n, limit in ((257, 0), (0, 64 + 32)):  # long responses are not cached, and only a few short ones are
            for number in range(300):
                raw.send(framed(header(12, 3, number, b"%d" % number + b"y" * n) + body))
                raw.receive(HeartbeatRequest(), 3)
            (found,) = live.call(lambda: [connection._queue.cache_size for connection in live.server.connections])
            assert found <= limit


CORRUPT = {
    "crc": lambda good: good[:20] + bytes([good[20] ^ 1]) + good[21:],
    "a record": lambda good: good[:-3] + bytes([good[-3] ^ 1]) + good[-2:],
    "count": lambda good: good[:57] + struct.pack(">i", 1_000_000) + good[61:],
    "length": lambda good: good[:8] + struct.pack(">i", 2**31 - 1) + good[12:],
    "magic": lambda good: good[:16] + b"\x07" + good[17:],
    "cut": lambda good: good[:-1],
    "two": lambda good: good + good,
    "nothing": lambda good: b"",
    "noise": lambda good: bytes(range(256)) * 3,
}


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_batches_are_refused_and_not_stored(name: str, live: LiveServer) -> None:
    good = batch([b"value-%d" % n for n in range(5)])
    with live.connect() as connection:
        connection.send(create("t"))
        response = connection.send(produce("t", CORRUPT[name](good)), 9)
        (partition,) = response.responses[0].partition_responses
        assert partition.error_code != 0
        assert read_all(connection, "t") == []
        assert connection.send(produce("t", good), 9).responses[0].partition_responses[0].base_offset == 0
        assert [value for _, value in read_all(connection, "t")] == [b"value-%d" % n for n in range(5)]


def test_silent_clients_and_partial_frames_delay_no_other_client(live: LiveServer) -> None:
    with live.raw() as silent, live.raw() as half, live.connect() as other:
        whole = half.request(HeartbeatRequest(group_id="g", member_id="m"), 4)
        half.send(whole[:7])
        assert other.send(HeartbeatRequest(group_id="g", member_id="m")).error_code == 25
        for byte in whole[7:]:
            half.send(bytes([byte]))
        assert half.receive(HeartbeatRequest(), 4)[1].error_code == 25
        silent.send(silent.request(HeartbeatRequest(group_id="g", member_id="m"), 4))
        assert silent.receive(HeartbeatRequest(), 4)[1].error_code == 25


def test_a_connection_lost_in_the_middle_of_a_frame_leaves_no_state(live: LiveServer) -> None:
    for cut in (0, 3, 7, 11):
        raw: Raw = live.raw()
        raw.send(raw.request(HeartbeatRequest(group_id="g", member_id="m"), 4)[:cut])
        raw.reset()
    live.wait_for_connections(0, came=4)
    assert live.call(lambda: (live.server.quota.by_host, len(live.server.flushes))) == ({}, 0)


def test_a_response_that_is_lost_closes_the_connection(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no memory for the response, nor for an error response. On an open connection, the client would wait
    forever.
    """

    def no_memory(*_: object) -> None:
        raise MemoryError

    with live.connect() as other, live.raw() as raw:
        other.send(create("t"))
        raw.send(raw.request(produce("t", batch([b"v"])), 9))
        assert raw.receive(produce("t", b""), 9)[1].responses[0].partition_responses[0].error_code == 0
        entry = live.call(lambda: live.server.dispatch.routes[0])
        monkeypatch.setattr(entry, "count_errors", no_memory)
        monkeypatch.setattr(Connection, "response_failed", no_memory)
        raw.send(raw.request(produce("t", batch([b"w"])), 9))  # its response waits for the commit
        assert raw.frame() is None
        monkeypatch.undo()
        assert [value for _, value in read_all(other, "t")] == [b"v", b"w"]
