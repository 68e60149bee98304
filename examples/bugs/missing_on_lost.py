"""Commits in `on_revoke`, and has no `on_lost` (confluent-kafka).

The bug: without `on_lost`, the client also calls `on_revoke` for partitions that the consumer has already lost because
its session expired. The commit is refused, and its exception ends the program. The fix: an `on_lost` that drops the
state of the partitions without a commit.
"""

from __future__ import annotations

import confluent_kafka

from examples.bugs.common import GROUP, TOPIC, Done, Handle, confluent_consumer, records
from kcore.testing import Broker

SYMPTOM = "cannot commit: .*UNKNOWN_MEMBER_ID"


def _revoked(consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
    try:
        consumer.commit(offsets=consumer.position(partitions), asynchronous=False)
    except confluent_kafka.KafkaException as error:
        raise RuntimeError(f"cannot commit: {error}") from None


def _lost(consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
    """Drops the state of the partitions. In this program there is no such state."""


def _run(consumer: confluent_kafka.Consumer, handle: Handle, done: Done) -> None:
    for record in records(consumer, done):
        handle(record)
    consumer.close()


def buggy(bootstrap: str, handle: Handle, done: Done) -> None:
    consumer = confluent_consumer(bootstrap)
    consumer.subscribe([TOPIC], on_revoke=_revoked)
    _run(consumer, handle, done)


def fixed(bootstrap: str, handle: Handle, done: Done) -> None:
    consumer = confluent_consumer(bootstrap)
    consumer.subscribe([TOPIC], on_revoke=_revoked, on_lost=_lost)
    _run(consumer, handle, done)


def check(broker: Broker, program) -> None:
    group = broker.groups[GROUP]
    broker.node.topics[TOPIC].append("first", partition=0)
    values: list[bytes] = []

    def handle(record: confluent_kafka.Message) -> None:
        values.append(record.value())
        if len(values) == 1:
            group.expire(next(iter(group.members)))

    # Nothing is committed: a consumer that joins again gets the record again.
    program(broker.bootstrap, handle, lambda: len(values) == 2)
    assert values == [b"first", b"first"]
