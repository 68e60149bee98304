"""Transactions of real clients: commit, abort, offsets in transactions, fencing, and crashes of
producers and server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kcore.testing import ServerProcess

pytestmark = pytest.mark.clients

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
WAIT_S = 20.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("data") / "data", SETTINGS) as process:
        yield process


def make_topic(server: ServerProcess, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    return name


def reader(server: ServerProcess, group: str, **more: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **more,
        }
    )


def committed(server: ServerProcess, topic: str) -> list[bytes]:
    """Returns all records up to the last stable offset."""
    consumer = reader(server, "reader")
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline_s = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < deadline_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return values
    finally:
        consumer.close()
    raise AssertionError("the end was not reached")


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def producer(server: ServerProcess, tid: str, timeout_ms: int = 60_000) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": tid,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 0,
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.max.ms": 100,
        }
    )
    made.init_transactions(WAIT_S)
    return made


def test_confluent_kafka_commits_and_aborts(server: ServerProcess) -> None:
    topic = make_topic(server, "confluent")
    sender = producer(server, "confluent")
    for values, commit in (([b"a", b"b"], True), ([b"c"], False), ([b"d"], True)):
        sender.begin_transaction()
        for value in values:
            sender.produce(topic, value)
        if commit:
            sender.commit_transaction(WAIT_S)
        else:
            sender.flush(WAIT_S)
            sender.abort_transaction(WAIT_S)
    assert committed(server, topic) == [b"a", b"b", b"d"]


def test_a_new_instance_fences_the_old_one(server: ServerProcess) -> None:
    """The transaction of the old instance is aborted, and its commit is refused."""
    topic = make_topic(server, "zombies")
    old = producer(server, "zombie")
    old.begin_transaction()
    old.produce(topic, b"old")
    old.flush(WAIT_S)
    new = producer(server, "zombie")
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()
    new.begin_transaction()
    new.produce(topic, b"new")
    new.commit_transaction(WAIT_S)
    assert committed(server, topic) == [b"new"]


def test_offsets_are_committed_with_the_transaction(server: ServerProcess) -> None:
    """With send_offsets_to_transaction, an abort leaves the group's offset unchanged, and a commit moves it."""
    source, sink = make_topic(server, "source"), make_topic(server, "sink")
    sender = producer(server, "source")
    sender.begin_transaction()
    for number in range(10):
        sender.produce(source, b"%d" % number)
    sender.commit_transaction(WAIT_S)
    consumer = reader(server, "copiers")
    consumer.subscribe([source])
    messages: list[bytes] = []

    def consume() -> bool:
        messages.extend(found.value() for found in consumer.consume(10, 0.2) if found.error() is None)
        return len(messages) >= 10

    until(consume)
    for commit, offset in ((False, -1001), (True, 10)):
        sender.begin_transaction()
        sender.produce(sink, b"copy")
        positions = consumer.position(consumer.assignment())
        # The commit marker follows the records, so positions are one higher.
        positions = [TopicPartition(source, 0, 10)] if positions[0].offset >= 10 else positions
        sender.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        if commit:
            sender.commit_transaction(WAIT_S)
        else:
            sender.flush(WAIT_S)
            sender.abort_transaction(WAIT_S)
        assert consumer.committed([TopicPartition(source, 0)], WAIT_S)[0].offset == offset
    consumer.close()
    assert committed(server, sink) == [b"copy"]


def test_the_transaction_of_a_dead_producer_is_aborted_by_its_timeout(server: ServerProcess) -> None:
    """The records of the dead producer never become visible, and do not block readers forever."""
    topic = make_topic(server, "dead")
    sender = producer(server, "dead", timeout_ms=1000)
    sender.begin_transaction()
    sender.produce(topic, b"lost")
    sender.flush(WAIT_S)
    plain = Producer({"bootstrap.servers": server.bootstrap})
    plain.produce(topic, b"plain")
    plain.flush(WAIT_S)
    until(lambda: committed(server, topic) == [b"plain"])
    assert committed(server, topic) == [b"plain"]


@pytest.mark.crash
def test_a_server_killed_in_a_transaction_continues_it(server: ServerProcess, tmp_path: Path) -> None:
    """The producer commits after the restart without an error."""
    with ServerProcess(tmp_path / "data", SETTINGS) as own:
        topic = make_topic(own, "killed")
        sender = producer(own, "killed")
        sender.begin_transaction()
        sender.produce(topic, b"before")
        sender.flush(WAIT_S)
        own.kill()
        own.start()
        sender.produce(topic, b"behind")
        sender.commit_transaction(WAIT_S)
        assert committed(own, topic) == [b"before", b"behind"]


def test_aiokafka_commits_aborts_and_reads(server: ServerProcess) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic = make_topic(server, "aiokafka")

    async def talk() -> list[bytes]:
        sender = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="aiokafka")
        await sender.start()
        async with sender.transaction():
            await sender.send_and_wait(topic, b"a")
            await sender.send_offsets_to_transaction({_place(topic): 1}, "aiokafka group")
        await sender.begin_transaction()
        await sender.send_and_wait(topic, b"b")
        await sender.abort_transaction()
        async with sender.transaction():
            await sender.send_and_wait(topic, b"c")
        await sender.stop()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=server.bootstrap, isolation_level="read_committed", group_id="aiokafka group"
        )
        await consumer.start()
        consumer.assign([_place(topic)])
        offset = await consumer.committed(_place(topic))
        assert offset == 1
        consumer.seek(_place(topic), 0)
        values: list[bytes] = []
        while len(values) < 2:
            values.append((await asyncio.wait_for(consumer.getone(), WAIT_S)).value)
        await consumer.stop()
        return values

    assert asyncio.run(talk()) == [b"a", b"c"]


def _place(topic: str) -> object:
    from aiokafka import TopicPartition as AioTopicPartition

    return AioTopicPartition(topic, 0)


def test_kafka_python_commits_and_aborts(server: ServerProcess) -> None:
    from kafka import KafkaProducer

    topic = make_topic(server, "kafka-python")
    sender = KafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="kafka-python")
    sender.init_transactions()
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        sender.begin_transaction()
        sender.send(topic, value)
        if commit:
            sender.commit_transaction()
        else:
            sender.flush()
            sender.abort_transaction()
    sender.close()
    assert committed(server, topic) == [b"a", b"c"]
