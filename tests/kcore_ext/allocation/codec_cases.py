"""Encoding and decoding of messages while allocations fail."""

from __future__ import annotations

from collections.abc import Callable

from kcore.protocol import EncodeError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kcore.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore_ext.codec.frames import decode_request_header, encode_request, encode_response
from tests.kcore_ext.allocation.sweep import Attempt

COMMIT = OffsetCommitRequest(
    group_id="group",
    member_id="member",
    topics=[
        OffsetCommitRequestTopic(
            name=f"topic-{number}",
            partitions=[OffsetCommitRequestPartition(partition_index=n, committed_metadata="m") for n in range(3)],
        )
        for number in range(2)
    ],
)
MEMBER = DescribedGroupMember(member_id="m", member_metadata=b"x" * 30_000)
GROUPS = DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", members=[MEMBER] * 2)] * 8)
FETCHED = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic="t",
            partitions=[PartitionData(records=b"r" * 50_000, current_leader=LeaderIdAndEpoch(leader_id=1))] * 4,
        )
    ]
)


def _equal_bytes(write: Callable[[], bytes]) -> Attempt:
    """Encodes a message. A successful call, and the call after a failed one, must give the same bytes as without
    faults.
    """
    expected = write()
    written: list[bytes] = []

    def action() -> None:
        written.append(write())

    def check(succeeded: bool) -> None:
        assert written == [expected] * succeeded
        assert write() == expected

    return Attempt(action, check)


def encode_message() -> Attempt:
    """Encodes a request of a few nested arrays that fits into the encoder's scratch memory."""
    return _equal_bytes(lambda: COMMIT.encode(9))


def encode_request_frame() -> Attempt:
    """Encodes the frame of a request that is larger than the scratch memory, so that the buffer must grow twice."""
    request = JoinGroupRequest(
        group_id="g", protocols=[JoinGroupRequestProtocol(name=f"p{n}", metadata=b"m" * 60_000) for n in range(5)]
    )
    return _equal_bytes(lambda: encode_request(request, 9, 7, "client"))


def encode_large_response_frame() -> Attempt:
    """Encodes the frame of a response whose buffer is resized several times."""
    return _equal_bytes(lambda: encode_response(GROUPS, 5, 7, 1))


def encode_tagged_response_frame() -> Attempt:
    """Encodes the frame of a response with tagged structs and records."""
    return _equal_bytes(lambda: encode_response(FETCHED, 12, 7, 1))


def encode_inside_of_another() -> Attempt:
    """Encodes a message while the encoding of another message uses the scratch memory."""

    class Members:
        def __iter__(self) -> object:
            assert len(encode_response(GROUPS, 5, 7, 1)) > 480_000
            return iter([MEMBER] * 5)

        def __len__(self) -> int:
            return 5

    members = Members()
    outer = DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", members=members)])  # type: ignore[arg-type]
    return _equal_bytes(lambda: encode_response(outer, 5, 7, 1))


def refuse_a_value() -> Attempt:
    """Encodes an invalid value, so that the error is built while allocations fail."""
    unfit = OffsetCommitRequest(group_id="x" * 40, generation_id_or_member_epoch=2**40)
    raised: list[EncodeError | None] = [None]  # in place: this code must not allocate itself

    def action() -> None:
        try:
            unfit.encode(9)
        except EncodeError as error:
            raised[0] = error

    def check(succeeded: bool) -> None:
        assert (raised[0] is not None) == succeeded
        assert raised[0] is None or str(raised[0])
        assert COMMIT.encode(9) == OffsetCommitRequest.decode(COMMIT.encode(9), 9).encode(9)

    return Attempt(action, check)


def decode_message() -> Attempt:
    """Decodes a request of a few nested arrays."""
    data = COMMIT.encode(9)
    read: list[OffsetCommitRequest] = []

    def action() -> None:
        read.append(OffsetCommitRequest.decode(data, 9))

    def check(succeeded: bool) -> None:
        assert read == [COMMIT] * succeeded
        assert OffsetCommitRequest.decode(data, 9) == COMMIT

    return Attempt(action, check)


def decode_tagged_response() -> Attempt:
    """Decodes a response with tagged structs, nullable fields and records."""
    data = FETCHED.encode(12)
    read: list[FetchResponse] = []

    def action() -> None:
        read.append(FetchResponse.decode(data, 12))

    def check(succeeded: bool) -> None:
        assert read == [FETCHED] * succeeded

    return Attempt(action, check)


def decode_header() -> Attempt:
    """Decodes the header of a request, with a client id."""
    frame = encode_request(COMMIT, 9, 7, "client")[4:]
    heads: list[tuple[int, int, int, str, int]] = []

    def action() -> None:
        heads.append(decode_request_header(frame))

    def check(succeeded: bool) -> None:
        assert heads == [(ApiKey.OFFSET_COMMIT, 9, 7, "client", len(frame) - len(COMMIT.encode(9)))] * succeeded

    return Attempt(action, check)


def construct_compare_and_show() -> Attempt:
    """Runs the construction, equality and repr of messages, and their lazily made default structs."""
    made: list[bool] = []

    def action() -> None:
        partition = PartitionData(partition_index=3, records=b"r")
        same = PartitionData(partition_index=3, records=b"r")
        made.append(partition == same and partition.current_leader == same.current_leader and "3" in repr(partition))

    def check(succeeded: bool) -> None:
        assert made == [True] * succeeded

    return Attempt(action, check)
