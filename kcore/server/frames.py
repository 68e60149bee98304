"""Frames: a four-byte length, then that many bytes."""

from __future__ import annotations

from collections.abc import Callable

from kcore.errors import KcoreError

LENGTH_BYTES = 4


class FrameError(KcoreError):
    """A peer sent a length that no frame can have; the connection closes."""


class FrameCutter:
    """Cuts a stream into frames, without looking further than the one that is asked for.

    Holds what has arrived and was not taken: at most one frame in the making, and the whole ones behind a request
    that is still being served.

    Args:
        max_frame_bytes: the largest length that is accepted (`socket.request.max.bytes`).
        error: makes what is raised for a length that no frame can have.
    """

    __slots__ = ("_buffer", "_error", "_max_frame_bytes", "_position")

    def __init__(self, max_frame_bytes: int, error: Callable[[str], Exception] = FrameError) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._error = error
        self._buffer: bytes | bytearray = b""
        self._position = 0

    def __len__(self) -> int:
        """Bytes that arrived and were not taken yet."""
        return len(self._buffer) - self._position

    @property
    def claim_bytes(self) -> int:
        """What is held, or will be once the frame that has begun is whole."""
        held = len(self._buffer) - self._position
        if held < LENGTH_BYTES:
            return held
        return max(held, LENGTH_BYTES + min(self._size(), self._max_frame_bytes))

    def feed(self, data: bytes) -> None:
        """Takes what arrived."""
        left = len(self._buffer) - self._position
        if not left:
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            # A large frame arrives in many pieces: keep one growing buffer, drop what was taken.
            if self._position:
                del self._buffer[: self._position]
            self._buffer += data
        else:
            self._buffer = bytearray(memoryview(self._buffer)[self._position :])
            self._buffer += data
        self._position = 0

    def accept(self, max_frame_bytes: int) -> None:
        """Accepts frames of another length from now on."""
        self._max_frame_bytes = max_frame_bytes

    def clear(self) -> None:
        """Forgets what arrived."""
        self._buffer = b""
        self._position = 0

    def _size(self) -> int:
        position = self._position
        return int.from_bytes(self._buffer[position : position + LENGTH_BYTES], "big", signed=True)

    def next_frame(self) -> bytes | None:
        """The next whole frame without its length, or None if it has not arrived.

        Raises:
            FrameError: its length is negative or over the limit; or what `error` makes.
        """
        buffer, position = self._buffer, self._position
        if len(buffer) - position < LENGTH_BYTES:
            return None
        size = self._size()
        if size < 0 or size > self._max_frame_bytes:
            raise self._error(f"a frame of {size} bytes; 0 to {self._max_frame_bytes} are accepted")
        end = position + LENGTH_BYTES + size
        if len(buffer) < end:
            return None
        if isinstance(buffer, bytes):
            frame = buffer[position + LENGTH_BYTES : end]
        else:
            frame = bytes(memoryview(buffer)[position + LENGTH_BYTES : end])  # one copy, however large
        if end == len(buffer):
            self.clear()
        else:
            self._position = end
        return frame
