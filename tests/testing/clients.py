"""Real clients with short timeouts, for tests of the testing kit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka

from kcore.testing import Broker

POLL_S = 0.01
LIMIT = 1_500  # polls until a test gives up: about 15 s


def confluent_consumer(broker: Broker, group: str = "g", **options: Any) -> confluent_kafka.Consumer:
    settings = {name.replace("_", "."): value for name, value in options.items()}
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 50,
            "reconnect.backoff.ms": 10,
            "log_level": 0,
            **settings,
        }
    )


def confluent_producer(broker: Broker, **options: Any) -> confluent_kafka.Producer:
    settings = {name if name.endswith("_cb") else name.replace("_", "."): v for name, v in options.items()}
    return confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "reconnect.backoff.ms": 10, "log_level": 0, **settings}
    )


def fill(broker: Broker, topic: str, count: int, partition: int = 0) -> None:
    """Appends records `0` to `count - 1`."""
    broker.node.topics[topic].append_many([str(n) for n in range(count)], partition=partition)


def poll_until(consumer: confluent_kafka.Consumer, condition: Callable[[], Any]) -> list[confluent_kafka.Message]:
    """Polls until the condition is true. Returns the records that arrived meanwhile."""
    records = []
    for _ in range(LIMIT):
        if condition():
            return records
        record = consumer.poll(POLL_S)
        if record is not None and record.error() is None:
            records.append(record)
    raise AssertionError("the condition is still false")


def poll(consumer: confluent_kafka.Consumer, count: int) -> list[confluent_kafka.Message]:
    """Polls until `count` records have arrived."""
    records: list[confluent_kafka.Message] = []
    for _ in range(LIMIT):
        if len(records) >= count:
            return records
        record = consumer.poll(POLL_S)
        if record is not None and record.error() is None:
            records.append(record)
    raise AssertionError(f"{len(records)} of {count} records arrived")
