"""A worker of a share group closes soon, even if a broker does not respond to a request of its share session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kcore
from kcore.errors import ConnectionClosedError
from kcore.node._async import queue as async_queue
from kcore.node._sync import queue as sync_queue
from kcore.protocol.api_keys import ApiKey
from kcore.testing import Broker
from tests.recording_proxy import RecordingProxy

SILENCE_S = 600.0
"""The time limit of a response. A close that waits for the response takes at least as long."""
LIMIT_S = 60.0


class SilentProxy(RecordingProxy):
    """A proxy that does not pass on the responses of one API once `api` is set.

    Attributes:
        api: the API; None: the proxy passes on all responses.
        silent: set once the proxy has held a response back.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, on_response=self._hold)
        self.api: ApiKey | None = None
        self.silent = threading.Event()
        self._ended = threading.Event()

    def _hold(self, api: ApiKey, response: Any) -> None:
        if api == self.api:
            self.silent.set()
            self._ended.wait(SILENCE_S)

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        super().__exit__(*error)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentProxy]:
    for module in (async_queue, sync_queue):
        monkeypatch.setattr(module, "EXCHANGE_WAIT_MS", 100)
    with Broker(topics={"t": 1}) as broker, SilentProxy(broker.bootstrap) as proxy:
        broker.node.group("g").set_config({"share.auto.offset.reset": "earliest"})
        broker.node.topics["t"].append_many(["a", "b"])
        yield proxy


def outcome(call: Callable[[], object], ended: list[object]) -> None:
    """Appends the result or the error of a call to `ended`."""
    try:
        ended.append(call())
    except Exception as error:
        ended.append(error)


@pytest.mark.parametrize("api", [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE])
def test_a_queue_closes_although_a_broker_does_not_respond(proxy: SilentProxy, api: ApiKey) -> None:
    """The session's other request fails at the close, and the broker releases the job for the next worker."""
    with kcore.connect(proxy.bootstrap, timeout=SILENCE_S) as node:
        queue = node.queue("t", group="g", auto_accept=False)
        job = queue.get(LIMIT_S)
        assert job is not None
        proxy.api = api
        ended: list[object] = []
        call = queue.get if api == ApiKey.SHARE_FETCH else job.accept
        caller = threading.Thread(target=outcome, args=(call, ended))
        caller.start()
        assert proxy.silent.wait(LIMIT_S)
        closer = threading.Thread(target=queue.close, daemon=True)
        closer.start()
        closer.join(LIMIT_S)
        assert not closer.is_alive()
        caller.join(LIMIT_S)
        assert [type(each) for each in ended] == [type(None) if api == ApiKey.SHARE_FETCH else ConnectionClosedError]
        proxy.api = None
        released = {(b"a", 2), (b"b", 2)} if api == ApiKey.SHARE_FETCH else {(b"b", 1)}
        with node.queue("t", group="g") as following:
            delivered = [following.get(LIMIT_S) for _ in released]
        assert {(each.value, each.delivery_count) for each in delivered if each is not None} == released


def test_a_queue_closes_although_its_coordinator_does_not_respond(
    proxy: SilentProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close waits for the leave only for `LEAVE_TIMEOUT_S`, because no acceptance depends on it."""
    monkeypatch.setattr(sync_queue, "CLOSE_TIMEOUT_S", SILENCE_S)
    monkeypatch.setattr(sync_queue, "LEAVE_TIMEOUT_S", 0.1)
    with kcore.connect(proxy.bootstrap, timeout=SILENCE_S) as node:
        queue = node.queue("t", group="g")
        assert queue.get(LIMIT_S) is not None
        proxy.api = ApiKey.SHARE_GROUP_HEARTBEAT
        closer = threading.Thread(target=queue.close, daemon=True)
        closer.start()
        closer.join(LIMIT_S)
        assert not closer.is_alive()


async def test_a_queue_on_an_event_loop_closes_although_a_broker_does_not_respond(proxy: SilentProxy) -> None:
    async with kcore.connect_async(proxy.bootstrap, timeout=SILENCE_S) as node:
        queue = node.queue("t", group="g", auto_accept=False)
        assert await queue.get(LIMIT_S) is not None
        proxy.api = ApiKey.SHARE_FETCH
        waiting = asyncio.ensure_future(queue.get())
        assert await asyncio.to_thread(proxy.silent.wait, LIMIT_S)
        async with asyncio.timeout(LIMIT_S):
            await queue.close()
            assert await waiting is None
