"""Many simultaneous connections, and the stop of a server that has many connections."""

from __future__ import annotations

import asyncio
import struct
import threading
from typing import Any

from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.offset_commit import OffsetCommitRequest
from tests.kit import commit, committed, create, fetch, wait_until
from tests.server.live import LiveServer, Raw

BEAT = HeartbeatRequest(group_id="g", member_id="m")


def test_two_hundred_connections_are_served_concurrently(live: LiveServer) -> None:
    with live.connect() as other:
        other.send(create("t"))
        crowd = [live.raw() for _ in range(200)]
        live.wait_for_connections(201)
        for number, raw in enumerate(crowd):
            raw.send(b"".join(raw.request(commit(f"g{number}", {("t", 0): n}), 8) for n in range(10)))
        for raw in crowd:
            for n in range(10):
                correlation_id, response = raw.receive(OffsetCommitRequest(), 8)
                assert (correlation_id, response.topics[0].partitions[0].error_code) == (n + 1, 0)
        rounds = live.call(lambda: live.engine.pipeline.rounds)
        assert rounds < 2_000, "commits of one turn share a round"
        assert all(committed(other, f"g{number}") == {("t", 0): 9} for number in range(200))
        for raw in crowd:
            raw.socket.close()
        live.wait_for_connections(1)


def test_a_stop_sends_complete_responses_and_waits_for_no_client(serve: Any) -> None:
    """Clients that never read, that have a parked request, or that have sent half a frame do not delay the stop."""
    live: LiveServer = serve({"kcore.connection.buffer.bytes": "2000"})
    with live.connect() as other:
        other.send(create("t"))
    parked, half, silent, unread = (live.raw() for _ in range(4))
    parked.send(parked.request(fetch("t", wait_ms=600_000), 12))
    half.send(struct.pack(">i", 100) + b"half")
    many = b"".join(unread.request(commit("g", {("t", 0): n}), 8) for n in range(20_000))
    threading.Thread(target=unread.try_send, args=(many,), daemon=True).start()
    live.wait_for_connections(4)
    wait_until(lambda: live.call(lambda: len(live.engine.purgatory)), "the poll is parked")
    asyncio.run_coroutine_threadsafe(live.server.stop(), live.loop).result(60)
    assert live.connections == 0
    for raw in (parked, half, silent):
        assert raw.closed
        raw.socket.close()
    unread.socket.close()


def test_decisions_before_a_stop_are_committed_and_get_their_responses(live: LiveServer) -> None:
    with live.connect() as other:
        other.send(create("t"))
    raw: Raw = live.raw()
    live.wait_for_connections(1)

    def decide_and_stop() -> Any:
        """Receives requests and stops the server before their commit, in one turn of the loop."""
        (connection,) = live.server.connections
        connection.data_received(b"".join(raw.request(commit("g", {("t", 0): n}), 8) for n in range(3)))
        return asyncio.ensure_future(live.server.stop())

    stopping = live.call(decide_and_stop)
    codes = [raw.receive(OffsetCommitRequest(), 8)[1].topics[0].partitions[0].error_code for _ in range(3)]
    assert codes == [0, 0, 0]
    assert raw.closed
    raw.socket.close()
    live.wait_for(stopping)
