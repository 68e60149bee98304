"""Calls while no server is reachable: each call waits for the server, but no longer than its time limit."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest

import kcore
from kcore import errors
from kcore.client.aio.broker import Broker
from kcore.client.aio.cluster import AsyncCluster
from kcore.node.types import GroupListing, TopicListing
from kcore.protocol.messages.fetch import FetchRequest


def append_by_producer(node: kcore.Node, name: str) -> int:
    with node.producer() as producer:
        return producer.append(name, "v").result().offset


OPERATIONS: dict[str, Callable[[kcore.Node, str], Any]] = {
    "topics.list": lambda node, name: [each.name for each in node.topics.list() if each.name == name],
    "topics.end_offsets": lambda node, name: node.topics.end_offsets([(name, 0)]),
    "topics.exists": lambda node, name: name in node.topics,
    "topic.describe": lambda node, name: type(node.topics[name].describe()) is TopicListing,
    "topic.append": lambda node, name: node.topics[name].append("v").offset,
    "groups.list": lambda node, name: [each for each in node.groups.list() if each.group_id == name],
    "groups.describe": lambda node, name: list(node.groups.describe([name])),
    "producer": append_by_producer,
    "transactions.list": lambda node, name: [each.state for each in node.transactions.list() if name == each],
    "cluster_id": lambda node, name: bool(node.cluster_id()),
}


def absent(function: Callable[..., Any], times: int, calls: list[int]) -> Callable[..., Any]:
    """Makes the first `times` calls of a transport's function fail, as if no server were reachable."""

    def call(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) <= times:
            raise errors.ConnectionClosedError("cannot connect to any server")
        return function(*arguments)

    return call


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_call_waits_for_a_server(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = OPERATIONS[operation]
    with kcore.open() as node:
        node.topics.create("jobs", 1)
        node.group("jobs").commit({("jobs", 0): 0})
        assert node.groups.list() == [GroupListing("jobs", "classic", "Empty")]
        expected = call(node, "jobs")
        appends = isinstance(expected, int) and not isinstance(expected, bool)
        calls: list[int] = []
        for name in ("metadata", "brokers"):
            monkeypatch.setattr(node._calls.transport, name, absent(getattr(node._calls.transport, name), 2, calls))
        assert call(node, "jobs") == (expected + 1 if appends else expected)
        assert len(calls) >= 3


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_call_fails_after_its_time_limit(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with kcore.open() as node:
        node.topics.create("jobs", 1)
        monkeypatch.setattr(node._calls, "timeout_s", 0.0)
        calls: list[int] = []
        for name in ("metadata", "brokers"):
            monkeypatch.setattr(node._calls.transport, name, absent(lambda: None, 1, calls))
        with pytest.raises(ConnectionError, match="cannot connect to any server"):
            OPERATIONS[operation](node, "jobs")
        assert calls == [1]


async def test_a_server_that_stays_unreachable_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no process listens
        port = taken.getsockname()[1]
        cluster = AsyncCluster(f"127.0.0.1:{port}")
        with caplog.at_level(logging.WARNING, "kcore.client"):
            for _ in range(3):
                with pytest.raises(errors.ConnectionClosedError):
                    await cluster.metadata([])
        await cluster.close()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"client: cannot connect to 127.0.0.1:{port}: [Errno ")


async def test_the_time_limit_of_a_request_includes_the_opening_of_its_connection() -> None:
    """The server accepts connections and sends nothing. Before, the close of a consumer took 30 s for a request whose
    time limit is a second.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = Broker(1, "127.0.0.1", silent.getsockname()[1])
        cluster = AsyncCluster(f"127.0.0.1:{broker.port}", timeout_s=600.0)
        request = FetchRequest()
        with pytest.raises(TimeoutError, match=r"^FetchRequest: no connection to its broker within 0\.01 s$"):
            await cluster.send(request, broker=broker, timeout_s=0.01)
        opening = cluster._connections._openings[broker.host, broker.port, "fetch"]
        assert not opening.done(), "a later request can use the connection"
        with pytest.raises(TimeoutError, match="no connection to its broker"):
            await cluster.send(request, broker=broker, timeout_s=0.01)
        assert list(cluster._connections._openings.values()) == [opening]
        await cluster.close()
