"""A bounded piece of long work on offsets: how much it may look at and decide before requests get their turn."""

from __future__ import annotations

from kcore.group.offsets.records import tombstone
from kcore.runtime.machine import Outcome, Record

SLICE_STEPS = 1_000
"""How many groups and offsets one slice looks at."""

SLICE_BYTES = 262_144
"""What a slice writes, give or take one record: less than the smallest sensible record batch holds."""

RECORD_BYTES = 100
"""What a tombstone takes beside the names in it, generously."""

MAX_CHAR_BYTES = 4
"""The most bytes that a character of a group id takes in UTF-8."""


class WorkSlice:
    """What the present slice has looked at and decided so far.

    Attributes:
        steps: groups and offsets looked at.
        records: what was decided.
        size_bytes: about how much that is in the log.
    """

    __slots__ = ("records", "size_bytes", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.records: list[Record] = []
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        """Whether it is time to pause."""
        return self.steps >= SLICE_STEPS or self.size_bytes >= SLICE_BYTES

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Decides to remove an offset."""
        self.records.append(tombstone(group_id, topic, partition))
        self.size_bytes += RECORD_BYTES + MAX_CHAR_BYTES * len(group_id) + len(topic)

    def remove_group(self, group_id: str, records: list[Record]) -> None:
        """Decides to remove a group by its own `records`."""
        self.records += records
        self.size_bytes += len(records) * (RECORD_BYTES + MAX_CHAR_BYTES * len(group_id))

    def take(self) -> Outcome | None:
        """Ends the slice: returns what it decided, and begins the next."""
        records = self.records
        self.steps, self.records, self.size_bytes = 0, [], 0
        return Outcome(records) if records else None
