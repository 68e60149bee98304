"""Which record of a key is the last one: what a pass of compaction has to remember."""

from __future__ import annotations

ENTRY_BYTES = 150
"""What an entry takes beside the bytes of its key: the two objects and its place in the dictionary."""


class OffsetMap:
    """The latest offset of each key in a stretch of a log, in bounded memory.

    Keys are kept whole: two keys are never taken for one (Kafka keeps digests of them).

    Args:
        max_bytes: about how much it may take.

    Attributes:
        offsets: key -> offset of its latest record. To be read by whoever filters.
    """

    __slots__ = ("_left_bytes", "offsets")

    def __init__(self, max_bytes: int) -> None:
        self._left_bytes = max_bytes
        self.offsets: dict[bytes, int] = {}

    @property
    def full(self) -> bool:
        """Whether the stretch must end here; what comes behind it is a later pass's."""
        return self._left_bytes <= 0

    def put(self, key: bytes, offset: int) -> None:
        """A record of `key` stands at `offset`, behind all that were put before."""
        offsets = self.offsets
        if key not in offsets:
            self._left_bytes -= len(key) + ENTRY_BYTES
        offsets[key] = offset
