"""Partitions after a failed commit of their creation: they accept no records, because the metadata log possibly lacks
them.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.log import FailureReason, LogError, MemoryStorage, PartitionKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.runtime.load_retry import FIRST_PAUSE_MS
from kcore.runtime.shard_state import ShardState
from tests.harness import EngineHarness, FailingLog
from tests.kit import PRODUCE_VERSION, batch, create, produce


class UnreadableStorage(MemoryStorage):
    """A storage in memory whose batches can be made unreadable."""

    readable = True

    def slice(self, *arguments: Any) -> Any:
        if not self.readable:
            raise LogError("the test makes the log unreadable", FailureReason.INJECTED)
        return super().slice(*arguments)


def send(world: EngineHarness, topic: str, partition: int = 0) -> int:
    """Produces a record without running queued slices, such as those of a reload. Returns the error code of the
    response.
    """
    response = world.start(produce(topic, batch([b"value"]), partition), PRODUCE_VERSION)
    world.engine.commit()
    response = getattr(response, "response", response)
    return int(response.responses[0].partition_responses[0].error_code)


def fail(world: EngineHarness, request: Any, version: int) -> Any:
    """Processes a request whose commit fails; returns the response."""
    pending = world.start(request, version)
    world.log.failures_left = 1
    assert not world.engine.commit()
    return pending.response


def test_a_topic_whose_commit_failed_takes_no_records_until_the_metadata_is_read_again() -> None:
    world = EngineHarness(topics={"t": 1})
    response = fail(world, create("late"), 7)
    assert response.topics[0].error_code
    topic_id = world.topic_id("late")  # shown until the metadata has been read again
    assert send(world, "late") == ErrorCode.KAFKA_STORAGE_ERROR
    assert send(world, "t") == ErrorCode.NONE
    assert world.log.get(PartitionKey(topic_id, 0)) is None
    world.settle()
    assert world.engine.topics.by_name("late") is None
    assert send(world, "late") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.create_topic("late")
    assert send(world, "late") == ErrorCode.NONE
    world.restart()
    assert world.engine.partitions.high_watermark("late", 0) == 1


def test_a_topic_whose_commit_failed_takes_no_records_while_the_metadata_cannot_be_read() -> None:
    storage = UnreadableStorage()
    world = EngineHarness(topics={"t": 1}, log=FailingLog(storage))
    fail(world, create("late"), 7)
    storage.readable = False
    world.engine.slices.finish()
    assert world.engine.control.shard.state is ShardState.FAILED
    assert send(world, "late") == ErrorCode.KAFKA_STORAGE_ERROR
    storage.readable = True
    world.advance(FIRST_PAUSE_MS)
    world.settle()
    assert world.engine.topics.by_name("late") is None
    assert send(world, "t") == ErrorCode.NONE


def test_a_partition_whose_commit_failed_takes_no_records_until_it_is_created_again() -> None:
    world = EngineHarness(topics={"t": 1})
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)], timeout_ms=1_000
    )
    assert fail(world, request, 3).results[0].error_code
    assert [send(world, "t", partition) for partition in (0, 1)] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    world.settle()
    assert send(world, "t", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not world.call(request, 3).results[0].error_code
    assert send(world, "t", 1) == ErrorCode.NONE
    world.restart()
    assert world.engine.partitions.high_watermark("t", 1) == 1


@pytest.mark.parametrize("permitted", [True, False])
def test_a_log_creates_a_partition_again_only_with_permission(permitted: bool) -> None:
    log = FailingLog()
    partition = log.open(PartitionKey(bytes(16), 0))
    log.failures_left = 1
    with pytest.raises(LogError):
        log.commit()
    log.permit_recreation(permitted)
    if permitted:
        assert partition.append(batch([b"value"]), 0) == 0
    else:
        with pytest.raises(LogError, match="was not created") as raised:
            partition.append(batch([b"value"]), 0)
        assert raised.value.reason is FailureReason.MISSING
    log.commit()
    assert partition.high_watermark == int(permitted)
    assert log.open(partition.key) is partition
    log.commit()
    assert log.partitions() == [partition.key]
