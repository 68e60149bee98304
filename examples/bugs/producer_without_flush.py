"""Ends without `flush` (confluent-kafka).

The bug: `produce` only puts a record into a queue. Records that are still in the queue when the process ends are lost.
The fix: call `flush` before the program ends.
"""

from __future__ import annotations

from examples.bugs.common import TOPIC, confluent_producer
from kcore.testing import Broker

SYMPTOM = "0 of 3 records are stored"
LINGER = {"linger.ms": 500}


def buggy(bootstrap: str, values: list[str]) -> None:
    producer = confluent_producer(bootstrap, **LINGER)
    for value in values:
        producer.produce(TOPIC, value, partition=0)


def fixed(bootstrap: str, values: list[str]) -> None:
    producer = confluent_producer(bootstrap, **LINGER)
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    producer.flush()


def check(broker: Broker, program) -> None:
    program(broker.bootstrap, ["a", "b", "c"])
    stored = len(broker.node.topics[TOPIC].read(0, 0))
    assert stored == 3, f"{stored} of 3 records are stored"
