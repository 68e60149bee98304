"""Content that a reader has found in a damaged data folder: batches, entries of leaf pages, and damaged key ranges."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from enum import IntEnum
from typing import Final, NamedTuple

MAX_OFFSET: Final = 1 << 62
"""An offset above all offsets of batches."""


class Tier(IntEnum):
    """The kind of a leaf, as `kcore.log.lmdb_salvage` describes it; a lower value is more reliable.

    MOVED is a batch of a live or lost leaf under the base offset in its header, which differs from its key. UNKNOWN is
    a lost or a free leaf.
    """

    LIVE = 0
    LOST = 1
    MOVED = 2
    UNKNOWN = 3
    FREE = 4

    @property
    def is_current(self) -> bool:
        """True for the content that the file had before the damage; False for possible older copies."""
        return self <= Tier.LOST


class Node(NamedTuple):
    """A key, and the position of its value in the file."""

    key: bytes
    flags: int
    position: int
    size: int


class Misplaced(NamedTuple):
    """A node whose key is out of order, and the keys before and after it; None if there is no such key."""

    node: Node
    below: bytes | None
    above: bytes | None


class KeyRanges:
    """Ranges of keys, from a key up to another key."""

    __slots__ = ("_ends", "_is_sorted", "_ranges")

    def __init__(self) -> None:
        self._ranges: list[tuple[bytes, bytes]] = []
        self._ends: list[bytes] = []
        self._is_sorted = True

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, low: bytes, high: bytes) -> None:
        """Adds a range."""
        self._ranges.append((low, high))
        self._is_sorted = False

    def overlaps(self, low: bytes, high: bytes) -> bool:
        """Returns True if a key from `low` up to `high` is in a range."""
        if not self._is_sorted:
            self._sort()
        at = bisect_right(self._ends, low)
        return at < len(self._ranges) and self._ranges[at][0] < high

    def _sort(self) -> None:
        """Sorts the ranges, and joins ranges that overlap."""
        joined: list[tuple[bytes, bytes]] = []
        for low, high in sorted(self._ranges):
            if joined and low <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], high)
            elif low < high:
                joined.append((low, high))
        self._ranges, self._ends = joined, [high for _, high in joined]
        self._is_sorted = True


class Batches:
    """The batches of one partition number: base offsets, positions in the file and tiers, in parallel arrays."""

    __slots__ = ("bases", "positions", "sizes", "tiers")

    def __init__(self) -> None:
        self.bases = array("Q")
        self.positions = array("Q")
        self.sizes = array("I")
        self.tiers = bytearray()

    def add(self, base: int, position: int, size: int, tier: Tier) -> None:
        """Adds a batch."""
        self.bases.append(base)
        self.positions.append(position)
        self.sizes.append(size)
        self.tiers.append(tier)

    @property
    def has_current(self) -> bool:
        """True if a batch was in the file before the damage, and is not perhaps an older copy."""
        return min(self.tiers, default=Tier.FREE) <= Tier.LOST

    def in_order(self) -> list[int]:
        """Returns the array indices of the batches in the order of their base offsets, the most reliable tier first.

        Of equal tiers the smaller batch is first, because compaction makes batches smaller.
        """
        return sorted(
            range(len(self.bases)), key=lambda place: (self.bases[place], self.tiers[place], self.sizes[place])
        )
