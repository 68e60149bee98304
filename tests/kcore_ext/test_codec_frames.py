"""Frames and request headers."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.protocol import DecodeError, EncodeError
from kcore.protocol.api_keys import ApiKey, request_header_version
from kcore.protocol.headers import RequestHeader, ResponseHeader
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore_ext.codec.frames import decode_request_header, encode_request, encode_response
from tests.protocol.strategies import examples

INT32 = st.integers(-(2**31), 2**31 - 1)


@examples(60, 1000)
@given(st.integers(0, 4), INT32, st.none() | st.text(max_size=20), st.text(max_size=20))
def test_a_request_frame_is_length_header_and_body(
    version: int, correlation_id: int, client: str | None, group: str
) -> None:
    request = HeartbeatRequest(group_id=group)
    frame = encode_request(request, version, correlation_id, client)
    header = RequestHeader(
        request_api_key=12, request_api_version=version, correlation_id=correlation_id, client_id=client
    ).encode(request_header_version(12, version))
    assert frame == struct.pack(">i", len(frame) - 4) + header + request.encode(version)
    assert decode_request_header(frame[4:]) == (12, version, correlation_id, client or "", len(header))
    assert decode_request_header(memoryview(frame), 4) == (12, version, correlation_id, client or "", len(header) + 4)
    assert HeartbeatRequest.decode(frame, version, len(header) + 4) == request


@examples(60, 1000)
@given(st.integers(0, 4), INT32, INT32)
def test_a_response_frame_is_length_header_and_body(version: int, correlation_id: int, throttle: int) -> None:
    response = HeartbeatResponse(throttle_time_ms=throttle, error_code=25)
    for header_version in (0, 1):
        frame = encode_response(response, version, correlation_id, header_version)
        header = ResponseHeader(correlation_id=correlation_id).encode(header_version)
        assert frame == struct.pack(">i", len(frame) - 4) + header + response.encode(version)


def test_a_large_response_is_framed_like_a_small_one() -> None:
    partition = PartitionData(records=b"r" * 1_000_000)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    frame = encode_response(response, 12, 7, 1)
    assert frame == struct.pack(">iib", len(frame) - 4, 7, 0) + response.encode(12)


def test_an_invalid_response_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"HeartbeatResponse\.error_code"):
        encode_response(HeartbeatResponse(error_code=40_000), 4, 1, 1)
    with pytest.raises(EncodeError, match="client_id"):
        encode_request(HeartbeatRequest(), 4, 1, "c" * 32768)


@pytest.mark.parametrize(("version", "tags"), [(-1, False), (0, False), (2, False), (3, True), (4, True), (99, True)])
def test_api_versions_headers_have_the_format_of_their_version_known_or_not(version: int, tags: bool) -> None:
    """The codec can read the header of an ApiVersions request even if its version is unknown.

    The server can therefore respond with UNSUPPORTED_VERSION (KIP-511).
    """
    plain = struct.pack(">hhih", 18, version, 5, 1) + b"c"
    assert decode_request_header(plain + b"\x00" * tags) == (18, version, 5, "c", len(plain) + tags)
    if tags:
        with pytest.raises(DecodeError):
            decode_request_header(plain)


def test_unknown_tags_of_a_header_are_skipped() -> None:
    plain = struct.pack(">hhih", 12, 4, 5, -1)
    tags = b"\x02\x05\x00\x06\x80\x01" + b"t" * 128
    assert decode_request_header(plain + tags + b"body") == (12, 4, 5, "", len(plain + tags))
    for size in range(len(tags)):
        with pytest.raises(DecodeError):
            decode_request_header(plain + tags[:size])


def test_headers_cut_anywhere_are_refused() -> None:
    frame = encode_request(ApiVersionsRequest(client_software_name="n"), 3, 1, "client")[4:]
    _, _, _, _, body = decode_request_header(frame)
    for size in range(body):
        with pytest.raises(DecodeError):
            decode_request_header(frame[:size])
    with pytest.raises(DecodeError):
        decode_request_header(frame, -1)
    with pytest.raises(DecodeError):
        decode_request_header(frame, len(frame) + 1)


@pytest.mark.parametrize("key", [-1, 4, 52, 255, 256, 32767])
def test_api_keys_without_messages_are_refused(key: int) -> None:
    with pytest.raises(DecodeError, match=f"API key {key} is unknown"):
        decode_request_header(struct.pack(">hhih", key, 0, 5, -1) + bytes(10))


def test_client_ids_may_be_long_and_invalid_utf8() -> None:
    head = struct.pack(">hhi", ApiKey.METADATA, 0, 1)
    assert decode_request_header(head + b"\x7f\xff" + b"c" * 32767)[3] == "c" * 32767
    assert decode_request_header(head + b"\x00\x02\xff\xfe")[3] == "\ufffd\ufffd"
