"""Temporary failures of a producer's first batch: the partition stores no later batch before the first one.

A client has up to five unacknowledged batches, and sends the refused batches again. A partition accepts any first
sequence of an unknown producer, because the state of the producer may have expired.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_produce import produce, refused, request, response, stored, taken

OUT_OF_ORDER = PartitionProduceResponse(
    error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, base_offset=-1, log_start_offset=0
)
NOT_LEADER = PartitionProduceResponse(
    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    base_offset=-1,
    current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=1),
)
PRODUCER = (7, 0)


def batch(sequence: int, producer: tuple[int, int] = PRODUCER) -> Any:
    return batch_of(b"%d" % sequence, producer=producer, sequence=sequence)


@pytest.fixture
def plane() -> DataPlane:
    made = DataPlane()
    made.topic("t")
    return made


def fail(plane: DataPlane, *batches: Any) -> None:
    """Sends batches in one round, and makes the commit of the round fail."""
    pending = [plane.send(request(("t", 0, one)), 11) for one in batches]
    plane.fail_next_commit()
    assert not plane.commit()
    assert {repr(each.response) for each in pending} == {repr(response(refused(ErrorCode.KAFKA_STORAGE_ERROR)))}


def test_a_later_batch_waits_for_those_of_a_failed_commit(plane: DataPlane) -> None:
    fail(plane, *map(batch, range(7)))
    assert produce(plane, batch(7)) == OUT_OF_ORDER
    assert produce(plane, batch(1)) == OUT_OF_ORDER
    assert [produce(plane, batch(sequence)) for sequence in range(8)] == [taken(offset) for offset in range(8)]
    assert len(stored(plane)) == 8
    assert plane.partition("t").producers.refused == {}


def test_a_second_failed_commit_keeps_the_order(plane: DataPlane) -> None:
    fail(plane, batch(4))
    fail(plane, batch(3))
    assert produce(plane, batch(4)) == OUT_OF_ORDER
    assert produce(plane, batch(3)) == taken(0)


def test_other_producers_and_epochs_are_not_concerned(plane: DataPlane) -> None:
    """After a failed first batch, the partition still accepts batches of other producers, and of the same producer in a
    new epoch. A client that gives up the failed batch begins a new epoch.
    """
    fail(plane, batch(0))
    assert produce(plane, batch(5, (8, 0))) == taken(0)
    assert produce(plane, batch(5)) == OUT_OF_ORDER
    assert produce(plane, batch(5, (7, 1))) == taken(1)


def test_a_known_producer_needs_no_note(plane: DataPlane) -> None:
    assert produce(plane, batch(0)) == taken(0)
    fail(plane, batch(1))
    assert plane.partition("t").producers.refused == {}
    assert produce(plane, batch(2)) == OUT_OF_ORDER


def test_a_later_batch_waits_for_one_that_came_during_the_recovery(plane: DataPlane) -> None:
    assert produce(plane, batch_of(b"other")) == taken(0)
    plane._open()
    partition = plane.partition("t")
    partition.recovering = True
    partition.begin_recovery()
    assert produce(plane, batch(0)) == NOT_LEADER
    partition.finish_recovery()
    assert produce(plane, batch(1)) == OUT_OF_ORDER
    assert produce(plane, batch(0)) == taken(1)


def test_notes_are_forgotten_at_the_second_expiry(plane: DataPlane) -> None:
    """A partition remembers a refused first batch until the second expiry of producers. Otherwise a client that gives
    up the batch and keeps its epoch would be refused forever.
    """
    fail(plane, batch(0))
    producers = plane.partition("t").producers
    list(producers.expire(0, 1, 100))
    assert produce(plane, batch(5)) == OUT_OF_ORDER
    list(producers.expire(0, 1, 100))
    assert produce(plane, batch(5)) == taken(0)


def test_a_partition_notes_a_bounded_number_of_producers(plane: DataPlane) -> None:
    fail(plane, *(batch(5, (number, 0)) for number in range(120)))
    noted = plane.partition("t").producers.refused
    assert len(noted) == 100
    assert set(noted.values()) == {(0, 5)}
