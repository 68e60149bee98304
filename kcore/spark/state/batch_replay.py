"""Rebuilds state from Arrow record batches, mostly without a Python object per row.

The result is the same as that of `kcore.spark.state.rebuild.rebuild`, which reads one row after another.

Compiled code copies non-transactional committed offsets from Arrow buffers to the engine's state, as in the engine's
own recovery. All other records are replayed as rows by `PartitionState.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from kcore.errors import KcoreError
from kcore.group.shard import GroupShard
from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.spark.events.event import EventRow
from kcore.spark.state.live_records import LiveRecords
from kcore.spark.state.partition_state import PartitionState
from kcore.spark.state.rebuild import END, AsOf, Rebuilt, Resumed
from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.spark.batch_replay import EventInput, EventReplay
from kcore_ext.spark.column_store import Input

LATEST: Final = 2**63 - 1
"""The largest offset and time; used as "no limit"."""

REPLAYED: Final = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int32()),
    ("last_sequence", pa.int32()),
    ("transactional", pa.bool_()),
    ("control", pa.bool_()),
    ("batch_only", pa.bool_()),
)
"""The columns that a replay reads, in the order of `EventInput`; the first three are required."""


class BatchReplay:
    """The replay of one partition, batch by batch.

    Args:
        topic: the name of an internal topic.
        partition: the number of the partition to replay.
        as_of: the offset or time at which the replay stops.
        cleaned_to: the offset up to which compaction has run, if known.
        with_records: True to keep the records that make up the state.
        resumed: the state at a checkpoint, from which the events continue; None: the events begin with the log.
        may_lack: True if offsets may be missing after the checkpoint. If it is False, a missing offset is an error,
            because compaction may have removed a tombstone.

    Attributes:
        state: the partition's state.
        live: the records that make up the state; None unless `with_records` is True.

    Raises:
        KcoreError: the moment is before the checkpoint.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        as_of: AsOf = END,
        cleaned_to: int | None = None,
        *,
        with_records: bool = False,
        resumed: Resumed | None = None,
        may_lack: bool = False,
    ) -> None:
        state = PartitionState(topic, partition, cleaned_to) if resumed is None else resumed.state
        self.state = state
        self.live = LiveRecords(state) if with_records and resumed is None else resumed and resumed.live
        self._added = 0
        self._fast_records = 0
        self._walk = EventReplay(
            topic,
            partition,
            LATEST if as_of.offset is None else min(as_of.offset, LATEST),
            LATEST if as_of.timestamp_ms is None else min(as_of.timestamp_ms, LATEST),
            state.completeness.cleaned_to is None,
            _offsets_of(state.groups) if topic == CONSUMER_OFFSETS else None,
            self._replay_row,
        )
        if resumed is not None:
            self._continue(as_of, may_lack)

    def _continue(self, as_of: AsOf, may_lack: bool) -> None:
        """Prepares the replay to continue after the last offset of the state."""
        state, completeness = self.state, self.state.completeness
        if as_of.offset is not None and as_of.offset < state.next_offset:
            raise KcoreError(
                f"{state.topic}-{state.partition}: the checkpoint is at offset {state.next_offset}, after the "
                f"requested offset {as_of.offset}"
            )
        if as_of.timestamp_ms is not None and as_of.timestamp_ms < state.largest_timestamp_ms:
            raise KcoreError(
                f"{state.topic}-{state.partition}: the checkpoint has a record with the timestamp "
                f"{state.largest_timestamp_ms} ms, after the requested time {as_of.timestamp_ms} ms"
            )
        self._walk.resume(
            state.first_offset,
            state.next_offset - 1,
            state.last_timestamp_ms,
            state.largest_timestamp_ms,
            completeness.first_offset,
            completeness.last_gap,
            None if may_lack else self._refuse_gap,
        )

    def _refuse_gap(self, first: int, following: int) -> None:
        raise KcoreError(
            f"{self.state.topic}-{self.state.partition} lacks the offsets {first} to {following - 1}: compaction has "
            "passed the checkpoint, or records were lost; rebuild without --since"
        )

    def _replay_row(self, fields: tuple[Any, ...]) -> None:
        """Replays an event that the fast path cannot replay."""
        row = EventRow._make(fields)
        self.state.replay(row)
        if self.live is not None:
            self.live.add(row)

    def add(self, batch: pa.RecordBatch) -> None:
        """Replays the next events of the log.

        Args:
            batch: has the columns of `REPLAYED`, or at least the first three, in offset order. A row is skipped if an
                earlier row has the same or a higher offset.
        """
        walk, state = self._walk, self.state
        key, value, offset, *others = (_input(batch, *column) for column in REPLAYED)
        if key is None or value is None or offset is None:
            raise ValueError(f"events need the columns key, value and offset, but have {batch.schema.names}")
        walk.replay(EventInput(batch.num_rows, key, value, offset, *others))
        state.groups.offsets.offset_count += walk.added - self._added
        state.records += walk.fast_records - self._fast_records
        self._added, self._fast_records = walk.added, walk.fast_records

    def end(self, active_offset: int | None = None, log_start: int = 0, hides_control: bool = False) -> Rebuilt:
        """Returns the state at the end of the log. `rebuild` documents the arguments."""
        walk, state = self._walk, self.state
        if walk.first >= 0:
            state.first_offset, state.next_offset = walk.first, walk.last + 1
            state.last_timestamp_ms = walk.last_timestamp_ms
            state.largest_timestamp_ms = walk.largest_timestamp_ms
        if walk.log_first >= 0:
            repeated_at = walk.repeated_at if walk.repeated_at >= 0 else None
            state.completeness.set_results(walk.log_first, walk.gaps, walk.last_gap, repeated_at)
        state.completeness.at_end(active_offset, walk.log_last + 1, log_start, hides_control)
        return Rebuilt(state, walk.cut, self.live)


def rebuild_batches(
    topic: str,
    partition: int,
    batches: Iterable[pa.RecordBatch],
    as_of: AsOf = END,
    *,
    cleaned_to: int | None = None,
    active_offset: int | None = None,
    log_start: int = 0,
    hides_control: bool = False,
    with_records: bool = False,
    resumed: Resumed | None = None,
) -> Rebuilt:
    """Returns the state of one partition as of a moment from record batches.

    `rebuild` and `BatchReplay` document the other arguments.

    Raises:
        KcoreError: compaction has passed the checkpoint, or the moment is before it.
    """
    replay = BatchReplay(topic, partition, as_of, cleaned_to, with_records=with_records, resumed=resumed)
    for batch in batches:
        replay.add(batch)
    return replay.end(active_offset, log_start, hides_control)


def _offsets_of(shard: GroupShard) -> Callable[[str, str], dict[int, OffsetAndMetadata]]:
    """Returns a function (group, topic) -> the shard's dictionary of the group's offsets in the topic, by partition.

    The function creates groups that do not exist in the shard.
    """

    def partitions_of(group_id: str, topic: str) -> dict[int, OffsetAndMetadata]:
        if group_id in shard.groups:
            known = shard.offsets.topics_of(group_id).get(topic)
            if known is not None:
                return known
        return shard.offsets.partitions_of(shard.get_or_create_group(group_id).group_id, topic)

    return partitions_of


def _input(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> Input | None:
    """Returns a column as the extension's input; None if it is missing."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return None
    column: Any = batch.column(index)
    if column.type != kind:
        column = column.cast(kind)
    buffers = column.buffers()
    validity, data = buffers[0], buffers[-1]
    if name == "offset" and column.null_count:
        raise ValueError("an event without an offset")
    return Input(validity, buffers[1] if len(buffers) == 3 else None, data, column.offset)
