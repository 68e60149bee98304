"""`python -m bench.clients`: compares Python clients by their own processor time, against one `kcore serve`.

    python -m bench.clients [--clients kcore aiokafka ...] [--work produce consume ...] [--sizes 100 1024] [--rounds 3]

The clients are kcore (its asynchronous API), aiokafka, kafka-python and confluent-kafka (librdkafka); packages that are
not installed are skipped. Each measurement is a process of its own, which warms up and then reports the CPU time of all
its threads per record (produce, consume), per commit or per heartbeat. The clients take turns within a round. All have
the same settings: acks=all, idempotence, no compression, batches of 128 KiB, a linger time of 5 ms, fetches of 1 MiB
for a partition, four partitions. Prints a table, and writes it to build/bench/clients.md.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import kcore
from bench.compare import free_port
from bench.report import OUT

PARTITIONS = 4
BATCH_BYTES = 131_072
LINGER_MS = 5
FETCH_BYTES = 1 << 20
POLL_RECORDS = 500
WARM_RECORDS = 20_000
COMMITS = 2_000
HEARTBEAT_MS = 20
HEARTBEAT_S = 4.0
PACKAGES = {
    "kcore": "kcore",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka",
    "librdkafka": "confluent_kafka",
}
WORK = ("produce", "consume", "loop", "commit", "heartbeat")
UNITS = {
    "produce": "produce, a record",
    "consume": "consume by polls, a record",
    "loop": "consume by a loop over records, a record",
    "commit": "commit of one offset",
    "heartbeat": "heartbeat of a member of a classic group",
}


class Meter:
    """The CPU time of this process, with all its threads, since `start`."""

    def __init__(self) -> None:
        self._started_s = 0.0

    def start(self) -> None:
        """Begins the measurement."""
        self._started_s = _cpu_s()

    def us_per(self, count: int) -> float:
        """Returns the microseconds for each of `count` operations."""
        return (_cpu_s() - self._started_s) * 1e6 / count


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _group() -> str:
    return f"bench-{time.time_ns()}"


class Drained:
    """Counts consumed records: the measurement begins after the warm-up and ends with the last record."""

    def __init__(self, records: int) -> None:
        self._last = records + WARM_RECORDS
        self._seen = 0
        self._warm: int | None = None  # the records that were consumed before the measurement
        self._meter = Meter()

    def take(self, count: int) -> bool:
        """Counts records; returns True after the last one."""
        self._seen += count
        if self._warm is None and self._seen >= WARM_RECORDS:
            self._warm = self._seen
            self._meter.start()
        return self._seen >= self._last

    def us_per_record(self) -> float:
        """Returns the CPU time of a record."""
        assert self._warm is not None, "the measurement begins after the warm-up"
        return self._meter.us_per(self._seen - self._warm)


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
    drained, seen = Drained(records), 0
    async with kcore.connect_async(address) as node:
        async with node.group(_group()).consume([topic], auto_commit=None, max_records=POLL_RECORDS) as consumer:
            async for record in consumer:
                assert record.value is not None
                seen += 1
                if seen == POLL_RECORDS:
                    seen = 0
                    if drained.take(POLL_RECORDS):
                        return drained.us_per_record()
    raise AssertionError("the loop ended before the last record")


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
    meter = Meter()
    async with kcore.connect_async(address) as node:
        options: dict[str, Any] = {"protocol": "classic", "heartbeat_interval": HEARTBEAT_MS / 1000}
        async with node.group(_group()).join([topic], **options) as member:
            while not member.assignment:
                await asyncio.sleep(0.1)
            meter.start()
            await asyncio.sleep(HEARTBEAT_S)
            return meter.us_per(int(HEARTBEAT_S * 1000 / HEARTBEAT_MS))


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
    """Gets lists of records."""
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
    drained, seen = Drained(records), 0
    async with _aiokafka_consumer(address, topic) as consumer:
        async for record in consumer:
            assert record.value is not None
            seen += 1
            if seen == POLL_RECORDS:
                seen = 0
                if drained.take(POLL_RECORDS):
                    return drained.us_per_record()
    raise AssertionError("the loop ended before the last record")


async def aiokafka_commit(address: str, topic: str, size: int, records: int) -> float:
    """Commits an offset of an owned partition, one commit at a time."""
    from aiokafka import TopicPartition

    meter, place = Meter(), TopicPartition(topic, 0)
    async with _aiokafka_consumer(address, topic) as consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=500)
        for offset in range(2 * COMMITS):
            if offset == COMMITS:
                meter.start()
            await consumer.commit({place: offset})
        return meter.us_per(COMMITS)


async def aiokafka_heartbeat(address: str, topic: str, size: int, records: int) -> float:
    """Idles as a member that sends heartbeats often; its partitions are paused, or it would also fetch."""
    meter = Meter()
    async with _aiokafka_consumer(address, topic, heartbeat_interval_ms=HEARTBEAT_MS) as consumer:
        while not consumer.assignment():
            await asyncio.sleep(0.1)
        consumer.pause(*consumer.assignment())
        await asyncio.sleep(1.0)
        meter.start()
        await asyncio.sleep(HEARTBEAT_S)
        return meter.us_per(int(HEARTBEAT_S * 1000 / HEARTBEAT_MS))


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

    meter, place = Meter(), TopicPartition(topic, 0)
    consumer = _kafka_python_consumer(address, topic)
    while not consumer.assignment():
        consumer.poll(timeout_ms=500)
    for offset in range(2 * COMMITS):
        if offset == COMMITS:
            meter.start()
        consumer.commit({place: OffsetAndMetadata(offset, "", -1)})
    result = meter.us_per(COMMITS)
    consumer.close()
    return result


def kafka_python_heartbeat(address: str, topic: str, size: int, records: int) -> float:
    """Idles as a member that sends heartbeats often; its partitions are paused, or it would also fetch."""
    meter = Meter()
    consumer = _kafka_python_consumer(address, topic, heartbeat_interval_ms=HEARTBEAT_MS)
    while not consumer.assignment():
        consumer.poll(timeout_ms=500)
    consumer.pause(*consumer.assignment())
    consumer.poll(timeout_ms=1000)
    meter.start()
    time.sleep(HEARTBEAT_S)
    result = meter.us_per(int(HEARTBEAT_S * 1000 / HEARTBEAT_MS))
    consumer.close()
    return result


# ---- librdkafka


def librdkafka_produce(address: str, topic: str, size: int, records: int) -> float:
    """Produces records without delivery reports, and serves the events of the library."""
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
    """Idles as a member that sends heartbeats often; its partitions are paused, or it would also fetch."""
    meter = Meter()
    consumer = _librdkafka_consumer(address, topic, **{"heartbeat.interval.ms": HEARTBEAT_MS})
    while not consumer.assignment():
        consumer.poll(0.5)
    consumer.pause(consumer.assignment())
    consumer.poll(1.0)
    meter.start()
    consumer.poll(HEARTBEAT_S)
    result = meter.us_per(int(HEARTBEAT_S * 1000 / HEARTBEAT_MS))
    consumer.close()
    return result


# ---- the comparison


def measure_here(client: str, work: str, address: str, topic: str, size: int, records: int) -> float:
    """Performs one measurement in this process and returns µs of CPU per operation."""
    function: Callable[..., float | Coroutine[Any, Any, float]] = globals()[f"{client.replace('-', '_')}_{work}"]
    result = function(address, topic, size, records)
    return result if isinstance(result, float) else asyncio.run(result)


@contextmanager
def server() -> Iterator[str]:
    """Starts `kcore serve` on a free port, and yields its address."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "kcore", "serve", "--listen", address, "--data", f"{folder}/data"]
        command += ["-c", "group.initial.rebalance.delay.ms=0", "-c", "group.consumer.assignment.interval.ms=0"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_for(address)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _wait_for(address: str) -> None:
    host, port = address.split(":")
    until_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((host, int(port))).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > until_s:
                raise
        time.sleep(0.05)


def fill(address: str, topic: str, size: int, records: int) -> None:
    """Creates a topic with records of equal size, spread over its partitions."""
    with kcore.connect(address) as node:
        node.topics.create(topic, partitions=PARTITIONS)
        with node.producer(batch_bytes=BATCH_BYTES) as producer:
            for number in range(records):
                producer.append(topic, bytes(size), partition=number // 1000 % PARTITIONS)


def measure(client: str, work: str, address: str, topic: str, size: int, records: int) -> float:
    """Performs one measurement in a new process."""
    here = [client, work, address, topic, str(size), str(records)]
    command = [sys.executable, "-m", "bench.clients", "--here", *here]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    return float(json.loads(done.stdout.splitlines()[-1]))


def table(results: dict[tuple[str, int], dict[str, list[float]]], clients: list[str]) -> str:
    """Renders the medians, and the ratio of each to kcore's."""
    heads = ["client CPU, µs", "bytes", *clients]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for (work, size), by_client in results.items():
        medians = {client: statistics.median(values) for client, values in by_client.items()}
        ours = medians.get("kcore")
        cells = [UNITS[work], str(size) if size else ""]
        for client in clients:
            ratio = f" ({medians[client] / ours:.1f} ×)" if ours and client != "kcore" else ""
            cells.append(f"{medians[client]:.2f}{ratio}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def compare(clients: list[str], work: list[str], sizes: list[int], records: int, rounds: int) -> str:
    """Measures all clients in turns, and returns the table."""
    results: dict[tuple[str, int], dict[str, list[float]]] = {}
    with server() as address:
        for size in sizes:
            fill(address, f"filled-{size}", size, records + 2 * WARM_RECORDS)
        for number in range(rounds):
            for size in sizes:
                fill(address, f"produced-{size}-{number}", size, 0)
            for job in work:
                for size in sizes if job in ("produce", "consume", "loop") else [0]:
                    for client in clients:
                        topic = f"produced-{size}-{number}" if job == "produce" else f"filled-{size or sizes[0]}"
                        value = measure(client, job, address, topic, size, records)
                        results.setdefault((job, size), {}).setdefault(client, []).append(value)
                        print(f"{number + 1}: {job} {size or ''} {client}: {value:.2f} µs", file=sys.stderr)
    return table(results, clients)


def main() -> int:
    """Runs the comparison, or with `--here` one measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1024])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--here", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        client, work, address, topic, size, records = options.here
        print(measure_here(client, work, address, topic, int(size), int(records)))
        return 0
    missing = [client for client in options.clients if importlib.util.find_spec(PACKAGES[client]) is None]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    clients = [client for client in options.clients if client not in missing]
    text = compare(clients, options.work, options.sizes, options.records, options.rounds)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "clients.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
