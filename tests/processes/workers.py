"""Clients of several libraries that record their acknowledged writes, and check them at the end."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import kcore
from tests.kit import wait_until

PARTITIONS = 6
TIME_LIMIT_S = 60.0


def make_topic(bootstrap: str, topic: str) -> None:
    """Creates a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values()
    made.result(TIME_LIMIT_S)


class Worker(ABC):
    """A thread with a client that sends numbers until it is stopped.

    Attributes:
        done: the number of acknowledgements.
        failure: the exception that ended the thread, or None.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.done = 0
        self.failure: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(TIME_LIMIT_S)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def work(self) -> None:
        """Sends numbers until `_stopped` is set."""

    @abstractmethod
    def check(self) -> None:
        """Checks that every acknowledged write exists, in order, and only once if the client guarantees that."""


def read_topic(bootstrap: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Returns (offset, number) of all records of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: dict[int, list[tuple[int, int]]] = {}
    try:
        for partition in range(PARTITIONS):
            where = TopicPartition(topic, partition, 0)
            end = 0
            for _ in range(20):
                try:
                    end = consumer.get_watermark_offsets(where, timeout=TIME_LIMIT_S)[1]
                    break
                except KafkaException:
                    continue
            records = found[partition] = []
            consumer.assign([where])
            while end and (not records or records[-1][0] < end - 1):
                message = consumer.poll(TIME_LIMIT_S)
                assert message is not None, f"{topic}-{partition} ends at {end}, read {len(records)} records"
                if message.error() is None:
                    records.append((message.offset(), int(message.value())))
                elif not message.error().retriable():
                    raise KafkaException(message.error())
    finally:
        consumer.close()
    return found


class Confluent(Worker):
    """An idempotent producer of confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.acknowledged: dict[int, tuple[int, int]] = {}

    def work(self) -> None:
        make_topic(self.bootstrap, self.name)
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 2})
        number = 0
        while not self._stopped.is_set():
            producer.produce(self.name, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
            number += 1
            producer.poll(0)
            if len(producer) > 50:
                producer.poll(0.01)
        assert producer.flush(TIME_LIMIT_S) == 0

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        assert error is None, error
        self.acknowledged[int(message.value())] = (message.partition(), message.offset())  # type: ignore[attr-defined]
        self.done += 1

    def check(self) -> None:
        found = read_topic(self.bootstrap, self.name)
        stored = {number: (partition, offset) for partition in found for offset, number in found[partition]}
        assert sum(map(len, found.values())) == len(stored), "a record is stored twice"
        assert stored == self.acknowledged
        for records in found.values():
            numbers = [number for _, number in records]
            assert numbers == sorted(numbers)


class AioKafka(Worker):
    """An idempotent producer of aiokafka."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.acknowledged: dict[int, tuple[int, int]] = {}

    def work(self) -> None:
        make_topic(self.bootstrap, self.name)
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, request_timeout_ms=20_000, retry_backoff_ms=50
        )
        await producer.start()
        number = 0
        try:
            while not self._stopped.is_set():
                partition = number % PARTITIONS
                try:
                    sent = await producer.send_and_wait(self.name, b"%d" % number, partition=partition)
                except AioKafkaError as error:
                    if not error.retriable:
                        raise
                else:
                    self.acknowledged[number] = (partition, sent.offset)
                    self.done += 1
                number += 1
        finally:
            await producer.stop()

    def check(self) -> None:
        found = read_topic(self.bootstrap, self.name)
        stored = {(partition, offset): number for partition in found for offset, number in found[partition]}
        for number, where in self.acknowledged.items():
            assert stored[where] == number


class Commits(Worker):
    """A worker that commits growing offsets with kcore's client."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.committed = -1
        self.attempted = -1

    def work(self) -> None:
        make_topic(self.bootstrap, self.name)
        with kcore.connect(self.bootstrap) as node:
            group = node.group(self.name)
            while not self._stopped.is_set():
                self.attempted += 1
                group.commit({(self.name, 0): self.attempted})
                self.committed = self.attempted
                self.done += 1

    def check(self) -> None:
        with kcore.connect(self.bootstrap) as node:
            found = node.group(self.name).committed()
        assert self.committed <= found[self.name, 0].offset <= self.attempted


WORKERS: list[type[Worker]] = [Confluent, AioKafka, Commits]


def start_all(bootstrap: str) -> list[Worker]:
    """Starts a worker of each kind. Waits until each of them has an acknowledgement."""
    workers = [kind(bootstrap) for kind in WORKERS]
    for worker in workers:
        worker.start()
    wait_progress(workers, 20)
    return workers


def wait_progress(workers: list[Worker], more: int = 50) -> None:
    """Waits until each worker has `more` further acknowledgements."""
    before = [worker.done for worker in workers]
    wait_until(
        lambda: all(worker.failure or worker.done >= done + more for worker, done in zip(workers, before, strict=True)),
        f"{more} acknowledgements more for each of {[worker.name for worker in workers]}",
        TIME_LIMIT_S,
    )


def finish(workers: list[Worker]) -> None:
    """Stops all workers and checks their acknowledgements."""
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.check()
        assert worker.done
