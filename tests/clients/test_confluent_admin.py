"""confluent-kafka (librdkafka): every call of its AdminClient that a single node supports."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.clients.members import Member, expect_share
from tests.clients.test_confluent_kafka import consuming, read, send
from tests.clients.waiting import eventually

TIMEOUT_S = 30


def only(futures: dict[Any, Future[Any]]) -> Any:
    """Waits for the single future that a call of the admin client returned. Returns the future's result."""
    [future] = futures.values()
    return future.result(TIMEOUT_S)


def refusal(call: Callable[[], Any]) -> int:
    """Returns the error code with which the call fails."""
    with pytest.raises(KafkaException) as failure:
        call()
    return int(failure.value.args[0].code())


def test_topics_are_created_listed_described_and_deleted(admin: AdminClient, name: str) -> None:
    topic = NewTopic(name, 3, 1, config={"retention.ms": "60000"})
    assert only(admin.create_topics([topic], validate_only=True)) is None
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics
    assert only(admin.create_topics([topic])) is None
    assert refusal(lambda: only(admin.create_topics([topic]))) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal(lambda: only(admin.create_topics([NewTopic("a b", 1, 1)]))) == KafkaError.TOPIC_EXCEPTION
    assert refusal(lambda: only(admin.create_topics([NewTopic(f"{name}-r", 1, 2)]))) == (
        KafkaError.INVALID_REPLICATION_FACTOR
    )

    listed = admin.list_topics(timeout=TIMEOUT_S)
    [broker] = listed.brokers
    partitions = listed.topics[name].partitions.values()
    assert [(part.id, part.leader, part.replicas, part.isrs) for part in partitions] == [
        (number, broker, [broker], [broker]) for number in range(3)
    ]
    described = only(admin.describe_topics(TopicCollection([name]), include_authorized_operations=True))
    assert (described.name, described.is_internal, len(described.partitions)) == (name, False, 3)
    assert [part.leader.id for part in described.partitions] == [broker] * 3
    assert AclOperation.READ in described.authorized_operations

    assert only(admin.delete_topics([name])) is None
    assert refusal(lambda: only(admin.describe_topics(TopicCollection([name])))) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert refusal(lambda: only(admin.delete_topics([name]))) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_with_the_name_of_a_deleted_one_is_new(
    admin: AdminClient, bootstrap: str, name: str, new_topic: Callable[..., str]
) -> None:
    """The new topic has another id than the deleted topic, and none of its records (KIP-516)."""
    topic = new_topic()
    send(bootstrap, topic, [b"old"])
    first = only(admin.describe_topics(TopicCollection([topic]))).topic_id
    only(admin.delete_topics([topic]))
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    assert str(only(admin.describe_topics(TopicCollection([topic]))).topic_id) != str(first)
    send(bootstrap, topic, [b"new"])
    with consuming(bootstrap, name) as consumer:
        consumer.subscribe([topic])
        assert [(message.offset(), message.value()) for message in read(consumer, 1)] == [(0, b"new")]


def test_partitions_are_added(admin: AdminClient, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    assert refusal(lambda: only(admin.create_partitions([NewPartitions(topic, 1)]))) == KafkaError.INVALID_PARTITIONS
    assert only(admin.create_partitions([NewPartitions(topic, 5)])) is None
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 5
    assert [report.offset() for report in send(bootstrap, topic, [b"in the new one"], partition=4)] == [0]


def test_configs_are_described_and_altered(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(retention_ms="60000")

    def described() -> dict[str, ConfigEntry]:
        return only(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]))

    def altered(**entries: tuple[AlterConfigOpType, str | None]) -> ConfigResource:
        changes = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
            for key, (operation, value) in entries.items()
        ]
        return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)

    before = described()
    assert (before["retention.ms"].value, before["retention.ms"].source) == (
        "60000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    )
    assert (before["cleanup.policy"].value, before["cleanup.policy"].is_default) == ("delete", True)
    changes = altered(
        retention_ms=(AlterConfigOpType.DELETE, None),
        cleanup_policy=(AlterConfigOpType.APPEND, "compact"),
        max_message_bytes=(AlterConfigOpType.SET, "2000"),
    )
    only(admin.incremental_alter_configs([changes], validate_only=True))
    assert described()["max.message.bytes"].is_default
    only(admin.incremental_alter_configs([changes]))
    after = described()
    assert {key: after[key].value for key in ("retention.ms", "cleanup.policy", "max.message.bytes")} == {
        "retention.ms": "604800000",
        "cleanup.policy": "delete,compact",
        "max.message.bytes": "2000",
    }
    wrong = altered(retention_ms=(AlterConfigOpType.SET, "soon"))
    assert refusal(lambda: only(admin.incremental_alter_configs([wrong]))) == KafkaError.INVALID_CONFIG

    with pytest.warns(DeprecationWarning, match="alter_configs"):  # AlterConfigs replaces all settings of a topic
        only(admin.alter_configs([ConfigResource(ConfigResource.Type.TOPIC, topic, {"segment.bytes": "2000000"})]))
    assert described()["max.message.bytes"].is_default
    assert described()["segment.bytes"].value == "2000000"


def test_broker_configs_are_described(admin: AdminClient) -> None:
    broker = str(next(iter(admin.list_topics(timeout=TIMEOUT_S).brokers)))
    entries = only(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, broker)]))
    assert entries["offsets.topic.num.partitions"].value == "8"
    assert entries["group.initial.rebalance.delay.ms"].source == ConfigSource.STATIC_BROKER_CONFIG.value


def test_groups_are_listed_described_and_deleted(
    admin: AdminClient, name: str, new_topic: Callable[..., str], start_member: Callable[..., Member]
) -> None:
    topic = new_topic(2)
    member = start_member("confluent-kafka", group=name, topics=[topic])
    expect_share([(topic, 0), (topic, 1)], member)

    def described() -> Any:
        return only(admin.describe_consumer_groups([name], include_authorized_operations=True))

    eventually(lambda: described().state == ConsumerGroupState.STABLE, "the group is stable")
    group = described()
    [seen] = group.members
    assert (group.group_id, group.is_simple_consumer_group, group.partition_assignor) == (name, False, "range")
    assert AclOperation.DELETE in group.authorized_operations
    assert (seen.client_id, seen.host) == ("rdkafka", "/127.0.0.1")
    assert sorted((part.topic, part.partition) for part in seen.assignment.topic_partitions) == [(topic, 0), (topic, 1)]

    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(TIMEOUT_S)
    assert listed.errors == []
    assert [each.state for each in listed.valid if each.group_id == name] == [ConsumerGroupState.STABLE]
    listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(TIMEOUT_S)
    assert [each for each in listed.valid if each.group_id == name] == []
    with pytest.warns(DeprecationWarning, match="list_groups"):
        assert name in [each.id for each in admin.list_groups(timeout=TIMEOUT_S)]

    assert refusal(lambda: only(admin.delete_consumer_groups([name]))) == KafkaError.NON_EMPTY_GROUP
    member.leave()
    eventually(lambda: described().state == ConsumerGroupState.EMPTY, "the group is empty")
    assert only(admin.delete_consumer_groups([name])) is None
    assert refusal(lambda: only(admin.delete_consumer_groups([name]))) == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_of_a_group_are_listed_and_altered(
    admin: AdminClient, bootstrap: str, name: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    send(bootstrap, topic, [b"a", b"b", b"c"])

    def listed(*parts: TopicPartition) -> dict[int, int]:
        requested = [ConsumerGroupTopicPartitions(name, list(parts) or None)]
        return {
            part.partition: part.offset for part in only(admin.list_consumer_group_offsets(requested)).topic_partitions
        }

    def alter(offset: int) -> Any:
        requested = [ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, offset)])]
        return only(admin.alter_consumer_group_offsets(requested))

    assert listed() == {}
    assert [part.error for part in alter(1).topic_partitions] == [None]
    assert listed() == {0: 1}
    assert listed(TopicPartition(topic, 0), TopicPartition(topic, 1)) == {0: 1, 1: OFFSET_INVALID}
    with consuming(bootstrap, name) as consumer:
        consumer.subscribe([topic])
        assert [message.offset() for message in read(consumer, 2)] == [1, 2]
        [part] = alter(0).topic_partitions
        assert (
            part.error.code() == KafkaError.UNKNOWN_MEMBER_ID
        )  # groups with members do not accept offsets of other clients
    assert listed() == {0: 1}


def test_offsets_are_listed_and_records_deleted(
    admin: AdminClient, bootstrap: str, name: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    part = TopicPartition(topic, 0)
    send(bootstrap, topic, [b"%d" % number for number in range(5)])

    def at(spec: OffsetSpec) -> int:
        futures = admin.list_offsets({part: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        return int(only(futures).offset)

    ends = [OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(0)]
    assert [at(spec) for spec in ends[:2]] == [0, 5]
    assert 0 <= at(ends[2]) < 5
    assert at(ends[3]) == 0
    deleted = only(admin.delete_records([TopicPartition(topic, 0, 3)]))
    assert deleted.low_watermark == 3
    assert [at(spec) for spec in ends[:2]] == [3, 5]
    assert refusal(lambda: only(admin.delete_records([TopicPartition(topic, 0, 6)]))) == KafkaError.OFFSET_OUT_OF_RANGE
    with consuming(bootstrap, name) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])  # a deleted offset: auto.offset.reset decides
        assert [message.offset() for message in read(consumer, 2)] == [3, 4]


def test_the_cluster_is_described(admin: AdminClient, bootstrap: str) -> None:
    described = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    [node] = described.nodes
    assert f"{node.host}:{node.port}" == bootstrap
    assert described.controller.id == node.id
    assert described.cluster_id == admin.list_topics(timeout=TIMEOUT_S).cluster_id
    assert AclOperation.ALTER in described.authorized_operations


def test_a_leader_needs_no_election(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    part = TopicPartition(topic, 0)
    results = admin.elect_leaders(ElectionType.PREFERRED, [part]).result(TIMEOUT_S)
    assert [error.code() for error in results.values()] == [KafkaError.ELECTION_NOT_NEEDED]


def test_without_an_authorizer_acls_are_refused(admin: AdminClient) -> None:
    """librdkafka drops the error of DescribeAcls, so the test of kafka-python checks that error."""
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    one = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:u", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    calls: list[Callable[[], Any]] = [
        lambda: only(admin.create_acls([one])),
        lambda: only(admin.delete_acls([everything])),
    ]
    assert [refusal(call) for call in calls] == [KafkaError.SECURITY_DISABLED] * 2


def test_a_new_server_has_no_scram_users(admin: AdminClient) -> None:
    assert admin.describe_user_scram_credentials().result(TIMEOUT_S) == {}
    [future] = admin.describe_user_scram_credentials(["nobody"]).values()
    assert refusal(lambda: future.result(TIMEOUT_S)) == KafkaError.RESOURCE_NOT_FOUND


def test_a_consumer_of_an_unknown_topic_gets_an_error(bootstrap: str, name: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([f"{name}-missing"])
        message = eventually(lambda: consumer.poll(0.5), "an error")
        assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        consumer.close()
