"""ShareFetch with transactions, large backlogs and large requests."""

from __future__ import annotations

import pytest

from kcore.broker.apis import share_fetch
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.batch import BatchBuilder
from tests.broker.share.world import World, acquired, answered, offsets, park

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


# ---- transactions and compaction


def transaction(world: World, commit: bool | None, size: int) -> None:
    """Appends a transaction: a log batch and its marker."""
    partition = world.engine.partitions.get("t", 0)
    assert partition is not None
    builder = BatchBuilder(
        1 << 16,
        base_timestamp_ms=world.clock.wall_ms(),
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    for _ in range(size):
        assert builder.append(world.clock.wall_ms(), None, b"v")
    partition.append(builder.build(), partition.leader_epoch)
    world.settle()
    if commit is not None:
        partition.append_marker(7, 0, 0, commit, world.clock.wall_ms())
    world.settle()


def test_read_committed_leaves_out_aborted_records() -> None:
    """Aborted records count as complete; markers are delivered like records."""
    world = World(group={"share_isolation_level": "read_committed"})
    world.produce(1)
    transaction(world, False, 2)
    transaction(world, True, 2)
    world.produce(1)
    assert world.acquire("m", 0, [0]) == [(0, 0, 1), (3, 7, 1)]
    assert world.acknowledge("m", 1, (0, 0, ACCEPT), (3, 6, ACCEPT)) == 0
    assert world.share_partition().start_offset == 7


def test_read_committed_waits_for_the_end_of_a_transaction() -> None:
    world = World(group={"share_isolation_level": "read_committed"})
    world.produce(1)
    transaction(world, None, 2)
    world.produce(1)
    assert world.acquire("m", 0, [0]) == [(0, 0, 1)]
    waiting = park(world, "n", 0, [0])
    partition = world.engine.partitions.get("t", 0)
    assert partition is not None
    partition.append_marker(7, 0, 0, False, world.clock.wall_ms())
    world.settle()
    assert acquired(answered(waiting)) == [(3, 4, 1)]


def test_read_uncommitted_delivers_all_records() -> None:
    world = World()
    transaction(world, False, 2)
    assert world.acquire("m", 0, [0]) == [(0, 2, 1)]


def test_a_long_backlog_is_read_in_parts() -> None:
    """A fetch of few records of a long log reads a small part of it, and several parts for many records."""
    world = World()
    world.produce(*[100] * 50)
    response = world.fetch("m", 0, [0], max_records=10, share_acquire_mode=1)
    assert (acquired(response), len(offsets(response))) == ([(0, 9, 1)], 100)
    response = world.fetch("n", 0, [0], max_records=1900, batch_size=5000, max_bytes=1 << 24)
    assert acquired(response) == [(10, 99, 1), (100, 1999, 1)]
    assert offsets(response) == list(range(2000))


def test_large_log_batches_are_read_one_by_one() -> None:
    """A log batch that is larger than a read does not end the fetch, but the size limit of the request does."""
    world = World()
    world.produce(1, 12_000, 12_000, 12_000)
    world.configure(share_partition_max_record_locks="4000")
    response = world.fetch("m", 0, [0], max_records=1500, share_acquire_mode=1, max_bytes=1 << 24)
    assert acquired(response) == [(0, 1499, 1)]
    world = World()
    world.produce(1, 12_000, 12_000)
    response = world.fetch("m", 0, [0], max_records=1500, share_acquire_mode=1, max_bytes=50_000)
    assert acquired(response) == [(0, 0, 1)]


# ---- limits


def test_a_refused_fetch_of_a_closed_connection_is_forgotten() -> None:
    """The client chooses the wait time: a timer for each such request would keep all of them in memory."""
    world = World({"group.share.max.share.sessions": 1})
    world.fetch("m", 0, [0])
    armed = len(world.engine.wheel)
    waiting = park(world, "n", 0, [0], max_wait_ms=2**31 - 1)
    assert len(world.engine.wheel) == armed + 1
    waiting.abandon()
    assert len(world.engine.wheel) == armed


def test_a_request_has_at_most_10000_partitions() -> None:
    world = World()
    assert world.fetch("m", 0, range(10_001)).error_code == ErrorCode.INVALID_REQUEST
    assert world.fetch("m", 0, range(10_000)).error_code == ErrorCode.NONE
    request = world.acknowledge_request("m", 1, dict.fromkeys(range(10_001), ()))
    assert world.call(request, 2).error_code == ErrorCode.INVALID_REQUEST


def test_a_session_has_at_most_10000_partitions() -> None:
    """A fetch without partitions serves all of its session, so a small request would take as long as a large one."""
    world = World()
    world.fetch("m", 0, range(10_000))
    assert world.fetch("m", 1, [10_000]).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert world.acquire("m", 1, []) == []


def test_a_request_begins_few_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further requests load the other partitions, and do not wait before all of them are loaded."""
    monkeypatch.setattr(share_fetch, "MAX_LOADS", 2)
    world = World(partitions=5)
    world.produce(1, partition=4)
    shown = []
    for epoch in range(2):
        response = world.fetch("m", epoch, range(5) if not epoch else (), max_wait_ms=5000)
        shown.append([data.partition_index for topic in response.responses for data in topic.partitions])
        assert acquired(response) == []
    assert shown == [[0, 1], [2, 3]]
    assert world.acquire("m", 2, max_wait_ms=5000) == [(0, 0, 1)]
    assert len(world.engine.share_partitions) == 5
