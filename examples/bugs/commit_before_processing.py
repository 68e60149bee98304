"""Commits a record before it is processed (confluent-kafka).

The bug: a crash between the commit and the processing loses the record, because the next process begins after it.
The fix: process first, then commit. A crash between the two repeats the record; see `non_idempotent_handler`.
"""

from __future__ import annotations

from examples.bugs.common import GROUP, TOPIC, CrashOnce, Done, Handle, confluent_consumer, records, run_twice
from kcore.testing import Broker

SYMPTOM = "1 record was committed in group g but not processed: jobs-0@1"


def buggy(bootstrap: str, handle: Handle, done: Done) -> None:
    consumer = confluent_consumer(bootstrap)
    consumer.subscribe([TOPIC])
    try:
        for record in records(consumer, done):
            consumer.commit(message=record, asynchronous=False)
            handle(record)
    finally:
        consumer.close()


def fixed(bootstrap: str, handle: Handle, done: Done) -> None:
    consumer = confluent_consumer(bootstrap)
    consumer.subscribe([TOPIC])
    try:
        for record in records(consumer, done):
            handle(record)
            consumer.commit(message=record, asynchronous=False)
    finally:
        consumer.close()


def check(broker: Broker, program) -> None:
    broker.node.topics[TOPIC].append_many(["a", "b", "c"], partition=0)
    handle = CrashOnce(offset=1)
    run_twice(lambda: program(broker.bootstrap, handle, lambda: broker.committed(GROUP).get((TOPIC, 0)) == 3))
    broker.assert_nothing_skipped(handle.processed, GROUP)
