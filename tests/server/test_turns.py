"""Many requests of one connection are served in several turns of the event loop, and all get responses."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.server import connection
from tests.server.live import LiveServer

REQUESTS = 2_000


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("ends", [False, True])
def test_pipelined_requests_get_responses_in_order(loop: str, ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order also holds if the client has closed its sending side while requests still wait for their turn."""
    monkeypatch.setattr(connection, "TURN_NS", 1)
    turns = 0
    go_on = connection.Connection._continue

    def counted(self: Any) -> None:
        nonlocal turns
        turns += 1
        go_on(self)

    monkeypatch.setattr(connection.Connection, "_continue", counted)
    request = FindCoordinatorRequest(coordinator_keys=[f"group-{number}" for number in range(20)], key_type=0)
    with LiveServer(loop=loop) as live, live.raw() as raw:
        raw.send(b"".join(raw.request(request, 4) for _ in range(REQUESTS)))
        if ends:
            raw.socket.shutdown(socket.SHUT_WR)
        answers = [raw.answer(request, 4) for _ in range(REQUESTS)]
    assert [correlation_id for correlation_id, _ in answers] == list(range(1, REQUESTS + 1))
    assert {len(response.coordinators) for _, response in answers} == {20}
    assert turns > 0
