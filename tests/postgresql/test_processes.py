"""Processes of `kcore serve --cluster` over PostgreSQL, with librdkafka's clients."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit import wait_until
from tests.postgresql.servers import free_port
from tests.postgresql.shared import initialise

pytestmark = pytest.mark.long

SETTINGS = {
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
}


class Process:
    """One node in a separate process."""

    def __init__(self, url: str, node_id: int, folder: Path) -> None:
        self.url = url
        self.node_id = node_id
        self.port = free_port()
        self.log = folder / f"node-{node_id}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        command = [sys.executable, "-m", "kcore", "serve", "--cluster", self.url, "--node-id", str(self.node_id)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--listen", f"127.0.0.1:{self.port}", *settings], stdout=log, stderr=log
            )

    def listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return "listening" in self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(20)
        self.process = None
        return code


class Nodes:
    """Three nodes over one database."""

    def __init__(self, url: str, folder: Path) -> None:
        self.nodes = {number: Process(url, number, folder) for number in (1, 2, 3)}
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            wait_until(node.listens, f"node {node.node_id} listens")

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    def close(self) -> None:
        for node in self.nodes.values():
            if node.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    node.end()


@pytest.fixture
def nodes(url: str, tmp_path: Path) -> Iterator[Nodes]:
    initialise(url)
    started = Nodes(url, tmp_path)
    yield started
    started.close()


def create_topic(nodes: Nodes, name: str = "t", partitions: int = 6) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})

    def created() -> bool:
        try:
            for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
                future.result(10)
        except Exception as error:
            kafka = error.args[0]
            return bool(kafka.code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    wait_until(created, f"topic {name}")
    wait_until(lambda: len({p.leader for p in admin.list_topics(name).topics[name].partitions.values()}) == 3, "spread")
    return admin


class Load:
    """A producer that sends numbers without a pause. `sent` has the acknowledged numbers."""

    def __init__(self, nodes: Nodes) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": nodes.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 60_000,
                "linger.ms": 5,
            }
        )
        self.sent: set[int] = set()
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce("t", str(number).encode(), callback=self._delivered)
            number += 1
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.sent.add(int(message.value()))  # type: ignore[attr-defined]

    def finish(self) -> set[int]:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self.failed == []
        return self.sent


def consume_all(nodes: Nodes, expected: set[int], group: str = "readers") -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe(["t"])
    found: list[int] = []
    until = time.monotonic() + 60
    while set(found) != expected:
        assert time.monotonic() < until, f"{len(set(found))} of {len(expected)}"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append(int(value))
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition("t", index) for index in range(6)], 10)
    assert sum(part.offset for part in committed if part.offset > 0) == len(found)
    consumer.close()
    return found


@pytest.mark.parametrize("fault", ["none", "kill", "pause", "stop"])
def test_producers_and_consumers_continue_after_a_kill_a_pause_or_a_stop(nodes: Nodes, fault: str) -> None:
    create_topic(nodes)
    load = Load(nodes)
    victim = nodes.nodes[2]
    wait_until(lambda: len(load.sent) > 300, "records")
    if fault == "kill":
        victim.end()
    elif fault == "pause":
        victim.send(signal.SIGSTOP)
    elif fault == "stop":
        assert victim.end(signal.SIGTERM) == 0
    before = len(load.sent)
    # Every partition is written again: the killed node's after its lease has ended.
    wait_until(lambda: len(load.sent) > before + 2_000, "records after the fault")
    if fault == "pause":
        fenced = f"controller: fenced node {victim.node_id}, because its lease has expired"
        logs = [node.log for node in nodes.nodes.values()]
        wait_until(lambda: any(fenced in log.read_text() for log in logs), "the paused node is fenced")
        victim.send(signal.SIGCONT)
        wait_until(lambda: victim.log.read_text().count("listening") > 1, "the paused node registers again")
    sent = load.finish()
    found = consume_all(nodes, sent)
    assert len(found) == len(sent), "an idempotent producer writes each record once"
