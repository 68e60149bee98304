"""Catches the error of a commit, and continues as if the commit had succeeded (kafka-python).

The bug: the offsets are not committed, but the program ends successfully. The fix: call `poll`, which joins the group
again. Then process the redelivered records, and commit.
"""

from __future__ import annotations

import contextlib

from examples.bugs.common import GROUP, TOPIC, Handle, kafka, python_consumer
from kcore.testing import Broker

SYMPTOM = "jobs-0: expected 3, committed none"


def buggy(bootstrap: str, handle: Handle, count: int) -> None:
    consumer = python_consumer(bootstrap)
    for _ in range(count):
        handle(next(consumer))
    with contextlib.suppress(kafka.errors.KafkaError):
        consumer.commit()
    consumer.close()


def fixed(bootstrap: str, handle: Handle, count: int) -> None:
    consumer = python_consumer(bootstrap)
    committed = False
    while not committed:
        for _ in range(count):  # after a refused commit the consumer joins again, and gets the records again
            handle(next(consumer))
        with contextlib.suppress(kafka.errors.CommitFailedError):
            consumer.commit()
            committed = True
    consumer.close()


def check(broker: Broker, program) -> None:
    broker.node.topics[TOPIC].append_many(["a", "b", "c"], partition=0)
    group = broker.groups[GROUP]
    processed: list[object] = []

    def handle(record: object) -> None:
        processed.append(record)
        if len(processed) == 3:
            group.expire(next(iter(group.members)))

    program(broker.bootstrap, handle, 3)
    broker.assert_committed(GROUP, {(TOPIC, 0): 3})
