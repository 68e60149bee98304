"""Processes records concurrently, and commits each record when it is done (aiokafka).

The bug: a committed offset covers all records before it. If a later record is done first, its commit includes the
earlier record, which a crash then loses.
The fix: commit only up to the first record that is not done.
"""

from __future__ import annotations

import asyncio

import aiokafka

from examples.bugs.common import GROUP, TOPIC, CrashError, Handle, run_twice
from kcore.testing import Broker

SYMPTOM = "1 record was committed in group g but not processed: jobs-0@0"


def _consumer(bootstrap: str) -> aiokafka.AIOKafkaConsumer:
    return aiokafka.AIOKafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
    )


def _committable_highest(done: set[int], start: int) -> int:
    return max(done) + 1


def _committable_prefix(done: set[int], start: int) -> int:
    offset = start
    while offset in done:
        offset += 1
    return offset


async def _run(bootstrap: str, handle: Handle, count: int, committable) -> None:
    async with _consumer(bootstrap) as consumer:
        partition = aiokafka.TopicPartition(TOPIC, 0)
        start = await consumer.committed(partition) or 0
        batch: list[aiokafka.ConsumerRecord] = []
        while len(batch) < count - start:
            for records in (await consumer.getmany(timeout_ms=10)).values():
                batch += records
        done: set[int] = set()
        for record in reversed(batch):  # the later record is done first
            handle(record)
            done.add(record.offset)
            await consumer.commit({partition: committable(done, start)})


def buggy(bootstrap: str, handle: Handle, count: int) -> None:
    asyncio.run(_run(bootstrap, handle, count, _committable_highest))


def fixed(bootstrap: str, handle: Handle, count: int) -> None:
    asyncio.run(_run(bootstrap, handle, count, _committable_prefix))


def check(broker: Broker, program) -> None:
    broker.node.topics[TOPIC].append_many(["slow", "fast"], partition=0)
    processed: list[tuple[str, int, int]] = []
    crashes = [0]

    def handle(record: aiokafka.ConsumerRecord) -> None:
        if record.offset in crashes:
            crashes.remove(record.offset)
            raise CrashError
        processed.append((record.topic, record.partition, record.offset))

    run_twice(lambda: program(broker.bootstrap, handle, 2))
    broker.assert_nothing_skipped(processed, GROUP)
