"""aiokafka: producing, consuming and offsets.

This client uses older versions of the protocol, without flexible encodings.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, MessageSizeTooLargeError
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import create_topic
from tests.clients.waiting import DEADLINE_S

NewTopic = Callable[..., str]


@asynccontextmanager
async def consuming(
    bootstrap: str, group: str | None, *topics: str, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """Yields a consumer that begins at the start of its partitions and does not commit automatically."""
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 100}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **(options | settings))
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def producing(bootstrap: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    """Yields a producer."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def read(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    """Returns the next `count` records."""
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(records) < count:
            for some in (await consumer.getmany(timeout_ms=200, max_records=count - len(records))).values():
                records.extend(some)
    return records


async def send(bootstrap: str, topic: str, values: list[Any], partition: int = 0, **settings: Any) -> list[Any]:
    """Produces values in order. Returns their offsets, or None for acks=0."""
    async with producing(bootstrap, **settings) as producer:
        futures = [await producer.send(topic, value, partition=partition) for value in values]
        return [
            metadata and metadata.offset for metadata in await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
        ]


async def read_all(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """Returns the first `count` records of partition 0."""
    async with consuming(bootstrap, None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return await read(consumer, count)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Polls until the condition is true."""
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_arrives_as_it_was_sent(
    codec: str | None, idempotent: bool, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    values = [b"the same words over and over %d" % number for number in range(200)]
    offsets = await send(bootstrap, topic, values, compression_type=codec, enable_idempotence=idempotent, linger_ms=20)
    assert offsets == list(range(200))
    records = await read_all(bootstrap, topic, 200)
    assert [(record.offset, record.value) for record in records] == list(enumerate(values))


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_records_are_stored_with_each_setting_of_acks(acks: Any, bootstrap: str, new_topic: NewTopic) -> None:
    """With acks=0 the client gets no offset, but the record is stored."""
    topic = new_topic()
    assert await send(bootstrap, topic, [b"a", b"b", b"c"], acks=acks) == ([None] * 3 if acks == 0 else [0, 1, 2])
    assert [record.value for record in await read_all(bootstrap, topic, 3)] == [b"a", b"b", b"c"]


async def test_keys_headers_timestamps_and_tombstones_are_read_as_they_were_sent(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    headers = [("trace", b"\x00\x01"), ("trace", b"twice"), ("empty", b""), ("null", None)]
    async with producing(bootstrap) as producer:
        await producer.send_and_wait(topic, b"value", b"key", timestamp_ms=1_500_000_000_123, headers=headers)
        await producer.send_and_wait(topic, None, b"key", timestamp_ms=1_500_000_000_124)
        await producer.send_and_wait(topic, b"", None, timestamp_ms=1_500_000_000_125)
    seen = [
        (record.key, record.value, record.timestamp_type, record.timestamp, list(record.headers))
        for record in await read_all(bootstrap, topic, 3)
    ]
    assert seen == [
        (b"key", b"value", 0, 1_500_000_000_123, headers),
        (b"key", None, 0, 1_500_000_000_124, []),
        (None, b"", 0, 1_500_000_000_125, []),
    ]


async def test_large_messages_are_stored_and_too_large_ones_are_refused(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="3000000")
    large = bytes(range(256)) * 10_000
    async with producing(bootstrap, max_request_size=10_000_000) as producer:
        assert (await producer.send_and_wait(topic, large)).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, large * 2)
        assert (await producer.send_and_wait(topic, b"after")).offset == 1
    assert [record.value for record in await read_all(bootstrap, topic, 2)] == [large, b"after"]


async def test_a_message_larger_than_a_fetch_arrives(bootstrap: str, new_topic: NewTopic) -> None:
    """The first batch of a fetch is always complete, even if it exceeds the limits (KIP-74)."""
    topic = new_topic()
    values = [b"x" * 100_000, b"y" * 100_000]
    await send(bootstrap, topic, values)
    async with consuming(bootstrap, None, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in await read(consumer, 2)] == values


async def test_producing_to_a_missing_topic_creates_it(bootstrap: str, name: str) -> None:
    """By default `auto.create.topics.enable` is true, as in Kafka."""
    async with producing(bootstrap) as producer:
        assert (await producer.send_and_wait(name, b"first")).offset == 0
    assert [record.value for record in await read_all(bootstrap, name, 1)] == [b"first"]


async def test_each_of_several_partitions_is_read_in_order(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(6)
    async with producing(bootstrap, linger_ms=5) as producer:
        futures = [await producer.send(topic, b"%d" % number, partition=number % 6) for number in range(600)]
        await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
    async with consuming(bootstrap, None) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(6)])
        seen: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(6)}
        for record in await read(consumer, 600):
            seen[record.partition].append((record.offset, record.value))
    assert seen == {
        partition: [(offset, b"%d" % (offset * 6 + partition)) for offset in range(100)] for partition in range(6)
    }


async def test_a_consumer_seeks_to_beginning_end_offset_and_time(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    part = TopicPartition(topic, 0)
    async with producing(bootstrap) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number, timestamp_ms=1_600_000_000_000 + 1000 * number)
    async with consuming(bootstrap, None) as consumer:
        consumer.assign([part])
        assert [record.offset for record in await read(consumer, 10)] == list(range(10))
        consumer.seek(part, 4)
        assert [record.offset for record in await read(consumer, 6)] == [4, 5, 6, 7, 8, 9]
        await consumer.seek_to_beginning(part)
        assert [record.offset for record in await read(consumer, 2)] == [0, 1]
        await consumer.seek_to_end(part)
        assert await consumer.position(part) == 10
        assert await consumer.beginning_offsets([part]) == {part: 0}
        assert await consumer.end_offsets([part]) == {part: 10}
        found = (await consumer.offsets_for_times({part: 1_600_000_003_500}))[part]
        assert (found.offset, found.timestamp) == (4, 1_600_000_004_000)
        assert await consumer.offsets_for_times({part: 1_600_000_099_000}) == {part: None}
        assert await send(bootstrap, topic, [b"new"]) == [10]
        assert [record.value for record in await read(consumer, 1)] == [b"new"]


async def test_manual_commits_are_read_back(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await send(bootstrap, topic, [b"%d" % number for number in range(10)])
    async with consuming(bootstrap, name, topic) as consumer:
        assert len(await read(consumer, 10)) == 10
        assert (await consumer.committed(first), await consumer.committed(second)) == (None, None)
        await consumer.commit({first: 3})
        assert (await consumer.committed(first), await consumer.committed(second)) == (3, None)
        await asyncio.gather(consumer.commit({first: (5, "a note")}), consumer.commit({second: 0}))
        assert (await consumer.committed(first), await consumer.committed(second)) == (5, 0)
        await consumer.commit({first: 7})
    async with consuming(bootstrap, name, topic) as consumer:  # continues where the group stopped
        assert [record.offset for record in await read(consumer, 3)] == [7, 8, 9]
        await consumer.commit()  # commits the delivered records
        assert await consumer.committed(first) == 10


async def test_a_commit_of_a_fenced_member_is_refused(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    """A second consumer joins with the same instance id and fences the first one. The first consumer cannot commit any
    more.
    """
    topic = new_topic()
    part = TopicPartition(topic, 0)
    await send(bootstrap, topic, [b"a", b"b"])
    static = {"group_instance_id": "one", "heartbeat_interval_ms": 60_000, "session_timeout_ms": 60_000}
    async with consuming(bootstrap, name, topic, **static) as consumer:
        await read(consumer, 2)
        async with consuming(bootstrap, name, topic, **static) as other:  # fences the first member: KIP-345
            await read(other, 2)
            with pytest.raises(CommitFailedError):
                await consumer.commit({part: 2})
            assert await other.committed(part) is None


async def test_auto_commit_stores_the_offsets_of_polled_records(bootstrap: str, name: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    await send(bootstrap, topic, [b"a", b"b", b"c"])
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    async with consuming(bootstrap, name, topic, **settings) as consumer:
        await read(consumer, 3)

        async def committed() -> bool:
            return await consumer.committed(TopicPartition(topic, 0)) == 3

        await until(committed)
        assert await committed()


async def test_a_pattern_finds_topics_that_are_created_later(
    bootstrap: str, name: str, admin: AdminClient, new_topic: NewTopic
) -> None:
    first = new_topic(suffix="-match-1")
    new_topic(suffix="-other")
    async with consuming(bootstrap, name, metadata_max_age_ms=200) as consumer:
        consumer.subscribe(pattern=f"^{name}-match-.*")

        async def assigned(*topics: str) -> bool:
            await consumer.getmany(timeout_ms=50)
            return sorted(part.topic for part in consumer.assignment()) == sorted(topics)

        await until(lambda: assigned(first))
        second = await asyncio.to_thread(create_topic, admin, name + "-match-2")
        await until(lambda: assigned(first, second))
        assert await assigned(first, second)


async def test_paused_partitions_return_no_records(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with consuming(bootstrap, None) as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        await send(bootstrap, topic, [b"zero"], partition=0)
        await send(bootstrap, topic, [b"one"], partition=1)
        assert [record.value for record in await read(consumer, 1)] == [b"one"]
        consumer.resume(first)
        assert [record.value for record in await read(consumer, 1)] == [b"zero"]
