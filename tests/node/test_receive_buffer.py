"""A connection's receive buffer, which cuts received bytes into frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.client.aio.receive_buffer import (
    LARGEST_KEPT_BYTES,
    MAX_FRAME_BYTES,
    MOST_SPARE_BYTES,
    SMALLEST_BYTES,
    ReceiveBuffer,
)
from kcore.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kcore_ext.codec.read import decode_with_views

SIZES = st.sampled_from([0, 1, 3, 100, SMALLEST_BYTES - 4, SMALLEST_BYTES - 3, SMALLEST_BYTES, 3 * SMALLEST_BYTES])


def feed(received: ReceiveBuffer, data: bytes, most: int) -> list[bytes]:
    """Passes bytes in parts of at most `most` bytes. Returns the complete frames."""
    frames = []
    position = 0
    while position < len(data):
        space = received.space()
        part = data[position : position + min(most, len(space))]
        space[: len(part)] = part
        received.add(len(part))
        position += len(part)
        while (frame := received.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


@given(st.lists(SIZES, max_size=6), st.sampled_from([1_000, 7_777, SMALLEST_BYTES, 1 << 20]), st.integers(0, 50))
def test_received_frames_equal_the_sent_frames(sizes: list[int], most: int, tail: int) -> None:
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    received = ReceiveBuffer()
    assert feed(received, data + (100).to_bytes(4, "big") + bytes(tail), most) == frames
    assert len(received) == 4 + tail


def test_memory_is_kept_between_frames_and_released_after_a_long_one() -> None:
    received = ReceiveBuffer()
    assert len(received.space()) == SMALLEST_BYTES
    frame = bytes(1 << 20)
    assert feed(received, len(frame).to_bytes(4, "big") + frame, 1 << 18) == [frame]
    assert len(received.space()) == 4 + len(frame)
    long = bytes(LARGEST_KEPT_BYTES + 1)
    assert feed(received, len(long).to_bytes(4, "big") + long, 1 << 20) == [long]
    assert len(received.space()) == SMALLEST_BYTES


def test_an_announced_size_alone_takes_no_memory_beyond_the_kept_size() -> None:
    received = ReceiveBuffer()
    assert feed(received, MAX_FRAME_BYTES.to_bytes(4, "big") + bytes(10), 100) == []
    assert len(received) + len(received.space()) == LARGEST_KEPT_BYTES


def test_a_frame_above_the_limit_is_refused() -> None:
    received = ReceiveBuffer()
    with pytest.raises(ValueError, match="does not use Kafka's protocol"):
        feed(received, b"HTTP/1.1 400 Bad Request", 100)


def receive(received: ReceiveBuffer, frame: bytes, most: int = 1 << 18) -> memoryview:
    """Passes a frame to the buffer in parts. Returns the frame that the buffer then returns."""
    data = len(frame).to_bytes(4, "big") + frame
    position = 0
    while position < len(data):
        space = received.space()
        part = data[position : position + min(most, len(space))]
        space[: len(part)] = part
        received.add(len(part))
        position += len(part)
    found = received.next_frame()
    assert found is not None
    return found


@given(st.lists(st.tuples(SIZES, st.booleans(), st.integers(0, 3)), max_size=8), st.sampled_from([1_000, 1 << 20]))
def test_a_frame_does_not_change_while_a_caller_holds_it_or_a_part_of_it(
    steps: list[tuple[int, bool, int]], most: int
) -> None:
    received = ReceiveBuffer()
    kept: list[tuple[memoryview, bytes]] = []
    for number, (size, part, freed) in enumerate(steps):
        frame = bytes([number + 1]) * size
        view = receive(received, frame, most)
        kept.append((view[size // 2 :], frame[size // 2 :]) if part else (view, frame))
        assert all(bytes(view) == expected for view, expected in kept)
        del view, kept[:freed]


def test_the_memory_of_held_frames_is_reused_once_they_are_freed() -> None:
    received = ReceiveBuffer()
    sizes = set()
    for number in range(20):
        frames = [receive(received, bytes([number]) * (1 << 20)) for _ in range(4)]
        assert [frame[0] for frame in frames] == [number] * 4
        sizes.add(id(frames[0].obj))
        del frames
    assert len(sizes) <= 4


def test_spare_memory_is_bounded() -> None:
    received = ReceiveBuffer()
    frames = [receive(received, bytes(1 << 20)) for _ in range(20)]
    assert sum(len(memory) for memory, _ in received._spare) <= MOST_SPARE_BYTES
    assert len({id(frame.obj) for frame in frames}) == 20


def test_large_records_of_a_response_are_views_of_its_frame() -> None:
    """Small records are copied, because a view of them would keep the whole frame in memory."""
    sizes = [100_000, 3_000, 90_000]
    rows = [PartitionData(partition_index=number, records=bytes(size)) for number, size in enumerate(sizes)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[*rows, PartitionData()])])
    for version in (4, 12):
        frame = memoryview(bytes(7) + response.encode(version))
        decoded = decode_with_views(FetchResponse.decode, frame, version, 7)
        found = [row.records for row in decoded.responses[0].partitions]
        assert [type(records) for records in found] == [memoryview, bytes, memoryview, type(None)]
        assert [len(records) for records in found[:3]] == sizes
        assert {records.obj for records in found if isinstance(records, memoryview)} == {frame.obj}
        assert decoded == FetchResponse.decode(frame, version, 7)
        assert type(FetchResponse.decode(frame, version, 7).responses[0].partitions[0].records) is bytes
        with pytest.raises(ValueError, match="bytes"):
            decode_with_views(FetchResponse.decode, frame[:-1_000], version, 7)
