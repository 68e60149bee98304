"""Bounds of the bytes and array elements of a request, which limit the time and memory of its decoding."""

from __future__ import annotations

import codecs
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.pure import as_java
from kcore.server.frames import FrameError
from kcore_ext.codec.frames import encode_request
from kcore_ext.codec.plan import TooManyElementsError
from kcore_ext.server.request_queue import RequestQueue
from tests.kit import produce, wait_until
from tests.reference.request_queue import ReferenceRequestQueue
from tests.server.live import LiveServer, Raw
from tests.server.test_request_queue import Owner

SMALL = {"kcore.max.request.elements": "1000", "kcore.max.request.bytes": "65536", "message.max.bytes": "1024"}


def topics(count: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(count)])


def test_a_request_with_too_many_elements_is_refused_before_it_is_decided(serve: Any, log_lines: list[str]) -> None:
    live: LiveServer = serve(SMALL)
    with live.raw() as raw, live.raw() as other:
        request = topics(1_000)
        raw.send(raw.request(request, 8))
        assert len(raw.receive(request, 8)[1].topics) == 1_000
        raw.send(raw.request(topics(1_001), 8))
        assert raw.closed
        other.send(other.request(request, 8))
        assert len(other.receive(request, 8)[1].topics) == 1_000
    assert [line for line in log_lines if "closed" in line] == [
        "connection from /127.0.0.1 closed: a request has more than 1000 array elements (kcore.max.request.elements)"
    ]


def test_tagged_fields_count_as_elements(serve: Any) -> None:
    live: LiveServer = serve(SMALL)
    body = encode_request(MetadataRequest(topics=None), 9, 1, "raw")[4:]
    for count, closed in ((900, False), (1_100, True)):
        tags = bytes([count & 0x7F | 0x80, count >> 7]) + b"".join(
            bytes([number & 0x7F | 0x80, number >> 7, 0]) for number in range(10, 10 + count)
        )
        frame = body[:-1] + tags
        with live.raw() as raw:
            raw.send(struct.pack(">i", len(frame)) + frame)
            assert raw.closed is closed


def test_unfinished_requests_of_all_connections_together_are_bounded(serve: Any, log_lines: list[str]) -> None:
    """Unfinished requests exceed the memory limit. The server closes the oldest connection of the address with the most
    unfinished bytes. Other addresses are not affected.
    """
    live: LiveServer = serve({"kcore.max.request.memory.bytes": "200000"})
    held = live.server.unserved
    with (
        Raw(live.port, source="127.0.0.3") as other,
        Raw(live.port, source="127.0.0.2") as oldest,
        Raw(live.port, source="127.0.0.2") as newer,
    ):
        finished = other.request(produce("nowhere", bytes(60_000)), 9)
        unfinished = struct.pack(">ihhi", 10_000_000, ApiKey.PRODUCE, 9, 1) + bytes(90_000)
        other.send(finished[:50_000])
        wait_until(lambda: live.call(lambda: held.held_bytes) == 50_000, "the other address holds some bytes")
        oldest.send(unfinished)
        wait_until(lambda: live.call(lambda: held.held_bytes) == 140_012, "the first request has begun")
        newer.send(unfinished)
        assert oldest.closed
        other.send(finished[50_000:])
        assert other.receive(produce("", b""), 9)[1].responses[0].partition_responses[0].error_code
        wait_until(lambda: live.call(lambda: (held.held_bytes, held.closed_connections)) == (90_012, 1), "the rest")
    wait_until(lambda: live.call(lambda: held.held_bytes) == 0, "closed connections hold nothing")
    assert [line for line in log_lines if "closed" in line] == [
        "connection from /127.0.0.2 closed: the unfinished requests of all clients exceed "
        "kcore.max.request.memory.bytes, and this address has the largest part"
    ]


def test_a_long_request_is_refused_when_more_than_the_limit_has_arrived(serve: Any, log_lines: list[str]) -> None:
    """As in Kafka, the server waits until more bytes than the limit have arrived. Only Produce requests may be longer,
    up to socket.request.max.bytes.
    """
    live: LiveServer = serve(SMALL)
    for key in (ApiKey.METADATA, ApiKey.JOIN_GROUP, 999):
        with live.raw() as raw:
            raw.send(struct.pack(">ihhi", 70_000, key, 0, 1) + bytes(65_536 - 8))
            if key != 999:
                live.wait_for_connections(1)
                raw.send(b"\0")
            assert raw.closed
    with live.raw() as raw:
        raw.send(struct.pack(">ihhi", 104_857_600, ApiKey.PRODUCE, 9, 1))
        live.wait_for_connections(1)
    assert [line for line in log_lines if "closed" in line] == [
        "connection from /127.0.0.1 closed: a request of 70000 bytes with API key 3; the maximum is 65536 bytes "
        "(kcore.max.request.bytes)",
        "connection from /127.0.0.1 closed: a request of 70000 bytes with API key 11; the maximum is 65536 bytes "
        "(kcore.max.request.bytes)",
        "connection from /127.0.0.1 closed: a frame of 70000 bytes with API key 999, which is not served",
    ]


@pytest.mark.parametrize("make", [RequestQueue, ReferenceRequestQueue])
def test_both_queues_refuse_the_same_frames(make: Any) -> None:
    class Large(Owner):
        def __init__(self) -> None:
            super().__init__(lambda *arguments, **options: make(*arguments, **options | {"max_frame_bytes": 1 << 30}))

    for size, key, refused in (
        (65_536, ApiKey.HEARTBEAT, False),
        (1 << 29, ApiKey.HEARTBEAT, False),
        (65_537, 200, True),
    ):
        owner = Large()
        for byte in struct.pack(">ih", size, key):
            owner.queue.feed(bytes([byte]))
        if refused:
            with pytest.raises(FrameError, match="is not served"):
                owner.queue.serve()
        else:
            assert owner.queue.serve() is False


def test_an_entry_decodes_up_to_its_limit() -> None:
    route = Owner(RequestQueue).served[0]
    frame = HeartbeatRequest(group_id="g").encode(4)
    assert route.decode(frame, 4, 0) == HeartbeatRequest(group_id="g")
    limited = type(route)(route.api, max_request_elements=0)
    assert limited.decode(frame, 4, 0) == HeartbeatRequest(group_id="g")
    with pytest.raises(TooManyElementsError):
        limited.decode(frame[:-1] + b"\x01\x0a\x00", 4, 0)


@pytest.fixture
def no_handler() -> Iterator[None]:
    """Replaces the error handler for invalid UTF-8 by a function that fails the test. The handler, which is written in
    Python, would take a microsecond for each byte.
    """

    def fail(error: Exception) -> tuple[str, int]:
        raise AssertionError("the handler was called")

    codecs.register_error("kcore.java", fail)
    yield
    codecs.register_error("kcore.java", as_java)


def test_invalid_utf8_is_decoded_as_java_does_without_calls_into_python(no_handler: None) -> None:
    codecs.register_error("tests.java", as_java)
    chance = random.Random(5)
    pieces = [b"\x41", b"\xed", b"\xa0", b"\x80", b"\xb0", b"\xbf", b"\x9f", b"\xe1", b"\xc3", b"\xf0\x90", b"\xef\xbf"]
    for _ in range(5_000):
        raw = b"".join(chance.choices(pieces, k=chance.randrange(1, 14))) * chance.choice([1, 1, 1, 12])
        data = struct.pack(">h", len(raw)) + raw + b"\0\0\0\1\0\0"
        assert HeartbeatRequest.decode(data, 0).group_id == raw.decode("utf-8", "tests.java"), raw
