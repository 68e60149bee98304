"""Commits from time to time, but not when partitions are taken away (confluent-kafka).

The bug: the next owner of a partition begins at the last commit, and processes again what came after it.
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
        places = [place for place in consumer.position(partitions) if place.offset >= 0]
        if places:
            consumer.commit(offsets=places, asynchronous=False)

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
    one = program(broker.bootstrap, processed.append)
    while len(processed) < PARTITIONS:
        _step(one, processed.append)
    two = program(broker.bootstrap, processed.append)
    while len(one.assignment()) != 1 or len(two.assignment()) != 1:
        _step(one, processed.append)
        _step(two, processed.append)
    (moved,) = two.assignment()
    broker.node.topics[TOPIC].append("second", partition=moved.partition)
    while not any(r.partition() == moved.partition and r.offset() == 1 for r in processed):
        _step(two, processed.append)
    one.close()
    while len(two.assignment()) != PARTITIONS:  # so the last commit of `two` is after the rebalance
        _step(two, processed.append)
    two.close()
    broker.assert_no_double_processing(processed, GROUP)
