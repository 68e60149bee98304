"""Three `kcore serve --cluster` processes, and a client that continues while nodes and servers of PostgreSQL fail."""

from __future__ import annotations

import signal
import socket
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.kit import wait_until
from tests.postgresql.nodes import ENDS_S, NodeProcesses
from tests.postgresql.servers import Servers

pytestmark = [pytest.mark.clients, pytest.mark.crash, pytest.mark.timeout(300)]

PARTITIONS = 6


class Cluster(NodeProcesses):
    """Processes of nodes over one database, and the records that clients have sent to them."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        self.sent: list[int] = []

    def wait_balanced(self, *node_ids: int) -> None:
        """Waits until exactly these nodes are alive and each of them leads some partitions."""

        def balanced() -> bool:
            rows = self.status()
            leading = {node_id for node_id, row in rows.items() if row["state"] == "alive" and row["leaders"] > 10}
            return leading == set(node_ids) and all(
                row["leaders"] == 0 for node_id, row in rows.items() if node_id not in node_ids
            )

        wait_until(balanced, f"leaders on nodes {node_ids}", ENDS_S)

    def produce(self, producer: KafkaProducer, count: int) -> None:
        values = range(len(self.sent), len(self.sent) + count)
        futures = [producer.send("t", b"%d" % value, partition=value % PARTITIONS) for value in values]
        for future in futures:
            future.get(ENDS_S)
        self.sent += values

    def consume(self, group: str) -> list[int]:
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            consumer_timeout_ms=ENDS_S * 1_000,
        )
        values = []
        for record in consumer:
            values.append(int(record.value))
            if len(set(values)) == len(self.sent):
                break
        consumer.close()
        return values


def accepts(port: int) -> bool:
    """Returns True if the port of this machine accepts a connection."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def begin(url: str, folder: Path) -> tuple[Cluster, KafkaProducer]:
    cluster = Cluster(url, folder)
    for node_id in cluster.ports:
        cluster.start(node_id)
    cluster.wait_balanced(1, 2, 3)
    for port in cluster.ports.values():  # a node leads partitions before it listens
        wait_until(partial(accepts, port), f"a listener on port {port}", ENDS_S)
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])
    admin.close()
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True, retry_backoff_ms=100
    )
    cluster.produce(producer, 120)
    return cluster, producer


def test_killed_node_is_replaced_and_no_record_is_lost(url: str, tmp_path: Path) -> None:
    cluster, producer = begin(url, tmp_path)
    try:
        cluster.processes[2].kill()
        cluster.produce(producer, 120)
        cluster.wait_balanced(1, 3)
        assert sorted(cluster.consume("g")) == cluster.sent
    finally:
        producer.close()
        cluster.close()


@pytest.mark.long
def test_paused_nodes_drains_and_a_promotion_lose_no_record(servers: Servers, tmp_path: Path) -> None:
    primary = servers.server("one").create()
    standby = servers.server("two").copy_of(primary)
    url = f"postgresql://kcore@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
    cluster, producer = begin(url, tmp_path)
    try:
        cluster.processes[2].send_signal(signal.SIGSTOP)
        cluster.produce(producer, 120)
        cluster.wait_balanced(1, 3)
        cluster.processes[2].send_signal(signal.SIGCONT)
        cluster.wait_balanced(1, 2, 3)
        cluster.command("drain", url, "3")
        cluster.wait_balanced(1, 2)
        cluster.produce(producer, 120)
        cluster.command("drain", url, "3", "--stop")
        cluster.wait_balanced(1, 2, 3)
        primary.crash()
        standby.promote()
        cluster.produce(producer, 120)
        cluster.wait_balanced(1, 2, 3)
        assert sorted(cluster.consume("g")) == cluster.sent
    finally:
        producer.close()
        cluster.close()


@pytest.mark.long
def test_a_rolling_restart_shows_no_error_to_clients(url: str, tmp_path: Path) -> None:
    """Every node is stopped and started while a producer and a consumer run. Neither client gets an exception."""
    cluster, producer = begin(url, tmp_path)
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap,
        group_id="rolling",
        session_timeout_ms=45_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=100,
    )
    read: list[int] = []

    def work() -> None:
        cluster.produce(producer, 30)
        for records in consumer.poll(500).values():
            read.extend(int(record.value) for record in records)
        if read:
            consumer.commit()

    try:
        for node_id in (1, 2, 3):
            process = cluster.processes[node_id]
            process.terminate()
            while process.poll() is None:
                work()
            assert process.returncode == 0
            log = (tmp_path / f"{node_id}.log").read_text()
            assert "ends before all its partitions have new leaders" not in log
            cluster.start(node_id)
            work()
            cluster.wait_balanced(1, 2, 3)
        wait_until(lambda: (work(), len(set(read)) >= 120)[1], "the records of the group", ENDS_S)
        assert sorted(set(cluster.consume("all"))) == cluster.sent
        assert sorted(read) == sorted(set(read)), "no record came twice: no commit was lost"
    finally:
        consumer.close(autocommit=False)
        producer.close()
        cluster.close()
