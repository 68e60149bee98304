"""Memory budget of fetch responses: the more memory unsent responses take, the smaller are new responses."""

from __future__ import annotations

import sys

RESPONSE_DIVISOR = 4
"""Divisor for the maximum size of a response: a response may use a quarter of the remaining memory."""
RESERVE_THRESHOLD_BYTES = 16_384
"""Size above which a response reduces the remaining memory as soon as it is made.

The server counts a smaller response when it sends the response.
"""

MOST_SHARED_BYTES = 16 << 20
"""Maximum size of the records in a ShareFetch response. Copying 50 MB took 40 ms in one turn of the event loop."""


class FetchMemoryBudget:
    """Memory for fetch responses. Without a server it is unlimited.

    Args:
        fetch_max_bytes: `fetch.max.bytes`, the limit of any response.

    Attributes:
        most_bytes: the current limit of a response; 0 still allows one batch (KIP-74).
        most_shared_bytes: the current limit of a ShareFetch response.
        reserved: True if responses were made since the last measurement.
    """

    __slots__ = ("_fetch_max_bytes", "_left_bytes", "most_bytes", "most_shared_bytes", "reserved")

    def __init__(self, fetch_max_bytes: int) -> None:
        self._fetch_max_bytes = fetch_max_bytes
        self._left_bytes = sys.maxsize
        self.most_bytes = fetch_max_bytes
        self.most_shared_bytes = min(fetch_max_bytes, MOST_SHARED_BYTES)
        self.reserved = False

    @property
    def left_bytes(self) -> int:
        """The remaining memory in bytes; negative if unsent responses take more memory than allowed."""
        return self._left_bytes

    def measure(self, left_bytes: int) -> None:
        """Sets the remaining memory, and derives the maximum size of a response from it.

        Args:
            left_bytes: the remaining memory; negative if unsent responses take more memory than allowed.
        """
        self._left_bytes = left_bytes
        self.most_bytes = max(0, min(self._fetch_max_bytes, left_bytes // RESPONSE_DIVISOR))
        self.most_shared_bytes = min(self.most_bytes, MOST_SHARED_BYTES)
        self.reserved = False

    def reserve(self, size_bytes: int) -> None:
        """Subtracts the size of a new response from the remaining memory. Many responses can be made before the first
        is sent.
        """
        self.measure(self._left_bytes - size_bytes)
        self.reserved = True
