"""Tracks whether a log still contains all records of an earlier state.

The replay of a whole compacted log gives the state at its end. A replay may also stop at an earlier offset, called the
*cut*. The state at the cut may be wrong. If a key has a newer record after the cut, compaction may have removed the
key's last record before the cut.

The state at a cut is correct if compaction has not passed the last stable offset of the log as of the cut. The cut
itself is not a sufficient bound, because a transaction that was open at the cut may have ended before the cleaner ran.
If the transaction was aborted, the cleaner may have removed its offsets. If it was committed, the cleaner may have
removed the offsets that it replaced.

Logs show the progress of compaction differently:

- A kcore data folder has the exact offset, because it updates this offset and the log in one transaction.
- A broker's checkpoint gives no bound. The cleaner replaces the files one by one and writes the checkpoint last, so a
  copy may be compacted beyond its checkpoint.
- Any log gives an upper bound. Compaction keeps one record per key in the part that it has passed. If a key occurs
  twice, compaction has therefore not passed the second record.

The audit uses the same rules (`History`).
"""

from __future__ import annotations

from kcore.protocol.records.base import SHARE_GROUP_STATE
from kcore.spark.events.event import EventRow


class Completeness:
    """The completeness of a log as it is read to its end.

    The cut is the offset up to which the state is rebuilt. It may lie before the end of the log.

    Args:
        topic: the topic of the partition; `__share_group_state` is not compacted but truncated at the front
            (KIP-932).
        cleaned_to: the offset up to which compaction has run, if known for certain; None: inferred from the log.

    Attributes:
        cleaned_to: an upper bound of the offset up to which compaction has run; None while there is no bound.
        gaps: True if an offset was missing.
        last_gap: the offset after the last gap before the cut; -1 for none.
        lost: True if the log lacks records that compaction did not remove. Even the state at its end is uncertain
            then.
        first_offset: the offset of the first row; -1 before the first row.
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

    def add(self, row: EventRow, expected: int, beyond: bool = False) -> None:
        """Records the next row of the log.

        Args:
            row: a record of the log.
            expected: the offset after the previous row, -1 before the first.
            beyond: True if the previous row was already after the cut, up to which the state is rebuilt.
        """
        if expected < 0:
            self.first_offset = row.offset
            self.gaps = row.offset > 0
        elif row.offset != expected:
            self.gaps = True
            if not beyond:
                self.last_gap = row.offset
        if self.cleaned_to is None and not row.control and row.key is not None:
            # Compaction removes records of aborted transactions regardless of their keys. A repeated key still gives
            # the bound.
            if row.key in self._keys:
                self.cleaned_to = row.offset
                self._keys.clear()
            else:
                self._keys.add(row.key)

    def set_results(self, first_offset: int, gaps: bool, last_gap: int, repeated_at: int | None) -> None:
        """Sets the results of the compiled replay: first offset, gaps, and the offset of the first repeated key."""
        self.first_offset, self.gaps, self.last_gap = first_offset, gaps, last_gap
        if self.cleaned_to is None:
            self.cleaned_to = repeated_at

    def at_end(
        self, active_offset: int | None, next_offset: int, log_start: int = 0, hides_control: bool = False
    ) -> None:
        """Finishes tracking at the end of the log.

        Args:
            active_offset: the base offset of the newest segment, which is never compacted; None if unknown.
            next_offset: the end of the log.
            log_start: the start of the readable log. Compaction did not remove the records before it.
            hides_control: True if the reader lacks transaction markers, so that a gap may be a marker.
        """
        limit = next_offset if active_offset is None else active_offset
        bound = limit if self.cleaned_to is None else min(self.cleaned_to, limit)
        if self._topic == SHARE_GROUP_STATE:
            bound = max(self.first_offset, 0)  # a checkpoint records the deleted front as its last gap
        else:
            self.lost |= log_start > 0
        self.lost |= self.last_gap > bound and not hides_control
        if self._given:
            return
        self.cleaned_to = limit if self.cleaned_to is None else min(self.cleaned_to, limit)

    @property
    def holes_to(self) -> int | None:
        """The offset after the last gap that compaction may have made before the cut; None without such a gap.

        The cut is the offset up to which the state is rebuilt.

        Below this offset, the loss of a whole segment looks like compaction and is not detected.
        """
        last = max(self.last_gap, self.first_offset if self.gaps else -1)
        return last if last > 0 else None

    def is_complete(self, last_stable_offset: int, cut: bool) -> bool:
        """Returns True if the state at the cut is correct. The cut is the offset up to which the state is rebuilt.

        Args:
            last_stable_offset: the last stable offset of the log as of the cut.
            cut: True if the log continues after the cut. The state at the end of a log is correct unless the log lost
                records.
        """
        if self.lost:
            return False
        if not cut or not self.gaps:
            return True
        if self._topic == SHARE_GROUP_STATE:
            return False
        return self.cleaned_to is not None and self.cleaned_to <= last_stable_offset
