"""Nodes with servers on one event loop: requests between nodes over TCP, hand-over, and fencing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kcore.broker.cluster.membership import Timing
from kcore.client.aio.connection import AsyncConnection
from kcore.clock import SystemClock
from kcore.cluster.memory_store import MemoryCluster, MemoryClusterStore
from kcore.config.node import Config
from kcore.errors import ConfigError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.server.cluster_node import ClusterNode
from tests.cluster.world import CLUSTER_ID, SETTINGS
from tests.kit import COMMIT_VERSION, PRODUCE_VERSION, batch, commit, create, produce

TIMING = Timing(ttl_ms=6_000, margin_ms=500, renew_ms=500, poll_ms=30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


LoopFactory = Callable[[], asyncio.AbstractEventLoop] | None


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    if request.param == "asyncio":
        return None
    factory: LoopFactory = pytest.importorskip("uvloop").new_event_loop
    return factory


class Cluster:
    """Two nodes over a store in memory."""

    def __init__(self) -> None:
        self.store = MemoryCluster(CLUSTER_ID, SystemClock().monotonic_ms)
        self.nodes: dict[int, ClusterNode] = {}
        self.ports: dict[int, int] = {}

    async def start(self, node_id: int) -> ClusterNode:
        self.ports[node_id] = free_port()
        config = Config.of(
            {**SETTINGS, "node.id": str(node_id), "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}"}
        )
        node = ClusterNode(lambda: MemoryClusterStore(self.store), config, TIMING)
        await node.start()
        self.nodes[node_id] = node
        return node

    async def ask(self, node_id: int, request: Any, version: int) -> Any:
        connection = await AsyncConnection.open("127.0.0.1", self.ports[node_id], "test", 5, None)
        try:
            return await connection.send(request, version, 10)
        finally:
            connection.close()

    async def until(self, condition: Callable[[], Awaitable[Any]], what: str) -> Any:
        for _ in range(1_000):
            value = await condition()
            if value:
                return value
            await asyncio.sleep(0.01)
        pytest.fail(what)

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.stop()


def run(test: Callable[[Cluster], Awaitable[None]], loop_factory: LoopFactory = None) -> None:
    async def main() -> None:
        cluster = Cluster()
        try:
            await cluster.start(1)
            await cluster.start(2)
            await test(cluster)
        finally:
            await cluster.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def test_requests_reach_the_controller_over_tcp(loop_factory: LoopFactory) -> None:
    async def test(cluster: Cluster) -> None:
        assert cluster.nodes[1].engine.decides()
        assert not cluster.nodes[2].engine.decides()
        response = await cluster.ask(2, create("t", partitions=4), 7)
        assert response.topics[0].error_code == ErrorCode.NONE

        async def producer_id() -> bool:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await cluster.ask(2, request, 4)
            return bool(answer.error_code == ErrorCode.NONE)

        await cluster.until(producer_id, "a block of producer ids")

    run(test, loop_factory)


def test_an_ended_node_hands_its_partitions_over() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ask(1, create("t", partitions=2), 7)

        async def written() -> bool:
            codes = []
            for index in (0, 1):
                response = await cluster.ask(2, produce("t", batch([b"x"]), index), PRODUCE_VERSION)
                codes.append(response.responses[0].partition_responses[0].error_code)
            return set(codes) == {ErrorCode.NONE}

        assert not await written()
        await cluster.nodes.pop(1).stop()
        await cluster.until(written, "node 2 leads both partitions")
        assert cluster.nodes[2].engine.decides()
        response = await cluster.ask(2, commit("g", {("t", 0): 1}), COMMIT_VERSION)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE

    run(test)


def test_a_fenced_node_ends_its_incarnation_and_starts_again() -> None:
    async def test(cluster: Cluster) -> None:
        command = MemoryClusterStore(cluster.store)
        node = cluster.nodes.pop(2)
        assert command.fence(command.nodes()[1].lease, None, force=True)
        await asyncio.wait_for(node.ended.wait(), 10)
        response = await cluster.ask(2, commit("g", {("t", 0): 1}), COMMIT_VERSION)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        await node.abort()
        again = await cluster.start(2)
        assert again.engine.membership.lease.epoch > node.engine.membership.lease.epoch

        async def leads() -> bool:
            return bool(again.engine.leadership.led)

        await cluster.until(leads, "the node leads partitions again")

    run(test)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, "fixed port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:9", "inter.broker.listener.name": "OTHER"}, "no such listener"),
        (
            {"listeners": "A://127.0.0.1:9", "listener.security.protocol.map": "A:SASL_PLAINTEXT"},
            "without TLS and SASL",
        ),
    ],
)
def test_an_unusable_listener_is_refused(settings: dict[str, str], message: str) -> None:
    async def make() -> None:
        store = MemoryCluster(CLUSTER_ID, SystemClock().monotonic_ms)
        ClusterNode(lambda: MemoryClusterStore(store), Config.of(settings))

    with pytest.raises(ConfigError, match=message):
        asyncio.run(make())
