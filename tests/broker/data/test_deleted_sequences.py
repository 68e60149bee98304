"""Sequences of idempotent producers whose batches were deleted (DeleteRecords, retention), after a restart.

As in Kafka, a partition keeps these sequences. Kafka writes a snapshot of the producers whenever a segment ends.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.apis import delete_records
from kcore.broker.data import partition as partition_module
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kcore.runtime import sliced
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_fetch import plane_with
from tests.broker.data.test_partitions import WALL_MS, state_of
from tests.broker.data.test_produce import produce, request, transactional

NONE = ErrorCode.NONE


def sent(plane: DataPlane, sequence: int, producer: int = 5) -> tuple[int, int]:
    """Sends a batch of one record, whose sequence is `sequence`. Returns (error code, base offset)."""
    response = produce(plane, batch_of(b"%d" % sequence, producer=(producer, 0), sequence=sequence))
    return response.error_code, response.base_offset


def written(count: int = 7) -> DataPlane:
    """Makes a partition with `count` batches of producer 5, whose offsets equal their sequences."""
    plane = plane_with()
    assert [sent(plane, sequence) for sequence in range(count)] == [(NONE, offset) for offset in range(count)]
    return plane


def deleted(plane: DataPlane, offset: int) -> None:
    """Deletes the records below `offset`."""
    plane.partition("t").delete_before(offset)
    assert plane.commit()


@pytest.mark.parametrize("start", [3, 5, 7])
def test_a_repeated_batch_is_recognized_after_its_deletion_and_a_restart(start: int) -> None:
    plane = written()
    deleted(plane, start)
    before = state_of(plane)
    for _ in range(2):
        plane.restart()
        assert state_of(plane) == before
        assert [sent(plane, sequence) for sequence in range(2, 7)] == [(NONE, offset) for offset in range(2, 7)]
        assert sent(plane, 1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert sent(plane, 8) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert sent(plane, 7) == (NONE, 7)


def test_a_deletion_keeps_the_durable_state_if_an_append_of_its_round_fails() -> None:
    """An append and a deletion are staged together, and their commit fails. The deletion's snapshot of producers must
    not contain the append.
    """
    plane = written()
    plane.send(request(("t", 0, batch_of(b"7", producer=(5, 0), sequence=7))), 11)
    plane.send(request(("t", 0, batch_of(b"0", producer=(6, 0), sequence=0))), 11)
    plane.partition("t").append_marker(9, 0, 4, False, WALL_MS)
    plane.partition("t").delete_before(7)
    plane.fail_next_commit()
    plane.commit()
    assert sent(plane, 6) == (NONE, 6)
    deleted(plane, 7)
    plane.restart()
    assert list(plane.partition("t").producers.entries) == [5]
    assert [sent(plane, sequence) for sequence in (2, 6, 7)] == [(NONE, 2), (NONE, 6), (NONE, 7)]


def test_a_deletion_in_the_round_of_appends_loses_none_of_them() -> None:
    plane = written()
    plane.send(request(("t", 0, batch_of(b"7", producer=(5, 0), sequence=7))), 11)
    plane.send(request(("t", 0, batch_of(b"0", producer=(6, 0), sequence=0))), 11)
    deleted(plane, 7)
    before = state_of(plane)
    plane.restart()
    assert state_of(plane) == before
    assert [sent(plane, 7), sent(plane, 0, 6)] == [(NONE, 7), (NONE, 8)]


def test_an_open_transaction_outlives_the_deletion_of_its_records() -> None:
    """The transaction's records are deleted. The last stable offset stays at the log's start until the transaction
    ends.
    """
    plane = written(2)
    produce(plane, transactional(producer=(8, 0)), tid="tid")
    deleted(plane, 3)
    assert sent(plane, 2) == (NONE, 3)
    before = state_of(plane)
    plane.restart()
    assert state_of(plane) == before
    assert plane.partition("t").last_stable_offset == 3
    plane.partition("t").append_marker(8, 0, 4, True, WALL_MS)
    assert plane.commit()
    assert plane.partition("t").last_stable_offset == 5


def compacted_beyond(plane: DataPlane, offset: int) -> None:
    """Marks the log as compacted below `offset`, as a pass that removes nothing does."""
    plane.partition("t").rewrite({}, offset)
    assert plane.commit()
    plane.restart()


def test_compaction_after_a_deletion_keeps_the_sequences() -> None:
    """Recovery replays the log from its start and adds the deleted sequences from the snapshot."""
    plane = written()
    assert sent(plane, 0, 6) == (NONE, 7)
    deleted(plane, 5)
    assert sent(plane, 7) == (NONE, 8)
    assert sent(plane, 8) == (NONE, 9)
    before = state_of(plane)
    compacted_beyond(plane, 9)
    assert state_of(plane) == before
    assert [sent(plane, sequence) for sequence in range(4, 9)] == [(NONE, offset) for offset in (4, 5, 6, 8, 9)]


def test_compaction_after_a_deletion_opens_no_transaction_again() -> None:
    """A transaction has ended, and compaction may have removed its marker. A recovery must not open the transaction
    again: `read_committed` consumers would wait forever for the marker.
    """
    plane = written(1)
    produce(plane, transactional(producer=(8, 0)), tid="tid")
    deleted(plane, 2)
    assert sent(plane, 1) == (NONE, 2)
    assert sent(plane, 2) == (NONE, 3)
    compacted_beyond(plane, 3)
    partition = plane.partition("t")
    assert partition.producers.open_transactions == {}
    assert partition.last_stable_offset == 4
    assert sorted(partition.producers.entries) == [5, 8]


def test_a_deletion_beyond_an_equal_high_watermark_writes_no_second_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both deletions have the same high watermark, and the commit of the first snapshot may be under way. A second
    snapshot would replace the chunks of the first one.
    """
    plane = written()
    taken: list[int] = []
    encode = partition_module.encode

    def counted(*arguments: Any) -> Any:
        taken.append(arguments[1])
        return encode(*arguments)

    monkeypatch.setattr(partition_module, "encode", counted)
    plane.partition("t").delete_before(2)
    plane.partition("t").delete_before(3)
    assert not plane.partition("t").snapshot_producers(1)
    assert plane.commit()
    deleted(plane, 4)
    assert sent(plane, 7) == (NONE, 7)
    deleted(plane, 5)
    assert taken == [7, 8]


def test_a_partition_without_producers_writes_no_snapshot() -> None:
    plane = plane_with(batch_of(b"v"))
    deleted(plane, 1)
    assert plane.partition("t").log.snapshot is None


def test_deletions_in_partitions_with_many_producers_are_decided_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node runs the deletions in several decisions, each with its own commit. Thus one request does not stage the
    snapshots of all its partitions at once.
    """
    monkeypatch.setattr(delete_records, "FEW_PARTITIONS", 4)
    monkeypatch.setattr(delete_records, "PRODUCERS_A_PARTITION", 1)
    monkeypatch.setattr(sliced, "SLICE_COST_US", 1)
    plane = DataPlane()
    plane.topic("t", 4)
    for index, producers in enumerate((1, 1, 3, 0)):
        for producer in range(producers):
            plane.call(request(("t", index, batch_of(b"v", producer=(producer, 0), sequence=0))), 11)
    plane.slices.requests.enabled = True
    entries = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(5)]
    response = plane.send(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=entries)]), 2)
    starts = []
    while plane.slices or plane.pipeline.dirty:
        plane.commit()
        starts.append([plane.partition("t", index).log_start_offset for index in range(4)])
        plane.slices.step()
    assert starts[:2] == [[1, 1, 0, 0], [1, 1, 3, 0]]
    results = [
        (part.partition_index, part.low_watermark, part.error_code) for part in response.response.topics[0].partitions
    ]
    assert results == [(0, 1, 0), (1, 1, 0), (2, 3, 0), (3, 0, 0), (4, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
