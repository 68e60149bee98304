"""`connect(wait=...)` waits for a server that is not ready yet. `tests/security` tests errors that end this wait."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kcore
from kcore import errors
from kcore.client.aio.cluster import AsyncCluster
from kcore.errors import ErrorCode, KafkaError
from kcore.node._async import calls as async_calls
from kcore.node._sync import calls
from tests.tcp_proxy import Proxy


class Port:
    """A port at which no process listens.

    Attributes:
        socket: its socket.
        address: HOST:PORT.
        pauses: the lengths in seconds of the clients' pauses between attempts.
        in_first_pause: a function that the first pause calls.
    """

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.pauses: list[float] = []
        self.in_first_pause: Callable[[], object] = lambda: None

    def pause(self, seconds: float) -> None:
        """Replaces the pause of a client."""
        self.pauses.append(seconds)
        if len(self.pauses) == 1:
            self.in_first_pause()

    async def pause_async(self, seconds: float) -> None:
        """Replaces the pause of a client on an event loop."""
        self.pause(seconds)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[Port]:
    unused = Port()
    monkeypatch.setattr(calls, "sleep", unused.pause)
    monkeypatch.setattr(async_calls, "sleep", unused.pause_async)
    yield unused
    unused.socket.close()


@pytest.fixture
def late_server(port: Port, bootstrap: str) -> Iterator[Port]:
    """Returns the port of a server that begins to listen in the client's first pause."""
    proxy = Proxy(bootstrap, port.socket)

    def start() -> None:
        port.socket.listen()
        proxy.__enter__()

    port.in_first_pause = start
    yield port
    proxy.__exit__()


def test_connect_waits_until_the_server_listens(late_server: Port) -> None:
    with kcore.connect(late_server.address, wait=60.0) as node:
        assert node.cluster_id()
    assert len(late_server.pauses) == 1


async def test_connect_waits_on_an_event_loop(late_server: Port) -> None:
    async with kcore.connect_async(late_server.address, wait=60.0) as node:
        assert await node.cluster_id()
    assert len(late_server.pauses) == 1


def test_connect_waits_while_a_proxy_closes_connections(port: Port, bootstrap: str) -> None:
    """The proxy of a container accepts connections and closes them, because the server in the container does not listen
    yet. `connect` tries again until the server responds.
    """
    port.socket.listen()

    def refuse() -> None:
        for _ in range(2):
            port.socket.accept()[0].close()
        proxy.__enter__()

    proxy = Proxy(bootstrap, port.socket)
    threading.Thread(target=refuse, daemon=True).start()
    with kcore.connect(port.address, wait=60.0) as node:
        assert node.cluster_id()
    assert len(port.pauses) == 2
    proxy.__exit__()


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_connect_waits_for_a_cluster_that_loads(
    port: Port, served: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    codes = [code] * 3
    metadata = AsyncCluster.metadata

    async def loading(cluster: AsyncCluster, *arguments: Any) -> Any:
        if codes:
            raise KafkaError.of(codes.pop())
        return await metadata(cluster, *arguments)

    monkeypatch.setattr(AsyncCluster, "metadata", loading)
    with kcore.connect(served, wait=60.0) as node:
        assert node.cluster_id()
    assert len(port.pauses) == 3


def test_a_server_that_does_not_respond_is_skipped(port: Port, bootstrap: str) -> None:
    """The first address accepts connections but does not respond, like a stopped process. The second address serves."""
    port.socket.listen()
    with kcore.connect([port.address, bootstrap], timeout=5.0) as node:
        assert node.cluster_id()
    with pytest.raises(TimeoutError, match=f"^{port.address}: no response to ApiVersionsRequest within 0.1 s"):
        kcore.connect(port.address, timeout=0.1)
    assert port.pauses == []


def test_connect_without_wait_makes_one_attempt(port: Port) -> None:
    with pytest.raises(errors.ConnectionClosedError, match=f"^cannot connect to {port.address}: "):
        kcore.connect(port.address)
    assert port.pauses == []


async def test_the_error_after_the_wait_has_the_last_cause(port: Port) -> None:
    expected = (
        rf"^no broker was ready within 0.01 s; the last attempt failed: cannot connect to {port.address}: \[Errno "
    )
    with pytest.raises(errors.ConnectionClosedError, match=expected):
        kcore.connect(port.address, wait=0.01)
    with pytest.raises(errors.ConnectionClosedError, match=expected):
        await kcore.connect_async(port.address, wait=0.01)
    assert all(0 <= seconds <= 0.01 for seconds in port.pauses)


def test_an_error_that_stays_is_raised_at_once(port: Port, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any) -> Any:
        raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    monkeypatch.setattr(AsyncCluster, "metadata", refused)
    with pytest.raises(errors.ClusterAuthorizationFailedError):
        kcore.connect(served, wait=60.0)
    assert port.pauses == []


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupted_wait_closes_the_client(port: Port) -> None:
    port.in_first_pause = interrupt
    with pytest.raises(KeyboardInterrupt):
        kcore.connect(port.address, wait=60.0)
    assert "kcore-connections" not in [thread.name for thread in threading.enumerate()]


def test_a_wait_in_milliseconds_is_reported(port: Port) -> None:
    port.in_first_pause = interrupt
    warning = pytest.warns(errors.ImplausibleTimeWarning, match=r"^wait=30000 is in seconds: 8\.33 h; ")
    with warning, pytest.raises(KeyboardInterrupt):
        kcore.connect(port.address, wait=30_000)
    with pytest.raises(errors.ConfigError, match=r"^wait=-1; valid: seconds, from 0 to "):
        kcore.connect(port.address, wait=-1)
