"""Ignores the result of `send` (kafka-python).

The bug: `send` returns a future. The broker's refusal is only in this future, and the record is lost.
The fix: wait for the future, or handle its error, and send again or fail.
"""

from __future__ import annotations

from examples.bugs.common import TOPIC, kafka
from kcore.testing import Broker

SYMPTOM = "2 of 3 records are stored"


def _producer(bootstrap: str) -> kafka.KafkaProducer:
    return kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)


def buggy(bootstrap: str, values: list[bytes]) -> None:
    producer = _producer(bootstrap)
    for value in values:
        producer.send(TOPIC, value, partition=0)
        producer.flush()
    producer.close()


def fixed(bootstrap: str, values: list[bytes]) -> None:
    producer = _producer(bootstrap)
    for value in values:
        while True:
            try:
                producer.send(TOPIC, value, partition=0).get(5)
                break
            except kafka.errors.InvalidRequestError:  # the refusal is temporary: send again
                continue
    producer.close()


def check(broker: Broker, program) -> None:
    broker.fail("Produce", "INVALID_REQUEST", skip=1)
    program(broker.bootstrap, [b"a", b"b", b"c"])
    stored = len(broker.node.topics[TOPIC].read(0, 0))
    assert stored == 3, f"{stored} of 3 records are stored"
