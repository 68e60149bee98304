"""Processes a record for longer than `max_poll_interval_ms` (aiokafka).

The bug: the client leaves the group while the record is processed, and another worker gets the record as well.
The fix: process in a task, pause the partitions, and keep calling `getmany`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka

from examples.bugs.common import GROUP, POLL_S, TOPIC, Done, Handle, confluent_consumer
from kcore.testing import Broker

MAX_POLL_INTERVAL_MS = 150
LONG_S = 0.5
SYMPTOM = "1 record was processed more than once: jobs-0@0"

Process = Callable[[aiokafka.AIOKafkaConsumer, Any], Awaitable[None]]


async def _run(bootstrap: str, process: Process, done: Done) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        heartbeat_interval_ms=30,
        retry_backoff_ms=5,
    )
    async with consumer:
        while not done():
            for records in (await consumer.getmany(timeout_ms=10)).values():
                for record in records:
                    await process(consumer, record)
                    with contextlib.suppress(aiokafka.errors.KafkaError):  # the record is delivered again
                        await consumer.commit()


def buggy(bootstrap: str, handle: Handle, done: Done) -> None:
    async def process(_: aiokafka.AIOKafkaConsumer, record: Any) -> None:
        await asyncio.to_thread(handle, record)

    asyncio.run(_run(bootstrap, process, done))


def fixed(bootstrap: str, handle: Handle, done: Done) -> None:
    async def process(consumer: aiokafka.AIOKafkaConsumer, record: Any) -> None:
        work = asyncio.create_task(asyncio.to_thread(handle, record))
        consumer.pause(*consumer.assignment())
        while not work.done():
            await consumer.getmany(timeout_ms=10)
        consumer.resume(*consumer.assignment())
        await work

    asyncio.run(_run(bootstrap, process, done))


def check(broker: Broker, program) -> None:
    broker.node.topics[TOPIC].append("long work", partition=0)
    processed: list[Any] = []

    def handle(record: Any) -> None:
        with contextlib.suppress(AssertionError):  # the long work ends when the member has left, or after LONG_S
            broker.wait_for(lambda b: b.history(GROUP).of("left"), LONG_S)
            _run_second_worker(broker, processed)
        processed.append(record)

    program(broker.bootstrap, handle, lambda: bool(processed) and broker.committed(GROUP).get((TOPIC, 0)) == 1)
    broker.assert_no_double_processing(processed, GROUP)


def _run_second_worker(broker: Broker, processed: list[Any]) -> None:
    """Processes a record as another worker of the group."""
    consumer = confluent_consumer(broker.bootstrap)
    consumer.subscribe([TOPIC])
    while not processed:
        record = consumer.poll(POLL_S)
        if record is not None and record.error() is None:
            processed.append(record)
            consumer.commit(message=record, asynchronous=False)
    consumer.close()
