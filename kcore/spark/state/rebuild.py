"""Rebuilds partitions without Spark, one after another, as of an offset or a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kcore.spark.events.event import EventRow
from kcore.spark.state.live_records import LiveRecords
from kcore.spark.state.partition_state import PartitionState


class AsOf(NamedTuple):
    """The moment as of which a state is rebuilt: the position in a log at which the replay stops.

    Attributes:
        offset: the offset before which to stop; None: no limit.
        timestamp_ms: stop before the first record with a later timestamp; None: no limit. All records after the stop
            are excluded, even if their timestamps are earlier.
    """

    offset: int | None = None
    timestamp_ms: int | None = None

    def excludes(self, row: EventRow) -> bool:
        """Returns True if the replay stops before this row. All later rows are then excluded, too."""
        return (self.offset is not None and row.offset >= self.offset) or (
            self.timestamp_ms is not None and row.timestamp_ms > self.timestamp_ms
        )


END = AsOf()
"""The end of the log."""


class Resumed(NamedTuple):
    """A partition's state at a checkpoint, and its live records."""

    state: PartitionState
    live: LiveRecords


class Rebuilt(NamedTuple):
    """A rebuilt partition.

    Attributes:
        state: the partition's state as of the requested moment (`AsOf`).
        cut: True if the log continues after that moment.
        live: the records that make up the state; None if they were not requested.
    """

    state: PartitionState
    cut: bool
    live: LiveRecords | None = None


def rebuild(
    topic: str,
    partition: int,
    rows: Iterable[EventRow],
    as_of: AsOf = END,
    *,
    cleaned_to: int | None = None,
    active_offset: int | None = None,
    log_start: int = 0,
    hides_control: bool = False,
) -> Rebuilt:
    """Returns the state of one partition as of a moment.

    The log is read to its end, even if the moment is earlier. Only the later part of the log shows whether compaction
    has removed records that the state needs. `rebuild_batches` gives the same result from record batches, and is
    faster.

    Args:
        topic: the name of an internal topic.
        partition: the number of the partition.
        rows: the log in offset order; a row is skipped if an earlier row has the same or a higher offset.
        as_of: the offset or time whose state is returned.
        cleaned_to: the offset up to which compaction has run, if known.
        active_offset: the base offset of the newest segment, if known.
        log_start: the start of the readable log.
        hides_control: True if the reader lacks transaction markers.
    """
    state = PartitionState(topic, partition, cleaned_to)
    completeness = state.completeness
    cut = False
    last = -1
    for row in rows:
        if row.offset <= last:
            continue
        beyond = cut
        if not cut and as_of.excludes(row):
            cut = True
        if cut:
            completeness.add(row, last + 1 if last >= 0 else -1, beyond)
        else:
            state.apply(row)
        last = row.offset
    completeness.at_end(active_offset, last + 1, log_start, hides_control)
    return Rebuilt(state, cut)
