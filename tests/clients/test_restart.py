"""A server that is killed and restarted on its folder: to its clients, the server only appears slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaProducer

from kcore.testing import ServerProcess
from tests.clients.conftest import SETTINGS, create_topic
from tests.clients.members import Member, expect_share, wait_until
from tests.clients.test_confluent_kafka import read_all
from tests.clients.waiting import DEADLINE_S, eventually

PARTITIONS = 2
CHUNK = 100


def kill_and_start(server: ServerProcess) -> None:
    server.kill()
    server.start()


def produce_by_confluent(server: ServerProcess, topic: str, chunks: Sequence[Sequence[str]]) -> None:
    """Sends all chunks. Kills the server while each chunk except the last one is being sent."""
    acked: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acked.append(message.value().decode())

    options = {"enable.idempotence": True, "reconnect.backoff.max.ms": 200, "log_level": 0}
    producer = Producer({"bootstrap.servers": server.bootstrap, **options})
    for number, chunk in enumerate(chunks):
        before = len(acked)
        for index, value in enumerate(chunk):
            producer.produce(topic, value, partition=index % PARTITIONS, on_delivery=delivered)
        if number < len(chunks) - 1:
            eventually(
                lambda before=before: producer.poll(0.01) >= 0 and len(acked) > before, "a first acknowledgement"
            )
            kill_and_start(server)
    assert producer.flush(DEADLINE_S) == 0
    assert sorted(acked) == sorted(value for chunk in chunks for value in chunk)


def produce_by_kafka_python(server: ServerProcess, topic: str, chunks: Sequence[Sequence[str]]) -> None:
    """Sends all chunks. Kills the server while each chunk except the last one is being sent."""
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, reconnect_backoff_max_ms=200)
    try:
        futures = []
        for number, chunk in enumerate(chunks):
            some = [
                producer.send(topic, value.encode(), partition=index % PARTITIONS) for index, value in enumerate(chunk)
            ]
            futures += some
            if number < len(chunks) - 1:
                some[0].get(timeout=DEADLINE_S)
                kill_and_start(server)
        for future in futures:
            future.get(timeout=DEADLINE_S)
    finally:
        producer.close(timeout=10)


async def _produce_by_aiokafka(server: ServerProcess, topic: str, chunks: Sequence[Sequence[str]]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        futures = []
        for number, chunk in enumerate(chunks):
            some = [
                await producer.send(topic, value.encode(), partition=index % PARTITIONS)
                for index, value in enumerate(chunk)
            ]
            futures += some
            if number < len(chunks) - 1:
                await asyncio.wait_for(some[0], DEADLINE_S)
                await asyncio.to_thread(kill_and_start, server)
        await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
    finally:
        await producer.stop()


def produce_by_aiokafka(server: ServerProcess, topic: str, chunks: Sequence[Sequence[str]]) -> None:
    """Sends all chunks. Kills the server while each chunk except the last one is being sent."""
    asyncio.run(_produce_by_aiokafka(server, topic, chunks))


PRODUCERS = {
    "confluent-kafka": produce_by_confluent,
    "kafka-python": produce_by_kafka_python,
    "aiokafka": produce_by_aiokafka,
}


def ends_of(admin: AdminClient, topic: str) -> dict[int, int]:
    """Returns the end offset of each partition."""
    requested = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
    return {part.partition: future.result(30).offset for part, future in admin.list_offsets(requested).items()}


def committed_by(admin: AdminClient, group: str) -> dict[int, int]:
    """Returns the committed offsets of a group."""
    [future] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {part.partition: part.offset for part in future.result(30).topic_partitions}


@pytest.mark.crash
@pytest.mark.parametrize(
    "library",
    [
        "confluent-kafka",
        pytest.param("kafka-python", marks=pytest.mark.long),
        pytest.param("aiokafka", marks=pytest.mark.long),
    ],
)
def test_a_client_continues_after_a_kill_of_the_server(
    library: str, name: str, tmp_path: Path, start_member: Callable[..., Member]
) -> None:
    """No acknowledged record is lost, retries of an idempotent producer leave no duplicate, and the group continues."""
    chunks = [[f"chunk-{chunk}-{number}" for number in range(CHUNK)] for chunk in range(3)]
    values = sorted(value for chunk in chunks for value in chunk)
    with ServerProcess(tmp_path / "data", SETTINGS, stderr=tmp_path / "log") as server:
        # Without "none", librdkafka's KIP-899 may discard a broker's handle while a request of its AdminClient waits
        # for it, and the request times out.
        recovery = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 200}
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0, **recovery})
        topic = create_topic(admin, name, PARTITIONS)
        parts = [(topic, partition) for partition in range(PARTITIONS)]
        member = start_member(library, bootstrap=server.bootstrap, group=name, topics=[topic])
        expect_share(parts, member)

        PRODUCERS[library](server, topic, chunks)

        ends = ends_of(admin, topic)
        assert sum(ends.values()) == len(values)
        in_log = [
            message.value().decode()
            for partition, end in ends.items()
            for message in read_all(server.bootstrap, f"{name}-reader", topic, end, partition)
        ]
        assert sorted(in_log) == values
        wait_until(
            lambda: {record[3] for record in member.records} >= set(values) and not member.uncommitted,
            "the group's member has had everything",
            [member],
        )
        eventually(lambda: committed_by(admin, name) == ends, "everything is committed")

        kill_and_start(server)
        assert eventually(lambda: committed_by(admin, name), "the offsets are there again") == ends
        had = len(member.records)
        second = start_member(library, bootstrap=server.bootstrap, group=name, topics=[topic])
        expect_share(parts, member, second)
        PRODUCERS[library](server, topic, [["last-0", "last-1"]])
        wait_until(lambda: len(member.records) > had and len(second.records) > 0, "both go on", [member, second])
        assert sorted(record[3] for record in member.records[had:] + second.records) == ["last-0", "last-1"]
    assert "Traceback" not in (tmp_path / "log").read_text()
