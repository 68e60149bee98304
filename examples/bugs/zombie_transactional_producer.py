"""Gives every process a random transactional id (aiokafka).

The bug: a paused process becomes a zombie when another process continues its work. Kafka fences the zombie only if both
use the same transactional id. With random ids both transactions commit, and the output has every record twice.
The fix: a transactional id that names the work, such as the input's topic and partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import aiokafka

from examples.bugs.common import TOPIC
from kcore.testing import Broker

SYMPTOM = "the output has 2 records"


async def _begin(bootstrap: str, transactional_id: str) -> aiokafka.AIOKafkaProducer:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, retry_backoff_ms=5
    )
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, b"result of input-0@0", partition=0)
    return producer


async def buggy(bootstrap: str) -> aiokafka.AIOKafkaProducer:
    return await _begin(bootstrap, f"copier-{uuid.uuid4()}")


async def fixed(bootstrap: str) -> aiokafka.AIOKafkaProducer:
    return await _begin(bootstrap, "copier-input-0")


async def _replace(bootstrap: str, program) -> None:
    zombie = await program(bootstrap)  # this process is paused from now on
    successor = await program(bootstrap)
    await successor.commit_transaction()
    with contextlib.suppress(aiokafka.errors.ProducerFenced):  # fenced: the zombie must end
        await zombie.commit_transaction()
    await successor.stop()
    await zombie.stop()


def check(broker: Broker, program) -> None:
    asyncio.run(_replace(broker.bootstrap, program))
    output = broker.node.topics[TOPIC].read(0, 0)
    assert len(output) == 1, f"the output has {len(output)} records"
