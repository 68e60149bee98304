"""What follows from a fact in the living group and nowhere else: timers to arm, members to wake.

Soft state cannot be set before a fact is applied where the fact itself makes what it belongs to (a member, a group).
The value of the record then carries what is to follow. In the log there is the value alone, so that at recovery nothing
follows, as it should.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import EncodableValue


class LiveValue:
    """A record's value, and what follows once it is applied.

    Attributes:
        value: what is written and replayed.
        follow: called with the shard right after the value was replayed, live; changes soft state alone.
    """

    __slots__ = ("follow", "value")

    def __init__(self, value: EncodableValue, follow: Callable[[GroupShard], None]) -> None:
        self.value = value
        self.follow = follow

    def encode_value(self, version: int) -> bytes:
        """The value alone."""
        return self.value.encode_value(version)
