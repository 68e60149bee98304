"""Leaves `auto_offset_reset` at "latest" for a group that must process everything (kafka-python).

The bug: a new group begins at the end of the log. Records that were appended before its first assignment are never
processed. The fix: `auto_offset_reset="earliest"`.
"""

from __future__ import annotations

import threading

from examples.bugs.common import GROUP, TOPIC, Handle, python_consumer
from kcore.testing import Broker

SYMPTOM = "3 records were committed in group g but not processed: jobs-0@0, jobs-0@1, jobs-0@2"


def _run(bootstrap: str, handle: Handle, reset: str) -> None:
    consumer = python_consumer(bootstrap, auto_offset_reset=reset)
    for record in consumer:
        handle(record)
        consumer.commit()
        if record.value == b"last":
            break
    consumer.close()


def buggy(bootstrap: str, handle: Handle) -> None:
    _run(bootstrap, handle, "latest")


def fixed(bootstrap: str, handle: Handle) -> None:
    _run(bootstrap, handle, "earliest")


def check(broker: Broker, program) -> None:
    topic = broker.node.topics[TOPIC]
    topic.append_many(["a", "b", "c"], partition=0)
    fetching = broker.hold("Fetch")  # the first fetch has a position: the consumer is assigned
    processed: list[object] = []
    thread = threading.Thread(target=program, args=(broker.bootstrap, processed.append))
    thread.start()
    broker.wait_for(lambda _: fetching.applied)
    topic.append("last", partition=0)
    broker.release()
    thread.join()
    broker.assert_nothing_skipped(processed, GROUP)
