"""Malformed requests get an error code, and stored batches stay readable."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.log.interface import Finding
from kcore.protocol.compression import compress, decompress
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.runtime import Pending
from kcore_ext.batch import iter_records, validate
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_produce import request

SEEDS = [
    batch_of(b"a"),
    batch_of(*[b"v" * 20] * 5, producer=(7, 0), sequence=0),
    batch_of(*[b"v" * 20] * 5, compression=1, compress=compress),
    batch_of(*[b"v" * 20] * 5, compression=2, compress=compress),
    batch_of(*[b"v" * 20] * 5, compression=3, compress=compress),
    batch_of(*[b"v" * 20] * 5, compression=4, compress=compress, log_append_time=True),
    batch_of(b"x", producer=(7, 0), sequence=0, transactional=True),
]
REFUSALS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draws a batch with changed bytes. The batch usually has a valid CRC, and is sometimes truncated or has trailing
    bytes.
    """
    batch = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        batch[draw(st.integers(0, len(batch) - 1))] = draw(st.integers(0, 255))
    if draw(st.integers(0, 4)):
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    cut = draw(st.integers(0, len(batch))) if draw(st.integers(0, 9)) == 0 else len(batch)
    return bytes(batch[:cut]) + draw(st.sampled_from([b"", b"", b"", b"\0" * 5, b"\0" * 20]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(damaged(), damaged(), st.binary(max_size=100), st.sampled_from(SEEDS)), max_size=12))
def test_damaged_batches_are_refused_or_stored_whole(batches: list[bytes]) -> None:
    """Every accepted batch can be read by every consumer, and the log stays valid."""
    plane = DataPlane()
    plane.topic("t")
    for records in batches:
        response = plane.call(request(("t", 0, records)), 11).responses[0].partition_responses[0]
        assert response.error_code == 0 or ErrorCode(response.error_code) in REFUSALS
        assert (response.base_offset >= 0) == (response.error_code == 0)
    findings: list[Finding] = plane.log.verify(deep=True)
    assert findings == []
    expected = 0
    for base_offset, batch in plane.partition("t").log.batches():
        header = validate(batch, decompress=decompress)
        offsets = [record.offset for record in iter_records(batch, decompress=decompress)]
        assert base_offset == expected
        assert offsets == list(range(expected, expected + header.record_count))
        expected += header.record_count


NUMBERS = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 100, 2**31 - 1])
OFFSETS = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 4, 2**63 - 1])


@settings(max_examples=70, deadline=None)
@given(
    st.lists(st.tuples(NUMBERS, OFFSETS, NUMBERS, NUMBERS, NUMBERS), max_size=4),
    st.tuples(NUMBERS, NUMBERS, NUMBERS, st.integers(-128, 127), NUMBERS, NUMBERS),
    st.lists(NUMBERS, max_size=3),
)
def test_odd_fetches_get_a_response(entries: Any, limits: Any, forgotten: list[int]) -> None:
    """The response comes at once, at the timeout, or when data arrives. No state of the request remains."""
    plane = DataPlane()
    plane.topic("t", 2)
    plane.call(request(("t", 0, SEEDS[0]), ("t", 1, SEEDS[1])), 11)
    max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = limits
    requested = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=most,
                        current_leader_epoch=epoch,
                        last_fetched_epoch=last_epoch,
                    )
                    for partition, offset, most, epoch, last_epoch in entries
                ],
            )
        ],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=forgotten)],
    )
    response = plane.send(requested, 12)
    if isinstance(response, Pending):
        assert response.parked
        for operation in plane.purgatory.operations():
            operation()
        assert response.done
        response = response.response
    assert type(response).decode(response.encode(12), 12) == response
    assert len(plane.purgatory) == 0
    assert [plane.partition("t", index).watched for index in range(2)] == [0, 0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(NUMBERS, OFFSETS, NUMBERS), max_size=4), st.integers(-128, 127), st.integers(1, 11))
def test_odd_list_offsets_requests_get_a_response(entries: Any, isolation_level: int, version: int) -> None:
    plane = DataPlane()
    plane.topic("t", 2)
    plane.call(request(("t", 0, SEEDS[0]), ("t", 1, SEEDS[4])), 11)
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index, timestamp, epoch in entries
    ]
    requested = ListOffsetsRequest(
        isolation_level=isolation_level, topics=[ListOffsetsTopic(name="t", partitions=partitions)]
    )
    responses = [row for topic in plane.call(requested, version).topics for row in topic.partitions]
    assert [response.partition_index for response in responses] == list(dict.fromkeys(index for index, _, _ in entries))
