"""Closed connections are freed by reference counts, because a server with many objects runs no full garbage
collections.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kcore.protocol.messages.heartbeat import HeartbeatRequest
from tests.kit import wait_until
from tests.server.half_open import Tls
from tests.server.live import LiveServer, Raw

CLIENTS = 30
BEAT = HeartbeatRequest(group_id="g", member_id="m")


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("serve", ["uvloop"], indirect=True)
def test_closed_connections_leave_no_cycles(serve: Callable[..., LiveServer], tmp_path: Path, secure: bool) -> None:
    """Closed connections with and without TLS leave no reference cycles. The test needs uvloop, because asyncio's own
    transports leave cycles.
    """
    tls = Tls(serve, tmp_path, {})

    def send_request() -> None:
        if secure:
            assert tls.served()
            return
        with Raw(tls.live.port) as raw:
            raw.send(raw.request(BEAT, 4))
            raw.receive(BEAT, 4)

    send_request()
    wait_until(lambda: not tls.live.connections, "the first connection has ended")
    gc.collect()
    gc.disable()
    try:
        for _ in range(CLIENTS):
            send_request()
        wait_until(lambda: not tls.live.connections, "all connections have ended")
        tls.live.call(lambda: None)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(thing).__name__ for thing in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert {name: count for name, count in left.items() if count >= CLIENTS} == {}
