"""Whether a log still holds what it takes to know an earlier state.

Replayed to its end, a compacted log gives the state at its end. Cut at an earlier offset it may not: the record that
was a key's newest one at the cut may be gone, for a newer one came behind the cut. The state at a cut is right if
compaction had not come beyond the cut's *last stable offset*. The cut itself is no bound: a transaction that was open
there may have ended before the cleaner came, which then removed its offsets, or what they replaced.

How far compaction has come, a kcore data folder says, which moves that mark and the log in one transaction. A broker's
checkpoint is no bound: it is written when the cleaner is through, and the files are replaced one by one before, so that
a copy may hold what was compacted beyond it. But any log says it from above: compaction keeps one record of a key below
where it has come to. So where a key comes for a second time, it had not come. The audit judges by the same (`History`).
"""

from __future__ import annotations

from kcore.protocol.records.base import SHARE_GROUP_STATE
from kcore.spark.events.event import EventRow


class Completeness:
    """Watches a log as it is read, beyond the cut and to its end.

    Args:
        topic: whose partition it is; `__share_group_state` is not compacted but cut off at the front (KIP-932).
        cleaned_to: where compaction has come to, if that is known for sure; None: the log itself is asked.

    Attributes:
        cleaned_to: an offset at or above the one that compaction has come to; None while nothing bounds it.
        gaps: whether any offset was missing.
        last_gap: the offset behind the last ones that are missing before the cut; -1 for none.
        lost: whether the log lacks what compaction did not take: not even the state at its end is sure then.
        first_offset: that of the first row; -1 before it.
    """

    __slots__ = ("_given", "_keys", "_topic", "cleaned_to", "first_offset", "gaps", "last_gap", "lost")

    def __init__(self, topic: str, cleaned_to: int | None = None) -> None:
        self._topic = topic
        self._given = cleaned_to is not None
        self._keys: set[bytes] = set()
        self.cleaned_to = cleaned_to
        self.gaps = False
        self.last_gap = -1
        self.lost = False
        self.first_offset = -1

    def saw(self, row: EventRow, expected: int, beyond: bool = False) -> None:
        """The next row of the log.

        Args:
            row: the row.
            expected: the offset behind the one before it, -1 before the first.
            beyond: whether the one before it was behind the cut already.
        """
        if expected < 0:
            self.first_offset = row.offset
            self.gaps = row.offset > 0
        elif row.offset != expected:
            self.gaps = True
            if not beyond:
                self.last_gap = row.offset
        if self.cleaned_to is None and not row.control and row.key is not None:
            # An aborted transaction's records go whatever their keys; a second one says nothing less for that.
            if row.key in self._keys:
                self.cleaned_to = row.offset
                self._keys.clear()
            else:
                self._keys.add(row.key)

    def was_seen(self, first_offset: int, gaps: bool, last_gap: int, repeated_at: int | None) -> None:
        """A log of which somebody else saw every row: where it begins, its gaps, and which key came again."""
        self.first_offset, self.gaps, self.last_gap = first_offset, gaps, last_gap
        if self.cleaned_to is None:
            self.cleaned_to = repeated_at

    def at_end(self, active_offset: int | None, next_offset: int, log_start: int = 0) -> None:
        """The log is read to its end.

        Args:
            active_offset: where the newest segment begins, which is never compacted; None if that is not known.
            next_offset: the end.
            log_start: where what was to be read begins. In front of it all is missing, and no compaction took it.
        """
        limit = next_offset if active_offset is None else active_offset
        bound = limit if self.cleaned_to is None else min(self.cleaned_to, limit)
        if self._topic == SHARE_GROUP_STATE:
            bound = 0
        else:
            self.lost |= log_start > 0
        self.lost |= self.last_gap > bound
        if self._given:
            return
        self.cleaned_to = limit if self.cleaned_to is None else min(self.cleaned_to, limit)

    @property
    def holes_to(self) -> int | None:
        """The offset behind the last ones before the cut that compaction is taken to have removed; None for none.

        Below it, a whole segment may be missing, and nothing shows it.
        """
        last = max(self.last_gap, self.first_offset if self.gaps else -1)
        return last if last > 0 else None

    def is_complete(self, last_stable_offset: int, cut: bool) -> bool:
        """Whether the state at a cut is right.

        Args:
            last_stable_offset: that of the cut.
            cut: whether there is anything behind it; the end of a log is right, if nothing of the log is lost.
        """
        if self.lost:
            return False
        if not cut or not self.gaps:
            return True
        if self._topic == SHARE_GROUP_STATE:
            return False
        return self.cleaned_to is not None and self.cleaned_to <= last_stable_offset
