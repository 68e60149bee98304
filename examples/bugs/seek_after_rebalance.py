"""Seeks to the start of the topic in `on_assign` (confluent-kafka).

The bug: `on_assign` is called for every rebalance, not only for the first one. So the consumer reads the topic from the
start again after each rebalance. The fix: begin at the start only if no offset is committed.
"""

from __future__ import annotations

import confluent_kafka

from examples.bugs.common import GROUP, TOPIC, Done, Handle, confluent_consumer, records
from kcore.testing import Broker

SYMPTOM = "1 record was processed more than once: jobs-0@0"

Partitions = list[confluent_kafka.TopicPartition]


def _run(bootstrap: str, handle: Handle, done: Done, assigned) -> None:
    consumer = confluent_consumer(bootstrap)
    consumer.subscribe([TOPIC], on_assign=assigned)
    for record in records(consumer, done):
        handle(record)
        consumer.commit(message=record, asynchronous=False)
    consumer.close()


def buggy(bootstrap: str, handle: Handle, done: Done) -> None:
    def assigned(consumer: confluent_kafka.Consumer, partitions: Partitions) -> None:
        for partition in partitions:
            partition.offset = confluent_kafka.OFFSET_BEGINNING
        consumer.assign(partitions)

    _run(bootstrap, handle, done, assigned)


def fixed(bootstrap: str, handle: Handle, done: Done) -> None:
    def assigned(consumer: confluent_kafka.Consumer, partitions: Partitions) -> None:
        for partition in consumer.committed(partitions, 5):
            if partition.offset < 0:
                partition.offset = confluent_kafka.OFFSET_BEGINNING
        consumer.assign(partitions)

    _run(bootstrap, handle, done, assigned)


def check(broker: Broker, program) -> None:
    topic, group = broker.node.topics[TOPIC], broker.groups[GROUP]
    topic.append("first", partition=0)
    processed: list[confluent_kafka.Message] = []
    appended: list[bytes] = []

    def done() -> bool:
        if group.epoch == 1 and group.state == "Stable" and group.offsets:
            group.rebalance()
        elif group.epoch == 2 and group.state == "Stable" and not appended:
            appended.append(b"second")
            topic.append("second", partition=0)
        return bool(processed) and processed[-1].value() == b"second" and group.offsets == {(TOPIC, 0): 2}

    program(broker.bootstrap, processed.append, done)
    broker.assert_no_double_processing(processed, GROUP)
