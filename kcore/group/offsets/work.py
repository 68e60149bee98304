"""A slice of long work on offsets. A slice checks a limited number of entries and decides a limited size of records."""

from __future__ import annotations

from kcore.group.offsets.records import MAX_CHAR_BYTES, RECORD_BYTES, tombstone, tombstone_bytes
from kcore.runtime.machine import Outcome, Record

SLICE_STEPS = 1_000
"""Maximum number of groups and offsets that one slice checks."""

SLICE_BYTES = 262_144
"""Size of a slice's records, in bytes, after which the slice ends. The last record may exceed it.

It is smaller than any reasonable value of `max.message.bytes`.
"""


class WorkSlice:
    """The progress of the current slice.

    Attributes:
        steps: number of checked groups and offsets.
        records: the decided records.
        size_bytes: approximate size of the records in the log.
    """

    __slots__ = ("records", "size_bytes", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.records: list[Record] = []
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        """True if the slice must end."""
        return self.steps >= SLICE_STEPS or self.size_bytes >= SLICE_BYTES

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Adds the tombstone of an offset."""
        self.records.append(tombstone(group_id, topic, partition))
        self.size_bytes += tombstone_bytes(group_id, topic)

    def remove_group(self, group_id: str, records: list[Record]) -> None:
        """Adds the `records` that remove a group."""
        self.records += records
        self.size_bytes += len(records) * (RECORD_BYTES + MAX_CHAR_BYTES * len(group_id))

    def end_slice(self) -> Outcome | None:
        """Ends the slice and begins the next slice. Returns the decision of the ended slice; None without records."""
        records = self.records
        self.steps, self.records, self.size_bytes = 0, [], 0
        return Outcome(records) if records else None
