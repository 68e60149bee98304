"""A consumer's positions: buffered records, polls, loops over single records, and late responses."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.client.consumer_coordinator.interface import OffsetAndMetadata
from kcore.client.fetching import FetchPositions
from kcore.node.types import Record
from kcore.protocol.compression import decompress
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.batch import BatchBuilder, build_control_batch
from kcore_ext.client.fetched import FetchedRecords

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def fetched(partition: TopicPartition, offset: int, count: int) -> FetchedRecords[Record]:
    """Returns the fetched records of a response, beginning at an offset."""
    builder = BatchBuilder(1 << 16, base_timestamp_ms=5)
    for _ in range(count):
        assert builder.append(5, None, b"v")
    records = FetchedRecords(Record, *partition)
    records.add(builder.build(offset, leader_epoch=4), offset, None, decompress)
    return records


def assigned(*partitions: TopicPartition, offset: int = 0) -> FetchPositions:
    """Returns the positions of assigned partitions, at an offset."""
    positions = FetchPositions()
    positions.assign(partitions)
    for partition in partitions:
        positions.seek(partition, offset)
    return positions


def store(positions: FetchPositions, partition: TopicPartition, offset: int, count: int) -> None:
    """Buffers a response as if it had been fetched from the partition's present position."""
    version = positions.by_partition[partition].version
    positions.store(partition, version, offset, fetched(partition, offset, count))


def positions_of(records: list[Record]) -> list[tuple[int, int]]:
    """Returns partition and offset of each record."""
    return [(record.partition, record.offset) for record in records]


def offsets(positions: FetchPositions) -> dict[TopicPartition, int]:
    """Returns the offsets to commit."""
    consumed = positions.consumed()
    assert all(isinstance(value, OffsetAndMetadata) for value in consumed.values())
    return {key: value.offset for key, value in consumed.items() if isinstance(value, OffsetAndMetadata)}


def test_polls_take_partition_after_partition_and_count_at_the_next_poll() -> None:
    positions = assigned(ZERO, ONE)
    store(positions, ZERO, 0, 3)
    store(positions, ONE, 0, 2)
    assert positions.to_fetch(0) == {}
    assert positions_of(positions.take_records(2)) == [(0, 0), (0, 1)]
    assert offsets(positions) == {ZERO: 0, ONE: 0}
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 2, ONE: 0}
    assert positions_of(positions.take_records(9)) == [(0, 2), (1, 0), (1, 1)]
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 3, ONE: 2}
    assert positions.consumed()[ZERO] == OffsetAndMetadata(3, "", 4)
    assert positions.to_fetch(0) == {ZERO: 3, ONE: 2}
    assert positions.take_records(9) == []


def test_a_second_response_for_the_same_offset_is_dropped() -> None:
    """Two brokers may respond for one partition while its leader changes."""
    positions = assigned(ZERO)
    store(positions, ZERO, 0, 2)
    positions.store(ZERO, 1, 0, fetched(ZERO, 0, 2))
    assert positions_of(positions.take_records(9)) == [(0, 0), (0, 1)]
    positions.store(ZERO, 1, 0, fetched(ZERO, 0, 2))
    assert positions.take_records(9) == []
    assert positions.to_fetch(0) == {ZERO: 2}


def test_a_response_for_an_earlier_position_is_dropped() -> None:
    positions = assigned(ZERO)
    positions.seek(ZERO, 0)
    positions.store(ZERO, 1, 0, fetched(ZERO, 0, 2))
    assert positions.take_records(9) == []
    assert positions.to_fetch(0) == {ZERO: 0}


def test_a_loop_counts_a_record_when_the_next_one_is_requested() -> None:
    positions = assigned(ZERO, ONE)
    store(positions, ZERO, 0, 2)
    store(positions, ONE, 0, 2)
    assert positions.take_for_loop(9)
    assert positions_of([next(positions.cursor), next(positions.cursor)]) == [(0, 0), (0, 1)]
    assert offsets(positions) == {ZERO: 1, ONE: 0}
    next(positions.cursor)
    assert offsets(positions) == {ZERO: 2, ONE: 0}
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 2, ONE: 1}
    assert not positions.take_for_loop(0)


def test_a_poll_after_a_loop_begins_with_the_records_that_the_loop_left() -> None:
    """Otherwise a commit after the poll would skip these records."""
    positions = assigned(ZERO)
    store(positions, ZERO, 0, 4)
    assert positions.take_for_loop(3)
    next(positions.cursor)
    positions.mark_consumed()
    assert positions_of(positions.take_records(9)) == [(0, 1), (0, 2), (0, 3)]
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 4}


def test_records_of_a_lost_partition_leave_the_loop_and_do_not_count() -> None:
    positions = assigned(ZERO, ONE)
    store(positions, ZERO, 0, 2)
    store(positions, ONE, 0, 2)
    assert positions.take_for_loop(9)
    next(positions.cursor)
    positions.drop_polled([ZERO])
    positions.remove([ZERO])
    positions.assign([ZERO])
    assert positions_of(list(positions.cursor)) == [(1, 0), (1, 1)]
    positions.mark_consumed()
    assert offsets(positions) == {ONE: 2}


def test_polled_records_of_a_sought_partition_do_not_count() -> None:
    positions = assigned(ZERO, ONE)
    store(positions, ZERO, 0, 2)
    store(positions, ONE, 0, 2)
    assert len(positions.take_records(9)) == 4
    positions.drop_polled([ZERO])
    positions.seek(ZERO, 0)
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 0, ONE: 2}


def test_paused_partitions_are_neither_taken_nor_fetched() -> None:
    positions = assigned(ZERO, ONE)
    store(positions, ZERO, 0, 2)
    store(positions, ONE, 0, 1)
    positions.by_partition[ZERO].paused = True
    assert positions_of(positions.take_records(9)) == [(1, 0)]
    assert positions.to_fetch(0) == {ONE: 1}
    positions.by_partition[ZERO].paused = False
    assert positions_of(positions.take_records(9)) == [(0, 0), (0, 1)]


def marker(offset: int) -> bytes:
    """Returns a batch with a transaction marker."""
    batch = bytearray(build_control_batch(1, 0, producer_id=7, producer_epoch=0, timestamp_ms=1))
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def store_marker(positions: FetchPositions, partition: TopicPartition, offset: int) -> None:
    """Buffers a response that contains only a transaction marker."""
    records = FetchedRecords(Record, *partition)
    records.add(marker(offset), offset, None, decompress)
    positions.store(partition, positions.by_partition[partition].version, offset, records)


def test_a_marker_after_consumed_records_is_committed_with_them() -> None:
    positions = assigned(ZERO)
    store(positions, ZERO, 0, 2)
    assert positions_of(positions.take_records(9)) == [(0, 0), (0, 1)]
    store_marker(positions, ZERO, 2)
    assert offsets(positions) == {ZERO: 0}  # the program still processes the records before the marker
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 3}
    store_marker(positions, ZERO, 3)
    assert offsets(positions) == {ZERO: 4}
    store(positions, ZERO, 4, 1)
    assert offsets(positions) == {ZERO: 4}


def test_a_marker_in_the_response_of_consumed_records_is_committed_with_them() -> None:
    records = fetched(ZERO, 0, 2)
    records.add(marker(2), 0, None, decompress)
    positions = assigned(ZERO)
    positions.store(ZERO, positions.by_partition[ZERO].version, 0, records)
    assert positions_of(positions.take_records(1)) == [(0, 0)]
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 1}
    assert positions_of(positions.take_records(1)) == [(0, 1)]
    assert offsets(positions) == {ZERO: 1}
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 3}


def test_a_marker_after_records_of_a_loop_is_not_committed_before_the_loop_has_finished_them() -> None:
    positions = assigned(ZERO)
    store(positions, ZERO, 0, 2)
    assert positions.take_for_loop(9)
    next(positions.cursor)
    store_marker(positions, ZERO, 2)
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 1}
    next(positions.cursor)
    assert offsets(positions) == {ZERO: 1}
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 3}


def test_markers_alone_are_committed_also_after_a_start_at_the_committed_offset() -> None:
    positions = FetchPositions()
    positions.assign([ZERO])
    positions.by_partition[ZERO].fetch = 8
    assert offsets(positions) == {}
    store_marker(positions, ZERO, 8)
    assert offsets(positions) == {ZERO: 9}
    positions.seek(ZERO, None)
    assert offsets(positions) == {}


def test_records_that_an_interceptor_removed_from_a_loop_count() -> None:
    positions = assigned(ZERO)
    store(positions, ZERO, 0, 3)
    assert positions.take_for_loop(9)
    positions.cursor.load(positions.cursor.rest(9)[:1])
    next(positions.cursor)
    assert offsets(positions) == {ZERO: 0}
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 3}


def test_a_reset_to_a_smaller_offset_forgets_the_ends_of_earlier_records() -> None:
    """The topic is created again, so the position is reset to a smaller offset. The consumer forgets the offsets
    after the records that it has returned earlier. A commit of such an offset would skip new records.
    """
    positions = assigned(ZERO, offset=50)
    store(positions, ZERO, 50, 3)
    assert positions_of(positions.take_records(10)) == [(0, 50), (0, 51), (0, 52)]
    positions.seek(ZERO, None)  # OFFSET_OUT_OF_RANGE
    positions.mark_consumed()
    positions.locate(ZERO, positions.by_partition[ZERO].version, 0, None)
    assert ZERO not in offsets(positions)
    store(positions, ZERO, 0, 2)
    assert positions_of(positions.take_records(10)) == [(0, 0), (0, 1)]
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 2}


def test_a_reset_to_a_larger_offset_keeps_the_records_of_a_loop() -> None:
    positions = assigned(ZERO, offset=0)
    store(positions, ZERO, 0, 3)
    assert positions.take_for_loop(10)
    positions.seek(ZERO, None)  # the log start has passed the position
    positions.locate(ZERO, positions.by_partition[ZERO].version, 60, None)
    assert [record.offset for record in positions.cursor] == [0, 1, 2]
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 3}
    store(positions, ZERO, 60, 1)
    assert positions_of(positions.take_records(10)) == [(0, 60)]
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 61}


def test_a_lookup_does_not_replace_a_position_that_was_set_meanwhile() -> None:
    positions = FetchPositions()
    positions.assign([ZERO])
    version = positions.by_partition[ZERO].version
    positions.seek(ZERO, 7)
    positions.locate(ZERO, version, 3, None)
    assert positions.by_partition[ZERO].fetch == 7


class Broken:
    """Buffered records that raise an error when the consumer takes them."""

    next_offset = 20

    def __len__(self) -> int:
        return 1

    def take(self, limit: int) -> list[Record]:
        raise MemoryError("injected")


def test_records_that_a_failed_poll_has_taken_are_fetched_again() -> None:
    positions = assigned(ZERO, ONE, offset=20)
    store(positions, ZERO, 20, 3)
    broken: Any = Broken()
    positions.by_partition[ONE].buffer = broken
    with pytest.raises(MemoryError):
        positions.take_records(10)
    positions.mark_consumed()
    assert offsets(positions) == {ZERO: 20, ONE: 20}
    assert positions.to_fetch(0) == {ZERO: 20, ONE: 20}
    store(positions, ZERO, 20, 3)
    assert positions_of(positions.take_records(10)) == [(0, 20), (0, 21), (0, 22)]
