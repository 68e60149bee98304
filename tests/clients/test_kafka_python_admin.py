"""kafka-python: every call of its KafkaAdminClient that a single node supports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaAdminClient, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka import errors as Errors  # noqa: N812
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    OffsetSpec,
    OffsetTimestamp,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from tests.clients.members import Member, expect_share
from tests.clients.test_kafka_python import consuming, read, send
from tests.clients.waiting import DEADLINE_S, eventually


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


def topic_config(topic: str, configs: Any = None) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, topic, configs)


def test_topics_are_created_listed_described_and_deleted(client: KafkaAdminClient, name: str) -> None:
    wanted = {name: {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "60000"}}}
    client.create_topics(wanted, validate_only=True)
    assert name not in client.list_topics()
    [created] = client.create_topics(wanted)["topics"]
    assert (created["name"], created["num_partitions"], created["replication_factor"]) == (name, 3, 1)
    assert created["configs"]["retention.ms"]["value"] == "60000"
    assert name in client.list_topics()
    with pytest.raises(Errors.TopicAlreadyExistsError):
        client.create_topics(wanted)
    with pytest.raises(Errors.InvalidTopicError):
        client.create_topics({"a b": {}})
    with pytest.raises(Errors.InvalidReplicationFactorError):
        client.create_topics({f"{name}-r": {"num_partitions": 1, "replication_factor": 2}})

    [described] = client.describe_topics([name])
    assert (described["name"], described["is_internal"], len(described["partitions"])) == (name, False, 3)
    assert "READ" in described["authorized_operations"]
    [broker] = client.describe_cluster()["brokers"]
    assert {part["leader_id"] for part in described["partitions"]} == {broker["broker_id"]}

    page = client.describe_topic_partitions([name], response_partition_limit=2)
    assert [part["partition_index"] for part in page["topics"][0]["partitions"]] == [0, 1]
    assert page["next_cursor"] == {"topic_name": name, "partition_index": 2}
    page = client.describe_topic_partitions([name], cursor=page["next_cursor"])
    assert [part["partition_index"] for part in page["topics"][0]["partitions"]] == [2]
    assert page["next_cursor"] is None

    assert [topic["name"] for topic in client.delete_topics([name])["topics"]] == [name]
    with pytest.raises(Errors.UnknownTopicOrPartitionError):
        client.delete_topics([name])
    assert name not in client.list_topics()


def test_topics_are_described_and_deleted_by_id(client: KafkaAdminClient, new_topic: Callable[..., str]) -> None:
    """The requests use the topic ids of KIP-516."""
    topic = new_topic()
    [by_name] = client.describe_topics([topic])
    [by_id] = client.describe_topics([UUID(by_name["topic_id"])])
    assert by_id == by_name
    client.delete_topics([UUID(by_name["topic_id"])])
    assert topic not in client.list_topics()


def test_partitions_are_added(client: KafkaAdminClient, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    with pytest.raises(Errors.InvalidPartitionsError):
        client.create_partitions({topic: 1})
    client.create_partitions({topic: 4}, validate_only=True)
    assert len(client.describe_topics([topic])[0]["partitions"]) == 2
    client.create_partitions({topic: 4})
    assert len(client.describe_topics([topic])[0]["partitions"]) == 4
    assert send(bootstrap, topic, [b"in the new one"], partition=3) == [0]


@pytest.mark.parametrize("incremental", [True, False])
def test_configs_are_described_altered_and_reset(
    incremental: bool, client: KafkaAdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(retention_ms="60000")

    def modified() -> dict[str, str]:
        described = client.describe_configs([topic_config(topic)])["topic"][topic]
        return {key: entry["value"] for key, entry in described.items()}

    def alter(configs: dict[str, Any], **options: Any) -> str:
        outcome = client.alter_configs([topic_config(topic, configs)], incremental=incremental, **options)
        return str(outcome["topic"][topic])

    assert modified() == {"retention.ms": "60000"}
    assert alter({"max.message.bytes": "2000"}, validate_only=True) == "OK"
    assert modified() == {"retention.ms": "60000"}
    assert alter({"max.message.bytes": "2000"}) == "OK"
    assert modified() == {"retention.ms": "60000", "max.message.bytes": "2000"}
    assert "InvalidConfigurationError" in alter({"max.message.bytes": "many"})
    if incremental:
        assert alter({"cleanup.policy": (AlterConfigOp.APPEND, "compact")}) == "OK"
        assert modified()["cleanup.policy"] == "delete,compact"
        assert alter({"cleanup.policy": (AlterConfigOp.SUBTRACT, "compact")}) == "OK"
        assert alter({"cleanup.policy": (AlterConfigOp.DELETE, None)}) == "OK"
    client.reset_configs([topic_config(topic, ["retention.ms"])], incremental=incremental)
    assert modified() == {"max.message.bytes": "2000"}


def test_configs_of_brokers_and_groups_are_described_and_altered(client: KafkaAdminClient, name: str) -> None:
    [broker] = client.describe_cluster()["brokers"]
    number = str(broker["broker_id"])
    resource = ConfigResource(ConfigResourceType.BROKER, number)
    entries = client.describe_configs([resource], include_synonyms=True, config_filter="all")["broker"][number]
    partitions = entries["offsets.topic.num.partitions"]
    assert (partitions["value"], partitions["config_source"]) == ("8", "STATIC_BROKER_CONFIG")
    assert [synonym["source"] for synonym in partitions["synonyms"]] == ["STATIC_BROKER_CONFIG", "DEFAULT_CONFIG"]

    group = ConfigResource(ConfigResourceType.GROUP, name, {"consumer.session.timeout.ms": "50000"})
    assert client.alter_configs([group])["group"][name] == "OK"
    described = client.describe_configs([ConfigResource(ConfigResourceType.GROUP, name)])["group"][name]
    assert {key: entry["value"] for key, entry in described.items()} == {"consumer.session.timeout.ms": "50000"}
    assert name in client.list_config_resources(["GROUP"])["group"]


def test_groups_are_listed_described_and_deleted(
    client: KafkaAdminClient, name: str, new_topic: Callable[..., str], start_member: Callable[..., Member]
) -> None:
    topic = new_topic(2)
    member = start_member("kafka-python", group=name, topics=[topic])
    expect_share([(topic, 0), (topic, 1)], member)

    def described() -> dict[str, Any]:
        return dict(client.describe_groups([name])[name])

    eventually(lambda: described()["group_state"] == "Stable", "the group is stable")
    group = described()
    [seen] = group["members"]
    assert (group["protocol_type"], group["protocol_data"], group["error"]) == ("consumer", "range", None)
    assert "DELETE" in group["authorized_operations"]
    assert seen["member_metadata"]["topics"] == [topic]
    [assigned] = seen["member_assignment"]["assigned_partitions"]
    assert (assigned["topic"], sorted(assigned["partitions"])) == (topic, [0, 1])

    def listed(**filters: list[str]) -> list[tuple[str, str, str]]:
        groups = client.list_groups(**filters)
        return [
            (each["protocol_type"], each["group_state"], each["group_type"])
            for each in groups
            if each["group_id"] == name
        ]

    assert listed() == listed(states_filter=["Stable"]) == listed(types_filter=["classic"])
    assert listed() == [("consumer", "Stable", "classic")]
    assert listed(states_filter=["Empty"]) == listed(types_filter=["share"]) == []

    assert client.delete_groups([name]) == {name: "NonEmptyGroupError"}
    member.leave()
    eventually(lambda: described()["group_state"] == "Empty", "the group is empty")
    assert client.delete_groups([name]) == {name: "OK"}
    assert client.delete_groups([name]) == {name: "GroupIdNotFoundError"}
    assert listed() == []
    assert described()["group_state"] == "Dead"


def test_a_member_is_removed_by_an_administrator(
    client: KafkaAdminClient, name: str, new_topic: Callable[..., str], start_member: Callable[..., Member]
) -> None:
    """After the removal of a static member that does not return, other members get its partitions before its session
    ends (KIP-345).
    """
    topic = new_topic(2)
    parts = [(topic, 0), (topic, 1)]
    stays = start_member("kafka-python", group=name, topics=[topic])
    expect_share(parts, stays)
    goes = start_member("kafka-python", group=name, topics=[topic], instance_id="goes")
    expect_share(parts, stays, goes)
    goes.kill()
    removed = client.remove_group_members(name, [MemberToRemove(group_instance_id="goes", reason="it is gone")])
    assert list(removed.values()) == [Errors.NoError]
    expect_share(parts, stays)
    again = client.remove_group_members(name, [MemberToRemove(group_instance_id="goes")])
    assert list(again.values()) == [Errors.UnknownMemberIdError]


def test_offsets_of_a_group_are_listed_altered_reset_and_deleted(
    client: KafkaAdminClient, bootstrap: str, name: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    send(bootstrap, topic, [b"a", b"b", b"c"])

    def listed(partitions: list[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        return {part: found.offset for part, found in client.list_group_offsets({name: partitions})[name].items()}

    assert listed() == {}
    altered = client.alter_group_offsets(name, {first: OffsetAndMetadata(1, "by hand", -1)})
    assert altered == {first: Errors.NoError}
    assert client.list_group_offsets({name: None}) == {name: {first: OffsetAndMetadata(1, "by hand", -1)}}
    assert listed([first, second]) == {first: 1, second: -1}
    with consuming(bootstrap, name) as consumer:
        consumer.subscribe([topic])
        assert [record.offset for record in read(consumer, 2)] == [1, 2]
        assert client.alter_group_offsets(name, {first: OffsetAndMetadata(0, "", -1)}) == {
            first: Errors.UnknownMemberIdError  # groups with members do not accept offsets of other clients
        }
        assert client.delete_group_offsets(name, [first]) == {first: Errors.GroupSubscribedToTopicError}
    for spec, offset in [(OffsetSpec.LATEST, 3), (OffsetSpec.EARLIEST, 0), (OffsetTimestamp(1), 0), (2, 2), (99, 3)]:
        reset = client.reset_group_offsets(name, {first: spec})
        assert reset == {first: {"error": Errors.NoError, "offset": offset}}
        assert listed() == {first: offset}
    assert client.delete_group_offsets(name, [first]) == {first: Errors.NoError}
    assert listed() == {}


def test_offsets_are_listed_and_records_deleted(
    client: KafkaAdminClient, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    part = TopicPartition(topic, 0)
    send(bootstrap, topic, [b"%d" % number for number in range(5)])

    def at(spec: Any) -> int:
        return int(client.list_partition_offsets({part: spec})[part].offset)

    assert [at(spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.EARLIEST_LOCAL, 0)] == [0, 5, 0, 0]
    assert 0 <= at(OffsetSpec.MAX_TIMESTAMP) < 5
    assert client.delete_records({part: 3})[part]["low_watermark"] == 3
    assert [at(spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)] == [3, 5]
    with pytest.raises(Errors.OffsetOutOfRangeError):
        client.delete_records({part: 6})


def test_the_cluster_its_disks_features_and_versions_are_described(
    client: KafkaAdminClient, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    cluster = client.describe_cluster()
    [broker] = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert cluster["controller_id"] == broker["broker_id"]
    assert "ALTER" in cluster["authorized_operations"]

    send(bootstrap, topic, [b"x" * 10_000])
    [disks] = client.describe_log_dirs([topic])
    [folder] = disks["log_dirs"]
    [seen] = folder["topics"]
    sizes = {part["partition_index"]: part["partition_size"] for part in seen["partitions"]}
    assert sorted(sizes) == [0, 1]
    assert sizes[0] >= 10_000

    features = client.describe_features()
    level = features["metadata.version"]
    assert level["supported"][0] <= level["finalized"][0] <= level["supported"][1]
    assert client.update_features({"metadata.version": level["finalized"][1]}, validate_only=True) == {
        "metadata.version": "OK"
    }
    versions = {key.name: served for key, served in client.api_versions().items()}
    assert versions["JoinGroup"][0] == 0


def test_leaders_reassignments_and_producers_are_described(
    client: KafkaAdminClient, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    part = TopicPartition(topic, 0)
    election = client.elect_leaders(0, {topic: [0]})
    [result] = election.replica_election_results
    assert [each.error_code for each in result.partition_result] == [Errors.ElectionNotNeededError.errno]
    assert client.list_partition_reassignments() == {}
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        for value in (b"a", b"b"):
            producer.send(topic, value).get(timeout=DEADLINE_S)
        [active] = client.describe_producers([part])[part].active_producers
        assert (active.producer_epoch, active.last_sequence, active.current_transaction_start_offset) == (0, 1, -1)
    finally:
        producer.close(timeout=10)


def test_without_an_authorizer_acls_are_refused(client: KafkaAdminClient) -> None:
    everything = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    one = ACL("User:u", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "t"))
    with pytest.raises(Errors.SecurityDisabledError):
        client.describe_acls(everything)
    assert client.create_acls([one]) == {"succeeded": [], "failed": [Errors.SecurityDisabledError]}
    [(_, matching, error)] = client.delete_acls([everything])
    assert (matching, error) == ([], Errors.SecurityDisabledError)


def test_a_new_server_has_no_scram_users(client: KafkaAdminClient) -> None:
    assert client.describe_user_scram_credentials() == {}
    assert client.describe_user_scram_credentials(["nobody"])["nobody"]["credential_infos"] == []
