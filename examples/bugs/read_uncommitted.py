"""Reads the output of transactions with `isolation.level=read_uncommitted` (confluent-kafka).

The bug: the consumer also gets the records of aborted transactions, which exactly-once programs repeat.
The fix: `isolation.level=read_committed`.
"""

from __future__ import annotations

import asyncio

import aiokafka

from examples.bugs.common import TOPIC, Done, Handle, confluent_consumer, records
from kcore.testing import Broker

SYMPTOM = "the aborted record was processed"


def _run(bootstrap: str, handle: Handle, done: Done, isolation: str) -> None:
    consumer = confluent_consumer(bootstrap, **{"isolation.level": isolation})
    consumer.subscribe([TOPIC])
    for record in records(consumer, done):
        handle(record)
    consumer.close()


def buggy(bootstrap: str, handle: Handle, done: Done) -> None:
    _run(bootstrap, handle, done, "read_uncommitted")


def fixed(bootstrap: str, handle: Handle, done: Done) -> None:
    _run(bootstrap, handle, done, "read_committed")


async def _write(bootstrap: str) -> None:
    """Writes a record in a transaction that aborts, and another one in a transaction that commits."""
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="writer") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"aborted", partition=0)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"committed", partition=0)
        await producer.commit_transaction()


def check(broker: Broker, program) -> None:
    asyncio.run(_write(broker.bootstrap))
    values: list[bytes] = []
    program(broker.bootstrap, lambda record: values.append(record.value()), lambda: b"committed" in values)
    assert b"aborted" not in values, "the aborted record was processed"
