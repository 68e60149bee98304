"""Rebuild without Spark: partitions one after the other, as of an offset or a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kcore.spark.events.event import EventRow
from kcore.spark.state.live_records import LiveRecords
from kcore.spark.state.partition_state import PartitionState


class AsOf(NamedTuple):
    """The moment that a state is wanted of.

    Attributes:
        offset: everything below it counts; None: no limit.
        timestamp_ms: everything before the first record with a later timestamp counts; None: no limit. The log's order
            is the truth, so that what was written after a record of a later time does not count, whatever it says.
    """

    offset: int | None = None
    timestamp_ms: int | None = None

    def excludes(self, row: EventRow) -> bool:
        """Whether a row, and with it all that come behind it, is beyond the moment."""
        return (self.offset is not None and row.offset >= self.offset) or (
            self.timestamp_ms is not None and row.timestamp_ms > self.timestamp_ms
        )


END = AsOf()
"""The end of the log."""


class Rebuilt(NamedTuple):
    """A partition's state.

    Attributes:
        state: the state.
        cut: whether its log goes on behind it.
        live: the records that it is made of, if they were asked for.
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
    with_records: bool = False,
) -> Rebuilt:
    """The state of one partition as of a moment.

    The log is read to its end even so: only there it shows whether compaction has taken away what the state needs.

    Args:
        topic: the internal topic.
        partition: its partition.
        rows: the log, by offset; offsets that come again, and those that come too late, are passed over.
        as_of: the moment.
        cleaned_to: where compaction has come to, if that is known.
        active_offset: where the newest segment begins, if that is known.
        log_start: where the log that was to be read begins.
        with_records: whether to keep the records that the state is made of.
    """
    state = PartitionState(topic, partition, cleaned_to)
    live = LiveRecords(state) if with_records else None
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
            completeness.saw(row, last + 1 if last >= 0 else -1, beyond)
        else:
            state.apply(row)
            if live is not None:
                live.saw(row)
        last = row.offset
    completeness.at_end(active_offset, last + 1, log_start)
    return Rebuilt(state, cut, live)
