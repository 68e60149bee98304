"""The share coordinator in a whole engine: its records, snapshots, pruning and recovery."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteStateData
from kcore.protocol.messages.delete_share_group_state import PartitionData as DeletePartition
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from kcore.protocol.messages.initialize_share_group_state import PartitionData as InitialPartition
from kcore.protocol.messages.read_share_group_state import PartitionData as ReadPartition
from kcore.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from kcore.protocol.messages.write_share_group_state import PartitionData as WritePartition
from kcore.protocol.messages.write_share_group_state import (
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from kcore.runtime import Pending
from kcore.share.local import LocalPersister, _Operation
from kcore.share.persister import share_key, when_complete
from kcore.share.state import key_of
from tests.broker.share.world import World


def write(world: World, *batches: tuple[int, int, int, int], start_offset: int = -1, partition: int = 0) -> int:
    """Sends WriteShareGroupState. Returns the error code."""
    data = WritePartition(
        partition=partition,
        state_epoch=1,
        leader_epoch=-1,
        start_offset=start_offset,
        delivery_complete_count=0,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )
    request = WriteShareGroupStateRequest(
        group_id="g", topics=[WriteStateData(topic_id=world.topic_id(), partitions=[data])]
    )
    return int(world.call(request, 1).results[0].partitions[0].error_code)


def read(world: World, leader_epoch: int = -1) -> tuple[int, int, list[tuple[int, int, int, int]]]:
    """Sends ReadShareGroupState. Returns the error code, the start offset and the batches."""
    data = ReadPartition(partition=0, leader_epoch=leader_epoch)
    request = ReadShareGroupStateRequest(
        group_id="g", topics=[ReadStateData(topic_id=world.topic_id(), partitions=[data])]
    )
    result = world.call(request, 0).results[0].partitions[0]
    batches = [
        (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in result.state_batches
    ]
    return result.error_code, result.start_offset, batches


def states(world: World) -> dict[Any, tuple[Any, ...]]:
    """Returns the state of every share partition. Leaves out the number of updates since the snapshot, which pruning
    resets.
    """
    return {
        key_of(state): state.dump()[:-1]
        for shard in world.engine.share.shards or ()
        for state in shard.machine.states.values()
    }


def types_and_epochs(world: World) -> list[tuple[str, int]]:
    """Returns (record type, snapshot epoch) of each record since the last call; the epoch of a tombstone is -1."""
    return [
        (type(key).__name__.removesuffix("Key"), -1 if value is None else value.snapshot_epoch)
        for key, value in world.records()
    ]


def test_a_snapshot_follows_the_allowed_number_of_updates() -> None:
    world = World({"share.coordinator.snapshot.update.records.per.snapshot": 3})
    for offset in range(8):
        assert write(world, (offset, offset, 2, 1), start_offset=0) == 0
    assert types_and_epochs(world) == [
        ("ShareSnapshot", 0),
        *[("ShareUpdate", 0)] * 3,
        ("ShareSnapshot", 1),
        *[("ShareUpdate", 1)] * 3,
        ("ShareSnapshot", 2),
    ]
    assert read(world) == (0, 0, [(0, 7, 2, 1)])
    snapshot = world.records()[-1][1]
    assert [(batch.first_offset, batch.last_offset) for batch in snapshot.state_batches] == [(0, 7)]


def test_without_updates_every_write_is_a_snapshot() -> None:
    world = World({"share.coordinator.snapshot.update.records.per.snapshot": 0})
    assert [write(world, (offset, offset, 2, 1)) for offset in range(2)] == [0, 0]
    assert types_and_epochs(world) == [("ShareSnapshot", 0), ("ShareSnapshot", 1), ("ShareSnapshot", 2)]


def test_a_read_writes_a_leader_epoch_only_if_it_is_the_highest() -> None:
    """A read with the highest leader epoch so far writes a record of this epoch. A read with the same epoch writes no
    record, and a read with a lower epoch is fenced.

    The highest epoch remains known even if an initialization stores leader epoch 0.
    """
    world = World()
    read(world, leader_epoch=5)
    world.initialize([0], start_offset=4, state_epoch=2)
    before = len(world.records())
    assert read(world, leader_epoch=5) == (0, 4, [])
    assert len(world.records()) == before
    assert read(world, leader_epoch=4)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert read(world, leader_epoch=6) == (0, 4, [])
    assert [value.leader_epoch for _, value in world.records()[before:]] == [6]


def test_a_restart_rebuilds_the_same_state() -> None:
    world = World({"share.coordinator.snapshot.update.records.per.snapshot": 2}, partitions=3)
    for offset in range(7):
        write(world, (offset, offset + 3, 2 * (offset % 3), 1), start_offset=offset // 2, partition=offset % 3)
    read(world, leader_epoch=5)
    world.initialize([1], start_offset=4, state_epoch=2)
    before = states(world)
    assert len(before) == 3
    world.restart()
    assert states(world) == before


def test_idle_share_partitions_get_a_cold_snapshot_and_the_log_is_pruned() -> None:
    """A share partition is idle for five minutes, so the coordinator writes a snapshot of its state (a cold snapshot),
    and removes the records before it. Later runs write no further snapshot.
    """
    world = World()
    for offset in range(4):
        write(world, (offset, offset, 2, 1), start_offset=0)
    before = states(world)
    world.advance(300_000)
    assert types_and_epochs(world)[-1] == ("ShareSnapshot", 1)
    snapshot = world.records()[-1][1]
    assert snapshot.write_timestamp - snapshot.create_timestamp == 300_000
    world.advance(300_000)
    assert types_and_epochs(world) == [("ShareSnapshot", 1)], "the run removed the replaced records"
    world.advance(600_000)
    assert types_and_epochs(world) == [("ShareSnapshot", 1)]
    ((key, state),) = states(world).items()
    world.restart()
    assert states(world) == {key: state}
    assert read(world) == (0, 0, [(0, 3, 2, 1)])
    assert list(before) == [key]


def test_a_deleted_topic_takes_its_state_with_it() -> None:
    world = World(partitions=2)
    topic_id = world.topic_id()
    world.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    world.settle()
    assert states(world) == {}
    tombstones = [(key.topic_id, key.partition) for key, value in world.records() if value is None]
    assert sorted(tombstones) == [(topic_id, 0), (topic_id, 1)]


def test_a_load_deletes_the_state_of_a_topic_deleted_before_a_crash() -> None:
    """The deletion of the topic is durable, but the deletion of its state is not. The next load deletes the state."""
    world = World()
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    world.start(request, 6)
    assert world.engine.commit()
    assert len(states(world)) == 1
    world.restart()
    assert states(world) == {}


def test_deleted_state_is_gone_and_may_be_deleted_again() -> None:
    world = World()
    request = DeleteShareGroupStateRequest(
        group_id="g", topics=[DeleteStateData(topic_id=world.topic_id(), partitions=[DeletePartition(partition=0)])]
    )
    for _ in range(2):
        assert world.call(request, 0).results[0].partitions[0].error_code == 0
    assert types_and_epochs(world) == [("ShareSnapshot", 0), ("ShareSnapshot", -1)]
    assert read(world)[0] == 42


def test_a_topic_without_partitions_makes_the_whole_request_invalid() -> None:
    """The response is empty, and no partition is changed. Only InitializeShareGroupState ignores such a topic."""
    world = World()
    topics = [
        DeleteStateData(topic_id=world.topic_id(), partitions=[DeletePartition(partition=0)]),
        DeleteStateData(topic_id=bytes([9] * 16), partitions=[]),
    ]
    assert world.call(DeleteShareGroupStateRequest(group_id="g", topics=topics), 0).results == ()
    assert len(states(world)) == 1
    initial = [
        InitializeStateData(topic_id=world.topic_id(), partitions=[InitialPartition(partition=0, state_epoch=2)]),
        InitializeStateData(topic_id=bytes([9] * 16), partitions=[]),
    ]
    (result,) = world.call(InitializeShareGroupStateRequest(group_id="g", topics=initial), 0).results
    assert [partition.error_code for partition in result.partitions] == [0]


def test_many_partitions_of_a_request_are_one_response() -> None:
    """A request with more partitions than one batch can store runs in slices, and gets one response."""
    world = World(partitions=120)
    assert len(states(world)) == 120
    data = [WritePartition(partition=index, state_epoch=1, leader_epoch=-1, start_offset=index) for index in range(130)]
    request = WriteShareGroupStateRequest(
        group_id="g", topics=[WriteStateData(topic_id=world.topic_id(), partitions=data)]
    )
    response = world.call(request, 1)
    assert [result.partition for result in response.results[0].partitions] == list(range(130))
    assert [result.error_code for result in response.results[0].partitions] == [0] * 120 + [42] * 10


@pytest.mark.parametrize("updates", [100, 1], ids=["update", "snapshot"])
def test_a_late_write_does_not_move_the_start_offset_back(updates: int) -> None:
    """The leader of the partition repeats a failed write after a later write has moved the start offset."""
    world = World({"share.coordinator.snapshot.update.records.per.snapshot": str(updates)})
    assert write(world, (0, 3, 2, 1), (6, 6, 2, 1), start_offset=4) == 0
    assert write(world, (4, 5, 2, 1), start_offset=0) == 0
    assert read(world) == (0, 4, [(4, 6, 2, 1)])
    (state,) = [state for shard in world.engine.share.shards or () for state in shard.machine.states.values()]
    assert state.delivery_complete_count == 3
    world.restart()
    assert read(world) == (0, 4, [(4, 6, 2, 1)])


def test_the_count_of_completed_deliveries_is_bounded_by_its_field() -> None:
    """A write completes 10^12 offsets, more than the 32-bit field of the record can count. The count stops at its
    maximum.
    """
    world = World()
    assert write(world, start_offset=4) == 0
    assert write(world, (4, 10**12, 2, 1), start_offset=0) == 0
    (state,) = [state for shard in world.engine.share.shards or () for state in shard.machine.states.values()]
    assert state.delivery_complete_count == 2**31 - 1
    assert write(world, (10**12 + 1, 10**12 + 1, 2, 1), start_offset=4) == 0


# ---- the persister of the node


def test_the_persister_creates_the_topic_and_repeats_operations_of_a_loading_shard() -> None:
    world = World()
    persister = world.engine.share_persister
    shards = world.engine.share.shards
    assert shards is not None
    key = share_key("g", world.topic_id(), 0)
    world.log.failures_left = 1
    data = WritePartition(partition=0, state_epoch=1, leader_epoch=-1, start_offset=3)
    request = WriteShareGroupStateRequest(
        group_id="g", topics=[WriteStateData(topic_id=world.topic_id(), partitions=[data])]
    )
    results: list[Any] = []
    when_complete(persister.write(request), results.append)
    assert not world.engine.commit(), "the test wants this commit to fail"
    assert not results
    world.settle()
    world.advance(50)
    assert [result.results[0].partitions[0].error_code for result in results] == [0]
    (state,) = [state for state in shards.of(key).machine.states.values() if state.partition == 0]
    assert state.start_offset == 3


def test_the_persister_repeats_only_the_partitions_that_failed() -> None:
    """The persister repeats the request for the shard of the failed partitions only; the other shard has responded."""
    world = World(partitions=8)
    shards = world.engine.share.shards
    assert shards is not None
    failed = shards.get(0)
    assert failed is not None
    world.engine.commit()
    failed.reload_after_round(MemoryError())
    data = [WritePartition(partition=index, state_epoch=1, leader_epoch=-1, start_offset=1) for index in range(8)]
    request = WriteShareGroupStateRequest(
        group_id="g", topics=[WriteStateData(topic_id=world.topic_id(), partitions=data)]
    )
    results: list[Any] = []
    when_complete(world.engine.share_persister.write(request), results.append)
    world.settle()
    world.advance(100)
    assert [result.error_code for result in results[0].results[0].partitions] == [0] * 8
    updates = [key.partition for key, value in world.records() if type(key).__name__ == "ShareUpdateKey"]
    assert sorted(updates) == list(range(8)), "each partition is written once"


def test_the_persister_gives_up_after_its_retries() -> None:
    world = World()
    world.log.failures_left = 10**6
    data = WritePartition(partition=0, state_epoch=1, leader_epoch=-1, start_offset=3)
    request = WriteShareGroupStateRequest(
        group_id="g", topics=[WriteStateData(topic_id=world.topic_id(), partitions=[data])]
    )
    pending = world.engine.share_persister.write(request)
    assert isinstance(pending, Pending)
    world.settle()
    world.advance(12_000)
    assert pending.response.results[0].partitions[0].error_code in {14, 16}


def test_an_operation_that_gives_up_is_complete_without_memory_for_a_log_line(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.log.failures_left = 10**6
    data = WritePartition(partition=0, state_epoch=1, leader_epoch=-1, start_offset=3)
    request = WriteShareGroupStateRequest(
        group_id="g", topics=[WriteStateData(topic_id=world.topic_id(), partitions=[data])]
    )
    names = []

    def fail(operation: _Operation, position: int) -> str:
        names.append(position)
        raise MemoryError

    monkeypatch.setattr(_Operation, "_name", fail)
    pending = world.engine.share_persister.write(request)
    assert isinstance(pending, Pending)
    world.settle()
    world.advance(12_000)
    assert names == [0]
    assert pending.done
    assert pending.response.results[0].partitions[0].error_code in {14, 16}


def test_an_operation_whose_retry_raises_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write fails, and its retry raises an exception. The caller gets an error instead of no response."""
    world = World()
    world.log.failures_left = 1
    data = WritePartition(partition=0, state_epoch=1, leader_epoch=-1, start_offset=3)
    request = WriteShareGroupStateRequest(
        group_id="g", topics=[WriteStateData(topic_id=world.topic_id(), partitions=[data])]
    )
    pending = world.engine.share_persister.write(request)
    assert isinstance(pending, Pending)

    def fail(*arguments: Any) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr(LocalPersister, "call", fail)
    world.settle()
    world.advance(50)
    assert pending.done
    assert pending.response.results[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_share_partition_has_a_bounded_number_of_state_batches() -> None:
    """The number of state batches of a share partition is limited to what a snapshot can contain. Writes that would
    exceed the limit are refused, and smaller ones are still accepted.
    """
    world = World({"share.coordinator.snapshot.update.records.per.snapshot": "3"})
    accepted = 0
    for first in range(0, 100_000, 8_000):
        batches = [(offset, offset, 2, 1) for offset in range(first, first + 8_000, 2)]
        accepted += write(world, *batches) == 0
    assert accepted == 5
    code, start, stored = read(world)
    assert (code, start, len(stored)) == (0, 0, 20_000)
    assert write(world, (200_000, 200_000, 2, 1)) == 42
    assert write(world, *[(offset, offset, 2, 1) for offset in range(0, 50_000, 2)], start_offset=49_000) == 42
    assert write(world, (1, 1, 2, 1)) == 0, "this batch is merged with its neighbours"
    assert write(world, (200_000, 200_000, 2, 1), start_offset=20_000) == 0
    world.restart()
    _, start, stored = read(world)
    assert (start, len(stored)) == (20_000, 10_001)


def test_cold_snapshots_of_large_states_are_written() -> None:
    """The coordinator writes six snapshots of 10,000 state batches each in several slices, so that each slice fits into
    one log batch.
    """
    world = World({"share.coordinator.state.topic.num.partitions": 1}, partitions=6)
    for partition in range(6):
        batches = [(offset, offset, 2, 1) for offset in range(0, 20_000, 2)]
        assert write(world, *batches, partition=partition) == 0
    world.advance(600_000)
    world.settle()
    found = [state for shard in world.engine.share.shards or () for state in shard.machine.states.values()]
    assert [(state.snapshot_epoch, len(state.batches)) for state in found] == [(1, 10_000)] * 6
