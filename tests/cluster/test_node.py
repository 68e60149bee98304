"""Nodes with servers on one event loop: requests between nodes over TCP, planned moves, and fencing."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID

from kcore.broker.cluster.membership import Timing
from kcore.client.aio.connection import AsyncConnection
from kcore.clock import SystemClock
from kcore.cluster.memory_store import MemoryCluster, MemoryClusterStore
from kcore.config.node import Config
from kcore.config.security import STANDARD_AUTHORIZER
from kcore.errors import ConfigError
from kcore.log.errors import LogError, NodeAliveError, StoreUnavailableError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.server import cluster_node
from kcore.server.cluster_node import ClusterNode, configured_timing
from tests.cluster.world import CLUSTER_ID, SETTINGS
from tests.kit import COMMIT_VERSION, PRODUCE_VERSION, batch, commit, create, produce
from tests.security.certificates import Authority

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

    def __init__(self, settings: dict[str, str] | None = None, listener: str = "PLAINTEXT") -> None:
        self.settings = settings or {}
        self.listener = listener
        self.store = MemoryCluster(CLUSTER_ID, SystemClock().monotonic_ms)
        self.nodes: dict[int, ClusterNode] = {}
        self.ports: dict[int, int] = {}

    async def start(self, node_id: int) -> ClusterNode:
        self.ports[node_id] = free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}"
        if self.listener != "PLAINTEXT":
            listeners += f",{self.listener}://127.0.0.1:{free_port()}"
        config = Config.of({**SETTINGS, **self.settings, "node.id": str(node_id), "listeners": listeners})
        node = ClusterNode(lambda: MemoryClusterStore(self.store), config, TIMING)
        await node.start()
        self.nodes[node_id] = node
        return node

    async def send(self, node_id: int, request: Any, version: int) -> Any:
        connection = await AsyncConnection.open("127.0.0.1", self.ports[node_id], "test", 5, None)
        try:
            return await connection.send(request, version, 10)
        finally:
            connection.close()

    async def create(self, node_id: int, name: str, partitions: int) -> None:
        """Creates a topic as a client does: repeats the request while no controller can be reached."""

        async def created() -> bool:
            (topic,) = (await self.send(node_id, create(name, partitions=partitions), 7)).topics
            assert topic.error_code in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER), topic
            return bool(topic.error_code == ErrorCode.NONE)

        await self.until(created, f"the topic {name}")

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


def run(
    test: Callable[[Cluster], Awaitable[None]],
    loop_factory: LoopFactory = None,
    settings: dict[str, str] | None = None,
    listener: str = "PLAINTEXT",
) -> None:
    async def main() -> None:
        cluster = Cluster(settings, listener)
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
        await cluster.create(2, "t", 4)

        async def producer_id() -> bool:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = await cluster.send(2, request, 4)
            return bool(response.error_code == ErrorCode.NONE)

        await cluster.until(producer_id, "a block of producer ids")

    run(test, loop_factory)


def test_a_slow_poll_of_the_cluster_delays_no_renewal() -> None:
    """A poll of the store is blocked, and the node still renews its lease.

    In production, locks of other nodes may block a poll for longer than a lease lasts.
    """
    blocked, released, renewed = threading.Event(), threading.Event(), threading.Event()

    def intercept(operation: str, node_id: int, stored: bool) -> None:
        if operation == "nodes" and not stored:
            blocked.set()
            assert released.wait(60)
        elif operation == "renew" and stored and blocked.is_set():
            renewed.set()

    async def test(cluster: Cluster) -> None:
        cluster.store.intercept = intercept
        try:
            assert await asyncio.to_thread(blocked.wait, 30)
            assert await asyncio.to_thread(renewed.wait, 30), "the renewal waits for the poll of the cluster"
        finally:
            released.set()
            cluster.store.intercept = None

    run(test)


def test_an_ended_node_hands_its_partitions_over() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create(1, "t", 2)

        async def decides() -> bool:
            return cluster.nodes[2].engine.decides()

        async def written() -> bool:
            codes = []
            for index in (0, 1):
                response = await cluster.send(2, produce("t", batch([b"x"]), index), PRODUCE_VERSION)
                codes.append(response.responses[0].partition_responses[0].error_code)
            return set(codes) == {ErrorCode.NONE}

        await cluster.nodes.pop(1).stop()
        await cluster.until(written, "node 2 leads both partitions")
        response = await cluster.send(2, create("u"), 7)
        await cluster.until(decides, "node 2 is the controller")
        response = await cluster.send(2, commit("g", {("t", 0): 1}), COMMIT_VERSION)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE

    run(test)


def test_a_fenced_node_ends_its_incarnation_and_starts_again() -> None:
    async def test(cluster: Cluster) -> None:
        command = MemoryClusterStore(cluster.store)
        node = cluster.nodes.pop(2)
        assert command.fence(command.nodes()[1].lease, None, force=True)
        await asyncio.wait_for(node.ended.wait(), 10)
        response = await cluster.send(2, commit("g", {("t", 0): 1}), COMMIT_VERSION)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        await node.abort()
        again = await cluster.start(2)
        assert again.engine.membership.lease.epoch > node.engine.membership.lease.epoch

        async def leads() -> bool:
            return bool(again.engine.leadership.led)

        await cluster.until(leads, "the node leads partitions again")

    run(test)


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="secret-of-nodes"'


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_nodes_connect_with_tls_and_sasl(protocol: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("node.pem", (NameOID.COMMON_NAME, "node"))
    settings = {
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INTERNAL:{protocol}",
        "ssl.keystore.location": str(certificate),
        "ssl.truststore.location": str(authority.file),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": f'{JAAS} user_node="secret-of-nodes";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:node;User:CN=node;User:ANONYMOUS",
    }

    async def test(cluster: Cluster) -> None:
        await cluster.create(2, "t", 4)
        listeners = [broker.addresses for broker in cluster.nodes[2].engine.topics.image.brokers.values()]
        assert [address.listener for address in listeners[0]] == ["PLAINTEXT", "INTERNAL"]

    run(test, settings=settings, listener="INTERNAL")


def test_wrong_credentials_between_nodes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": f'{JAAS} user_node="another";',
    }

    async def test(cluster: Cluster) -> None:
        response = await cluster.send(2, create("t"), 7)
        assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        for node in cluster.nodes.values():
            node.ended.set()  # a node without peers cannot hand its partitions over

    run(test, settings=settings, listener="INTERNAL")
    [refused, *_] = [
        record for record in caplog.records if "cluster: node 1 did not respond to Envelope: " in record.getMessage()
    ]
    assert refused.levelname == "ERROR"
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "timing"),
    [
        ({}, Timing()),
        ({"broker.session.timeout.ms": "12000"}, Timing(12_000, 1_000, 3_000, 200, 4_000)),
        ({"broker.session.timeout.ms": "1500"}, Timing(1_500, 125, 375, 200, 1_000)),
        ({"broker.heartbeat.interval.ms": "1000"}, Timing(6_000, 500, 1_000, 200)),
    ],
)
def test_leases_have_kafkas_settings(settings: dict[str, str], timing: Timing) -> None:
    assert configured_timing(Config.of(settings)) == timing


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, "fixed port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:9", "inter.broker.listener.name": "OTHER"}, "no listener has this name"),
        (
            {"listeners": "A://127.0.0.1:9", "listener.security.protocol.map": "A:SASL_PLAINTEXT"},
            "must be one of PLAIN, SCRAM-SHA-256",
        ),
        (
            {
                "listeners": "A://127.0.0.1:9",
                "listener.security.protocol.map": "A:SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
            },
            "needs username",
        ),
        ({"listeners": "PLAINTEXT://127.0.0.1:9", "security.inter.broker.protocol": "SSL"}, "no listener has"),
        (
            {
                "listeners": "PLAINTEXT://127.0.0.1:9",
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "exclude each other",
        ),
        (
            {"listeners": "SSL://127.0.0.1:9", "ssl.truststore.location": "/nonexistent"},
            "the key or the authorities cannot be used",
        ),
        ({"listeners": "PLAINTEXT://127.0.0.1:9", "broker.session.timeout.ms": "500"}, "a session must have at least"),
    ],
)
def test_an_unusable_listener_is_refused(settings: dict[str, str], message: str) -> None:
    async def make() -> None:
        store = MemoryCluster(CLUSTER_ID, SystemClock().monotonic_ms)
        ClusterNode(lambda: MemoryClusterStore(store), Config.of(settings))

    with pytest.raises(ConfigError, match=message):
        asyncio.run(make())


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            NodeAliveError(1, 6_000),
            "cluster: node 1 waits to register: node 1 is alive: another process holds its lease for 6000 ms more; if "
            "that process is another node, give one of them another node.id",
        ),
        (
            StoreUnavailableError("no connection"),
            "cluster: node 1 waits to register: no connection; check the store and the network to it",
        ),
    ],
    ids=["alive", "unavailable"],
)
async def test_the_log_says_what_an_operator_can_do_while_a_node_waits_to_register(
    error: LogError, line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    register, errors = MemoryClusterStore.register, [error, error]

    def fails_twice(store: MemoryClusterStore, *arguments: Any) -> Any:
        if errors:
            raise errors.pop()
        return register(store, *arguments)

    monkeypatch.setattr(cluster_node, "RETRY_S", 0.01)
    monkeypatch.setattr(MemoryClusterStore, "register", fails_twice)
    cluster = Cluster()
    await cluster.start(1)
    await cluster.close()
    assert [record.getMessage() for record in caplog.records if "waits to register" in record.getMessage()] == [line]
