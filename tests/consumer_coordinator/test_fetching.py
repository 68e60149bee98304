"""Positions and fetch sessions of a consumer, without I/O."""

from __future__ import annotations

from kcore.client.fetching import FetchPositions, FetchSession, Unvalidated
from kcore.node.requests import build_batch, read_fetched
from kcore.node.types import Record
from kcore.protocol.compression import CompressionType
from kcore.protocol.messages.fetch import PartitionData
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.client.fetched import FetchedRecords

P = TopicPartition("t", 0)


def fetched(offset: int) -> FetchedRecords[Record]:
    """Returns the data of a Fetch response with a single record at an offset."""
    batch = bytearray(build_batch([(0, None, b"v", ())], CompressionType.NONE))
    batch[:8] = offset.to_bytes(8, "big")
    return read_fetched(P, PartitionData(records=bytes(batch)), offset, committed=False)


def test_a_response_to_an_earlier_assignment_is_dropped() -> None:
    """The member lost the partition and got it again before the response to its Fetch arrived."""
    positions = FetchPositions()
    positions.assign([P])
    before = positions.by_partition[P].version
    positions.remove([P])
    positions.assign([P])
    state = positions.by_partition[P]
    state.fetch = 2  # the committed offset
    positions.store(P, before, 2, fetched(2))
    assert (state.fetch, state.buffer) == (2, None)
    positions.store(P, state.version, 2, fetched(2))
    assert (state.fetch, [record.offset for record in positions.take_records(10)]) == (3, [2])


def test_a_position_that_is_validated_is_neither_fetched_nor_committed() -> None:
    positions = FetchPositions()
    positions.assign([P])
    positions.seek(P, 5, epoch=1)
    assert positions.begin_validation([P], lambda _: 3) == {P: Unvalidated(5, 1, 3, positions.by_partition[P].version)}
    assert (positions.to_fetch(0), positions.consumed()) == ({}, {})
    sent = Unvalidated(5, 1, 3, positions.by_partition[P].version)
    assert positions.end_validation(P, sent, 1, 9, reset=True)
    assert positions.to_fetch(0) == {P: 5}
    assert positions.begin_validation([P], lambda _: 3) == {}


def test_a_seek_during_the_validation_replaces_its_result() -> None:
    positions = FetchPositions()
    positions.assign([P])
    positions.seek(P, 5, epoch=1)
    (sent,) = positions.begin_validation([P], lambda _: 3).values()
    positions.seek(P, 7)
    assert positions.end_validation(P, sent, 1, 2, reset=False)
    assert positions.to_fetch(0) == {P: 7}


def test_a_position_without_an_epoch_or_a_known_leader_is_not_validated() -> None:
    positions = FetchPositions()
    positions.assign([P])
    positions.seek(P, 5)
    assert positions.begin_validation([P], lambda _: 3) == {}
    positions.seek(P, 5, epoch=1)
    assert positions.begin_validation([P], lambda _: -1) == {}
    assert positions.to_fetch(0) == {P: 5}


def fetch(session: FetchSession, positions: dict[TopicPartition, int]) -> tuple[int, int, list[tuple[int, int]]]:
    """Builds a Fetch request. Returns the session id, the session epoch, and the (fetch offset, leader epoch) of each
    partition.
    """
    request = session.request(
        positions,
        committed=False,
        max_bytes=1,
        partition_bytes=1,
        min_bytes=1,
        wait_ms=0,
        rack="",
        epoch_of=lambda partition: 4,
    )
    rows = [(row.fetch_offset, row.current_leader_epoch) for topic in request.topics for row in topic.partitions]
    return request.session_id, request.session_epoch, rows


def test_a_session_sends_changes_and_is_replaced_after_a_lost_response() -> None:
    session = FetchSession()
    assert session.close_request(1) is None
    assert fetch(session, {P: 3}) == (0, 0, [(3, 4)])
    session.succeeded(77)
    assert fetch(session, {P: 3}) == (77, 1, [])
    session.resend(P)
    session.succeeded(77)
    assert fetch(session, {P: 3}) == (77, 2, [(3, 4)])
    session.failed()
    assert fetch(session, {P: 3}) == (77, 0, [(3, 4)])
    closing = session.close_request(1)
    assert closing is not None
    assert (closing.session_id, closing.session_epoch, list(closing.topics)) == (77, -1, [])
    session.reset()
    assert fetch(session, {P: 3}) == (0, 0, [(3, 4)])
