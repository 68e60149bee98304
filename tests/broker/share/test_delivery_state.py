"""The delivery state of share partitions after restarts and failures, in a whole engine with virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.share.share_partition import SharePartition
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_fetch import ShareFetchResponse
from tests.broker.share.world import World, acquired, offsets

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def test_a_restart_keeps_acknowledgements_and_delivery_counts() -> None:
    world = World()
    world.produce(6)
    assert world.acquire("m", 0, [0]) == [(0, 5, 1)]
    assert world.acknowledge("m", 1, (1, 2, ACCEPT), (4, 4, RELEASE), (5, 5, REJECT)) == 0
    world.restart()
    waiting = world.start(world.fetch_request("m", 0, [0], max_wait_ms=100), 2)
    assert acquired(world.received(waiting, 2)) == [(0, 0, 1), (3, 3, 1), (4, 4, 2)]
    assert world.share_partition().complete_count == 3


def test_nothing_is_delivered_before_the_state_is_loaded() -> None:
    """The first fetch in a new leader epoch stores this epoch with the state. With max_wait 0, the fetch returns no
    records instead of waiting for the write.
    """
    world = World()
    world.produce(4)
    world.acquire("m", 0, [0])
    assert world.acknowledge("m", 1, (0, 1, ACCEPT)) == 0
    world.restart()
    partition = world.engine.partitions.get("t", 0)
    assert partition is not None
    partition.leader_epoch += 1
    response = world.start(world.fetch_request("m", 0, [0]), 2)
    assert isinstance(response, ShareFetchResponse)
    assert acquired(response) == []
    world.settle()
    assert world.acquire("m", 1) == [(2, 3, 1)]


def test_a_failed_commit_takes_an_acknowledgement_back() -> None:
    """The write is retried until the persister gives up. Then the member may acknowledge again."""
    world = World()
    world.produce(2)
    world.acquire("m", 0, [0])
    world.log.failures_left = 1
    pending = world.start(world.acknowledge_request("m", 1, {0: [(0, 1, ACCEPT)]}), 2)
    world.settle()
    assert not pending.done, "the persister retries"
    world.advance(100)
    assert pending.response.responses[0].partitions[0].error_code == 0
    assert world.share_partition().start_offset == 2


def test_a_write_that_fails_for_good_takes_an_acknowledgement_back() -> None:
    world = World()
    world.produce(2)
    world.acquire("m", 0, [0])
    world.log.failures_left = 10**6
    pending = world.start(world.acknowledge_request("m", 1, {0: [(0, 1, ACCEPT)]}), 2)
    world.settle()
    world.advance(12_000)
    assert pending.response.responses[0].partitions[0].error_code == 15
    assert [run[2:] for run in world.share_partition().snapshot()] == [(1, 1, False, "m")]
    world.log.failures_left = 0
    world.advance(12_000)
    assert world.acknowledge("m", 2, (0, 1, ACCEPT)) == 0
    assert world.share_partition().start_offset == 2


def test_a_retried_write_of_a_dropped_share_partition_does_not_replace_newer_state() -> None:
    """A dropped share partition still retries a write with delivery count 2. This write must not replace the
    acknowledgement of the newly loaded share partition, whose count is 1.
    """
    world = World()
    world.produce(1)
    world.acquire("m", 0, [0])
    world.log.failures_left = 10**6
    world.advance(30_000)  # the lock expires
    assert world.acquire("m", 1) == [(0, 0, 2)]
    world.fetch("m", -1)  # releases the record
    world.advance(500)
    world.log.failures_left = 0  # the next repetition succeeds
    world.engine.share_partitions.drop(world.share_partition())
    assert world.acquire("n", 0, [0]) == [(0, 0, 1)]
    assert world.acknowledge("n", 1, (0, 0, ACCEPT)) == 0
    world.advance(12_000)
    world.restart()
    assert world.acquire("o", 0, [0]) == []
    assert world.acquire("o", 1) == []


def test_an_acknowledgement_that_fails_after_its_lock_expired_releases_the_record() -> None:
    world = World(group={"share_record_lock_duration_ms": "15000"})
    world.produce(1)
    world.acquire("m", 0, [0])
    world.advance(9_000)
    world.log.failures_left = 10**6
    pending = world.start(world.acknowledge_request("m", 1, {0: [(0, 0, ACCEPT)]}), 2)
    world.settle()
    world.advance(12_000)
    assert pending.response.responses[0].partitions[0].error_code == 15
    assert [run[2:] for run in world.share_partition().snapshot()] == [(0, 1, False, None)]
    world.log.failures_left = 0
    assert world.acquire("m", 2) == [(0, 0, 2)]


def test_a_new_leader_epoch_fences_the_share_partition() -> None:
    """A write with an old leader epoch fails; the next fetch loads the state again."""
    world = World()
    world.produce(2)
    world.acquire("m", 0, [0])
    stale = world.share_partition()
    partition = world.engine.partitions.get("t", 0)
    assert partition is not None
    (state,) = [state for shard in world.engine.share.shards or () for state in shard.machine.states.values()]
    *fields, _, updates = state.dump()
    state.restore(*fields, partition.leader_epoch + 1, updates)
    assert world.acknowledge("m", 1, (0, 1, ACCEPT)) == 6
    state.restore(*fields, partition.leader_epoch, updates)
    assert world.share_partition() is None
    assert world.acquire("m", 2) == [(0, 1, 1)]
    assert world.share_partition() is not stale


def test_uninitialized_state_is_an_error_of_the_partition() -> None:
    world = World(partitions=2)
    world.create_topic("u")
    request = world.fetch_request("m", 0, [0])
    request.topics[0].topic_id = world.topic_id("u")
    response = world.call(request, 2)
    assert response.responses[0].partitions[0].error_code == -1
    assert len(world.engine.share_partitions) == 0


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param((0, 2**63 - 1, 0, 1), id="no offset after the last one"),
        pytest.param((0, 3, 77, 1), id="unknown state"),
    ],
)
def test_invalid_stored_state_is_an_error_of_every_fetch(stored: tuple[int, int, int, int]) -> None:
    """After a failed load the share partition is dropped. Otherwise it would stay in the loading state after the repair
    of the stored state.
    """
    world = World()
    world.produce(1)
    world.store(stored)
    for epoch in (0, 1):
        response = world.fetch("m", epoch, [0] if not epoch else ())
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(world.engine.share_partitions) == 0
    world.initialize([0], state_epoch=2)
    assert world.acquire("m", 2) == [(0, 0, 1)]


@pytest.mark.parametrize(("stored", "shown"), [(32767, 32767), (32766, 32767), (-32768, 1)])
def test_a_stored_delivery_count_of_any_size_can_be_delivered(stored: int, shown: int) -> None:
    """The delivery count must fit into its response field, because a response that cannot be encoded closes the
    connection.
    """
    world = World()
    world.produce(1)
    world.store((0, 0, 0, stored))
    response = world.fetch("m", 0, [0])
    assert acquired(response) == [(0, 0, shown)]
    response.encode(2)


def test_failed_loads_log_one_warning_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a fetch of many partitions without state would log one line for each partition."""
    world = World()
    world.create_topic("u", 50)

    def fetch() -> None:
        request = world.fetch_request("m", 0, range(50))
        request.topics[0].topic_id = world.topic_id("u")
        partitions = world.call(request, 2).responses[0].partitions
        assert [partition.error_code for partition in partitions] == [-1] * 50

    fetch()
    assert len(caplog.messages) == 1
    assert "cannot load its state; consumers get INVALID_REQUEST; if this repeats" in caplog.messages[0]
    world.engine.advance(9_999)
    fetch()
    assert len(caplog.messages) == 1
    world.engine.advance(1)
    fetch()
    assert len(caplog.messages) == 2
    warning = "cannot load its state; consumers get INVALID_REQUEST (99 more since the last warning)"
    assert warning in caplog.messages[1]


def test_a_deleted_log_start_moves_the_share_partition() -> None:
    """Available records below the log's start are removed, and acknowledgements of acquired records there are ignored.
    As in Kafka, the fetch that finds the new start delivers nothing, and the next fetch delivers the records from the
    new start.
    """
    world = World()
    world.produce(3, 3, 3)
    assert world.acquire("m", 0, [0], max_records=3) == [(0, 2, 1)]
    world.delete_records(6)
    assert world.acquire("n", 0, [0]) == []
    assert world.acquire("n", 1) == [(6, 8, 1)]
    assert world.acknowledge("m", 1, (0, 2, ACCEPT)) == 0
    assert world.acknowledge("n", 2, (6, 8, ACCEPT)) == 0
    assert world.share_partition().start_offset == 9


def test_acquired_records_below_the_log_start_can_be_acknowledged() -> None:
    """The share partition keeps its start until a fetch finds the new start of the log."""
    world = World()
    world.produce(5, 5)
    assert world.acquire("m", 0, [0], max_records=5) == [(0, 4, 1)]
    world.delete_records(3)
    assert world.acquire("m", 1) == [(5, 9, 1)]
    assert world.share_partition().start_offset == 0
    assert world.acknowledge("m", 2, (0, 9, ACCEPT)) == 0
    assert world.share_partition().start_offset == 10


def test_records_are_the_log_batches_of_the_acquired_ones() -> None:
    world = World()
    world.produce(2, 2, 2, 2)
    response = world.fetch("m", 0, [0], max_records=3, share_acquire_mode=1)
    assert (acquired(response), offsets(response)) == ([(0, 2, 1)], [0, 1, 2, 3])
    assert world.acknowledge("m", 1, (0, 2, ACCEPT)) == 0
    response = world.fetch("m", 2, max_records=2, share_acquire_mode=1)
    assert (acquired(response), offsets(response)) == ([(3, 3, 1), (4, 4, 1)], [2, 3, 4, 5])


def test_the_window_of_tracked_offsets_is_bounded() -> None:
    """One unacknowledged record at the start prevents the window from moving. Released records within the window can
    still be acquired.
    """
    world = World(group={"share_partition_max_record_locks": "100"})
    world.produce(*[10] * 30)
    assert world.acquire("m", 0, [0], max_records=1000) == [(0, 99, 1)]
    assert world.acknowledge("m", 1, (1, 50, ACCEPT), (51, 60, RELEASE), (61, 99, ACCEPT)) == 0
    assert world.acquire("n", 0, [0], max_records=1000) == [(51, 60, 2)]
    assert world.acquire("n", 1, max_records=1000) == []
    assert world.acknowledge("m", 2, (0, 0, ACCEPT)) == 0
    assert world.acquire("n", 2, max_records=1000) == [(100, 159, 1)], (
        "51 offsets, rounded up to the end of a log batch"
    )


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("by_duration:PT1H", 2), ("latest", 4)])
def test_the_reset_policy_determines_the_start_offset(reset: str, first: int) -> None:
    world = World(group={"share_auto_offset_reset": reset}, start_offset=-1)
    now = world.clock.wall_ms()
    world.produce(2, wall_ms=now - 3 * 3_600_000)
    world.produce(2)
    got = world.acquire("m", 0, [0])
    world.produce(1)
    got += world.acquire("m", 1)
    assert got == ([(first, 3, 1), (4, 4, 1)] if first < 4 else [(4, 4, 1)])


@pytest.mark.parametrize("step", ["acknowledge", "finish"])
def test_an_internal_error_loads_the_share_partition_again(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An internal error may leave a change in memory incomplete, so the share partition is loaded again. No
    acknowledgement is lost, and no record stays locked.
    """
    world = World()
    world.produce(4)
    timers = len(world.engine.wheel)
    assert world.acquire("m", 0, [0]) == [(0, 3, 1)]
    assert world.acknowledge("m", 1, (0, 0, ACCEPT), (1, 1, RELEASE)) == 0

    def fail(*arguments: Any, **named: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(SharePartition, step, fail)
        code = world.acknowledge("m", 2, (2, 2, ACCEPT))
        assert code == (-1 if step == "acknowledge" else 0), "the step `finish` runs after the write"
    assert world.share_partition() is None
    assert len(world.engine.wheel) == timers
    expected = [(1, 1, 2), (2, 3, 1)] if step != "finish" else [(1, 1, 2), (3, 3, 1)]
    assert world.acquire("n", 0, [0]) == expected


@pytest.mark.parametrize("step", ["expire", "release"])
def test_an_internal_error_of_a_release_loads_the_share_partition_again(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the release of the records of a departed member fails, the load makes these records available again."""
    world = World()
    world.produce(2)
    assert world.acquire("m", 0, [0]) == [(0, 1, 1)]

    def fail(*arguments: Any, **named: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(SharePartition, step, fail)
        if step == "expire":
            world.advance(30_000)
        else:
            world.fetch("m", -1)
    assert world.share_partition() is None
    assert world.acquire("n", 0, [0]) == [(0, 1, 1)]
