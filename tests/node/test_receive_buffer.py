"""Frames that a connection cuts from received bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.client.aio.receive_buffer import LARGEST_KEPT_BYTES, MAX_FRAME_BYTES, SMALLEST_BYTES, ReceiveBuffer

SIZES = st.sampled_from([0, 1, 3, 100, SMALLEST_BYTES - 4, SMALLEST_BYTES - 3, SMALLEST_BYTES, 3 * SMALLEST_BYTES])


def feed(received: ReceiveBuffer, data: bytes, most: int) -> list[bytes]:
    """Passes bytes in parts of at most `most` bytes, and returns the complete frames."""
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
def test_frames_are_the_sent_ones(sizes: list[int], most: int, tail: int) -> None:
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    received = ReceiveBuffer()
    assert feed(received, data + (100).to_bytes(4, "big") + bytes(tail), most) == frames
    assert len(received) == 4 + tail


def test_memory_is_kept_between_frames_and_given_up_after_a_long_one() -> None:
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
    with pytest.raises(ValueError, match="does not speak Kafka's protocol"):
        feed(received, b"HTTP/1.1 400 Bad Request", 100)
