"""Topics with thousands of partitions: one decision creates them, and their logs are opened in slices."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.data import partitions as module
from kcore.broker.data.partitions import OPENED_AT_ONCE
from kcore.broker.metadata.image import ConfigType
from kcore.broker.metadata.machine import METADATA_PARTITION, MetadataMachine
from kcore.broker.metadata.partition_range import MetadataBlock, PartitionRange
from kcore.broker.metadata.records import config_record, topic_records
from kcore.broker.metadata.topics import Topics
from kcore.log.interface import PartitionKey
from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.runtime import Pending
from kcore_ext.batch import BatchBuilder
from kcore_ext.runtime.shard import EncodedRecords
from tests.transaction.world import World

PARTITIONS = 2 * OPENED_AT_ONCE + 300


def sliced_world(settings: dict[str, Any] | None = None) -> World:
    """Makes a node that processes long requests in slices, as a server on an event loop does."""
    world = World(settings)
    world.engine.slices.requests.enabled = True
    return world


def creation(partitions: int = PARTITIONS, name: str = "wide") -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def growth(count: int) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name="wide", count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=1000)


def opened(world: World) -> int:
    found = world.engine.partitions.names.get("wide")
    return 0 if found is None else len(found.partitions)


def logs(world: World) -> list[PartitionKey]:
    """Returns the logs of user topics other than `t`."""
    known = {topic.topic_id for topic in world.engine.topics.all() if topic.name != "wide"}
    return [key for key in world.log.partitions() if key.topic_id not in known and key != METADATA_PARTITION]


def assert_complete(world: World, partitions: int = PARTITIONS) -> None:
    """Asserts that every partition exists and can be written, before and after a restart."""
    for number in range(2):
        topic = world.engine.topics.by_name("wide")
        assert topic is not None
        assert topic.partitions == partitions
        assert opened(world) == partitions
        assert not world.engine.partitions.opening
        who = world.begin(f"x{number}")
        tid = f"x{number}"
        for index in (0, OPENED_AT_ONCE - 1, OPENED_AT_ONCE, partitions - 1):
            assert world.add(tid, who, [("wide", index)]) == [E.NONE]
            assert world.produce(tid, who, 0, b"x", topic="wide", index=index)[0] is E.NONE
        assert world.end(tid, who, True)[0] is E.NONE
        assert {key.partition for key in logs(world)} == set(range(partitions))
        world.restart()
        world.engine.slices.requests.enabled = True


def test_the_logs_of_a_wide_topic_are_opened_in_slices() -> None:
    """The metadata change is one commit. The response comes once all logs are open."""
    world = sliced_world()
    rounds = world.engine.pipeline.rounds
    response = world.start(creation(), 7)
    assert isinstance(response, Pending)
    world.engine.commit()
    assert world.engine.pipeline.rounds == rounds + 1
    topic = world.engine.topics.by_name("wide")
    assert topic is not None
    assert topic.partitions == PARTITIONS
    counts = [opened(world)]
    while world.engine.slices:
        assert not (response.done and world.engine.partitions.opening)
        world.engine.slices.step()
        world.engine.commit()
        if opened(world) != counts[-1]:
            counts.append(opened(world))
    assert counts == [OPENED_AT_ONCE, 2 * OPENED_AT_ONCE, PARTITIONS]
    assert response.done
    assert response.response.topics[0].error_code == E.NONE
    assert response.response.topics[0].num_partitions == PARTITIONS
    assert_complete(world)


def test_added_partitions_are_opened_in_slices_too() -> None:
    """Partitions may also be added while the slices open the first partitions."""
    world = sliced_world()
    world.start(creation(), 7)
    world.engine.commit()
    response = world.start(growth(2 * PARTITIONS), 3)
    world.engine.slices.step()
    assert opened(world) < PARTITIONS
    world.settle()
    assert response.response.results[0].error_code == E.NONE
    assert_complete(world, 2 * PARTITIONS)


def test_without_an_event_loop_all_logs_are_open_at_once() -> None:
    world = World()
    world.start(creation(), 7)
    assert opened(world) == PARTITIONS
    world.settle()
    assert opened(world) == PARTITIONS


@pytest.mark.parametrize("slices", range(4))
def test_a_failed_commit_of_a_slice_leaves_a_complete_topic(slices: int) -> None:
    """The creation itself is durable. If a slice could not create the log of a partition, the first append to the
    partition creates the log.
    """
    world = sliced_world()
    world.start(creation(), 7)
    world.engine.commit()
    for _ in range(slices):
        world.engine.slices.step()
        world.engine.commit()
    world.engine.slices.step()
    world.log.failures_left = 1
    world.settle()
    world.log.failures_left = 0
    who = world.begin("x")
    for index in range(PARTITIONS):
        assert world.engine.partitions.get("wide", index) is not None
    for index in (0, OPENED_AT_ONCE, PARTITIONS - 1):
        assert world.add("x", who, [("wide", index)]) == [E.NONE]
        assert world.produce("x", who, 0, b"x", topic="wide", index=index) == (E.NONE, 0)
    assert world.end("x", who, True)[0] is E.NONE
    world.restart()
    assert_complete(world)


@pytest.mark.parametrize("slices", range(3))
def test_a_failed_creation_leaves_no_log(slices: int) -> None:
    """The logs that the slices opened before the commit failed are dropped with the topic."""
    world = sliced_world()
    response = world.start(creation(), 7)
    for _ in range(slices):
        world.engine.slices.step()
    world.log.failures_left = 1
    world.settle()
    assert response.response.topics[0].error_code == E.NOT_CONTROLLER
    assert world.engine.topics.by_name("wide") is None
    assert opened(world) == 0
    assert not world.engine.partitions.opening
    assert logs(world) == []


@pytest.mark.parametrize("slices", range(4))
def test_a_crash_between_slices_leaves_a_complete_topic(slices: int) -> None:
    world = sliced_world()
    world.start(creation(), 7)
    world.engine.commit()
    for _ in range(slices):
        world.engine.slices.step()
        world.engine.commit()
    world.restart()
    assert_complete(world)


def test_a_topic_deleted_between_slices_leaves_no_log() -> None:
    world = sliced_world()
    response = world.start(creation(), 7)
    world.engine.commit()
    world.delete_topic("wide")
    assert response.done
    assert opened(world) == 0
    assert not world.engine.partitions.opening
    assert logs(world) == []


@pytest.mark.parametrize("nth", [0, 1, OPENED_AT_ONCE, PARTITIONS - OPENED_AT_ONCE - 1])
def test_no_memory_in_a_slice_delays_the_opening(monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    world = sliced_world()
    world.start(creation(), 7)
    world.engine.commit()
    made, left = module.Partition, [nth]

    def failing(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise MemoryError
        return made(*arguments, **named)

    monkeypatch.setattr(module, "Partition", failing)
    world.settle()
    assert left[0] < -1
    assert_complete(world)


def test_many_topics_are_created_in_parts_by_their_partitions() -> None:
    """A request for a hundred topics with a hundred partitions each is decided in slices."""
    world = sliced_world()
    topics = [CreatableTopic(name=f"w{n}", num_partitions=100, replication_factor=1) for n in range(100)]
    response = world.start(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    assert len(world.engine.topics.image.names) < 10
    world.settle()
    assert [topic.error_code for topic in response.response.topics] == [E.NONE] * 100
    assert all(world.engine.partitions.get(f"w{n}", 99) is not None for n in range(100))


def test_a_block_equals_its_records() -> None:
    """A block of partitions encodes and replays like the single records that it replaces."""
    topic_id = bytes(range(16))
    assignments = [(1,), (1,), (2, 1), (1,), (2, 1)]
    head = [
        *topic_records("wide", topic_id, {"flush.ms": "5"}, [(1,)]),
        config_record(ConfigType.GROUP, "g", "consumer.heartbeat.interval.ms", "7"),
    ]
    block = MetadataBlock([*head, PartitionRange(topic_id, 1, assignments)])
    records = list(block)
    assert len(block) == len(records) == len(head) + 5
    encoded = EncodedRecords(records)
    assert block.size_bytes == encoded.size_bytes
    batches = [BatchBuilder(1 << 20, base_timestamp_ms=5) for _ in range(2)]
    assert block.append_to(batches[0], 5)
    assert encoded.append_to(batches[1], 5)
    assert batches[0].build() == batches[1].build()
    world = World()
    machines = [
        MetadataMachine(world.engine.control.shard.machine.context, Topics(), lambda offset: None, 0) for _ in range(2)
    ]
    for _ in range(2):
        machines[0].replay_block(0, -1, block)
        for offset, record in enumerate(records):
            machines[1].replay(offset, -1, None, record.value)  # type: ignore[arg-type]
        for name in ("names", "ids", "replicas", "collisions", "settings"):
            assert getattr(machines[0].image, name) == getattr(machines[1].image, name), name
