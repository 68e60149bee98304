"""Tracks which parts of a log are complete, to distinguish lost records from the effects of compaction.

Compaction removes a record only if a newer record of its key lies below the cleaner's offset, which is the offset up to
which compaction has run. Therefore, a record that still exists below that offset was valid from its own offset up to
the next existing record of its key. This rule has two consequences for the checks:

- A check can always compare two existing records, for example two assignments of a partition or two epochs of a group.
- A missing record shows a fault only beyond the cleaner's offset, and only if the log still has its first records.

The rule also holds for tombstones: compaction removes a tombstone only together with all earlier records of its key.
The rule does not hold for aborted transactions: compaction removes their records regardless of the keys. Compaction
does not pass the last stable offset, so every transaction below the cleaner's offset has ended.

Damage needs another rule: records after a damaged batch are not compared with records before it. The checks drop their
state, as if the log began after the damage.
"""

from __future__ import annotations

from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.spark.events.event import EventRow

COMPACTED = (CONSUMER_OFFSETS, TRANSACTION_STATE)
MAX_KEYS = 100_000
"""Maximum number of keys that the audit remembers per partition of a user's topic, to detect repeated keys."""


class History:
    """The completeness of one log. `PartitionAudit` passes each row to `History` before it calls the checks.

    Args:
        topic: the topic of the partition.
        cleaned_to: the offset up to which compaction has run; None if unknown. `History` then uses an upper bound: the
            offset of the first row that repeats a key. (The base offset of the newest segment would be a tighter
            bound, but only if the copy has all segments.)

    Attributes:
        next_offset: the offset after the last row, -1 before the first row.
        first_offset: the offset of the first row, -1 before the first row.
        solid_from: the offset from which no record is missing; None while unknown.
        solid_ms: the timestamp at `solid_from`.
        damaged: True if damage caused a loss.
    """

    __slots__ = (
        "_bound",
        "_given",
        "_keys",
        "_topic",
        "damaged",
        "first_offset",
        "next_offset",
        "solid_from",
        "solid_ms",
    )

    def __init__(self, topic: str, cleaned_to: int | None) -> None:
        self._topic = topic
        self._keys: set[bytes] = set()
        # The offset that compaction cannot have passed; None: compaction may have reached any offset.
        self._bound = 0 if topic == SHARE_GROUP_STATE else cleaned_to
        self._given = self._bound is not None
        self.next_offset = -1
        self.first_offset = -1
        self.damaged = False
        self.solid_from: int | None = None
        self.solid_ms = -1

    @property
    def is_whole(self) -> bool:
        """True if the log is complete from offset 0 to the last row: it has a record of each key that ever existed."""
        return self.solid_from == 0 and not self.damaged

    def add(self, row: EventRow) -> tuple[int, int] | None:
        """Adds the next row. Returns the first and last missing offset before it.

        Offsets that compaction may have removed do not count as missing. Returns None if no offset is missing.
        """
        offset, expected = row.offset, self.next_offset
        self.next_offset = offset + 1
        if not self._given:
            self._watch(row)
        if expected < 0:
            self.first_offset = offset
            self._now_solid(row)
            return None
        missing = None
        if offset > expected:
            missing = self._missing(expected, offset)
            self.damaged |= missing is not None
            self.solid_from = None
        if self.solid_from is None and (missing is not None or (self._bound is not None and offset >= self._bound)):
            self._now_solid(row)
        return missing

    def lost(self) -> None:
        """Marks the log as damaged after the last row.

        Later rows are not compared with earlier rows, and a gap directly after the damage is not reported.
        """
        self.damaged = True
        self.solid_from = None
        self.next_offset = -1

    def _now_solid(self, row: EventRow) -> None:
        self.solid_from = row.offset
        self.solid_ms = row.timestamp_ms

    def _missing(self, expected: int, offset: int) -> tuple[int, int] | None:
        """Returns the part of a gap that compaction cannot explain."""
        bound = self._bound
        if bound is None or bound >= offset:
            return None
        return max(expected, bound), offset - 1

    def _watch(self, row: EventRow) -> None:
        """Infers the offset that compaction cannot have passed.

        This is the offset of the first row that repeats a key, because compaction leaves one record per key. If a
        user's topic has a record without a key, the topic is not compacted, and the offset is 0.
        """
        if self._bound is not None or row.control or row.batch_only:
            return
        if row.key is None:
            if self._topic not in COMPACTED:
                self._bound = 0
        elif row.key in self._keys:
            self._bound = row.offset
            self._keys.clear()
        elif self._topic in COMPACTED or len(self._keys) < MAX_KEYS:
            self._keys.add(row.key)
