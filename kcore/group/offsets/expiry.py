"""Expiration of unused offsets, and of empty groups after their last offset (KIP-211).

A timer of the shard starts a run. The run checks every group of the shard in bounded slices, between rounds of
requests. A run is not atomic: each slice reads the current state, and decisions of earlier slices stay.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kcore.group.group import GroupType
from kcore.group.offsets.records import INT64_MAX, NO_EXPIRY
from kcore.group.offsets.store import NO_PARTITIONS
from kcore.group.offsets.work import WorkSlice
from kcore.runtime.shard_timer import ShardTimer

if TYPE_CHECKING:
    from kcore.group.group import Group
    from kcore.group.offsets.store import OffsetStore
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Outcome
    from kcore_ext.group.offsets import OffsetAndMetadata

logger = logging.getLogger(__name__)

MINUTE_MS = 60_000


class ExpirationTimer(ShardTimer):
    """The timer `expire-group-metadata`: starts a run every `offsets.retention.check.interval.ms`.

    The timer refers to the runtime's shard, not to its state machine. A timer that remains scheduled after a reload
    must not keep the old state machine in memory.
    """

    __slots__ = ()

    def fire(self) -> None:
        """Starts a run. The run re-arms the timer when it ends, so that runs never overlap."""
        machine: GroupShard = self.shard.machine
        machine.context.in_slices(run(machine))


def run(shard: GroupShard) -> Iterator[Outcome | None]:
    """Expires the offsets and groups of a shard once, and schedules the next run; yields the decisions of `expire`."""
    # Not in `finally`: a run that stops because its shard was reloaded must not arm a timer.
    try:
        yield from expire(shard)
    except Exception:
        logger.exception(
            "offsets: %r cannot remove expired offsets; kcore tries again after offsets.retention.check.interval.ms; "
            "please report the error",
            shard.context.shard,
        )
    schedule_expiration(shard)


def schedule_expiration(shard: GroupShard) -> None:
    """Arms the timer of the next run, one interval from now. The first run after a load also waits one interval."""
    # The interval may be as long as 2**63 - 1; the timer wheel has no later deadline.
    deadline_ms = min(shard.now.now_ms + shard.config.offsets_retention_check_interval_ms, INT64_MAX)
    shard.context.schedule(deadline_ms, ExpirationTimer())


def is_expired(offset: OffsetAndMetadata, base_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    """Returns True if an offset has expired.

    Args:
        offset: the offset; its own expiration time (OffsetCommit v2-4) has precedence.
        base_ms: start of the retention time, milliseconds since the epoch; None: the commit time of the offset.
        now_ms: milliseconds since the epoch.
        retention_ms: `offsets.retention.minutes`.
    """
    if offset.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= offset.expire_timestamp_ms
    return now_ms - (offset.commit_timestamp_ms if base_ms is None else base_ms) >= retention_ms


def expire(shard: GroupShard) -> Iterator[Outcome | None]:
    """Expires offsets and groups of a shard in one run, in slices.

    Yields:
        The decision of each slice: tombstones of offsets and groups, or None.
    """
    work = WorkSlice()
    for group_id in list(shard.groups):
        yield from _expire_group(shard, group_id, work)
    outcome = work.end_slice()
    if outcome is not None:
        yield outcome


def _expire_group(shard: GroupShard, group_id: str, work: WorkSlice) -> Iterator[Outcome | None]:
    """Expires the offsets of one group, and the group itself if it has no members and no offsets left.

    Yields the decision of a slice whenever the slice is full.
    """
    offsets = shard.offsets
    retention_ms = shard.config.offsets_retention_minutes * MINUTE_MS
    group = shard.groups.get(group_id)
    base = None if group is None else group.offset_expiration_base()
    decided = 0  # this group's tombstones in the current slice, not replayed yet
    for topic in list(offsets.topics(group_id)) if base is not None else ():
        for partition, offset in list(offsets.topics(group_id).get(topic, NO_PARTITIONS).items()):
            if work.full:
                yield work.end_slice()
                decided = 0
                group = shard.groups.get(group_id)
                base = None if group is None else group.offset_expiration_base()
            work.steps += 1
            # Between two slices, members may join, offsets may be committed, and the group may be deleted.
            if (
                base is not None
                and topic not in base.subscribed_topics
                and is_expired(offset, base.timestamp_ms, shard.now.wall_ms, retention_ms)
                and offsets.get(group_id, topic, partition) is offset
                and not offsets.has_pending(group_id, topic, partition)
            ):
                work.remove(group_id, topic, partition)
                offsets.expirations += 1
                decided += 1
    work.steps += 1
    # The last check was in this slice, so its result still holds when the slice is replayed.
    if group is not None and group.group_type is not GroupType.SHARE and _is_over(offsets, group, decided):
        work.remove_group(group_id, group.tombstones())
    if work.full:
        yield work.end_slice()


def _is_over(offsets: OffsetStore, group: Group, decided: int) -> bool:
    """Returns True if the group has no members, and no offsets besides those that the current slice removes.

    `decided` is the number of offsets whose tombstones are decided in this slice but not replayed yet.
    """
    group_id = group.group_id
    return group.is_empty() and not offsets.group_has_pending(group_id) and offsets.count(group_id) == decided
