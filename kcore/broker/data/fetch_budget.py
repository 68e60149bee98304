"""How much fetches may answer with: a server that holds many answers which nobody reads lets them answer less."""

from __future__ import annotations

import sys

SHARE = 4
"""An answer takes at most this part of the room that is left: those that come later find some too."""
NOTED_BYTES = 16_384
"""Smaller answers are not taken off the room at once; a server counts them when they leave."""


class FetchMemoryBudget:
    """The room for answers, as fetches see it. Without a server around it there is no end of it.

    Args:
        fetch_max_bytes: `fetch.max.bytes`, the most bytes of any answer.

    Attributes:
        most_bytes: the most bytes of an answer now; 0 leaves one batch, as always (KIP-74).
        taken: whether answers were made since the room was last measured.
    """

    __slots__ = ("_fetch_max_bytes", "_left_bytes", "most_bytes", "taken")

    def __init__(self, fetch_max_bytes: int) -> None:
        self._fetch_max_bytes = fetch_max_bytes
        self._left_bytes = sys.maxsize
        self.most_bytes = fetch_max_bytes
        self.taken = False

    @property
    def left_bytes(self) -> int:
        """The room that is left, below 0 for none."""
        return self._left_bytes

    def measure(self, left_bytes: int) -> None:
        """There is room for so many bytes of answers, below 0 for none."""
        self._left_bytes = left_bytes
        self.most_bytes = max(0, min(self._fetch_max_bytes, left_bytes // SHARE))
        self.taken = False

    def take(self, size_bytes: int) -> None:
        """An answer of so many bytes is on its way. Many may be made before the first of them is sent."""
        self.measure(self._left_bytes - size_bytes)
        self.taken = True
