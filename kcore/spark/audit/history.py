"""What a log still tells, and what it has forgotten: the difference between a fault and what compaction took away.

Compaction removes a record only if a newer one of its key lies below the offset that it has come to. So what is still
there below that offset was the truth from its own offset on, until the next record of its key that is still there.
*Two facts that are present may always be compared*: two members that own a partition, two epochs of a key one after
the other. *What is absent says something only where compaction has not come*, and only of a log whose front is there.

Tombstones fit in: one that was removed took everything before it along. Records of aborted transactions go, whatever
their keys are; no transaction below is open, since compaction does not pass the last stable offset.

Damage is another thing. What stands behind a damaged batch is compared to nothing before it: all is forgotten, as if
the log began there.
"""

from __future__ import annotations

from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.spark.events.event import EventRow

COMPACTED = (CONSUMER_OFFSETS, TRANSACTION_STATE)
MAX_KEYS = 100_000
"""So many keys of a partition of a user's topic are remembered, to see whether one comes twice."""


class History:
    """Where one log may have holes. It is told of each row before anything else is.

    Args:
        topic: whose partition it is.
        cleaned_to: where compaction has come to, if that is known. Without it, it is read from the log: below it no key
            stands twice. (Where the newest segment begins would say more, if a copy were known to have all segments.)

    Attributes:
        next_offset: the offset behind the last row, -1 before the first.
        first_offset: the first one; -1 likewise.
        solid_from: since which offset nothing is missing; None while that is not known.
        solid_ms: the timestamp there.
        damaged: whether anything was lost by damage.
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
        # The offset that compaction cannot have come beyond; None: it may have come anywhere.
        self._bound = 0 if topic == SHARE_GROUP_STATE else cleaned_to
        self._given = self._bound is not None
        self.next_offset = -1
        self.first_offset = -1
        self.damaged = False
        self.solid_from: int | None = None
        self.solid_ms = -1

    @property
    def is_whole(self) -> bool:
        """Whether all of the log was there so far, from offset 0 on: a key that was not seen did not exist."""
        return self.solid_from == 0 and not self.damaged

    def saw(self, row: EventRow) -> tuple[int, int] | None:
        """The next row; the range of offsets (both included) that is missing before it and should not be."""
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
        """Damage: what comes next does not follow from what came before. A gap behind it is explained by it."""
        self.damaged = True
        self.solid_from = None
        self.next_offset = -1

    def _now_solid(self, row: EventRow) -> None:
        self.solid_from = row.offset
        self.solid_ms = row.timestamp_ms

    def _missing(self, expected: int, offset: int) -> tuple[int, int] | None:
        """What of a gap compaction cannot have made."""
        bound = self._bound
        if bound is None or bound >= offset:
            return None
        return max(expected, bound), offset - 1

    def _watch(self, row: EventRow) -> None:
        """Below where compaction has come to no key stands twice, and there are none but keyed records."""
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
