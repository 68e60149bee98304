"""Produce requests with many or large batches: slices, the limits of decompression, and failed commits of a slice."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.errors import CloseConnectionError
from kcore.protocol.compression import compress
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kcore.runtime import Pending
from kcore_ext.batch import BatchBuilder
from tests.broker.data.context import DataPlane, batch_of

COUNT = 1_200
MIB = 1 << 20
GZIP, ZSTD = 1, 4


def wide(*indexes: int, records: bytes | None = None, acks: int = -1) -> ProduceRequest:
    """Makes a request that has a batch for each given partition of the topics t and u."""
    records = batch_of(b"v") if records is None else records
    return ProduceRequest(
        acks=acks,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=index, records=records) for index in indexes]
            )
            for name in ("t", "u")
        ],
    )


def plane(sliced: bool = True) -> DataPlane:
    made = DataPlane()
    for name in ("t", "u"):
        made.topic(name, COUNT)
    made.slices.requests.enabled = sliced
    return made


def results(response: ProduceResponse) -> list[PartitionProduceResponse]:
    return [result for topic in response.responses for result in topic.partition_responses]


def finish(made: DataPlane, result: Any, version: int = 9) -> Any:
    """Runs the slices, with a commit after each one. Returns the response as a client decodes it."""
    while made.slices:
        made.slices.step()
        made.commit()
    return made.settle(result, version)


def test_a_long_request_has_the_same_response_in_slices_as_at_once() -> None:
    """The request includes unknown partitions and invalid batches, which are refused. The response keeps the order of
    the request.
    """
    responses = []
    for sliced in (False, True):
        made = plane(sliced)
        request = wide(*range(COUNT), COUNT + 7, 3, 4)
        request.topic_data[1].partition_data[5].records = batch_of(b"v")[:-1] + b"?"
        result = made.send(request, 9)
        assert len(made.slices) == sliced
        responses.append(finish(made, result))
        ends = [made.partition("t", index).log.end_offset for index in range(COUNT)]
        assert ends == [2 if index in (3, 4) else 1 for index in range(COUNT)]
    assert responses[0] == responses[1]
    assert [len(topic.partition_responses) for topic in responses[0].responses] == [COUNT + 3] * 2
    assert len([1 for result in results(responses[0]) if result.error_code]) == 3


@pytest.mark.parametrize("count", [0, 1, COUNT])
def test_a_topic_without_partitions_is_not_in_the_response(count: int) -> None:
    """The response omits a topic without partitions if the topic is between other topics, is the only one, or is
    unknown. Responses that are made in slices omit the topic, too.
    """
    made = plane()
    request = wide(*range(count))
    for index, name in ((0, "nope"), (1, "u")):
        request.topic_data.insert(index, TopicProduceData(name=name))
    expected = [("t", count), ("u", count)] if count else []
    response = finish(made, made.send(request, 9))
    assert [(topic.name, len(topic.partition_responses)) for topic in response.responses] == expected
    assert all(result.error_code == 0 for result in results(response))


def test_other_requests_are_served_between_the_slices() -> None:
    made = plane()
    result = made.send(wide(*range(COUNT)), 9)
    assert isinstance(result, Pending)
    assert not result.done
    other = made.call(wide(COUNT - 1), 9)
    assert [result.base_offset for result in results(other)] == [0, 0]
    assert results(finish(made, result))[-1].base_offset == 1


def test_a_failed_commit_refuses_only_the_partitions_of_its_part() -> None:
    made = plane()
    result = made.send(wide(*range(COUNT)), 9)
    made.fail_next_commit()
    assert not made.commit()
    response = finish(made, result)
    codes = [result.error_code for result in results(response)]
    failed = codes.count(ErrorCode.KAFKA_STORAGE_ERROR)
    assert 0 < failed < COUNT
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * failed + [0] * (2 * COUNT - failed)
    for index in range(COUNT):
        assert made.partition("t", index).log.end_offset == (index >= failed)


@pytest.mark.parametrize("broken", [False, True])
def test_a_long_request_without_acks_has_no_response(broken: bool) -> None:
    """Since the request has no response, an error in the first slice closes the connection. After an error in a later
    slice, the connection stays open.
    """
    made = plane()
    request = wide(*range(COUNT), acks=0)
    if broken:
        request.topic_data[1].partition_data[COUNT - 1].index = COUNT
    result = made.send(request, 9)
    assert isinstance(result, Pending)
    assert finish(made, result) is None
    assert [made.partition("u", index).log.end_offset for index in range(COUNT)] == [1] * (COUNT - 1) + [not broken]
    made.slices.requests.enabled = False
    if broken:
        with pytest.raises(CloseConnectionError):
            made.send(request, 9)


def packed(mib: int, codec: int = ZSTD) -> bytes:
    """Makes a batch whose records have `mib` MiB when decompressed."""
    builder = BatchBuilder((mib + 1) * MIB, base_timestamp_ms=1_700_000_000_000, compression=codec, compress=compress)
    for _ in range(mib):
        assert builder.append(1_700_000_000_000, None, bytes(MIB - 20))
    return bytes(builder.build())


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_batch_with_too_many_bytes_of_records_is_refused(codec: int) -> None:
    """On MESSAGE_TOO_LARGE, a Java producer splits the batch. The limit applies on the fast path, too."""
    made = plane()
    for mib, code in ((1, 0), (15, 0), (17, ErrorCode.MESSAGE_TOO_LARGE)):
        request = wide(0, records=packed(mib, codec))
        request.topic_data = request.topic_data[:1]
        response = finish(made, made.send(request, 9))
        assert [result.error_code for result in results(response)] == [code], mib
    assert made.partition("t").log.end_offset == 16


def test_the_batches_of_one_request_share_a_budget_of_decompression() -> None:
    made = plane()
    request = wide(*range(6), records=packed(10))
    request.topic_data[1].partition_data = request.topic_data[1].partition_data[:2]
    result = made.send(request, 9)
    assert len(made.slices) == 1
    codes = [result.error_code for result in results(finish(made, result))]
    assert codes == [0] * 6 + [ErrorCode.MESSAGE_TOO_LARGE] * 2
