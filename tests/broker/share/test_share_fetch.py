"""ShareFetch and ShareAcknowledge in a whole engine with virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.apis import share_fetch
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_fetch import ShareFetchResponse
from kcore.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kcore.runtime import Pending
from kcore_ext.batch import BatchBuilder
from tests.broker.share.world import World, acquired, offsets

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def park(world: World, member: str, epoch: int, partitions: Any = (), **more: Any) -> Pending:
    """Sends a fetch that is parked."""
    pending = world.start(world.fetch_request(member, epoch, partitions, **{"max_wait_ms": 5000, **more}), 2)
    world.settle()
    assert isinstance(pending, Pending)
    assert not pending.done
    return pending


def response_of(pending: Pending) -> ShareFetchResponse:
    assert pending.done
    assert isinstance(pending.response, ShareFetchResponse)
    return pending.response


# ---- waiting


def test_a_fetch_waits_for_records() -> None:
    world = World()
    pending = park(world, "m", 0, [0])
    world.produce(2)
    assert acquired(response_of(pending)) == [(0, 1, 1)]
    assert len(world.engine.purgatory) == 0


def test_a_fetch_without_records_completes_at_its_timeout() -> None:
    world = World()
    pending = park(world, "m", 0, [0])
    world.advance(4999)
    assert not pending.done
    world.advance(1)
    assert acquired(response_of(pending)) == []
    assert len(response_of(pending).responses[0].partitions) == 1, "a first response has every partition"


def test_new_and_released_records_complete_the_waiting_fetches_in_order() -> None:
    """The first waiting member gets the new records. When this member releases records, the second member gets them at
    once.
    """
    world = World()
    first, second = park(world, "m", 0, [0]), park(world, "n", 0, [0])
    world.produce(3)
    assert acquired(response_of(first)) == [(0, 2, 1)]
    assert not second.done
    assert world.acknowledge("m", 1, (0, 0, ACCEPT), (1, 1, RELEASE)) == 0
    assert acquired(response_of(second)) == [(1, 1, 2)]


def test_a_fetch_waits_for_min_bytes() -> None:
    world = World()
    pending = park(world, "m", 0, [0], min_bytes=150)
    world.produce(1)
    assert not pending.done
    world.produce(1)
    world.produce(1)
    assert acquired(response_of(pending)) == [(0, 2, 1)]


def test_a_closed_connection_acquires_nothing() -> None:
    """The parked fetch of a closed connection is removed."""
    world = World()
    pending = park(world, "m", 0, [0])
    pending.abandon()
    world.engine.connection_closed(1)
    world.produce(1)
    assert not pending.done
    assert world.share_partition().snapshot() == []
    assert world.engine.partitions.get("t", 0).watched == 0  # type: ignore[union-attr]


def test_acknowledgements_of_a_fetch_apply_before_it_acquires_records() -> None:
    """A request may acquire the records that it releases. Its response waits until the release is durable."""
    world = World()
    world.produce(3)
    assert world.acquire("m", 0, [0]) == [(0, 2, 1)]
    response = world.fetch("m", 1, {0: [(0, 1, ACCEPT), (2, 2, RELEASE)]})
    assert acquired(response) == [(2, 2, 2)]
    assert response.responses[0].partitions[0].acknowledge_error_code == 0


def test_a_reset_by_duration_waits_for_a_young_enough_record() -> None:
    world = World(group={"share_auto_offset_reset": "by_duration:PT1H"}, start_offset=-1)
    world.produce(2, wall_ms=world.clock.wall_ms() - 3 * 3_600_000)
    pending = park(world, "m", 0, [0], max_wait_ms=100)
    world.advance(100)
    assert response_of(pending).responses[0].partitions[0].error_code == 78
    world.produce(1)
    assert world.acquire("m", 1) == [(2, 2, 1)]


# ---- locks


def test_an_expired_lock_gives_records_to_another_member() -> None:
    world = World()
    world.produce(2)
    assert world.acquire("m", 0, [0]) == [(0, 1, 1)]
    waiting = park(world, "n", 0, [0], max_wait_ms=60_000)
    world.advance(29_999)
    assert not waiting.done
    world.advance(1)
    assert acquired(response_of(waiting)) == [(0, 1, 2)]
    assert world.acknowledge("m", 1, (0, 1, ACCEPT)) == 121
    assert world.acknowledge("n", 1, (0, 1, ACCEPT)) == 0
    assert world.share_partition().start_offset == 2


def test_a_renewed_lock_is_extended() -> None:
    world = World()
    world.produce(2)
    world.acquire("m", 0, [0])
    world.advance(20_000)
    assert world.acknowledge("m", 1, (1, 1, RENEW), renew=True) == 0
    world.advance(10_000)
    assert world.acquire("n", 0, [0]) == [(0, 0, 2)]
    assert world.acknowledge("m", 2, (1, 1, ACCEPT)) == 0
    world.advance(60_000)
    assert world.acquire("n", 1) == [(0, 0, 3)]


def test_a_refused_acknowledgement_renews_no_lock() -> None:
    """A request is applied as a whole or not at all: offset 1 is acquired by another member, so the lock of offset 0 is
    not renewed.
    """
    world = World()
    world.produce(1)
    assert world.acquire("m", 0, [0]) == [(0, 0, 1)]
    world.produce(1)
    assert world.acquire("n", 0, [0]) == [(1, 1, 1)]
    world.advance(20_000)
    assert world.acknowledge("m", 1, (0, 0, RENEW), (1, 1, RENEW), renew=True) == 121
    world.advance(10_000)
    assert world.acknowledge("m", 2, (0, 0, ACCEPT)) == 121
    assert world.acquire("n", 1) == [(0, 0, 2), (1, 1, 2)]


def test_renewal_can_be_disabled() -> None:
    world = World(group={"share_renew_acknowledge_enable": "false"})
    world.produce(1)
    world.acquire("m", 0, [0])
    assert world.acknowledge("m", 1, (0, 0, RENEW), renew=True) == 121


def test_a_record_that_no_member_can_process_is_archived() -> None:
    """The delivery count limit is 5. After the fifth delivery the start offset moves on, and no record is left to
    fetch.
    """
    world = World()
    world.produce(1)
    for count in range(1, 6):
        assert world.acquire("m", count - 1, [0] if count == 1 else []) == [(0, 0, count)]
        world.advance(30_000)
    assert world.acquire("m", 5) == []
    assert world.share_partition().start_offset == 1
    assert world.engine.share_partitions.counters.archived_by_expiry == 1


def test_acknowledged_records_leave_no_timer() -> None:
    world = World()
    before = len(world.engine.wheel)
    world.produce(4)
    world.acquire("m", 0, [0])
    assert len(world.engine.wheel) == before + 1
    assert world.acknowledge("m", 1, (0, 3, ACCEPT)) == 0
    assert len(world.engine.wheel) == before


# ---- sessions


def test_a_session_ends_with_its_connection() -> None:
    world = World()
    world.produce(2)
    assert world.acquire("m", 0, [0]) == [(0, 1, 1)]
    world.engine.connection_closed(1)
    world.settle()
    assert (len(world.engine.share_partitions.sessions), world.engine.share_partitions.sessions.partitions) == (0, 0)
    assert world.fetch("m", 1).error_code == 122


def test_records_of_a_lost_connection_go_to_a_member_of_another_one() -> None:
    world = World()
    world.produce(2)
    assert world.acquire("m", 0, [0]) == [(0, 1, 1)]
    world.connection_id = 2
    waiting = park(world, "n", 0, [0])
    world.engine.connection_closed(1)
    world.settle()
    assert acquired(response_of(waiting)) == [(0, 1, 2)]


def test_partitions_are_forgotten_and_rotated() -> None:
    """The order of partitions in the response rotates with each epoch. A forgotten partition is not served."""
    world = World(partitions=3)
    first = []
    world.fetch("m", 0, [0, 1, 2])
    for epoch in range(1, 7):
        for index in range(3):
            world.produce(1, partition=index)
        response = world.fetch("m", epoch, forgotten=[1] if epoch == 4 else [], max_records=1)
        first.append(response.responses[0].partitions[0].partition_index)
    assert first == [1, 2, 0, 0, 2, 0]


def test_disabled_share_groups_get_unsupported_version() -> None:
    world = World()
    world.produce(1)
    world.acquire("m", 0, [0])
    off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
    assert world.call(UpdateFeaturesRequest(feature_updates=[off], timeout_ms=1_000), 1).error_code == 0
    assert world.fetch("m", 1).error_code == 35
    assert world.call(world.acknowledge_request("m", 1, {0: [(0, 0, ACCEPT)]}), 2).error_code == 35


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
    """The acquired ranges include the offsets of markers, but no aborted records. Aborted records count as complete."""
    world = World(group={"share_isolation_level": "read_committed"})
    world.produce(1)
    transaction(world, False, 2)
    transaction(world, True, 2)
    world.produce(1)
    assert world.acquire("m", 0, [0]) == [(0, 0, 1), (3, 7, 1)]
    assert world.acknowledge("m", 1, (0, 0, ACCEPT), (3, 6, ACCEPT)) == 0
    assert world.share_partition().start_offset == 7


def test_only_a_write_moves_the_start_past_aborted_records() -> None:
    """As in Kafka, an acknowledgement writes the previous start offset, and counts the aborted records from that offset
    on as complete. Then the start offset moves past the aborted records.
    """
    world = World(group={"share_isolation_level": "read_committed"})
    transaction(world, False, 2)
    world.produce(2)
    assert world.acquire("m", 0, [0]) == [(2, 4, 1)]
    assert world.share_partition().start_offset == 0
    assert world.acknowledge("m", 1, (3, 4, ACCEPT)) == 0
    _, written = world.records()[-1]
    assert (written.start_offset, written.delivery_complete_count) == (0, 4)
    assert world.share_partition().start_offset == 2


def test_aborted_records_do_not_fill_the_window() -> None:
    """A fetch that finds only aborted records causes no write. The next records can be acquired nevertheless."""
    world = World(group={"share_isolation_level": "read_committed", "share_partition_max_record_locks": "100"})
    transaction(world, False, 250)
    world.produce(2)
    assert world.acquire("m", 0, [0]) == []
    assert world.acquire("m", 1) == [(250, 252, 1)]


def test_a_fetch_without_room_for_bytes_gets_no_records() -> None:
    """Kafka's response to max_bytes 0 has no partitions, not even in the first response of a session."""
    world = World()
    world.produce(2)
    for epoch, max_bytes in enumerate((0, -1, 0)):
        assert world.fetch("m", epoch, [0] if not epoch else (), max_bytes=max_bytes).responses == ()
    assert world.acquire("m", 3, max_bytes=1) == [(0, 1, 1)]


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
    assert acquired(response_of(waiting)) == [(3, 4, 1)]


def test_read_uncommitted_delivers_all_records() -> None:
    world = World()
    transaction(world, False, 2)
    assert world.acquire("m", 0, [0]) == [(0, 2, 1)]


def test_a_long_backlog_is_read_in_parts() -> None:
    """A fetch of few records reads a small part of a long log; a fetch of many records reads several parts."""
    world = World()
    world.produce(*[100] * 50)
    response = world.fetch("m", 0, [0], max_records=10, share_acquire_mode=1)
    assert (acquired(response), len(offsets(response))) == ([(0, 9, 1)], 100)
    response = world.fetch("n", 0, [0], max_records=1900, batch_size=5000, max_bytes=1 << 24)
    assert acquired(response) == [(10, 99, 1), (100, 1999, 1)]
    assert offsets(response) == list(range(2000))


def test_large_log_batches_are_read_one_by_one() -> None:
    """A log batch may exceed the number of bytes that a fetch reads at a time. The fetch then continues with the next
    log batch, up to the size limit of the request.
    """
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


def test_a_request_has_at_most_10000_partitions() -> None:
    world = World()
    assert world.fetch("m", 0, range(10_001)).error_code == ErrorCode.INVALID_REQUEST
    assert world.fetch("m", 0, range(10_000)).error_code == ErrorCode.NONE
    request = world.acknowledge_request("m", 1, dict.fromkeys(range(10_001), ()))
    assert world.call(request, 2).error_code == ErrorCode.INVALID_REQUEST


def test_a_request_begins_a_bounded_number_of_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further requests load the remaining partitions. A request is parked only once all its partitions are loaded."""
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
