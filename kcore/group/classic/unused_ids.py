"""Member ids that the coordinator assigned and that no client has used yet (KIP-394)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kcore.group.classic.member import PendingMember

MAX_UNUSED_MEMBER_IDS: Final = 5_000
"""Maximum number of unused ids in a shard.

Without this limit, each request of a client that never uses its ids would take memory until the session timeout.
"""
MAX_UNUSED_BYTES: Final = 1 << 20
"""Maximum total length of the unused ids in a shard: each begins with a client id, which may be long."""


class UnusedIds:
    """The unused member ids of one shard, the oldest first.

    Attributes:
        size_bytes: the total length of the ids.
    """

    __slots__ = ("_pending", "size_bytes")

    def __init__(self) -> None:
        self._pending: dict[str, PendingMember] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pending)

    def add(self, pending: PendingMember) -> list[PendingMember]:
        """Adds an id. Removes and returns the oldest ids that exceed the limits."""
        self._pending[pending.member_id] = pending
        self.size_bytes += len(pending.member_id)
        removed = []
        while len(self._pending) > MAX_UNUSED_MEMBER_IDS or (
            self.size_bytes > MAX_UNUSED_BYTES and len(self._pending) > 1
        ):
            oldest = next(iter(self._pending.values()))
            self.discard(oldest.member_id)
            removed.append(oldest)
        return removed

    def discard(self, member_id: str) -> None:
        """Removes an id; ignores an unknown id."""
        if self._pending.pop(member_id, None) is not None:
            self.size_bytes -= len(member_id)
