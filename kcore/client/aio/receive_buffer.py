"""Reused memory for the bytes that a connection receives.

Allocating new memory would take more time than receiving the bytes.
"""

from __future__ import annotations

import sys

SMALLEST_BYTES = 1 << 14
LARGEST_KEPT_BYTES = 1 << 23
"""Size of the largest buffer that is used again. A larger buffer is released after its frame."""
MOST_SPARE_BYTES = 1 << 23
"""The maximum total size of spare memory: buffers that are kept for reuse while callers still use frames in them."""
MAX_FRAME_BYTES = 1 << 30
"""The largest size of a response. A peer that announces a longer response does not use Kafka's protocol."""


class ReceiveBuffer:
    """A buffer that collects received bytes and cuts them into frames.

    The caller writes to the memory of `space`, reports the number of bytes to `add`, and then calls `next_frame` until
    it returns None. The bytes of a frame do not change while the frame, or a view of it, exists.
    """

    def __init__(self) -> None:
        self._memory = bytearray(SMALLEST_BYTES)
        self._view = memoryview(self._memory)
        self._unheld = sys.getrefcount(self._memory)  # the references to memory without frames; a frame has one more
        self._spare: list[tuple[bytearray, memoryview]] = []  # memory with frames that callers hold or have held
        self._start = 0
        self._end = 0

    def __len__(self) -> int:
        """Returns the number of received bytes that `next_frame` has not returned."""
        return self._end - self._start

    def space(self) -> memoryview:
        """Returns memory for at least one more byte."""
        start, end = self._start, self._end
        held = sys.getrefcount(self._memory) > self._unheld
        if start == end and not held and len(self._view) <= LARGEST_KEPT_BYTES:
            self._start = self._end = 0
            return self._view
        capacity = self._capacity()
        if held or capacity != len(self._memory):
            received = self._view[start:end]
            self._replace(capacity, held)
            self._memory[: end - start] = received
        elif start:
            self._memory[: end - start] = self._memory[start:end]
        self._start, self._end = 0, end - start
        return self._view[self._end :]

    def _replace(self, capacity: int, held: bool) -> None:
        """Replaces the memory with spare memory that no frame uses, or else with new memory."""
        spare, previous = self._spare, (self._memory, self._view)
        best = -1
        for index in range(len(spare)):
            size = len(spare[index][0])
            if size < capacity or (best >= 0 and size >= len(spare[best][0])):
                continue
            if sys.getrefcount(spare[index][0]) <= self._unheld:
                best = index
        if best >= 0:
            self._memory, self._view = spare.pop(best)
        else:
            self._memory = bytearray(capacity)
            self._view = memoryview(self._memory)
        if held:
            spare.append(previous)
            while sum(len(memory) for memory, _ in spare) > MOST_SPARE_BYTES:
                spare.pop(0)  # its frames still refer to it

    def _capacity(self) -> int:
        """Returns the size of the memory for the next bytes.

        For a frame above LARGEST_KEPT_BYTES, the memory grows as bytes arrive, because the announced size may be wrong.
        """
        capacity, size = len(self._memory), len(self)
        needed = self._frame_size() if size >= 4 else 0
        if capacity > LARGEST_KEPT_BYTES and max(size, needed) < SMALLEST_BYTES:
            return SMALLEST_BYTES
        if needed <= capacity:
            return capacity
        if needed <= LARGEST_KEPT_BYTES:
            return needed
        return min(needed, max(LARGEST_KEPT_BYTES, 2 * size))

    def _frame_size(self) -> int:
        """Returns the size of the next frame, including its length field.

        Raises:
            ValueError: the frame is too long.
        """
        start = self._start
        size = int.from_bytes(self._memory[start : start + 4], "big")
        if size > MAX_FRAME_BYTES:
            raise ValueError(f"a response of {size} bytes: the peer does not use Kafka's protocol")
        return 4 + size

    def add(self, size: int) -> None:
        """Adds `size` received bytes to the buffer. The caller has written them to the memory that `space` returned."""
        self._end += size

    def next_frame(self) -> memoryview | None:
        """Removes a complete frame from the buffer and returns it without its length field; None if no frame is
        complete.

        Raises:
            ValueError: the frame is too long.
        """
        start = self._start
        received = self._end - start
        if received < 4:
            return None
        size = self._frame_size()
        if size > received:
            return None
        self._start = start + size
        # A view of its own: it has a reference to the memory while it, or a part of it, exists.
        return memoryview(self._memory)[start + 4 : start + size]
