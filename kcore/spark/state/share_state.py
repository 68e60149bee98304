"""Replays `__share_group_state`: the delivery state of share partitions (KIP-932).

A snapshot is the whole state of a share partition; an update changes it. Of two batches over the same offsets the one
with more deliveries counts; if equal, the one with the later state (available, acknowledged, archived).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kcore.protocol.records.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from kcore.protocol.records.share_update import ShareUpdateKey, ShareUpdateValue

UNCHANGED: Final = -1
"""The value of an unchanged epoch, offset or count in an update."""


class StateBatch(NamedTuple):
    """A run of records in one state: first and last offset (both included), Kafka's state number, delivery count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The state of one share partition, with the field names of its records."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    state_batches: tuple[StateBatch, ...]


SharePartition = tuple[str, bytes, int]
"""Group, topic id, partition."""


class ShareStates:
    """The share partitions of one partition of `__share_group_state`."""

    __slots__ = ("states",)

    def __init__(self) -> None:
        self.states: dict[SharePartition, ShareState] = {}

    def replay(self, key: Any, value: Any) -> None:
        """Applies a snapshot, an update, or the deletion of a share partition's state."""
        place = (key.group_id, key.topic_id, key.partition)
        if value is None:
            if isinstance(key, ShareSnapshotKey):
                self.states.pop(place, None)
        elif isinstance(value, ShareSnapshotValue):
            self.states[place] = ShareState(
                value.snapshot_epoch,
                value.state_epoch,
                value.leader_epoch,
                value.start_offset,
                value.delivery_complete_count,
                value.create_timestamp,
                value.write_timestamp,
                combine((), value.state_batches, value.start_offset),
            )
        else:
            assert isinstance(key, ShareUpdateKey), key
            self.states[place] = updated(self.states.get(place), value)


def updated(before: ShareState | None, value: ShareUpdateValue) -> ShareState:
    """Returns a state after an update. Without a snapshot (the log begins later), the update is the whole state."""
    if before is None:
        before = ShareState(value.snapshot_epoch, 0, value.leader_epoch, value.start_offset, UNCHANGED, -1, -1, ())
    start_offset = before.start_offset if value.start_offset == UNCHANGED else value.start_offset
    complete = value.delivery_complete_count
    return before._replace(
        leader_epoch=before.leader_epoch if value.leader_epoch == UNCHANGED else value.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=before.delivery_complete_count if complete == UNCHANGED else complete,
        state_batches=combine(before.state_batches, value.state_batches, start_offset),
    )


def combine(before: Iterable[Any], after: Iterable[Any], start_offset: int) -> tuple[StateBatch, ...]:
    """Merges batches: disjoint, ascending, neighbours of one state merged, none below the start."""
    waiting = [batch for batch in (*before, *after) if batch.last_offset >= start_offset]
    edges = {max(batch.first_offset, start_offset) for batch in waiting}
    edges.update(batch.last_offset + 1 for batch in waiting)
    waiting.sort(key=_first_offset, reverse=True)
    over: list[Any] = []  # batches that cover the current piece
    merged: list[StateBatch] = []
    cuts = sorted(edges)
    for first, behind in pairwise(cuts):
        while waiting and waiting[-1].first_offset <= first:
            over.append(waiting.pop())
        over = [batch for batch in over if batch.last_offset >= first]
        if not over:
            continue
        count, state = max((batch.delivery_count, batch.delivery_state) for batch in over)
        last = merged[-1] if merged else None
        if last is not None and last.last_offset == first - 1 and last[2:] == (state, count):
            merged[-1] = last._replace(last_offset=behind - 1)
        else:
            merged.append(StateBatch(first, behind - 1, state, count))
    return tuple(merged)


def _first_offset(batch: Any) -> int:
    return int(batch.first_offset)
