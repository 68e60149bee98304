"""A consumer process of the demonstration: counts words and prints them as JSON lines.

    python -m kcore.demo.worker LIBRARY BOOTSTRAP GROUP TOPIC PAUSE_S

It prints a record before it commits the record's offset. A reader of the lines therefore sees each record at least
once. If it identifies records by partition and offset, it counts each record exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 500
BATCH_RECORDS = 8
WORD = re.compile(r"\w+")


def words_of(line: str) -> Counter[str]:
    """Counts the words of a line, in lower case."""
    return Counter(WORD.findall(line.lower()))


def say(event: str, **fields: Any) -> None:
    """Prints one event as a JSON line."""
    print(json.dumps({"event": event, **fields}), flush=True)


def say_counted(partition: int, records: Iterable[tuple[int, bytes | None]]) -> None:
    """Prints the counted records with their words."""
    counted = [[offset, words_of((value or b"").decode("utf-8", "replace"))] for offset, value in records]
    say("counted", partition=partition, records=counted)


def consume_confluent(bootstrap: str, group: str, topic: str, pause_s: float, stop: threading.Event) -> None:
    """Consumes with librdkafka (confluent-kafka)."""
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "confluent-kafka",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "partition.assignment.strategy": "range",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )

    consumer.subscribe([topic])
    while not stop.is_set():
        batch: dict[int, list[tuple[int, bytes | None]]] = {}
        for message in consumer.consume(BATCH_RECORDS, timeout=0.2):
            partition, offset = message.partition(), message.offset()
            if message.error() is None and partition is not None and offset is not None:
                batch.setdefault(partition, []).append((offset, message.value()))
        for partition, records in batch.items():
            say_counted(partition, records)
        if batch:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                say("commit failed", reason=error.args[0].name())
            time.sleep(pause_s * sum(map(len, batch.values())))
    consumer.close()


def consume_kafka_python(bootstrap: str, group: str, topic: str, pause_s: float, stop: threading.Event) -> None:
    """Consumes with kafka-python, a pure Python client."""
    from kafka import KafkaConsumer  # noqa: PLC0415
    from kafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415
    from kafka.errors import KafkaError  # noqa: PLC0415

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="kafka-python",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
        reconnect_backoff_max_ms=500,
    )
    consumer.subscribe([topic])
    while not stop.is_set():
        polled = consumer.poll(timeout_ms=200, max_records=BATCH_RECORDS)
        for part, records in polled.items():
            say_counted(part.partition, [(record.offset, record.value) for record in records])
        if polled:
            try:
                consumer.commit()
            except KafkaError as error:
                say("commit failed", reason=type(error).__name__)
            time.sleep(pause_s * sum(map(len, polled.values())))
    consumer.close()


async def _consume_aiokafka(bootstrap: str, group: str, topic: str, pause_s: float, stop: threading.Event) -> None:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415
    from aiokafka.errors import KafkaError  # noqa: PLC0415

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="aiokafka",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        partition_assignment_strategy=(RangePartitionAssignor,),
        metadata_max_age_ms=1_000,
    )
    consumer.subscribe([topic])
    await consumer.start()
    try:
        while not stop.is_set():
            polled = await consumer.getmany(timeout_ms=200, max_records=BATCH_RECORDS)
            for part, records in polled.items():
                say_counted(part.partition, [(record.offset, record.value) for record in records])
            if polled:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    say("commit failed", reason=type(error).__name__)
                await asyncio.sleep(pause_s * sum(map(len, polled.values())))
    finally:
        with contextlib.suppress(KafkaError):
            await consumer.stop()


def consume_aiokafka(bootstrap: str, group: str, topic: str, pause_s: float, stop: threading.Event) -> None:
    """Consumes with aiokafka, an asyncio client."""
    asyncio.run(_consume_aiokafka(bootstrap, group, topic, pause_s, stop))


def consume_kcore(bootstrap: str, group: str, topic: str, pause_s: float, stop: threading.Event) -> None:
    """Consumes with kcore's own client, which joins the same classic group as the aiokafka client."""
    import kcore  # noqa: PLC0415
    from kcore.errors import KafkaError, KcoreError, PartitionErrors  # noqa: PLC0415

    with kcore.connect(bootstrap, client_id="kcore") as node:
        consumer = node.group(group).consume(
            topic,
            protocol="classic",
            assignors=["range"],
            session_timeout=SESSION_TIMEOUT_MS / 1_000,
            heartbeat_interval=HEARTBEAT_INTERVAL_MS / 1_000,
            auto_commit=None,
            max_records=BATCH_RECORDS,
        )
        with consumer:
            while not stop.is_set():
                try:
                    polled = consumer.poll(0.2)
                    batch: dict[int, list[tuple[int, bytes | None]]] = {}
                    for record in polled:
                        batch.setdefault(record.partition, []).append((record.offset, record.value))
                    for partition, records in batch.items():
                        say_counted(partition, records)
                    if polled:
                        consumer.commit()
                except (KafkaError, KcoreError, PartitionErrors, TimeoutError) as error:
                    say("commit failed", reason=f"{type(error).__name__}: {error}")
                    polled = []
                time.sleep(pause_s * len(polled))


LIBRARIES = {
    "confluent-kafka": consume_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
}


CLUSTER_LIBRARIES = {**LIBRARIES, "kcore": consume_kcore}
"""Mapping from the name of each client library of the cluster demonstration to the function that consumes with it."""


def main() -> None:
    """Consumes until SIGTERM."""
    library, bootstrap, group, topic, pause_s = sys.argv[1:]
    logging.disable(logging.CRITICAL)  # lost connections are part of the demonstration, which prints them itself
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    CLUSTER_LIBRARIES[library](bootstrap, group, topic, float(pause_s), stop)


if __name__ == "__main__":
    main()
