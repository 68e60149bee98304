"""Hands records to a thread, and lets the client commit automatically (confluent-kafka).

The bug: the client commits the offsets of all records that `poll` has returned, including records that the thread has
not processed yet. Records that wait in the queue when the process ends are lost. The fix:
`enable.auto.offset.store=false`, and `store_offsets` for each processed record.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

import confluent_kafka

from examples.bugs.common import GROUP, TOPIC, CrashError, CrashOnce, Done, Handle, confluent_consumer, run_twice
from kcore.testing import Broker

SYMPTOM = "3 records were committed in group g but not processed"


def _run(consumer: confluent_kafka.Consumer, handle: Handle, done: Done, stores: bool) -> None:
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    failures: list[CrashError] = []
    polled = 0

    def work() -> None:
        try:
            while (record := waiting.get()) is not None:
                handle(record)
                if stores:
                    consumer.store_offsets(message=record)
        except CrashError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    consumer.subscribe([TOPIC])
    while not done() and not (failures and polled >= 3):
        record = consumer.poll(0.01)
        if record is not None and record.error() is None:
            waiting.put(record)
            polled += 1
            if polled == 3:
                thread.start()
    waiting.put(None)
    thread.join()
    consumer.close()
    if failures:
        raise failures[0]


def buggy(bootstrap: str, handle: Handle, done: Done) -> None:
    _run(confluent_consumer(bootstrap, **{"enable.auto.commit": True}), handle, done, stores=False)


def fixed(bootstrap: str, handle: Handle, done: Done) -> None:
    settings = {"enable.auto.commit": True, "enable.auto.offset.store": False}
    _run(confluent_consumer(bootstrap, **settings), handle, done, stores=True)


def check(broker: Broker, program) -> None:
    broker.node.topics[TOPIC].append_many(["a", "b", "c"], partition=0)
    handle = CrashOnce(offset=0)

    def run() -> None:
        if broker.committed(GROUP).get((TOPIC, 0)) != 3:  # otherwise no record is left to process
            program(broker.bootstrap, handle, lambda: len(handle.processed) == 3)

    run_twice(run)
    broker.assert_nothing_skipped(handle.processed, GROUP)
