"""Long responses are encoded in slices, with the same bytes, order and errors as without slices."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol import EncodeError, MessageTooLargeError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kcore.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchResponse
from kcore.server import dispatch, long_response
from kcore_ext.codec.frames import encode_response
from kcore_ext.codec.long_frame import LongFrame
from tests.server.live import LiveServer

LIMIT = 1 << 30
RESPONSES = [
    MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=number, host=f"h{number}") for number in range(50)],
        cluster_id="c",
        topics=[MetadataResponseTopic(name=f"t{number}") for number in range(300)],
    ),
    MetadataResponse(),
    DescribeGroupsResponse(
        groups=tuple(
            DescribedGroup(group_id=f"g{number}", members=[DescribedGroupMember(member_id="m" * number)] * (number % 3))
            for number in range(200)
        )
    ),
    FetchResponse(
        session_id=7,
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=b"x" * 5_000)])] * 9,
    ),
    OffsetFetchResponse(topics=()),
]


def written(response: Any, version: int, step_bytes: int, limit: int = LIMIT, header_version: int = 1) -> bytes:
    return finish(LongFrame(response, version, 5, header_version, limit), step_bytes)


def encoded(response: Any, version: int, header_version: int) -> bytes | str:
    """Returns the frame, or the text of the error if this version cannot encode the response."""
    try:
        return encode_response(response, version, 5, header_version)
    except EncodeError as error:
        return str(error)


def finish(frame: LongFrame, step_bytes: int = 1_000) -> bytes:
    while (data := frame.step(step_bytes)) is None:
        pass
    return data


@pytest.mark.parametrize("response", RESPONSES, ids=lambda response: type(response).__name__)
def test_the_bytes_equal_the_bytes_of_the_encoder_in_every_version(response: Any) -> None:
    for version in range(type(response).MIN_VERSION, type(response).MAX_VERSION + 1):
        for header_version in (0, 1):
            expected = encoded(response, version, header_version)
            if isinstance(expected, str):
                with pytest.raises(EncodeError) as raised:
                    written(response, version, 100, header_version=header_version)
                assert str(raised.value) == expected
                continue
            for step_bytes in (1, 700, LIMIT):
                assert written(response, version, step_bytes, header_version=header_version) == expected


def test_a_step_ends_after_about_as_many_bytes() -> None:
    frame = LongFrame(RESPONSES[0], 9, 5, 1, LIMIT)
    steps = 0
    while frame.step(1_000) is None:
        steps += 1
    assert steps == len(encode_response(RESPONSES[0], 9, 5, 1)) // 1_000
    with pytest.raises(ValueError, match="complete"):
        frame.step(1_000)


def test_errors_equal_the_errors_of_the_encoder() -> None:
    size = len(encode_response(RESPONSES[0], 9, 5, 1))
    assert len(written(RESPONSES[0], 9, 1_000, size)) == size
    with pytest.raises(MessageTooLargeError):
        written(RESPONSES[0], 9, 1_000, size - 1)
    with pytest.raises(EncodeError, match="version"):
        LongFrame(RESPONSES[0], 99, 5, 1, LIMIT)
    broken = MetadataResponse(topics=[*RESPONSES[0].topics, MetadataResponseTopic(name=7)])  # type: ignore[arg-type]
    frame = LongFrame(broken, 9, 5, 1, LIMIT)
    assert frame.step(1_000) is None
    with pytest.raises(EncodeError, match=r"MetadataResponseTopic\.name"):
        finish(frame)
    with pytest.raises(ValueError, match="complete"):
        frame.step(1_000)
    abandoned = LongFrame(RESPONSES[0], 9, 5, 1, LIMIT)
    abandoned.step(1_000)
    del abandoned
    assert encode_response(RESPONSES[0], 9, 5, 1)[8:9] == b"\0"  # the scratch memory is free


@pytest.fixture
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "SLICE_BYTES", 1_000)
    monkeypatch.setattr(long_response, "SLICE_BYTES", 1_000)


def topics(count: int) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=f"t{number}") for number in range(count)], allow_auto_topic_creation=False
    )


@pytest.mark.usefixtures("_short_slices")
def test_responses_keep_their_order(serve: Any) -> None:
    """Requests behind a long response wait for it. Meanwhile another client is served."""
    live: LiveServer = serve()
    beat, many, groups = HeartbeatRequest(group_id="g"), topics(90), DescribeGroupsRequest(groups=["g"] * 90)
    requests = [(beat, 4), (many, 8), (beat, 4), (groups, 5), (many, 8), (beat, 4)]
    with live.raw() as raw, live.connect() as other:
        raw.send(b"".join(raw.request(request, version) for request, version in requests))
        assert other.send(beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        for number, (request, version) in enumerate(requests, 1):
            correlation_id, response = raw.receive(request, version)
            assert correlation_id == number
            if request is many:
                assert [topic.name for topic in response.topics] == [f"t{index}" for index in range(90)]
            elif request is groups:
                assert [group.group_id for group in response.groups] == ["g"] * 90


@pytest.mark.usefixtures("_short_slices")
def test_a_client_may_leave_while_its_response_is_encoded(serve: Any) -> None:
    live: LiveServer = serve()
    for _ in range(5):
        with live.raw() as raw:
            raw.send(raw.request(topics(2_000), 8))
    live.wait_for_connections(0, came=5)
    with live.connect() as other:
        assert len(other.send(topics(2_000), 8).topics) == 2_000


@pytest.mark.usefixtures("_short_slices")
def test_a_response_above_the_limit_is_replaced_by_an_error(serve: Any, log_lines: list[str]) -> None:
    live: LiveServer = serve({"kcore.max.response.bytes": "65536"})
    names = [f"{number:0250}" for number in range(400)]
    with live.connect() as connection, live.raw() as raw:
        response = connection.send(DescribeGroupsRequest(groups=["g"] * 1_000), 5)
        assert len(response.groups) == 1_000
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        raw.send(raw.request(request, 8))
        assert raw.closed  # the error names each topic and is too long as well
    assert any("response" in line for line in log_lines)
