"""aiokafka: every call of its AIOKafkaAdminClient."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from tests.clients.members import Member, expect_share
from tests.clients.test_aiokafka import consuming, read, send, until


@pytest.fixture
async def client(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    yield admin
    await admin.close()


async def test_topics_are_created_listed_described_and_deleted(client: AIOKafkaAdminClient, name: str) -> None:
    topic = NewTopic(name, 3, 1, topic_configs={"retention.ms": "60000"})

    async def created(**options: Any) -> list[int]:
        response = await client.create_topics([topic], **options)
        return [error[1] for error in response.topic_errors]

    assert await created(validate_only=True) == [0]
    assert name not in await client.list_topics()
    assert await created() == [0]
    assert name in await client.list_topics()
    assert await created() == [36]  # TOPIC_ALREADY_EXISTS
    [described] = await client.describe_topics([name])
    [broker] = (await client.describe_cluster())["brokers"]
    assert (described["error_code"], described["is_internal"]) == (0, False)
    assert sorted((part["partition"], part["leader"]) for part in described["partitions"]) == [
        (number, broker["node_id"]) for number in range(3)
    ]
    response = await client.delete_topics([name])
    assert [tuple(each)[:2] for each in response.topic_error_codes] == [(name, 0)]
    assert name not in await client.list_topics()


async def test_partitions_are_added(client: AIOKafkaAdminClient, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    await client.create_partitions({topic: NewPartitions(5)})
    [described] = await client.describe_topics([topic])
    assert len(described["partitions"]) == 5
    assert await send(bootstrap, topic, [b"in the new one"], partition=4) == [0]


async def test_configs_are_described_and_altered(client: AIOKafkaAdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(retention_ms="60000")

    async def described(*names: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(names))
        [response] = await client.describe_configs([resource])
        [(error_code, _, _, resource_name, entries)] = response.resources
        assert (error_code, resource_name) == (0, topic)
        return {entry[0]: entry[1] for entry in entries}

    assert await described("retention.ms", "max.message.bytes") == {
        "retention.ms": "60000",
        "max.message.bytes": "1048588",
    }
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "2000"})
    [response] = await client.alter_configs([changed])
    assert [resource[0] for resource in response.resources] == [0]
    assert await described("retention.ms", "max.message.bytes") == {
        "retention.ms": "604800000",  # this call replaces all settings
        "max.message.bytes": "2000",
    }


async def test_groups_are_listed_and_described(
    client: AIOKafkaAdminClient, name: str, new_topic: Callable[..., str], start_member: Callable[..., Member]
) -> None:
    topic = new_topic(2)
    member = start_member("aiokafka", group=name, topics=[topic])
    await asyncio.to_thread(expect_share, [(topic, 0), (topic, 1)], member)

    async def state() -> str:
        [response] = await client.describe_consumer_groups([name])
        [group] = response.groups
        assert (group[0], group[1]) == (0, name)
        return str(group[2])

    async def is_stable() -> bool:
        return await state() == "Stable"

    async def is_empty() -> bool:
        return await state() == "Empty"

    await until(is_stable)
    assert (name, "consumer") in await client.list_consumer_groups()
    assert await client.find_coordinator(name) == (await client.describe_cluster())["brokers"][0]["node_id"]
    await asyncio.to_thread(member.leave)
    await until(is_empty)


async def test_offsets_of_a_group_are_listed(
    client: AIOKafkaAdminClient, bootstrap: str, name: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await send(bootstrap, topic, [b"a", b"b", b"c"])
    assert await client.list_consumer_group_offsets(name) == {}
    async with consuming(bootstrap, name, topic) as consumer:
        await read(consumer, 3)
        await consumer.commit({first: (2, "a note")})
    assert await client.list_consumer_group_offsets(name) == {first: OffsetAndMetadata(2, "a note")}
    assert await client.list_consumer_group_offsets(name, partitions=[first, second]) == {
        first: OffsetAndMetadata(2, "a note"),
        second: OffsetAndMetadata(-1, ""),
    }


async def test_records_are_deleted(
    client: AIOKafkaAdminClient, bootstrap: str, name: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    part = TopicPartition(topic, 0)
    await send(bootstrap, topic, [b"%d" % number for number in range(5)])
    assert await client.delete_records({part: RecordsToDelete(before_offset=3)}) == {part: 3}
    with pytest.raises(OffsetOutOfRangeError):
        await client.delete_records({part: RecordsToDelete(before_offset=6)})
    async with consuming(bootstrap, name, topic) as consumer:
        assert await consumer.beginning_offsets([part]) == {part: 3}
        assert [record.offset for record in await read(consumer, 2)] == [3, 4]


async def test_the_cluster_is_described(client: AIOKafkaAdminClient, bootstrap: str) -> None:
    cluster = await client.describe_cluster()
    [broker] = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert cluster["controller_id"] == broker["node_id"]
