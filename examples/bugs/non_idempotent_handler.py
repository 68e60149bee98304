"""Adds to a balance for each record, although records may be delivered twice (aiokafka).

The bug: after a crash between processing and commit, the record is processed again, and its amount counts twice.
The fix: store the position of the last processed record together with the balance, and skip older records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka

from examples.bugs.common import GROUP, TOPIC, CrashError, run_twice
from kcore.testing import Broker

SYMPTOM = "the balance is 8, not 6"


class Account:
    """A store that survives the process.

    Attributes:
        balance: the sum of the amounts.
        next_offset: the offset of the first record that is not in the balance; only the fixed program uses it.
    """

    def __init__(self) -> None:
        self.balance = 0
        self.next_offset = 0


Apply = Callable[[Account, aiokafka.ConsumerRecord], None]


def _add(account: Account, record: aiokafka.ConsumerRecord) -> None:
    account.balance += int(record.value)


def _add_once(account: Account, record: aiokafka.ConsumerRecord) -> None:
    if record.offset >= account.next_offset:
        account.balance += int(record.value)
        account.next_offset = record.offset + 1  # in one transaction of the store


async def _run(bootstrap: str, account: Account, count: int, apply: Apply, crash: Callable[[int], None]) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with consumer:
        async for record in consumer:
            apply(account, record)
            crash(record.offset)
            await consumer.commit()
            if record.offset == count - 1:
                return


def buggy(bootstrap: str, account: Account, count: int, crash: Callable[[int], None]) -> None:
    asyncio.run(_run(bootstrap, account, count, _add, crash))


def fixed(bootstrap: str, account: Account, count: int, crash: Callable[[int], None]) -> None:
    asyncio.run(_run(bootstrap, account, count, _add_once, crash))


def check(broker: Broker, program) -> None:
    broker.node.topics[TOPIC].append_many(["1", "2", "3"], partition=0)
    account = Account()
    crashes = [1]  # the process crashes after it has processed this offset

    def crash(offset: int) -> None:
        if offset in crashes:
            crashes.remove(offset)
            raise CrashError

    run_twice(lambda: program(broker.bootstrap, account, 3, crash))
    assert account.balance == 6, f"the balance is {account.balance}, not 6"
