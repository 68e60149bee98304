"""Bounds of the work and memory that one request, or one deleted topic, causes."""

from __future__ import annotations

import pytest

from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.broker.share.sessions import TopicIdPartition
from kcore.broker.share.share_partition import SharePartition
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from tests.broker.share.world import World, acquired
from tests.kit import batch, produce

RELEASE = 2


def test_a_response_has_a_bounded_size_on_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one turn of the event loop, copying 50 MB of records would take 40 ms."""
    budget = FetchMemoryBudget(55 << 20)
    assert (budget.most_bytes, budget.most_shared_bytes) == (55 << 20, 16 << 20)
    budget.measure(8 << 20)
    assert (budget.most_bytes, budget.most_shared_bytes) == (2 << 20, 2 << 20)
    shown = []
    for fast in (False, True):
        world = World()
        world.produce(*[100] * 6)
        api = world.engine.apis[ApiKey.SHARE_FETCH]
        served = api.fast_path.served
        assert world.acquire("m", 0, [0], max_records=0) == []
        if not fast:
            monkeypatch.setattr(api, "fast", lambda context, request: None)
        world.engine.fetch_memory_budget.most_shared_bytes = 1
        shown.append([world.acquire("m", epoch, max_bytes=1 << 30) for epoch in (1, 2)])
        assert api.fast_path.served - served == (2 if fast else 0)
    assert shown[0] == shown[1] == [[(0, 99, 1)], [(100, 199, 1)]]


def test_a_deleted_topic_drops_its_share_partitions_alone() -> None:
    world = World(partitions=2)
    world.create_topic("other")
    engine = world.engine
    for group_id in ("g", "h"):
        for topic in ("t", "other"):
            for partition in engine.partitions.names[topic].partitions:
                key = TopicIdPartition(partition.topic_id, partition.index)
                share_partition = SharePartition(group_id, partition, engine.share_partitions)
                engine.share_partitions.by_group.setdefault(group_id, {})[key] = share_partition
    assert len(engine.share_partitions) == 6
    gone = engine.topics.by_name("t")
    assert gone is not None
    engine.share_partitions.on_topic_deleted(gone)
    left = [(each.group_id, each.partition.topic) for each in engine.share_partitions]
    assert left == [("g", "other"), ("h", "other")]


def test_a_fetch_without_group_id_is_refused_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """For an empty group id, the share coordinator returns no state, so the share partition cannot be loaded. Each
    fetch tries the load again, and gets an error.
    """
    world = World()
    for _ in range(2):
        response = world.fetch("m", 0, [0], group_id="", max_wait_ms=1_000)
        (data,) = response.responses[0].partitions
        assert (response.error_code, data.error_code) == (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_SERVER_ERROR,  # for INVALID_REQUEST of the share coordinator, as in Kafka
        )
        assert len(world.engine.share_partitions) == 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("fast", [False, True])
def test_records_acquired_by_other_members_count_as_work_of_a_fetch(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acquired records that a fetch has to skip count towards the work of this fetch. After 16 MB of them, the fetch
    does not continue with the next partition.
    """
    world = World(partitions=2)
    api = world.engine.apis[ApiKey.SHARE_FETCH]
    for _ in range(20):
        world.call(produce("t", batch([b"v" * 1_000_000])), 9)
    taken = world.acquire("m", 0, [0, 1], max_bytes=1 << 30)
    taken += world.acquire("m", 1, max_bytes=1 << 30)
    assert taken[-1][1] == 19
    world.call(produce("t", batch([b"v"]), 1), 9)
    if not fast:
        monkeypatch.setattr(api, "fast", lambda context, request: None)
    served = api.fast_path.served
    # An even epoch begins with partition 0, and an odd one with partition 1.
    assert acquired(world.fetch("m", 2, {0: [(0, 0, RELEASE)]}, max_bytes=1 << 30)) == [(0, 0, 2)]
    assert world.share_partition(0).examined_bytes > 8 << 20
    assert acquired(world.fetch("m", 3, max_bytes=1 << 30)) == [(0, 0, 1)]
    assert (api.fast_path.served > served) is fast


def test_aborted_records_are_removed_from_many_ranges() -> None:
    """With thousands of ranges and aborted transactions, comparing each pair would take seconds."""
    world = World(group={"share.isolation.level": "read_committed"})
    first = 0
    for producer_id in range(300):
        world.call(produce("t", batch([b"v"] * 2, producer_id=producer_id, epoch=0, sequence=0)), 9)
    runs = SharePartition("g", world.engine.partitions.names["t"].partitions[0], world.engine.share_partitions)
    runs.reset(0, [])
    partition = runs.partition
    batches = partition.read(0, 1 << 20, 600)
    aborted = [(at, at + 1) for at in range(0, 600, 6)] + [(599, 599)]
    found = runs.acquire(
        "m", batches, 0, world.engine.wheel, 1_000_000, max_records=1_000, batch_size=1, record_limit=False,
        max_locks=1_000, max_deliveries=5, aborted=aborted,
    )  # fmt: skip
    offsets_left = [offset for low, high, _ in found.ranges for offset in range(low, high + 1)]
    gone = {offset for low, high in aborted for offset in range(low, high + 1)}
    assert offsets_left == [offset for offset in range(first, 600) if offset not in gone]
    assert found.count == len(offsets_left)
