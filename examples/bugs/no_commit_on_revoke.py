"""Commits from time to time, but not when partitions are revoked (confluent-kafka).

The bug: the next owner of a partition begins at the last commit, and processes the later records again.
The fix: commit in `on_revoke`; the rebalance waits for it.
"""

from __future__ import annotations

import confluent_kafka

from examples.bugs.common import GROUP, POLL_S, TOPIC, Handle, confluent_consumer
from kcore.testing import Broker

PARTITIONS = 2
COMMIT_EVERY = 1_000
SYMPTOM = "processed more than once"


def buggy(bootstrap: str, handle: Handle) -> confluent_kafka.Consumer:
    consumer = confluent_consumer(bootstrap)
    consumer.subscribe([TOPIC])
    return consumer


def fixed(bootstrap: str, handle: Handle) -> confluent_kafka.Consumer:
    def revoked(consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        positions = [position for position in consumer.position(partitions) if position.offset >= 0]
        if positions:
            consumer.commit(offsets=positions, asynchronous=False)

    consumer = confluent_consumer(bootstrap)
    consumer.subscribe([TOPIC], on_revoke=revoked)
    return consumer


def _step(consumer: confluent_kafka.Consumer, handle: Handle) -> None:
    record = consumer.poll(POLL_S)
    if record is not None and record.error() is None:
        handle(record)
        if record.offset() % COMMIT_EVERY == COMMIT_EVERY - 1:
            consumer.commit(asynchronous=False)


def check(broker: Broker, program) -> None:
    for partition in range(PARTITIONS):
        broker.node.topics[TOPIC].append("first", partition=partition)
    processed: list[confluent_kafka.Message] = []
    first = program(broker.bootstrap, processed.append)
    while len(processed) < PARTITIONS:
        _step(first, processed.append)
    second = program(broker.bootstrap, processed.append)
    while len(first.assignment()) != 1 or len(second.assignment()) != 1:
        _step(first, processed.append)
        _step(second, processed.append)
    (moved,) = second.assignment()
    broker.node.topics[TOPIC].append("second", partition=moved.partition)
    while not any(r.partition() == moved.partition and r.offset() == 1 for r in processed):
        _step(second, processed.append)
    first.close()
    while len(second.assignment()) != PARTITIONS:  # so the last commit of `second` is after the rebalance
        _step(second, processed.append)
    second.close()
    broker.assert_no_double_processing(processed, GROUP)
