"""Tracks which parts of a log are complete, to distinguish faults from the effects of compaction.

Compaction removes a record only if a newer record of its key lies below the cleaner's offset. Therefore, a record that
still exists below that offset was valid from its own offset up to the next existing record of its key. *Two existing
records can always be compared*: two members that own a partition, two successive epochs of a key. *A missing record is
evidence only beyond the cleaner's offset*, and only in a log that still has its first records.

The rule also holds for tombstones: compaction removes a tombstone only together with all earlier records of its key.
Compaction removes records of aborted transactions regardless of their keys. No transaction below the cleaner's offset
is open, because compaction does not pass the last stable offset.

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
    """The completeness of one log. `History` gets each row before the checks do.

    Args:
        topic: the topic of the partition.
        cleaned_to: the offset up to which compaction has run, if known. If the offset is unknown, `History` infers a
            bound from the log: no key occurs twice below the offset. (The base offset of the newest segment would be
            a tighter bound, but only if the copy has all segments.)

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
        """True if the log is complete from offset 0 to the last row. A key without a record then never existed."""
        return self.solid_from == 0 and not self.damaged

    def saw(self, row: EventRow) -> tuple[int, int] | None:
        """Records the next row. Returns the unexplained gap before it (first and last missing offset), or None."""
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
        """Records damage of the log.

        Later rows are not compared with earlier rows, and a gap right after the damage counts as explained.
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

        This is the offset of the first row that repeats a key. It is 0 if a user's topic has a record without a key.
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
