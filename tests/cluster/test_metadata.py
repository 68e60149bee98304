"""The metadata log of a cluster: compaction by the controller, and nodes that miss a part of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kcore.broker.metadata import machine
from kcore.broker.metadata.brokers import BrokerRegistration, ListenerAddress, fencing_record
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.records.metadata import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from kcore.runtime import Pending, RequestContext
from kcore.runtime.partitioner import partition_for
from tests.cluster.world import Client, ClusterWorld, check
from tests.kit import COMMIT_VERSION, commit, create


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterWorld]:
    monkeypatch.setattr(machine, "COMPACT_FROM_RECORDS", 60)
    monkeypatch.setattr(machine, "COMPACT_RATIO", 2)
    world = ClusterWorld()
    world.start()
    yield world
    world.close()


def churn(world: ClusterWorld, rounds: int) -> None:
    """Creates and deletes topics, so that the metadata log is compacted."""
    for number in range(rounds):
        created = world.controller.send(create(f"topic-{number}", partitions=4))
        assert created.topics[0].error_code == 0
        deleted = world.controller.send(DeleteTopicsRequest(topic_names=[f"topic-{number}"], timeout_ms=1_000), 5)
        assert deleted.responses[0].error_code == 0


def test_a_follower_that_was_paused_over_a_compaction_loads_the_log_again(world: ClusterWorld) -> None:
    client = Client(world)
    client.create("kept")
    engine = world.controller.engine
    assert engine is not None
    log = engine.log.open(machine.METADATA_PARTITION)
    follower = next(node for node in world.up if node is not world.controller)
    start = log.log_start_offset
    follower.paused = True
    churn(world, 30)
    world.advance(1_000)
    assert log.log_start_offset > start, "the controller has compacted the log"
    follower.paused = False
    world.advance(1_000)
    check(world)
    assert client.produce("kept", 5, b"x") == 0


def test_a_node_that_starts_after_a_compaction_has_the_same_metadata(world: ClusterWorld) -> None:
    client = Client(world)
    client.create("kept")
    world.nodes[3].kill()
    churn(world, 30)
    world.advance(10_000)
    world.nodes[3].start()
    world.advance(5_000)
    check(world)
    world.controller.kill()
    world.advance(8_000)
    check(world)
    assert client.produce("kept", 2, b"x") == 0


def test_a_node_with_uncommitted_decisions_commits_them_and_follows_the_metadata(world: ClusterWorld) -> None:
    """A node under load is never idle. It must nevertheless follow the metadata, because planned
    moves wait for that.
    """
    Client(world).create("kept")
    names = (f"group-{number}" for number in range(1_000))
    leaders = ((name, world.leader("__consumer_offsets", partition_for(name, 6))) for name in names)
    group, follower = next(found for found in leaders if found[1] is not world.controller)
    engine = follower.engine
    assert engine is not None
    created = world.controller.send(create("new"))
    assert created.topics[0].error_code == 0
    pending = engine.submit(RequestContext(COMMIT_VERSION, "test"), commit(group, {("kept", 0): 7}))
    assert isinstance(pending, Pending)
    assert engine.pipeline.has_uncommitted
    assert engine.topics.by_name("new") is None
    engine.membership.refresh()
    assert engine.topics.by_name("new") is not None
    assert pending.done
    assert pending.response.topics[0].partitions[0].error_code == 0
    world.advance(1_000)
    check(world)


def test_a_registration_survives_its_record() -> None:
    broker = BrokerRegistration(7, 3, (ListenerAddress("SSL", "kafka.example", 443, 1),), "rack", draining=True)
    record = broker.record().value.record  # type: ignore[union-attr]
    assert isinstance(record, RegisterBrokerRecord)
    assert BrokerRegistration.of(RegisterBrokerRecord.decode(record.encode(1), 1)) == broker
    fenced = fencing_record(broker, fenced=True).value.record  # type: ignore[union-attr]
    assert isinstance(fenced, BrokerRegistrationChangeRecord)
    assert broker.changed(fenced).fenced
    assert not broker._replace(epoch=4).changed(fenced).fenced, "the record is of an earlier registration"
