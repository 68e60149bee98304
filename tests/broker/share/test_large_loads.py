"""The loads of share partitions with many state batches, or with a search for their start offset."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kcore.broker.apis import share_fetch
from kcore.broker.share import share_partition
from kcore.broker.share.states import SharePartitionState
from kcore.protocol.error_codes import ErrorCode
from tests.broker.share.world import World, acquired


@pytest.mark.parametrize("large", ["state batches", "search"])
def test_large_loads_count_as_several(monkeypatch: pytest.MonkeyPatch, large: str) -> None:
    """A load with many state batches, or with a search, counts as several loads. Each request therefore begins only one
    such load. The largest 500 loads would take 20 s in one request.
    """
    monkeypatch.setattr(share_fetch, "MAX_LOADS", 10)
    if large == "search":
        world = World(partitions=4, group={"share_auto_offset_reset": "by_duration:PT1H"}, start_offset=-1)
    else:
        world = World(partitions=4)
        monkeypatch.setattr(share_fetch, "LOAD_BATCHES", 1)
        stored = SimpleNamespace(start_offset=0, batches=((0, 0, 0, 1),) * 6)
        monkeypatch.setattr(type(world.engine.share_partitions.persister), "stored", lambda *_: stored)
    shown = []
    for partition in range(4):
        world.produce(1, partition=partition)
    for epoch in range(4):
        response = world.fetch("m", epoch, () if epoch else range(4))
        shown.append(len(world.engine.share_partitions))
        assert response.error_code == ErrorCode.NONE
    assert shown == [1, 2, 3, 4]


def searching_world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Returns a world whose log has 3,000 batches, and in which each step of a search by time is a slice."""
    monkeypatch.setattr(share_partition, "SLICE_COST_US", 1)
    world = World(group={"share_auto_offset_reset": "by_duration:PT1H"}, start_offset=-1)
    world.produce(2, wall_ms=world.clock.wall_ms() - 3 * 3_600_000)
    for _ in range(3_000):
        world.start(world.produce_request(1), 9)
    world.engine.commit()
    world.engine.slices.requests.enabled = True
    return world


def test_the_search_for_a_start_offset_runs_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one slice, the search of a log of 800,000 batches would take 0.8 s."""
    world = searching_world(monkeypatch)
    pending = world.start(world.fetch_request("m", 0, [0], max_wait_ms=5_000), 2)
    assert not pending.done
    slices = 0
    while world.engine.slices.step():
        slices += 1
    assert slices >= 2
    assert acquired(world.received(pending, 2))[0][0] == 2


@pytest.mark.parametrize("end", ["fenced", "closed"])
def test_a_share_partition_may_end_during_the_search(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    world = searching_world(monkeypatch)
    pending = world.start(world.fetch_request("m", 0, [0], max_wait_ms=5_000), 2)
    world.engine.slices.step()
    one = world.share_partition()
    assert one.state is SharePartitionState.INITIALIZING
    if end == "fenced":
        one.fence()
    else:
        monkeypatch.setattr(type(one.partition.log), "find_by_timestamp", None)
    while world.engine.slices.step():
        pass
    assert one.state is (SharePartitionState.FENCED if end == "fenced" else SharePartitionState.FAILED)
    world.advance(5_000)
    assert pending.response.responses[0].partitions[0].error_code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
