"""The cost of measuring the time of requests, which happens only while a scraper reads metrics.

A row is 64 heartbeats in the request queue of a connection: cutting frames, look-ups, decisions, and copies of the
responses.
"""

from __future__ import annotations

from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.test_groups import GROUP, Storm
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.runtime import RequestContext
from kcore.server.dispatch import Served
from kcore.server.frames import FrameError
from kcore_ext.codec.frames import encode_request
from kcore_ext.server.request_queue import RequestQueue

HEARTBEATS = 64


class Owner:
    """The connection object that a request queue needs. It has no error methods, because no request fails."""

    def make_context(self, version: int, client_id: str) -> RequestContext:
        return RequestContext(version, client_id, "/10.0.0.1")


@pytest.mark.parametrize("which", ["not measured", "measured"])
def test_heartbeats_in_the_queue(benchmark: BenchmarkFixture, which: str) -> None:
    """Measures heartbeats of one member that arrive together, as from a client with many outstanding requests."""
    storm = Storm(1)
    storm.prepare()
    storm.run()
    (member_id,) = storm.group.members
    request = HeartbeatRequest(group_id=GROUP, generation_id=storm.group.generation_id, member_id=member_id)
    frames = b"".join(encode_request(request, 4, number, "consumer-1") for number in range(HEARTBEATS))
    entry = Served(storm.heartbeat)
    routes: list[Any] = [None] * 48
    routes[entry.key] = entry
    owner: Any = Owner()
    queue = RequestQueue(owner, routes, frame_error=FrameError, max_frame_bytes=1 << 20, buffer_bytes=1 << 20)
    if which == "measured":
        entry.times = entry.all_times

    def heartbeats() -> bytes | None:
        queue.feed(frames)
        queue.serve()
        return queue.take()

    responses = benchmark(heartbeats)
    assert responses is not None
    assert len(responses) % HEARTBEATS == 0
    assert entry.all_times.count == (entry.requests if which == "measured" else 0)
    benchmark.extra_info["operations"] = HEARTBEATS
