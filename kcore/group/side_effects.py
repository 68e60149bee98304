"""Side effects of records, such as arming timers, which occur after a decision, but not during a load.

If a record creates a member or a group, the new object exists only after the replay of the record. The decision
itself cannot set the object's soft state, for example a timer. Therefore the record's value carries the side effect.
The log contains only the encoded value, so recovery has no side effects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import EncodableValue


class LiveValue:
    """A record's value together with its side effect.

    Attributes:
        value: the value that is written and replayed.
        follow: called with the shard after the replay of the value, except during a load; changes only soft state.
    """

    __slots__ = ("follow", "value")

    def __init__(self, value: EncodableValue, follow: Callable[[GroupShard], None]) -> None:
        self.value = value
        self.follow = follow

    def encode_value(self, version: int) -> bytes:
        """Encodes the value without the side effect."""
        return self.value.encode_value(version)
