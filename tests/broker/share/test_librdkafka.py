"""librdkafka's share consumer, with a server that is killed and started again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from kcore.testing import ServerProcess

DEADLINE_S = 90.0


def prepare(bootstrap: str, name: str) -> None:
    """Makes a topic, and a group of the same name that begins at the earliest record."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, name, incremental_configs=[entry])
    for result in admin.incremental_alter_configs([group]).values():
        result.result(30)


def append(bootstrap: str, name: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, last):
        producer.produce(name, str(number), partition=number % 2)
    assert producer.flush(30) == 0


def consume(consumer: ShareConsumer, enough: Callable[[], bool], handle: Callable[[Any], None]) -> None:
    """Polls until `enough` is true."""
    until = time.monotonic() + DEADLINE_S
    while not enough():
        assert time.monotonic() < until, "not enough records"
        for message in consumer.poll(0.5) or []:
            if message.error() is None:
                handle(message)


@pytest.mark.clients
@pytest.mark.timeout(300)
def test_a_share_consumer_continues_after_a_kill_of_the_server(tmp_path: Path) -> None:
    """With implicit acknowledgement, records whose acknowledgement was committed never come again, even after kill -9,
    and no record is missing.
    """
    server = ServerProcess(tmp_path / "data", stderr=tmp_path / "server.log")
    with server:
        prepare(server.bootstrap, "jobs")
        append(server.bootstrap, "jobs", 0, 100)
        settings = {
            "bootstrap.servers": server.bootstrap,
            "group.id": "jobs",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        consumer = ShareConsumer(settings)
        consumer.subscribe(["jobs"])
        values: list[int] = []
        consume(consumer, lambda: len(values) >= 100, lambda message: values.append(int(message.value())))
        consumer.commit_sync()
        assert sorted(values) == list(range(100))
        server.kill()
        server.start()
        append(server.bootstrap, "jobs", 100, 200)
        consume(consumer, lambda: len(values) >= 200, lambda message: values.append(int(message.value())))
        consumer.commit_sync()
        consumer.close()
    assert sorted(values) == list(range(200))
