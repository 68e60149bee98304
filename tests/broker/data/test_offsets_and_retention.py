"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and retention: start and end offsets of partitions."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest

from kcore.broker.data.decompression import BYTES_A_MICROSECOND, in_steps
from kcore.log import partition as log_partition
from kcore.log import time_index
from kcore.log.interface import BatchSummary
from kcore.protocol.compression import Buffer, compress, decompress
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kcore.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kcore.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kcore.runtime import Pending
from kcore.runtime.sliced import SLICE_COST_US
from kcore_ext.batch import BatchBuilder
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_fetch import plane_with
from tests.broker.data.test_produce import produce, request, transactional

WALL_MS = 1_700_000_000_000


def list_offsets(
    plane: DataPlane, *timestamps: int, version: int = 11, committed: bool = False
) -> list[ListOffsetsPartitionResponse]:
    found = []
    for timestamp in timestamps:
        entry = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        requested = ListOffsetsRequest(
            isolation_level=int(committed), topics=[ListOffsetsTopic(name="t", partitions=[entry])]
        )
        found.append(plane.call(requested, version).topics[0].partitions[0])
    return found


def at(offset: int, timestamp: int = -1, leader_epoch: int = 0) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(offset=offset, timestamp=timestamp, leader_epoch=leader_epoch)


NONE = at(-1, -1, -1)


def stamped(*timestamps: int, codec: int = 0, log_append_time: bool = False) -> bytes:
    builder = BatchBuilder(
        1 << 20, base_timestamp_ms=timestamps[0], compression=codec, compress=compress, log_append_time=log_append_time
    )
    for timestamp in timestamps:
        assert builder.append(timestamp, None, b"v" * 20)
    return builder.build()


def test_each_kind_of_timestamp_finds_its_offset() -> None:
    plane = plane_with(stamped(10, 30, 20), stamped(15, 30))
    assert list_offsets(plane, -1, -2, -3, -4, -5, -6) == [at(5), at(0), at(1, 30), at(0), NONE, NONE]
    assert list_offsets(plane, 0, 10, 11, 30, 31) == [at(0, 10), at(0, 10), at(1, 30), at(1, 30), NONE]


def test_the_largest_timestamp_of_records_without_timestamps_is_that_of_the_first_record() -> None:
    plane = plane_with(stamped(-1, -1), stamped(-1))
    assert list_offsets(plane, -3, 0) == [at(0), NONE]
    plane.partition("t").delete_before(1)
    plane.commit()
    assert list_offsets(plane, -3) == [at(1)]
    produce(plane, stamped(0))
    assert list_offsets(plane, -3, 0) == [at(3, 0), at(3, 0)]
    assert list_offsets(plane_with(), -3) == [NONE]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_times_are_found_as_by_a_scan(seed: int, codec: int) -> None:
    """Looks up the first record at or after a time, in logs with unordered times. Some logs start within a batch."""
    print("seed", seed)
    rng = random.Random(seed)
    plane = plane_with()
    times: list[int] = []
    for _ in range(30):
        batch = [rng.randrange(1000) for _ in range(rng.randrange(1, 5))]
        assert produce(plane, stamped(*batch, codec=codec)).base_offset == len(times)
        times += batch
    for start in (0, 7, 31):
        plane.partition("t").delete_before(start)
        plane.commit()
        for requested in rng.sample(range(1001), 40):
            first = next((o for o in range(start, len(times)) if times[o] >= requested), -1)
            assert list_offsets(plane, requested) == [at(first, times[first]) if first >= 0 else NONE], (
                start,
                requested,
            )
        latest = list_offsets(plane, -3)[0]
        if max(times) == max(times[start:]):
            greatest = times.index(max(times), start)
            assert latest == at(greatest, times[greatest])
        else:
            assert latest.offset >= start


def test_a_batch_with_the_time_of_its_append_is_found_at_its_first_record() -> None:
    plane = plane_with(message_timestamp_type="LogAppendTime")
    produce(plane, stamped(1, 2, 3))
    assert list_offsets(plane, -3, WALL_MS, WALL_MS + 1) == [at(0, WALL_MS), at(0, WALL_MS), NONE]


def test_committed_readers_see_no_offset_behind_an_open_transaction() -> None:
    """The latest offset is the last stable offset. Look-ups by time, and of the largest timestamp, find no record
    beyond this offset.
    """
    plane = plane_with(stamped(10), transactional())
    assert list_offsets(plane, -1, -3, 11, committed=True) == [at(1), NONE, NONE]
    assert list_offsets(plane, -1, -3, 11) == [at(2), at(1, WALL_MS), at(1, WALL_MS)]


def test_invalid_list_offsets_requests_are_refused() -> None:
    """Covers special timestamps in versions that lack them, unknown special timestamps, duplicate partitions, and other
    leader epochs.
    """
    plane = plane_with()
    for timestamp, version in ((-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-9, 11)):
        assert list_offsets(plane, timestamp, version=version)[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    response = plane.call(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=twice)]), 7)
    assert [one.error_code for one in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]
    again = [ListOffsetsTopic(name="t", partitions=twice[:1]), ListOffsetsTopic(name="t", partitions=twice[:1])]
    assert plane.call(ListOffsetsRequest(topics=again), 7) == response, "a topic that is named twice has one entry"
    fenced = [ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=1)]
    response = plane.call(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=fenced)]), 7)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_topic_without_partitions_is_left_out_of_the_response() -> None:
    plane = plane_with()
    requested = [ListOffsetsTopic(name="t", partitions=[]), ListOffsetsTopic(name="none", partitions=[])]
    assert plane.call(ListOffsetsRequest(topics=requested), 7).topics == ()
    deletion = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[])], timeout_ms=1000)
    assert plane.call(deletion, 2).topics == ()


def test_list_offsets_includes_an_earlier_append_without_acks() -> None:
    plane = plane_with()
    plane.send(request(("t", 0, batch_of(b"v")), acks=0), 11)
    assert list_offsets(plane, -1) == [at(1)]


def test_epochs_end_where_the_next_begins() -> None:
    """Checks KIP-101's table of epochs over three starts of a node. The node appends nothing after the second start."""
    plane = plane_with(batch_of(b"0"), batch_of(b"1"))
    plane.restart()
    plane.restart()
    produce(plane, batch_of(b"2"))

    def end(epoch: int) -> tuple[int, int]:
        partitions = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch)]
        requested = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)])
        found = plane.call(requested, 4).topics[0].partitions[0]
        return found.leader_epoch, found.end_offset

    assert [end(epoch) for epoch in (0, 1, 2, 3)] == [(0, 2), (0, 2), (2, 3), (-1, -1)]
    plane.partition("t").delete_before(3)
    plane.commit()
    assert end(0) == (0, 3), "for an older epoch, the response has the start of the first remaining epoch"
    assert (end(-1), end(-2)) == ((-1, -1), (-2, 3)), "only -1 is no epoch"


def test_only_the_epoch_minus_one_is_not_checked() -> None:
    """A smaller epoch is older than the current one. Fetch requests ignore every negative epoch, as in Kafka."""
    plane = plane_with(batch_of(b"0"))
    checks = {}
    for epoch in (-1, -2):
        entry = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
        requested = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[entry])])
        offset = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
        listed = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[offset])])
        checks[epoch] = [plane.call(each, 4).topics[0].partitions[0].error_code for each in (requested, listed)]
    assert checks == {-1: [0, 0], -2: [ErrorCode.FENCED_LEADER_EPOCH] * 2}


# ---------------------------------------------------------------- deleting


def delete(plane: DataPlane, offset: int, topic: str = "t") -> DeleteRecordsPartitionResult:
    entry = DeleteRecordsPartition(partition_index=0, offset=offset)
    requested = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[entry])], timeout_ms=1000)
    found: DeleteRecordsPartitionResult = plane.call(requested, 2).topics[0].partitions[0]
    return found


def test_invalid_deletions_are_refused() -> None:
    plane = plane_with()
    plane.topic("__consumer_offsets", cleanup_policy="compact")
    plane.topic("compacted", cleanup_policy="compact")
    plane.topic("both", cleanup_policy=("compact", "delete"))
    assert delete(plane, 0, "__consumer_offsets").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert delete(plane, 0, "compacted").error_code == ErrorCode.POLICY_VIOLATION
    assert delete(plane, 0, "both") == DeleteRecordsPartitionResult(low_watermark=0)


def test_the_response_to_a_deletion_waits_for_its_commit() -> None:
    plane = plane_with(batch_of(b"0"), batch_of(b"1"))
    entry = DeleteRecordsPartition(partition_index=0, offset=1)
    requested = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[entry])])
    pending = plane.send(requested, 2)
    plane.fail_next_commit()
    plane.commit()
    assert pending.response.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert plane.partition("t").log_start_offset == 0
    assert delete(plane, 1) == DeleteRecordsPartitionResult(low_watermark=1)


def test_two_deletions_in_one_round_return_the_higher_start() -> None:
    plane = plane_with(batch_of(b"0"), batch_of(b"1"))
    responses = []
    for offset in (2, 1):
        entry = DeleteRecordsPartition(partition_index=0, offset=offset)
        requested = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[entry])])
        responses.append(plane.send(requested, 2))
    plane.commit()
    assert [response.response.topics[0].partitions[0].low_watermark for response in responses] == [2, 2]


def test_an_open_transaction_with_deleted_records_keeps_readers_at_the_start() -> None:
    plane = plane_with(transactional(), batch_of(b"1"), batch_of(b"2"))
    assert plane.partition("t").last_stable_offset == 0
    assert delete(plane, 2).low_watermark == 2
    assert plane.partition("t").last_stable_offset == 2
    plane.restart()
    assert plane.partition("t").high_watermark == 3


# ---------------------------------------------------------------- retention


def enforce(plane: DataPlane) -> int:
    for _ in plane.housekeeping.enforce_retention():
        pass
    plane.commit()
    return plane.partition("t").log_start_offset


def test_old_segments_are_deleted() -> None:
    """retention.ms applies to the largest timestamp of a segment. A younger segment prevents the deletion of older
    segments behind it.
    """
    hour_ms = 3_600_000
    batches = [stamped(WALL_MS - age * hour_ms, WALL_MS - (age + 1) * hour_ms) for age in (5, 3, 9, 1)]
    plane = plane_with(*batches, retention_ms=4 * hour_ms, segment_bytes=len(batches[0]))
    assert enforce(plane) == 2
    plane.clock.advance(10 * hour_ms)
    plane.now.update()
    assert enforce(plane) == 8
    plane.settings["t"]["retention.ms"] = -1


def test_segments_beyond_the_size_are_deleted() -> None:
    """retention.bytes deletes whole segments from the start, as long as at least that many bytes remain."""
    size = len(stamped(1))
    plane = plane_with(*[stamped(WALL_MS)] * 10, retention_bytes=4 * size + 1, segment_bytes=size)
    assert enforce(plane) == 5
    plane.settings["t"]["retention.bytes"] = 0
    plane.partitions.on_config_changed(2, "t")
    assert enforce(plane) == 10


def test_the_active_segment_is_kept_as_a_whole() -> None:
    """The batches of one segment are deleted together. Retention by size never deletes the only segment. Retention by
    time deletes it once its last batch is old enough.
    """
    size, hour_ms = len(stamped(1)), 3_600_000
    plane = plane_with(*[stamped(WALL_MS)] * 10, retention_bytes=size)
    assert enforce(plane) == 0
    plane = plane_with(*[stamped(WALL_MS - age * hour_ms) for age in (9, 1)], retention_ms=4 * hour_ms)
    assert enforce(plane) == 0
    plane.clock.advance(10 * hour_ms)
    plane.now.update()
    assert enforce(plane) == 2


def test_a_segment_ends_by_its_time() -> None:
    """A batch that is more than segment.ms newer than the first batch of the segment begins the next segment. A change
    of segment.ms applies to later appends only.
    """
    size = len(stamped(1))
    plane = plane_with(*[stamped(WALL_MS - age) for age in (500, 400, 300)], retention_bytes=size, segment_ms=300)
    assert enforce(plane) == 0
    produce(plane, stamped(WALL_MS))
    assert enforce(plane) == 3
    plane.settings["t"]["segment.ms"] = 1
    plane.partitions.on_config_changed(2, "t")
    produce(plane, stamped(WALL_MS + 1))
    assert enforce(plane) == 3, "the batches of an earlier cleaner run stay in one segment"
    produce(plane, stamped(WALL_MS + 3))
    assert enforce(plane) == 5


def test_compacted_and_unlimited_topics_keep_all_batches() -> None:
    for settings in ({"cleanup_policy": "compact", "retention_ms": 1}, {"retention_ms": -1}):
        plane = plane_with(**settings)
        produce(plane, batch_of(b"v", keys={0: b"k"}, timestamp_ms=1))
        assert enforce(plane) == 0


def test_retention_does_not_skip_offsets_that_compaction_has_emptied() -> None:
    """If a topic is both compacted and deleted, the start of its log moves only to the end of a deleted segment.

    Otherwise, a consumer whose next offset was compacted away would get OFFSET_OUT_OF_RANGE.
    """
    batches = [batch_of(b"v", keys={0: key}, timestamp_ms=WALL_MS) for key in (b"k", b"l", b"l", b"k", b"l", b"l")]
    plane = plane_with(
        *batches,
        cleanup_policy="compact,delete",
        segment_bytes=len(batches[0]),
        min_cleanable_dirty_ratio=0.0,
        retention_ms=1_000,
    )
    for _ in plane.housekeeping.cleaner.run():
        pass
    plane.commit()
    first = plane.partition("t").log.summaries(0, 1)[0]
    assert (first.base_offset, plane.partition("t").high_watermark) == (3, 6)
    assert enforce(plane) == 0
    plane.settings["t"]["retention.bytes"] = len(batches[0])
    plane.partitions.on_config_changed(2, "t")
    assert enforce(plane) == 5, "the segment of offset 3 is deleted"


def test_retention_runs_by_its_timer() -> None:
    plane = DataPlane(config={"log.retention.check.interval.ms": "30"})
    plane.topic("t", retention_ms=20)
    produce(plane, stamped(WALL_MS))
    plane.housekeeping.start()
    plane.advance(30)
    assert plane.partition("t").log_start_offset == 0, "slices run between rounds"
    plane.slices.finish()
    plane.commit()
    assert plane.partition("t").log_start_offset == 1


def long_log(monkeypatch: pytest.MonkeyPatch, batches: int = 100) -> tuple[DataPlane, list[int]]:
    """Returns a data plane with a log of many batches, and a list. Slices read the index of the log, and each read adds
    its number of headers to the list.
    """
    monkeypatch.setattr(time_index, "WALK_GROUPS", 1)
    monkeypatch.setattr(time_index, "GROUP_BATCHES", 8)
    monkeypatch.setattr(log_partition, "INDEX_STEP_COST_US", SLICE_COST_US)
    plane = plane_with(*(stamped(1_000 + number) for number in range(batches)))
    plane.slices.requests.enabled = True
    walks: list[int] = []
    walk = time_index.TimeIndex._walk

    def counted(index: time_index.TimeIndex, offset: int, limit: int, groups: int = 1) -> list[BatchSummary]:
        found = walk(index, offset, limit, groups)
        walks.append(len(found))
        return found

    monkeypatch.setattr(time_index.TimeIndex, "_walk", counted)
    return plane, walks


def most_in_a_slice(plane: DataPlane, walks: list[int]) -> int:
    """Finishes all slices; returns the largest number of headers that one slice has read."""
    most = 0
    while plane.slices:
        before = sum(walks)
        plane.slices.step()
        most = max(most, sum(walks) - before)
    return most


@pytest.mark.parametrize(("timestamp", "found"), [(-3, at(99, 1_099)), (1_050, at(50, 1_050)), (2_000, NONE)])
@pytest.mark.parametrize("unacknowledged", [False, True])
def test_a_long_log_is_searched_in_slices(
    monkeypatch: pytest.MonkeyPatch, timestamp: int, found: ListOffsetsPartitionResponse, unacknowledged: bool
) -> None:
    """In one slice, the search of 800,000 batches would block the event loop for 0.8 s."""
    plane, walks = long_log(monkeypatch)
    if unacknowledged:
        plane.send(request(("t", 0, stamped(1_000)), acks=0), 11)
    entry = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    pending = plane.send(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[entry])]), 11)
    plane.commit()
    assert isinstance(pending, Pending)
    assert not pending.done
    assert most_in_a_slice(plane, walks) <= 3 * 8
    assert pending.response.topics[0].partitions == [found]
    del walks[:]
    again = plane.call(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[entry])]), 11)
    assert list(again.topics[0].partitions) == [found]
    assert sum(walks) <= 3 * 8, "later searches use the index"


def test_a_search_that_decompresses_much_is_a_slice_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of a few kilobytes can have 16 MB of records: 100 of them in one slice would take seconds."""
    plane = DataPlane()
    plane.topic("t", partitions=3)
    large = batch_of(bytes(BYTES_A_MICROSECOND * SLICE_COST_US), compression=1, compress=compress)
    for index in range(3):
        plane.send(request(("t", index, large)), 11)
    plane.commit()
    stepped: list[int] = []

    def counted(codec: int, data: Buffer, limit: int) -> Generator[int, None, bytes]:
        for cost in in_steps(codec, data, limit):
            stepped.append(cost)
            yield cost
        return decompress(codec, data, limit)

    monkeypatch.setattr("kcore.broker.data.list_offsets.in_steps", counted)
    plane.slices.requests.enabled = True
    entries = [ListOffsetsPartition(partition_index=index, timestamp=0) for index in range(3)]
    pending = plane.send(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=entries)]), 11)
    slices = 1
    while plane.slices:
        plane.slices.step()
        slices += 1
    assert sum(stepped) > 2 * SLICE_COST_US
    assert slices >= 4, "each search has a slice of its own"
    assert [entry.offset for entry in pending.response.topics[0].partitions] == [0, 0, 0]


def test_retention_reads_a_long_log_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, walks = long_log(monkeypatch)
    plane.settings["t"] = {"retention.bytes": 1, "segment.bytes": 200}
    plane.partitions.on_config_changed(2, "t")
    plane.slices.add(plane.housekeeping.enforce_retention())
    assert most_in_a_slice(plane, walks) <= 3 * 8
    plane.commit()
    assert plane.partition("t").log_start_offset > 90


def test_a_batch_after_a_cut_one_is_found_by_the_index() -> None:
    """The log starts within its first batch. The index still finds later batches, so that a search need not decode all
    of them.
    """
    plane = plane_with(stamped(50, 10, 10), *(stamped(20) for _ in range(300)), stamped(50))
    plane.partition("t").delete_before(1)
    plane.commit()
    assert list_offsets(plane, 40) == [at(303, 50)]
    assert list_offsets(plane, 15) == [at(3, 20)]
