"""Every record type of the internal topics is replayed: a restart restores the state that the node had in memory."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kcore.broker.metadata import machine as metadata
from kcore.broker.metadata.records import metadata_record
from kcore.config.security import STANDARD_AUTHORIZER
from kcore.protocol.messages import alter_client_quotas as acq
from kcore.protocol.messages import alter_user_scram_credentials as ausc
from kcore.protocol.messages import create_acls as ca
from kcore.protocol.messages import delete_acls as da
from kcore.protocol.messages import incremental_alter_configs as iac
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, decode_key, key_classes
from kcore.protocol.records.metadata import MetadataRecord, RegisterBrokerRecord, UnregisterBrokerRecord
from kcore.spark.events.sources import ServerSource
from tests.broker.context import BrokerContext, image_contents
from tests.cluster.world import Client, ClusterWorld
from tests.kit import producer_id
from tests.nodes import node_of
from tests.security.guarded import error_codes
from tests.spark.traffic import HISTORY, QUICK_ENDS, NodeSnapshot, PartitionTuple, Rows, Sender, Traffic, live
from tests.transaction.world import World

COORDINATOR_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
STEPS = 400
NOT_WRITTEN = {("LegacyOffsetCommitKey", "value"), ("ConsumerGroupPartitionMetadataKey", "value")}
"""Types of records that kcore replays but never writes, because only older versions of Kafka wrote them. `tests/group`
tests their replay.
"""
NOT_DELETED = {("LegacyOffsetCommitKey", "tombstone"), ("ShareUpdateKey", "tombstone")}
"""Types of records that have no tombstones. kcore deletes the updates of a share partition by the tombstone of its
snapshot.
"""


def without_rebalances(snapshot: NodeSnapshot, rebalancing: NodeSnapshot) -> dict[PartitionTuple, Rows]:
    """Returns the rows of each partition without the groups that were rebalancing, because the log lacks their last
    joins.
    """
    found: dict[PartitionTuple, Rows] = {}
    for partition, partition_snapshot in snapshot.items():
        groups = tuple(f"('group_id', '{group}')" for group in rebalancing[partition].unwritten)
        found[partition] = [row for row in partition_snapshot.rows if not any(group in row[1] for group in groups)]
    return found


def written(world: World) -> set[tuple[str, str]]:
    """Returns the types of all records in the coordinators' logs: (class name of the key, "value" or "tombstone")."""
    source = ServerSource(node_of(Sender(world)))
    return {
        (type(decode_key(part.topic, row.key)).__name__, "tombstone" if row.value is None else "value")
        for part in source.parts()
        if part.topic in COORDINATOR_TOPICS
        for row in source.rows(part)
        if not row.control and row.key is not None
    }


def test_a_restart_replays_every_record_type_of_the_coordinators() -> None:
    """The logs have a value and a tombstone of each type. Groups, offsets, transactions and share states are the same
    after the restart.
    """
    settings = {"offsets.topic.num.partitions": 2, "group.initial.rebalance.delay.ms": 0, **HISTORY, **QUICK_ENDS}
    world = World(settings, Traffic.TOPICS)
    traffic = Traffic(world, random.Random(5))
    traffic.everything()
    for _ in range(STEPS):
        traffic.step()
    world.settle()
    before = live(world)

    types = {cls.__name__ for topic in COORDINATOR_TOPICS for cls in key_classes(topic).values()}
    both = {(name, kind) for name in types for kind in ("value", "tombstone")}
    assert written(world) == both - NOT_WRITTEN - NOT_DELETED
    world.restart()
    assert without_rebalances(live(world), before) == without_rebalances(before, before)
    world.close()


def changes() -> list[Any]:
    """Returns requests that create and remove each kind of metadata object, except topics and nodes."""
    entries = [
        ca.AclCreation(
            resource_type=2, resource_name="kept", principal=principal, host="*", operation=3, permission_type=3
        )
        for principal in ("User:a", "User:b")
    ]
    of_b = da.DeleteAclsFilter(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter="User:b",
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    credentials = [
        ausc.ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
        for name in ("a", "b")
    ]
    setting = iac.AlterableConfig(name="retention.ms", config_operation=0, value="5")
    resource = iac.AlterConfigsResource(resource_type=2, resource_name="kept", configs=[setting])
    quota = acq.EntryData(
        entity=[acq.EntityData(entity_type="user", entity_name="a")],
        ops=[acq.OpData(key="producer_byte_rate", value=5.0)],
    )
    return [
        DeleteTopicsRequest(topics=[DeleteTopicState(name="deleted")], timeout_ms=1_000),
        ca.CreateAclsRequest(creations=entries),
        da.DeleteAclsRequest(filters=[of_b]),
        ausc.AlterUserScramCredentialsRequest(upsertions=credentials),
        ausc.AlterUserScramCredentialsRequest(deletions=[ausc.ScramCredentialDeletion(name="b", mechanism=1)]),
        iac.IncrementalAlterConfigsRequest(resources=[resource]),
        acq.AlterClientQuotasRequest(entries=[quota]),
        producer_id(),
    ]


def test_a_new_node_replays_every_record_type_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that starts after all changes has the same metadata as the node that made the changes.

    kcore replays UnregisterBrokerRecord, but never writes it, because a stopped node stays registered.
    """
    world = ClusterWorld(
        nodes=3, settings={"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS;User:node"}
    )
    world.start()
    for topic in ("kept", "deleted"):
        Client(world).create(topic)
    world.nodes[3].stop()
    world.advance(30_000)
    node = world.controller
    for request in changes():
        assert set(error_codes(node.send(request))) == {0}, request
    world.advance(10_000)

    replayed = set()

    def recorded(machine: Any, offset: int, record: Any) -> None:
        replayed.add(type(record))
        replay[type(record)](machine, offset, record)

    replay = dict(metadata.REPLAY)
    for cls in replay:
        monkeypatch.setitem(metadata.REPLAY, cls, recorded)
    engine = world.nodes[3].start()
    world.advance(10_000)
    assert node.engine is not None
    assert image_contents(engine.topics.image) == image_contents(node.engine.topics.image)
    assert replayed == set(MetadataRecord.__subclasses__()) - {UnregisterBrokerRecord}
    world.close()


def test_the_removal_of_a_node_is_replayed() -> None:
    """An UnregisterBrokerRecord, written by another controller, deletes the registration of a node.

    As in Kafka, the record applies regardless of the node's epoch.
    """
    machine = BrokerContext().shard.machine
    registered = RegisterBrokerRecord(broker_id=3, broker_epoch=7)
    for offset, (record, nodes) in enumerate(((registered, [3]), (UnregisterBrokerRecord(broker_id=3), [])), 5):
        machine.replay(offset, -1, None, metadata_record(record).value)
        assert list(machine.image.brokers) == nodes
