"""Repeats requests without idempotence (aiokafka).

The bug: if the broker stores a record and its response is lost, the client sends the record again. The broker stores it
twice. The fix: `enable_idempotence=True`. The broker then recognizes the repeated record by its sequence number.
"""

from __future__ import annotations

import asyncio

import aiokafka

from examples.bugs.common import TOPIC
from kcore.testing import Broker

SYMPTOM = "stored: .*pay 5.*pay 5"


async def _send(bootstrap: str, value: bytes, idempotent: bool) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=idempotent, retry_backoff_ms=5)
    async with producer:
        await producer.send_and_wait(TOPIC, value, partition=0)


def buggy(bootstrap: str, value: bytes) -> None:
    asyncio.run(_send(bootstrap, value, idempotent=False))


def fixed(bootstrap: str, value: bytes) -> None:
    asyncio.run(_send(bootstrap, value, idempotent=True))


def check(broker: Broker, program) -> None:
    broker.disconnect("Produce", after=True)
    program(broker.bootstrap, b"pay 5")
    stored = [record.value for record in broker.node.topics[TOPIC].read(0, 0)]
    assert stored == [b"pay 5"], f"stored: {stored}"
