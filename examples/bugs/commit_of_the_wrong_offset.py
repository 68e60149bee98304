"""Commits the offset of the last record instead of the next one (kafka-python).

The bug: a committed offset is the next record to read. So every start processes the last record again.
The fix: commit `offset + 1`.
"""

from __future__ import annotations

from kafka.structs import OffsetAndMetadata, TopicPartition

from examples.bugs.common import GROUP, TOPIC, Handle, python_consumer
from kcore.testing import Broker

SYMPTOM = "jobs-0: expected 3, committed 2"


def _run(bootstrap: str, handle: Handle, count: int, step: int) -> None:
    consumer = python_consumer(bootstrap)
    try:
        for _ in range(count):
            record = next(consumer)
            handle(record)
            partition = TopicPartition(record.topic, record.partition)
            consumer.commit({partition: OffsetAndMetadata(record.offset + step, "", -1)})
    finally:
        consumer.close()


def buggy(bootstrap: str, handle: Handle, count: int) -> None:
    _run(bootstrap, handle, count, step=0)


def fixed(bootstrap: str, handle: Handle, count: int) -> None:
    _run(bootstrap, handle, count, step=1)


def check(broker: Broker, program) -> None:
    broker.node.topics[TOPIC].append_many(["a", "b", "c"], partition=0)
    processed: list[object] = []
    program(broker.bootstrap, processed.append, 3)
    broker.assert_no_double_processing(processed, GROUP)
    broker.assert_committed(GROUP, {(TOPIC, 0): 3})
