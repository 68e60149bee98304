"""Compaction of the metadata log: a rewritten image limits the size of the log and keeps the state."""

from __future__ import annotations

import pytest

from kcore.broker.acl.entries import Acl
from kcore.broker.metadata import machine as topic_machine
from kcore.broker.metadata.brokers import BrokerRegistration, ListenerAddress, leader_record, successor_record
from kcore.broker.metadata.image import ConfigType
from kcore.broker.metadata.image_parts import image_parts, image_size
from kcore.broker.metadata.machine import METADATA_PARTITION, MetadataMachine
from kcore.broker.metadata.partition_range import MetadataBlock
from kcore.broker.metadata.records import acl_record, config_record, partition_records, quota_record, scram_record
from kcore.broker.metadata.topics import Topics
from kcore.log.faults import SimulatedCrashError
from kcore.log.interface import PartitionLog
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.runtime import Outcome
from kcore.security.scram import ScramCredential, ScramMechanism
from tests.broker.context import NODE_ID, BrokerContext, image_contents


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> BrokerContext:
    """Makes a node with state of every kind, whose log is compacted early."""
    monkeypatch.setattr(topic_machine, "COMPACT_FROM_RECORDS", 60)
    monkeypatch.setattr(topic_machine, "COMPACT_RATIO", 2)
    node = BrokerContext()
    node.create("a", 3, configs={"flush.ms": "5"})
    node.create("b", 1)
    node.alter(ConfigType.GROUP, "g", ("share.isolation.level", 0, "read_committed"))
    node.alter(ConfigType.BROKER, "", ("message.max.bytes", 0, "1000"))
    node.call(InitProducerIdRequest(transactional_id=None))
    return node


def log(node: BrokerContext) -> PartitionLog:
    return node.engine.open(METADATA_PARTITION)


def churn(node: BrokerContext, times: int) -> None:
    """Makes changes that add records to the log but leave the state as it was."""
    for i in range(times):
        node.create(f"churn{i}", 2)
        node.call(DeleteTopicsRequest(topic_names=[f"churn{i}"]), 5)


def flip(node: BrokerContext, times: int) -> None:
    """Adds and removes a setting."""
    for _ in range(times):
        node.alter(ConfigType.GROUP, "h", ("share.isolation.level", 0, "read_committed"))
        node.alter(ConfigType.GROUP, "h", ("share.isolation.level", 1, None))


def durable_state(node: BrokerContext) -> object:
    """Returns all durable state except the feature epoch, which is the offset of a record."""
    state = list(node.durable_state())
    del state[5]
    return state


def add_other_kinds(node: BrokerContext) -> None:
    """Adds state that only clusters and nodes with security have: nodes, moved leaders, users, quotas and ACLs."""
    topic = node.topics.by_name("a")
    assert topic is not None
    address = ListenerAddress("PLAINTEXT", "localhost", 9092, 0)
    mechanism = ScramMechanism.SCRAM_SHA_256
    records = [
        BrokerRegistration(1, 5, (address,), "rack").record(),
        BrokerRegistration(2, 6, (), fenced=True, draining=True).record(),
        leader_record(topic.topic_id, 0, 2, (2, 1)),
        successor_record(topic.topic_id, 1, 2),
        acl_record(bytes(15) + b"\x01", Acl(2, "a", 3, "User:u", "*", 3, 3)),
        scram_record("u", ScramCredential(mechanism, b"salt", b"stored", b"server", 4_096)),
        quota_record((("client-id", None), ("user", "u")), "producer_byte_rate", 5.0),
    ]
    assert node.shard.perform(lambda: node.machine.outcome(records)) is None
    node.finish()


def test_a_replayed_image_gives_the_same_state(node: BrokerContext) -> None:
    """Replays the image into an empty machine, and again over the same state. Listeners get no notifications.

    The compaction keeps only the records of the image. So the image must have records of every kind of state.
    """
    add_other_kinds(node)
    records = [record for part in image_parts(node.topics.image, 1) for record in MetadataBlock(part)]
    assert image_size(node.topics.image) == len(records) > 5
    machine = MetadataMachine(node.machine.context, Topics(), lambda offset: None, 0)
    for _ in range(2):
        for offset, record in enumerate(records):
            machine.replay(offset, -1, None, record.value)
    replayed, expected = image_contents(machine.image), image_contents(node.topics.image)
    del replayed["features_epoch"], expected["features_epoch"]  # the offset of a record
    assert [name for name, content in expected.items() if not content] == []
    assert replayed == expected


def test_the_log_stays_small_without_notifications(node: BrokerContext) -> None:
    """Older batches are removed. Listeners get only real changes. A restart gives the same state."""
    node.listener.take()
    before = durable_state(node)
    churn(node, 200)
    kinds = [event[0] for event in node.listener.take()]
    assert kinds == ["created", "deleted"] * 200
    kept = log(node).end_offset - log(node).log_start_offset
    assert log(node).end_offset > 800
    assert kept < 130
    assert durable_state(node) == before
    for _ in range(2):
        node.restart()
        assert durable_state(node) == before


def test_decisions_of_the_same_round_are_kept(node: BrokerContext) -> None:
    """The image may begin in the middle of a batch that also has other decisions of its round. A restart ignores the
    records before the image, and keeps the records after it.
    """
    node.auto_commit = False
    middles = 0
    for round_ in range(20):
        for i in range(12):
            node.shard.perform(lambda r=round_, i=i: _grow(node) if i == 5 else _set_group(node, f"g{r}", i))  # type: ignore[misc]
            node.slices.finish()
        node.commit()
        node.commit()
        before = durable_state(node)
        node.auto_commit = True
        node.restart()
        node.auto_commit = False
        assert durable_state(node) == before
        first, _ = next(iter(log(node).batches()))
        middles += first < log(node).log_start_offset
    assert middles > 0


def _set_group(node: BrokerContext, group_id: str, number: int) -> Outcome:
    value = str(5_000 + number)
    return node.machine.outcome([config_record(ConfigType.GROUP, group_id, "consumer.heartbeat.interval.ms", value)])


def _grow(node: BrokerContext) -> Outcome:
    topic = node.topics.by_name("b")
    assert topic is not None
    return node.machine.outcome(partition_records(topic.topic_id, topic.partitions, [(NODE_ID,)]))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("nth", range(1, 5))
def test_a_crash_at_any_commit_keeps_the_state(node: BrokerContext, nth: int, after: bool) -> None:
    """Crashes before and after the commit of the image, and before and after the deletion of old batches."""
    while log(node).end_offset - log(node).log_start_offset < 58:
        flip(node, 1)
    before = durable_state(node)
    node.engine.crash_commit(nth, after=after)
    with pytest.raises(SimulatedCrashError):
        flip(node, 10)
    node._boot()
    node.alter(ConfigType.GROUP, "h", ("share.isolation.level", 1, None))
    assert durable_state(node) == before
    churn(node, 30)
    node.restart()
    assert durable_state(node) == before


def test_a_failed_commit_of_the_image_changes_nothing(node: BrokerContext) -> None:
    """The next compaction tries again."""
    before = durable_state(node)
    for nth in range(1, 30):
        node.engine.fail_commit(nth * 3)
    for i in range(100):
        node.create(f"churn{i}", 2)
        if node.topics.by_name(f"churn{i}") is not None:
            while node.call(DeleteTopicsRequest(topic_names=[f"churn{i}"]), 5).responses[0].error_code:
                pass
    assert durable_state(node) == before
    node.restart()
    assert durable_state(node) == before
    assert log(node).end_offset - log(node).log_start_offset < 200


def test_an_image_too_large_for_one_batch_leaves_the_log_alone(
    node: BrokerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is not truncated unless the image is durable, even if other records are written at the offsets of the
    image.
    """
    node.shard._max_batch_bytes = 700
    before = durable_state(node)
    churn(node, 60)
    assert log(node).log_start_offset == 0
    node.restart()
    assert durable_state(node) == before
