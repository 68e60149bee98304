"""The work of each client in `bench.clients`, and the meters of its processor time."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
import time
from collections.abc import AsyncIterable
from typing import Any

import kcore

PARTITIONS = 4
BATCH_BYTES = 131_072
LINGER_MS = 5
FETCH_BYTES = 1 << 20
POLL_RECORDS = 500
WARM_RECORDS = 20_000
COMMITS = 2_000
HEARTBEAT_MS = 20
HEARTBEAT_S = 4.0
SEGMENTS_AT = 156  # tcpi_data_segs_out in Linux's struct tcp_info


class Meter:
    """The CPU time of this process, including all its threads, since `start`."""

    def __init__(self) -> None:
        self._started_s = 0.0

    def start(self) -> None:
        """Begins the measurement."""
        self._started_s = _cpu_s()

    def us_per(self, count: int) -> float:
        """Returns the CPU microseconds for each of `count` operations."""
        return (_cpu_s() - self._started_s) * 1e6 / count


class HeartbeatMeter:
    """The CPU time of an idle process for each request that it sends."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._meter.start()
        self._sent = _segments()

    def us_per_request(self) -> float:
        """Returns the CPU microseconds for each request."""
        return self._meter.us_per(max(1, _segments() - self._sent))


def _segments() -> int:
    """Counts the TCP segments with data that the open connections have sent, on Linux.

    Each small request is one segment.
    """
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(number))) as opened:
                if opened.type == socket.SOCK_STREAM and opened.family in (socket.AF_INET, socket.AF_INET6):
                    raw = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    count += struct.unpack_from("<I", raw, SEGMENTS_AT)[0]
        except OSError:
            continue  # not a socket, or the closed descriptor of the folder listing
    return count


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _group() -> str:
    return f"bench-{time.time_ns()}"


class Drained:
    """A counter of consumed records. It measures CPU time from the end of the warm-up to the last record."""

    def __init__(self, records: int) -> None:
        self._last = records + WARM_RECORDS
        self._seen = 0
        self._warm: int | None = None  # the records that were consumed before the measurement
        self._meter = Meter()

    def take(self, count: int) -> bool:
        """Counts records. Returns True after the last record."""
        self._seen += count
        if self._warm is None and self._seen >= WARM_RECORDS:
            self._warm = self._seen
            self._meter.start()
        return self._seen >= self._last

    def us_per_record(self) -> float:
        """Returns the average CPU time per record, in microseconds."""
        assert self._warm is not None, "the measurement begins after the warm-up"
        return self._meter.us_per(self._seen - self._warm)


async def _iterated(consumer: AsyncIterable[Any], drained: Drained) -> float:
    """Iterates over records until the last one. Returns the average CPU time per record, in microseconds."""
    records_ = 0
    async for record in consumer:
        assert record.value is not None
        records_ += 1
        if records_ == POLL_RECORDS:
            records_ = 0
            if drained.take(POLL_RECORDS):
                return drained.us_per_record()
    raise AssertionError("the loop ended before the last record")


# ---- kcore


async def kcore_produce(address: str, topic: str, size: int, records: int) -> float:
    """Appends records to the batches of a producer."""
    value, meter = bytes(size), Meter()
    async with kcore.connect_async(address) as node:
        async with node.producer(linger=LINGER_MS / 1000, batch_bytes=BATCH_BYTES) as producer:
            for _ in range(WARM_RECORDS):
                await producer.append(topic, value)
            await producer.flush()
            meter.start()
            for _ in range(records):
                await producer.append(topic, value)
            await producer.flush()
            return meter.us_per(records)


async def kcore_consume(address: str, topic: str, size: int, records: int) -> float:
    """Polls lists of records."""
    drained = Drained(records)
    async with kcore.connect_async(address) as node:
        async with node.group(_group()).consume([topic], auto_commit=None, max_records=POLL_RECORDS) as consumer:
            while True:
                rows = await consumer.poll(1.0)
                for record in rows:
                    assert record.value is not None
                if rows and drained.take(len(rows)):
                    return drained.us_per_record()


async def kcore_loop(address: str, topic: str, size: int, records: int) -> float:
    """Iterates over records."""
    drained = Drained(records)
    async with kcore.connect_async(address) as node:
        async with node.group(_group()).consume([topic], auto_commit=None, max_records=POLL_RECORDS) as consumer:
            return await _iterated(consumer, drained)


async def kcore_commit(address: str, topic: str, size: int, records: int) -> float:
    """Commits an offset of an owned partition, one commit at a time."""
    meter = Meter()
    async with kcore.connect_async(address) as node:
        async with node.group(_group()).consume([topic], auto_commit=None) as consumer:
            while not consumer.assignment:
                await consumer.poll(0.5)
            for offset in range(2 * COMMITS):
                if offset == COMMITS:
                    meter.start()
                await consumer.commit({(topic, 0): offset})
            return meter.us_per(COMMITS)


async def kcore_heartbeat(address: str, topic: str, size: int, records: int) -> float:
    """Idles as a member that sends heartbeats often."""
    async with kcore.connect_async(address) as node:
        options: dict[str, Any] = {"protocol": "classic", "heartbeat_interval": HEARTBEAT_MS / 1000}
        async with node.group(_group()).join([topic], **options) as member:
            while not member.assignment:
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.0)
            meter = HeartbeatMeter()
            await asyncio.sleep(HEARTBEAT_S)
            return meter.us_per_request()


# ---- aiokafka


async def aiokafka_produce(address: str, topic: str, size: int, records: int) -> float:
    """Sends records to the batches of a producer, without awaiting each result."""
    from aiokafka import AIOKafkaProducer

    value, meter = bytes(size), Meter()
    producer = AIOKafkaProducer(
        bootstrap_servers=address, enable_idempotence=True, max_batch_size=BATCH_BYTES, linger_ms=LINGER_MS
    )
    async with producer:
        for _ in range(WARM_RECORDS):
            await producer.send(topic, value)
        await producer.flush()
        meter.start()
        for _ in range(records):
            await producer.send(topic, value)
        await producer.flush()
        return meter.us_per(records)


def _aiokafka_consumer(address: str, topic: str, **options: Any) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=_group(),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
        isolation_level="read_committed",
        **options,
    )


async def aiokafka_consume(address: str, topic: str, size: int, records: int) -> float:
    """Fetches lists of records."""
    drained = Drained(records)
    async with _aiokafka_consumer(address, topic) as consumer:
        while True:
            batch = await consumer.getmany(timeout_ms=1000, max_records=POLL_RECORDS)
            count = 0
            for rows in batch.values():
                for record in rows:
                    assert record.value is not None
                count += len(rows)
            if count and drained.take(count):
                return drained.us_per_record()


async def aiokafka_loop(address: str, topic: str, size: int, records: int) -> float:
    """Iterates over records."""
    drained = Drained(records)
    async with _aiokafka_consumer(address, topic) as consumer:
        return await _iterated(consumer, drained)


async def aiokafka_commit(address: str, topic: str, size: int, records: int) -> float:
    """Commits an offset of an owned partition, one commit at a time."""
    from aiokafka import TopicPartition

    meter, partition = Meter(), TopicPartition(topic, 0)
    async with _aiokafka_consumer(address, topic) as consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=500)
        for offset in range(2 * COMMITS):
            if offset == COMMITS:
                meter.start()
            await consumer.commit({partition: offset})
        return meter.us_per(COMMITS)


async def aiokafka_heartbeat(address: str, topic: str, size: int, records: int) -> float:
    """Idles as a member that sends heartbeats often. Its partitions are paused, so that the client does not fetch."""
    async with _aiokafka_consumer(address, topic, heartbeat_interval_ms=HEARTBEAT_MS) as consumer:
        while not consumer.assignment():
            await asyncio.sleep(0.1)
        consumer.pause(*consumer.assignment())
        await asyncio.sleep(1.0)
        meter = HeartbeatMeter()
        await asyncio.sleep(HEARTBEAT_S)
        return meter.us_per_request()


# ---- kafka-python


def kafka_python_produce(address: str, topic: str, size: int, records: int) -> float:
    """Sends records to the batches of a producer, without waiting for each result."""
    from kafka import KafkaProducer

    value, meter = bytes(size), Meter()
    producer = KafkaProducer(
        bootstrap_servers=address, enable_idempotence=True, acks="all", batch_size=BATCH_BYTES, linger_ms=LINGER_MS
    )
    for _ in range(WARM_RECORDS):
        producer.send(topic, value)
    producer.flush()
    meter.start()
    for _ in range(records):
        producer.send(topic, value)
    producer.flush()
    result = meter.us_per(records)
    producer.close()
    return result


def _kafka_python_consumer(address: str, topic: str, **options: Any) -> Any:
    from kafka import KafkaConsumer

    return KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=_group(),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
        max_poll_records=POLL_RECORDS,
        isolation_level="read_committed",
        **options,
    )


def kafka_python_consume(address: str, topic: str, size: int, records: int) -> float:
    """Polls lists of records."""
    drained = Drained(records)
    consumer = _kafka_python_consumer(address, topic)
    while True:
        count = 0
        for rows in consumer.poll(timeout_ms=1000).values():
            for record in rows:
                assert record.value is not None
            count += len(rows)
        if count and drained.take(count):
            result = drained.us_per_record()
            consumer.close()
            return result


def kafka_python_loop(address: str, topic: str, size: int, records: int) -> float:
    """Iterates over records."""
    drained, seen = Drained(records), 0
    consumer = _kafka_python_consumer(address, topic)
    for record in consumer:
        assert record.value is not None
        seen += 1
        if seen == POLL_RECORDS:
            seen = 0
            if drained.take(POLL_RECORDS):
                break
    result = drained.us_per_record()
    consumer.close()
    return result


def kafka_python_commit(address: str, topic: str, size: int, records: int) -> float:
    """Commits an offset of an owned partition, one commit at a time."""
    from kafka import TopicPartition
    from kafka.structs import OffsetAndMetadata

    meter, partition = Meter(), TopicPartition(topic, 0)
    consumer = _kafka_python_consumer(address, topic)
    while not consumer.assignment():
        consumer.poll(timeout_ms=500)
    for offset in range(2 * COMMITS):
        if offset == COMMITS:
            meter.start()
        consumer.commit({partition: OffsetAndMetadata(offset, "", -1)})
    result = meter.us_per(COMMITS)
    consumer.close()
    return result


def kafka_python_heartbeat(address: str, topic: str, size: int, records: int) -> float:
    """Idles as a member that sends heartbeats often. Its partitions are paused, so that the client does not fetch."""
    consumer = _kafka_python_consumer(address, topic, heartbeat_interval_ms=HEARTBEAT_MS)
    while not consumer.assignment():
        consumer.poll(timeout_ms=500)
    consumer.pause(*consumer.assignment())
    consumer.poll(timeout_ms=1000)
    meter = HeartbeatMeter()
    time.sleep(HEARTBEAT_S)
    result = meter.us_per_request()
    consumer.close()
    return result


# ---- librdkafka


def librdkafka_produce(address: str, topic: str, size: int, records: int) -> float:
    """Produces records without delivery reports, and polls the library's events."""
    from confluent_kafka import Producer

    value, meter = bytes(size), Meter()
    options: dict[str, Any] = {
        "bootstrap.servers": address,
        "enable.idempotence": True,
        "batch.size": BATCH_BYTES,
        "linger.ms": LINGER_MS,
        "queue.buffering.max.messages": 10_000_000,
    }
    producer = Producer(options)
    for _ in range(WARM_RECORDS):
        producer.produce(topic, value)
    producer.flush()
    meter.start()
    for number in range(records):
        producer.produce(topic, value)
        if not number % POLL_RECORDS:
            producer.poll(0)
    producer.flush()
    return meter.us_per(records)


def _librdkafka_consumer(address: str, topic: str, **more: Any) -> Any:
    from confluent_kafka import Consumer

    options: dict[str, Any] = {
        "bootstrap.servers": address,
        "group.id": _group(),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "max.partition.fetch.bytes": FETCH_BYTES,
        "isolation.level": "read_committed",
        **more,
    }
    consumer = Consumer(options)
    consumer.subscribe([topic])
    return consumer


def librdkafka_consume(address: str, topic: str, size: int, records: int) -> float:
    """Consumes lists of messages."""
    drained = Drained(records)
    consumer = _librdkafka_consumer(address, topic)
    while True:
        rows = consumer.consume(POLL_RECORDS, 1.0)
        for record in rows:
            assert record.value() is not None
        if rows and drained.take(len(rows)):
            result = drained.us_per_record()
            consumer.close()
            return result


def librdkafka_loop(address: str, topic: str, size: int, records: int) -> float:
    """Polls single messages."""
    drained, seen = Drained(records), 0
    consumer = _librdkafka_consumer(address, topic)
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        assert record.value() is not None
        seen += 1
        if seen == POLL_RECORDS:
            seen = 0
            if drained.take(POLL_RECORDS):
                result = drained.us_per_record()
                consumer.close()
                return result


def librdkafka_commit(address: str, topic: str, size: int, records: int) -> float:
    """Commits an offset of an owned partition, one commit at a time."""
    from confluent_kafka import TopicPartition

    meter = Meter()
    consumer = _librdkafka_consumer(address, topic)
    while not consumer.assignment():
        consumer.poll(0.5)
    consumer.pause(consumer.assignment())
    for offset in range(2 * COMMITS):
        if offset == COMMITS:
            meter.start()
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    result = meter.us_per(COMMITS)
    consumer.close()
    return result


def librdkafka_heartbeat(address: str, topic: str, size: int, records: int) -> float:
    """Idles as a member that sends heartbeats often. Its partitions are paused, so that the client does not fetch."""
    consumer = _librdkafka_consumer(address, topic, **{"heartbeat.interval.ms": HEARTBEAT_MS})
    while not consumer.assignment():
        consumer.poll(0.5)
    consumer.pause(consumer.assignment())
    consumer.poll(1.0)
    meter = HeartbeatMeter()
    consumer.poll(HEARTBEAT_S)
    result = meter.us_per_request()
    consumer.close()
    return result
