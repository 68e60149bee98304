"""A user's program, which `make lint` checks with mypy --strict: every name of the public API has its type.

Where mypy must find a mistake, a comment `type: ignore` names its error code. mypy reports such a comment if there is
no error.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_type

import kcore
from kcore import (
    Assigned,
    Delivery,
    GroupDescription,
    Lost,
    OffsetAndMetadata,
    PartitionDict,
    Record,
    RecordMetadata,
    Revoked,
    TopicListing,
    TopicPartition,
)
from kcore.errors import FencedMemberEpochError, KafkaError, PartitionErrors
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def on_removed(event: Revoked | Lost) -> None:
    print(event.epoch)


def on_revoked(event: Revoked) -> None:
    print(event.epoch)


def on_lost(event: Lost) -> None:
    print(event.epoch)


def use_a_cluster() -> None:
    with kcore.connect("localhost:9092", security={"security.protocol": "PLAINTEXT"}, wait=30.0) as node:
        assert_type(node, kcore.Node)
        topic = node.topics.create("jobs", 4, config={"retention.ms": 1}, exist_ok=True)
        assert_type(topic.append("v", key=b"k", timestamp=datetime.now()), RecordMetadata)
        assert_type(node.producer().append("jobs", "v", timestamp=datetime.now()), Delivery)
        assert_type(topic.read(0, 0, isolation="read_committed"), list[Record])
        assert_type(topic.end_offsets(), dict[int, int])
        assert_type(node.topics.list(), list[TopicListing])
        assert_type("jobs" in node.topics, bool)
        group = node.group("g")
        group.commit({("jobs", 0): 1})
        group.commit({TopicPartition("jobs", 0): OffsetAndMetadata(1)})
        assert_type(group.committed(), PartitionDict[OffsetAndMetadata])
        committed: dict[TopicPartition, OffsetAndMetadata] = group.committed()
        assert_type(group.lag()["jobs", 0], int)
        assert_type(group.lag().get(("jobs", 0), 0), int)
        assert_type(group.lag().get(TopicPartition("jobs", 0)), int | None)
        group.lag().get("jobs")  # type: ignore[call-overload]
        assert_type(group.describe(), GroupDescription)
        with node.transaction("t") as txn:
            txn.append("jobs", "v")
            txn.commit_offsets(group, {("jobs", 0): 1})
            txn.commit_offsets("g", committed)
            txn.commit_offsets(b"g", committed)  # type: ignore[arg-type]
        with group.join("jobs", on_assigned=lambda event: print(event.epoch)) as member:
            assert_type(member.assignment, tuple[TopicPartition, ...])
            assert_type(member.state, kcore.MemberState)
            assert member.state != "Sable"  # type: ignore[comparison-overlap]
            assert_type(member.poll(1.0), Assigned | Revoked | Lost | None)
            for event in member.events():
                assert_type(event, Assigned | Revoked | Lost)
        group.join("jobs", on_revoked=on_removed)
        group.join("jobs", on_revoked=on_revoked)  # type: ignore[arg-type]
        group.join("jobs", on_revoked=on_revoked, on_lost=on_lost)
        group.join("jobs", on_lost=on_lost)
        group.consume("jobs", on_revoked=on_revoked, on_lost=on_lost)
        group.consume("jobs", on_revoked=on_revoked)  # type: ignore[arg-type]
        with group.consume(["jobs"]) as consumer:
            assert_type(consumer.positions(), PartitionDict[OffsetAndMetadata])
            for record in consumer:
                assert_type(record, Record)
        with node.queue("jobs", group="g") as queue:
            for job in queue:
                assert_type(job, kcore.Job)
                assert_type(job.value, bytes | None)
                job.accept()
        with node.producer() as producer:
            delivery = producer.append("jobs", "v")
            assert_type(delivery.partition, TopicPartition)
            assert_type(delivery.result(), RecordMetadata)
        assert_type(node.users.list(), dict[str, dict[str, int]])
        described = node.groups.describe(["g"])["g"]
        if not isinstance(described, KafkaError):
            assert_type(described.state, str)
        response = node.send(HeartbeatRequest(group_id="g"))
        assert_type(response, HeartbeatResponse)


def annotate_results(node: kcore.Node, offsets: kcore.Offsets, isolation: kcore.Isolation) -> None:
    topics: kcore.Topics = node.topics
    topic: kcore.Topic = topics["jobs"]
    described: list[kcore.TopicDescription] = list(topics.describe(["jobs"]))
    partition: kcore.PartitionDescription = described[0].partitions[0]
    assert_type(partition.leader, int | None)
    metadata: kcore.RecordMetadata = topic.append("v", headers=[("h", b"1")])
    ends: dict[kcore.TopicPartition, int] = topics.end_offsets([(metadata.topic, metadata.partition)], isolation)
    records: list[kcore.Record] = topic.read(0, ends["jobs", 0], isolation=isolation)  # type: ignore[index]
    assert_type(records[0].headers, tuple[tuple[str, bytes | None], ...])
    groups: kcore.Groups = node.groups
    listings: list[kcore.GroupListing] = groups.list(types=["share"], states=["Stable"])
    group: kcore.Group = groups[listings[0].group_id]
    group.commit(offsets)
    lag: kcore.PartitionDict[int] = group.lag()
    positions: kcore.PartitionDict[kcore.SharePosition] = group.share_positions()
    assert_type((lag["jobs", 0], positions["jobs", 0].lag), tuple[int, int | None])
    members: tuple[kcore.MemberDescription, ...] = group.describe().members
    tasks: kcore.Tasks = members[0].assigned_tasks
    topology: kcore.Topology | None = group.describe().topology
    assert_type((tasks.active, topology is None), tuple[tuple[tuple[str, int], ...], bool])
    transactions: kcore.Transactions = node.transactions
    rows: list[kcore.TransactionListing] = transactions.list(states=["Ongoing"])
    state: kcore.TransactionDescription | KafkaError = transactions.describe([rows[0].transactional_id])["t"]
    states: list[kcore.ProducerState] = list(transactions.producers([("jobs", 0)]))
    assert_type((isinstance(state, KafkaError), states[0].producer_id), tuple[bool, int])
    producer: kcore.Producer = node.producer()
    delivery: kcore.Delivery = producer.append("jobs", "v")
    transaction: kcore.Transaction = node.transaction("t")
    users: kcore.Users = node.users
    assert_type((delivery.done, transaction, users), tuple[bool, kcore.Transaction, kcore.Users])


def administer(node: kcore.Node) -> None:
    entry = kcore.Acl("TOPIC", "jobs", "User:alice", "READ", pattern_type="PREFIXED")
    node.acls.create(entry)
    entries: list[kcore.Acl] = node.acls.describe(principal="User:alice", resource_type=None)
    assert_type(node.acls.delete(entries), list[kcore.Acl])
    node.acls.create("jobs")  # type: ignore[arg-type]
    cluster: kcore.ClusterDescription = node.describe_cluster()
    brokers: kcore.Brokers = node.brokers
    broker: kcore.ClusterBroker = brokers[cluster.brokers[0].id]
    assert_type(brokers.list(), list[kcore.BrokerDescription])
    assert_type(broker.config(own=True), dict[str, str | None])
    broker.set_config({"message.max.bytes": 1})
    directories: list[kcore.LogDirectory] = broker.log_dirs()
    assert_type(directories[0].partitions["jobs", 0], int)
    node.quotas.set({"producer_byte_rate": None}, user="alice")
    quotas: dict[kcore.QuotaEntity, dict[str, float]] = node.quotas.describe(client_id="app")
    assert_type(quotas, dict[kcore.QuotaEntity, dict[str, float]])
    assert_type(node.topics["jobs"].delete_records({0: 42, 1: None}), dict[int, int])
    assert_type(node.topics.delete_records({("jobs", 0): None}), dict[TopicPartition, int])
    with node.group("g").consume("jobs") as consumer:
        consumer.seek(("jobs", 0), datetime.now())
        consumer.seek(("jobs", 0), 1.5)  # type: ignore[arg-type]
        consumer.seek_to_end()
        assert_type(consumer.paused(), set[TopicPartition])


def embed() -> None:
    with kcore.open() as node:
        assert_type(node, kcore.EmbeddedNode)
        with node.listen() as listening:
            assert_type(listening.bootstrap, str)
        node.advance(5)
        "jobs" in node.topics  # noqa: B015
        "g" in node.groups  # type: ignore[operator] # noqa: B015
        for _ in node.topics:  # type: ignore[misc]
            pass
    with kcore.connect("localhost:9092") as connected:
        assert_type(connected, kcore.Node)


async def use_an_engine() -> None:
    async with kcore.open_async() as node:
        assert_type(node, kcore.AsyncEmbeddedNode)
        assert_type(await node.topics["jobs"].append("v"), RecordMetadata)
        assert_type(await node.group("g").lag(), PartitionDict[int])
        async for record in node.group("g").consume("jobs"):
            assert_type(record, Record)
        async with node.queue(["jobs"], group="g", auto_accept=False) as queue:
            assert_type(await queue.get(1.0), kcore.AsyncJob | None)
        async with node.group("g").join("jobs", protocol="classic") as member:
            await member.commit({("jobs", 0): 1})
        async with await node.listen() as listening:
            assert_type(listening, kcore.AsyncListening)
    node2 = await kcore.connect_async("localhost:9092")
    assert_type(node2, kcore.AsyncNode)


def handle_errors(node: kcore.EmbeddedNode) -> None:
    try:
        node.group("g").commit({("jobs", 0): 1})
    except FencedMemberEpochError as error:
        assert_type(error.retriable, bool)
    except PartitionErrors as group:
        for partition, each in group.errors.items():
            assert_type(partition, TopicPartition)
            assert_type(each, KafkaError)


def make_mistakes(node: kcore.EmbeddedNode) -> None:
    node.group("g").commit({"jobs": 1})  # type: ignore[arg-type]
    node.topcis  # type: ignore[attr-defined]  # noqa: B018
    node.topics.create("jobs", partitons=4)  # type: ignore[call-arg]
    node.group("g").join("jobs", on_assigned=1)  # type: ignore[call-overload]


async def print_a_response(node: kcore.AsyncNode) -> None:
    print(await node.send(HeartbeatRequest(group_id="g")))  # the parameter has the type object
