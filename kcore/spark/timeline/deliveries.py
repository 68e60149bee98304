"""Derives deliveries of share groups (KIP-932) from `__share_group_state`: acknowledged, archived, redelivered records.

The share coordinator records a delivery when the delivery ends: by an acknowledgement, a release, or the end of the
lock. So the log does not contain the deliveries whose lock has not ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kcore.share.batches import Batch, Batches
from kcore.share.state import SharePartitionKey
from kcore.spark.state.machines import share_machine
from kcore.spark.timeline.event_kinds import TimelineEvent
from kcore.spark.timeline.rebalance import LogPosition

AVAILABLE: Final = 0
ACKNOWLEDGED: Final = 2
ARCHIVED: Final = 4


class Progress(NamedTuple):
    """The numbers of deliveries and records that one record of the log adds to the history.

    Attributes:
        delivered: ended deliveries.
        redelivered: ended deliveries that were not the first delivery of their record.
        acknowledged: records that were acknowledged.
        archived: records that were rejected, or released too often.
    """

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    archived: int = 0


NOTHING: Final = Progress()


class Deliveries:
    """The share partitions of a partition of `__share_group_state`.

    Args:
        partition: the number of the partition of `__share_group_state`.
        groups: ids of the groups to include; None: all groups.
    """

    __slots__ = ("_groups", "_machine", "_partition")

    def __init__(self, partition: int, groups: frozenset[str] | None) -> None:
        self._partition = partition
        self._groups = groups
        self._machine = share_machine()

    def replay(self, key: Any, value: Any, position: LogPosition, whole: bool) -> Iterator[TimelineEvent]:
        """Applies one record. Yields its event, unless the record only repeats the state."""
        if self._groups is not None and key.group_id not in self._groups:
            return
        identity = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        state = self._machine.states.get(identity)
        before = None if state is None else (state.batches, state.start_offset, state.delivery_complete_count)
        self._machine.replay(position.offset, -1, key, value)
        state = self._machine.states.get(identity)
        if state is None or before == (state.batches, state.start_offset, state.delivery_complete_count):
            return
        row = (
            self._partition,
            key.group_id,
            key.topic_id.hex(),
            key.partition,
            position.offset,
            position.timestamp_ms,
            state.start_offset,
            state.delivery_complete_count,
            *progress(() if before is None else before[0], state.batches),
            sum(last - first + 1 for first, last, of_batch, _ in state.batches if of_batch == AVAILABLE),
            whole,
        )
        yield "deliveries", row


def progress(before: Batches, after: Batches) -> Progress:
    """Returns the deliveries between two states of a share partition."""
    total = NOTHING
    low = 0
    for batch in after:
        first, last, state, count = batch
        while low < len(before) and before[low][1] < first:
            low += 1
        at = low
        while at < len(before) and before[at][0] <= last:
            old = before[at]
            total = _add(total, old[0] - first, (first, last, state, count), None)
            first = max(first, old[0])
            end = min(last, old[1])
            total = _add(total, end - first + 1, batch, old)
            first = end + 1
            at += 1
        total = _add(total, last - first + 1, batch, None)
    return total


def _add(total: Progress, records: int, batch: Batch, old: Batch | None) -> Progress:
    """Adds to a total the records that were in the batch `old` (None: in no batch) and are now in `batch`."""
    if records <= 0:
        return total
    state, count = batch[2:]
    old_state, old_count = (AVAILABLE, 0) if old is None else old[2:]
    return Progress(
        total.delivered + records * max(0, count - old_count),
        total.redelivered + records * max(0, count - max(old_count, 1)),
        total.acknowledged + records * (state == ACKNOWLEDGED != old_state),
        total.archived + records * (state == ARCHIVED != old_state),
    )
