"""Clients with SASL and ACLs at each node of a cluster: users, permissions and data are the same at all nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import CommitFailedError, RebalanceInProgressError

from tests.clients.secure_clusters import (
    ADMIN,
    KINDS,
    NODES,
    PLAIN_USER,
    PROTOCOL,
    SCRAM,
    SecureCluster,
    running,
    settings_of,
)
from tests.clients.waiting import DEADLINE_S, eventually

# Three nodes, a database and clients make a machine with two cores busy for minutes.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PARTITIONS = 6
RECORDS = 30
MECHANISMS = [SCRAM, "PLAIN"]
User = tuple[str, str]


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """A cluster of three nodes, which all tests with this kind of cluster share. Each test has its own users, topics
    and groups.
    """
    with running(request.param, tmp_path_factory.mktemp(request.param)) as cluster:
        yield cluster
        assert "Traceback" not in cluster.log()


@pytest.fixture(params=NODES, ids=lambda node: f"node-{node}")
def node(request: pytest.FixtureRequest) -> int:
    """A node of the cluster. The clients are given only the address of this node."""
    return int(request.param)


def result(futures: dict[Any, Any]) -> Any:
    """Waits for the single future that a call of the admin client returned. Returns the future's result."""
    [future] = futures.values()
    return future.result(DEADLINE_S)


def set_password(admin: AdminClient, user: User) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    result(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user[0], info, user[1].encode())]))


def acl(kind: ResourceType, name: str, user: User, operation: AclOperation, pattern: str = "PREFIXED") -> AclBinding:
    return AclBinding(
        kind, name, ResourcePatternType[pattern], f"User:{user[0]}", "*", operation, AclPermissionType.ALLOW
    )


def permit(admin: AdminClient, user: User, prefix: str) -> None:
    """Lets a user read and write the topics, groups and transactions whose names begin with `prefix`."""
    bindings = [
        acl(ResourceType.TOPIC, prefix, user, AclOperation.READ),
        acl(ResourceType.TOPIC, prefix, user, AclOperation.WRITE),
        acl(ResourceType.GROUP, prefix, user, AclOperation.READ),
        acl(ResourceType.TRANSACTIONAL_ID, prefix, user, AclOperation.WRITE),
    ]
    for future in admin.create_acls(bindings).values():
        future.result(DEADLINE_S)


def forbid(admin: AdminClient, user: User) -> None:
    """Deletes all permissions of a user."""
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{user[0]}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert len(result(admin.delete_acls([everything]))) == 4


def code(call: Callable[[], Any]) -> Any:
    """Returns the error code of a call of librdkafka; None without an error."""
    try:
        call()
    except KafkaException as error:
        return error.args[0].code()
    return None


def prepared(cluster: SecureCluster, node: int, name: str, user: User, scram: bool = True) -> str:
    """Creates a user with permissions, and a topic, at one node. Returns the topic once every node knows the user, the
    permissions and the topic.
    """
    admin = cluster.admin(node)
    topic = f"{name}-in"
    if scram:
        set_password(admin, user)
    permit(admin, user, name)
    result(admin.create_topics([NewTopic(topic, PARTITIONS, 1)]))
    for each in NODES:
        client = AdminClient(settings_of(cluster.addresses[each], user, SCRAM if scram else "PLAIN"))
        eventually(lambda client=client: topic in client.list_topics(timeout=DEADLINE_S).topics, f"{topic} at {each}")  # type: ignore[misc]
    return topic


def send(settings: dict[str, Any], topic: str, count: int = RECORDS) -> list[KafkaError | None]:
    """Produces numbered records to all partitions; returns the errors of the delivery reports."""
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5})
    # The node to which the producer connects may learn of new partitions later than other nodes.
    eventually(
        lambda: len(producer.list_topics(topic, DEADLINE_S).topics[topic].partitions) == PARTITIONS, "partitions"
    )
    return deliver(producer, topic, count)


def deliver(producer: Producer, topic: str, count: int) -> list[KafkaError | None]:
    """Produces as `send` does, also to a topic without partitions or permissions."""
    errors: list[KafkaError | None] = []
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(DEADLINE_S) == 0
    return errors


def receive(consumer: Consumer, count: int = RECORDS) -> list[Message]:
    """Returns the next `count` records."""
    messages: list[Message] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(messages), timeout=0.2):
            assert message.error() is None, message.error()
            messages.append(message)
        return len(messages) >= count

    eventually(enough, f"{count} records")
    return messages


def consuming(settings: dict[str, Any], group: str) -> Consumer:
    return Consumer(
        {
            **settings,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "isolation.level": "read_committed",
        }
    )


def copy(settings: dict[str, Any], source: str, target: str, name: str) -> None:
    """Copies all records in one transaction, which also commits the offsets. An aborted transaction precedes it."""
    consumer = consuming(settings, f"{name}-copy")
    producer = Producer({**settings, "transactional.id": f"{name}-copy"})
    try:
        consumer.subscribe([source])
        messages = receive(consumer)
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(target, b"aborted", partition=0)
        producer.flush(DEADLINE_S)
        producer.abort_transaction(DEADLINE_S)
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DEADLINE_S)
        producer.commit_transaction(DEADLINE_S)
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_consumes_and_copies(cluster: SecureCluster, node: int, name: str, mechanism: str) -> None:
    """The user is created at one node. The user's clients are given only the next node, and any node shows their
    records and offsets.
    """
    user = (f"user-{name}", "secret-of-the-user") if mechanism == SCRAM else PLAIN_USER
    source = prepared(cluster, cluster.others(node)[0], name, user, scram=mechanism == SCRAM)
    result(cluster.admin(node).create_topics([NewTopic(f"{name}-out", PARTITIONS, 1)]))
    settings = settings_of(cluster.addresses[node], user, mechanism)
    assert send(settings, source) == [None] * RECORDS
    copy(settings, source, f"{name}-out", name)
    parts = [TopicPartition(source, partition) for partition in range(PARTITIONS)]
    for each in cluster.others(node):
        settings = settings_of(cluster.addresses[each], user, mechanism)
        consumer = consuming(settings, f"{name}-copy")
        assert [part.offset for part in consumer.committed(parts, DEADLINE_S)] == [RECORDS // PARTITIONS] * PARTITIONS
        consumer.close()
        consumer = consuming(settings, f"{name}-{each}")
        consumer.subscribe([f"{name}-out"])
        assert sorted(int(message.value() or b"-1") for message in receive(consumer)) == list(range(RECORDS))
        consumer.commit(asynchronous=False)
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_copies_in_a_transaction(cluster: SecureCluster, node: int, name: str, mechanism: str) -> None:
    user = (f"user-{name}", "secret-of-the-user") if mechanism == SCRAM else PLAIN_USER
    source = prepared(cluster, cluster.others(node)[0], name, user, scram=mechanism == SCRAM)
    result(cluster.admin(node).create_topics([NewTopic(f"{name}-out", 1, 1)]))
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.addresses[node],
        "security_protocol": PROTOCOL,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user[0],
        "sasl_plain_password": user[1],
    }

    async def work() -> tuple[list[bytes | None], int | None]:
        async with AIOKafkaProducer(**options) as producer:
            for number in range(RECORDS):
                await producer.send_and_wait(source, b"%d" % number, partition=0)
        reading = {"group_id": f"{name}-aio", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        part = AioPartition(source, 0)
        async with (
            AIOKafkaConsumer(source, **options, **reading) as consumer,
            AIOKafkaProducer(**options, transactional_id=f"{name}-aio") as producer,
        ):
            records = [await consumer.getone() for _ in range(RECORDS)]
            async with producer.transaction():
                for record in records:
                    await producer.send(f"{name}-out", record.value)
                await producer.send_offsets_to_transaction({part: records[-1].offset + 1}, f"{name}-aio")
        async with AIOKafkaConsumer(
            **options, **reading | {"group_id": f"{name}-aio"}, isolation_level="read_committed"
        ) as consumer:
            target = AioPartition(f"{name}-out", 0)
            committed = await consumer.committed(part)
            consumer.assign([target])
            await consumer.seek_to_beginning(target)
            return [(await consumer.getone()).value for _ in range(RECORDS)], committed

    values, committed = asyncio.run(asyncio.wait_for(work(), 2 * DEADLINE_S))
    assert values == [b"%d" % number for number in range(RECORDS)]
    assert committed == RECORDS


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces_and_commits(cluster: SecureCluster, node: int, name: str, mechanism: str) -> None:
    user = (f"user-{name}", "secret-of-the-user") if mechanism == SCRAM else PLAIN_USER
    topic = prepared(cluster, cluster.others(node)[0], name, user, scram=mechanism == SCRAM)
    options: dict[str, Any] = {
        "security_protocol": PROTOCOL,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user[0],
        "sasl_plain_password": user[1],
    }
    producer = KafkaProducer(bootstrap_servers=cluster.addresses[node], enable_idempotence=True, **options)
    try:
        sent = [producer.send(topic, b"%d" % number, partition=number % PARTITIONS) for number in range(RECORDS)]
        for each in sent:
            each.get(DEADLINE_S)
    finally:
        producer.close(timeout=DEADLINE_S)
    parts = [PythonPartition(topic, partition) for partition in range(PARTITIONS)]
    committed = [RECORDS // PARTITIONS] * PARTITIONS
    reading = {"group_id": f"{name}-python", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(bootstrap_servers=cluster.addresses[node], **options, **reading)
    try:
        consumer.partitions_for_topic(topic)  # kafka-python 3.0 may assign nothing if it joins without metadata
        consumer.subscribe([topic])
        values: dict[tuple[int, int], int] = {}

        def complete() -> bool:
            """Reads records and commits. kafka-python joins again when it gets the metadata of a new subscription.
            Meanwhile it refuses to commit, and afterwards it reads the records without a committed offset again.
            """
            for records in consumer.poll(200).values():
                values.update({(record.partition, record.offset): int(record.value) for record in records})
            try:
                consumer.commit()
            except (CommitFailedError, RebalanceInProgressError):
                return False
            return [consumer.committed(part) for part in parts] == committed

        eventually(complete, "all records")
        assert sorted(values.values()) == list(range(RECORDS))
    finally:
        consumer.close()
    other = cluster.addresses[cluster.others(node)[1]]
    consumer = KafkaConsumer(bootstrap_servers=other, **options, **reading)
    try:
        assert [consumer.committed(part) for part in parts] == committed
    finally:
        consumer.close()


def test_permissions_changed_at_one_node_hold_at_all(cluster: SecureCluster, node: int, name: str) -> None:
    """Each node refuses operations without an ACL, and the next controller has the same ACLs."""
    user = (f"user-{name}", "secret-of-the-user")
    topic = prepared(cluster, node, name, user)
    for each in cluster.others(node):
        settings = settings_of(cluster.addresses[each], user, SCRAM)
        client = AdminClient(settings)
        created, described = (
            client.create_topics([NewTopic(f"{name}-x", 1)]),
            client.describe_consumer_groups(["foreign"]),
        )
        assert [code(partial(result, created)), code(partial(result, described))] == [
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ]
        assert send(settings, topic, 1) == [None]
    forbid(cluster.admin(node), user)
    for each in NODES:
        settings = settings_of(cluster.addresses[each], user, SCRAM)
        client = AdminClient(settings)
        eventually(
            lambda client=client: topic not in client.list_topics(timeout=DEADLINE_S).topics,  # type: ignore[misc]
            f"the end of the permissions at node {each}",
        )
    # The node also refuses a producer id, which an idempotent producer could report first.
    [error] = deliver(Producer(settings), topic, 1)
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_passwords_changed_at_one_node_hold_at_all(cluster: SecureCluster, node: int, name: str) -> None:
    """Every node refuses the old password, and later the deleted user."""
    old, new = (f"user-{name}", "the-old-password"), (f"user-{name}", "the-new-password")
    admin = cluster.admin(node)
    set_password(admin, old)

    def logs_in(each: int, user: User) -> bool:
        """Returns True once the node accepts the user's login, False once it refuses the login."""
        errors: list[KafkaError] = []
        client = AdminClient({**settings_of(cluster.addresses[each], user, SCRAM), "error_cb": errors.append})

        def outcome() -> str:
            served = code(lambda: client.list_topics(timeout=0.2)) is None
            client.poll(0)
            refused = KafkaError._AUTHENTICATION in [error.code() for error in errors]
            return "served" if served else "refused" if refused else ""

        return eventually(outcome, "a response to the login") == "served"

    def until(each: int, user: User, served: bool) -> None:
        eventually(lambda: logs_in(each, user) is served, f"{user} at node {each}: {served}")

    for each in NODES:
        until(each, old, True)
    set_password(cluster.admin(cluster.others(node)[0]), new)
    for each in NODES:
        until(each, new, True)
        assert not logs_in(each, old)
    deletion = UserScramCredentialDeletion(new[0], ScramMechanism.SCRAM_SHA_512)
    result(cluster.admin(cluster.others(node)[1]).alter_user_scram_credentials([deletion]))
    for each in NODES:
        until(each, new, False)


def test_an_administrator_changes_topics_at_any_node(cluster: SecureCluster, node: int, name: str) -> None:
    """An administrator changes settings, partitions, records and groups with the address of one node, and checks them
    with the address of another node.
    """
    admin, other = cluster.admin(node), cluster.admin(cluster.others(node)[0])
    result(admin.create_topics([NewTopic(name, 1, 1)]))
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    change = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    result(
        admin.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[change])])
    )
    eventually(lambda: result(other.describe_configs([resource]))["retention.ms"].value == "123456", "the setting")
    result(admin.create_partitions([NewPartitions(name, PARTITIONS)]))
    for each in (other, admin):
        eventually(lambda: len(each.list_topics(name, DEADLINE_S).topics[name].partitions) == PARTITIONS, "partitions")  # noqa: B023
    settings = settings_of(cluster.addresses[node], ADMIN)
    assert send(settings, name) == [None] * RECORDS
    assert result(other.delete_records([TopicPartition(name, 3, 2)])).low_watermark == 2
    consumer = consuming(settings, name)
    consumer.assign([TopicPartition(name, 3, 0)])
    assert [message.offset() for message in receive(consumer, 3)] == [2, 3, 4]
    consumer.commit(asynchronous=False)
    consumer.close()
    eventually(lambda: name in {group.group_id for group in other.list_consumer_groups().result(DEADLINE_S).valid}, "g")
    result(other.delete_consumer_groups([name]))
    described = other.describe_cluster().result(DEADLINE_S)
    assert {each.id: f"{each.host}:{each.port}" for each in described.nodes} == cluster.addresses
    result(other.delete_topics([name]))
    eventually(lambda: name not in admin.list_topics(timeout=DEADLINE_S).topics, "the end of the topic")


def test_a_client_without_credentials_is_refused(cluster: SecureCluster, node: int) -> None:
    client = AdminClient({"bootstrap.servers": cluster.addresses[node], "log_level": 0})
    assert code(lambda: client.list_topics(timeout=2)) == KafkaError._TRANSPORT
