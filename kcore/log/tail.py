"""The newest committed batches of each partition in memory, so that a reader at the end never asks the storage.

Bounded in bytes over all partitions together: what was committed first is let go first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from kcore.log.batch_header import last_offset

TRIM_THRESHOLD = 256
"""Let-go entries at the head of a partition's lists before the lists are rebuilt without them."""


class PartitionTail:
    """One partition's part. Changed by the engine's owner only; read by any thread.

    The two lists are handed around as one tuple, replaced as a whole, and an entry that is let go becomes None in
    place: a reader that holds an old tuple sees either the batch or None, never another batch.
    """

    __slots__ = ("_head", "_lists")

    def __init__(self) -> None:
        self._lists: tuple[list[int], list[bytes | None]] = ([], [])
        self._head = 0

    def extend(self, bases: list[int], batches: list[bytes]) -> None:
        """Add committed batches. Batches first: a base offset without its batch must never be seen."""
        own_bases, own_batches = self._lists
        own_batches.extend(batches)
        own_bases.extend(bases)

    def evict_one(self) -> None:
        """Let the oldest batch go; nothing when none is left."""
        bases, batches = self._lists
        head = self._head
        if head >= len(bases):
            return
        batches[head] = None
        self._head = head = head + 1
        if head >= TRIM_THRESHOLD and head * 2 >= len(bases):
            self._lists = (bases[head:], batches[head:])
            self._head = 0

    def drop_below(self, offset: int) -> None:
        """Let go of the batches below `offset`: compaction has put others in their place."""
        bases, batches = self._lists
        head, count = self._head, len(bases)
        while head < count and bases[head] < offset:
            batches[head] = None
            head += 1
        # The cache still counts what is let go here, and lets newer batches of this partition go for it in time.
        self._head = head

    def clear(self) -> None:
        """Let everything go."""
        self._lists = ([], [])
        self._head = 0

    def read(self, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> list[bytes] | None:
        """As `PartitionLog.read` with `limit` at most the high watermark; None when `offset` is not held here."""
        bases, batches = self._lists
        count = len(bases)
        position = bisect_right(bases, offset, 0, count) - 1
        if position < 0:
            return None
        found: list[bytes] = []
        size = 0
        while position < count:
            batch = batches[position]
            if batch is None:
                # Let go by the owner while this reader was on its way: the storage has it.
                return found or None
            position += 1
            # The next base offset tells where this batch ends; only the newest has to be looked into.
            end = bases[position] if position < count else last_offset(batch) + 1
            if end > limit:
                break
            size += len(batch)
            if size > max_bytes and (found or not at_least_one):
                break
            found.append(batch)
        return found


class TailCache:
    """The bound over all partitions: remembers in which order batches came."""

    __slots__ = ("_max_bytes", "_order", "size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._order: deque[tuple[PartitionTail, int]] = deque()
        self.size_bytes = 0

    def add(self, tail: PartitionTail, bases: list[int], batches: list[bytes]) -> None:
        """Add a partition's newly committed batches and let the oldest of all go until the bound holds."""
        if not self._max_bytes:
            return
        tail.extend(bases, batches)
        order = self._order
        for batch in batches:
            size = len(batch)
            order.append((tail, size))
            self.size_bytes += size
        while self.size_bytes > self._max_bytes:
            oldest, size = order.popleft()
            oldest.evict_one()
            self.size_bytes -= size
