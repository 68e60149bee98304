"""Sizes that the encoder refuses: above the caller's limit for a frame, and beyond the range of an int32."""

from __future__ import annotations

import mmap
import pickle

import pytest

from kcore.protocol import EncodeError, MessageTooLargeError
from kcore.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kcore.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kcore.protocol.messages.heartbeat import HeartbeatResponse
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore_ext.codec.frames import encode_request, encode_response

LONGEST = 2**31 - 1


def _described(members: int, bytes_each: int) -> DescribeGroupsResponse:
    member = DescribedGroupMember(member_id="m", member_metadata=b"x" * bytes_each)
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", members=[member] * members)])


def _refused_at(response: DescribeGroupsResponse, limit_bytes: int) -> MessageTooLargeError:
    with pytest.raises(MessageTooLargeError) as caught:
        encode_response(response, 5, 1, 1, limit_bytes=limit_bytes)
    return caught.value


@pytest.mark.parametrize(("members", "bytes_each"), [(1, 10), (1, 65_480), (3, 40_000), (40, 9_000), (5, 300_000)])
def test_a_limit_is_exact(members: int, bytes_each: int) -> None:
    """A frame may have exactly as many bytes as the limit, whether or not it fits into the scratch memory."""
    response = _described(members, bytes_each)
    frame = encode_response(response, 5, 1, 1)
    assert encode_response(response, 5, 1, 1, limit_bytes=len(frame)) == frame
    for limit in (len(frame) - 1, len(frame) - 17, len(frame) // 2, 5, 0, -1):
        assert _refused_at(response, limit).limit_bytes == limit
    assert encode_response(response, 5, 1, 1, limit_bytes=2**62) == frame
    assert encode_response(response, 5, 1, 1, limit_bytes=None) == frame


def test_the_error_names_the_field_and_the_limit() -> None:
    error = _refused_at(_described(10, 10_000), 70_000)
    assert isinstance(error, EncodeError)
    assert (error.field, error.limit_bytes) == ("DescribedGroupMember.member_metadata", 70_000)
    assert str(error) == "DescribedGroupMember.member_metadata: the message would have more than 70000 bytes"
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.field, copy.limit_bytes, str(copy)) == (error.field, error.limit_bytes, str(error))


def test_encoding_stops_at_the_limit() -> None:
    """Elements after the limit are not read: in this test, the sixth element is invalid."""
    member = DescribedGroupMember(member_id="m", member_metadata=b"x" * 50_000)
    members = [member] * 5 + ["no member"] * 3
    response = DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", members=members)])
    with pytest.raises(EncodeError, match="another class"):
        encode_response(response, 5, 1, 1)
    assert _refused_at(response, 200_000).field == "DescribedGroupMember.member_metadata"


def test_a_refused_response_leaves_the_writer_usable() -> None:
    large, small = _described(100, 10_000), HeartbeatResponse(error_code=27)
    expected = encode_response(small, 4, 1, 1)
    for limit in (100, 70_000, 500_000):
        _refused_at(large, limit)
        assert encode_response(small, 4, 1, 1) == expected


def test_sizes_beyond_an_int32_are_refused() -> None:
    """The encoder refuses the size before it copies a byte of the records."""
    with mmap.mmap(-1, LONGEST - 2) as records:
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])  # type: ignore[arg-type]
        request = ProduceRequest(
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])]  # type: ignore[arg-type]
        )
        with pytest.raises(MessageTooLargeError) as caught:
            encode_response(response, 12, 1, 1)
        assert caught.value.limit_bytes == LONGEST + 4
        with pytest.raises(MessageTooLargeError) as caught:
            encode_request(request, 9, 1)
        assert caught.value.limit_bytes == LONGEST + 4
        with pytest.raises(MessageTooLargeError) as caught:
            response.encode(12)
        assert caught.value.limit_bytes == LONGEST
    with mmap.mmap(-1, LONGEST + 1) as records:
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])  # type: ignore[arg-type]
        with pytest.raises(EncodeError, match="2 GiB"):
            encode_response(response, 12, 1, 1)


def test_no_limit_exceeds_the_range_of_an_int32() -> None:
    """The length field of a frame is an int32. A caller's limit above 2 GiB does not permit longer frames."""
    with mmap.mmap(-1, LONGEST - 2) as records:
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])  # type: ignore[arg-type]
        with pytest.raises(MessageTooLargeError) as caught:
            encode_response(response, 12, 1, 1, limit_bytes=2**40)
        assert caught.value.limit_bytes == LONGEST + 4
