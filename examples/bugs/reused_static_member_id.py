"""Gives all workers the same `group.instance.id` (confluent-kafka).

The bug: the id names one static member. The second worker replaces the first one, which gets a fatal error.
The fix: an id for each worker, such as its host name or the index of its pod.
"""

from __future__ import annotations

import confluent_kafka

from examples.bugs.common import GROUP, POLL_S, TOPIC, confluent_consumer
from kcore.testing import Broker

PARTITIONS = 2
SYMPTOM = "FENCED_INSTANCE_ID|_FATAL"


def _worker(bootstrap: str, instance_id: str) -> confluent_kafka.Consumer:
    consumer = confluent_consumer(bootstrap, **{"group.instance.id": instance_id})
    consumer.subscribe([TOPIC])
    return consumer


def buggy(bootstrap: str, index: int) -> confluent_kafka.Consumer:
    return _worker(bootstrap, "worker")


def fixed(bootstrap: str, index: int) -> confluent_kafka.Consumer:
    return _worker(bootstrap, f"worker-{index}")


def check(broker: Broker, program) -> None:
    group = broker.groups[GROUP]
    workers = [program(broker.bootstrap, 0)]
    try:
        while group.state != "Stable" or len(workers[0].assignment()) != PARTITIONS:
            workers[0].poll(POLL_S)
        workers.append(program(broker.bootstrap, 1))
        while any(len(worker.assignment()) != 1 for worker in workers):
            for worker in workers:
                record = worker.poll(POLL_S)
                if record is not None and record.error() is not None:
                    raise AssertionError(record.error().name())
    finally:
        for worker in workers:
            worker.close()
