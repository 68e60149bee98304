"""Removal of a deleted topic's offsets from all shards, in slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kcore.group.offsets.store import NO_PARTITIONS
from kcore.group.offsets.work import WorkSlice

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Outcome
    from kcore.runtime.shards import Shards


def on_topic_deleted(shards: Shards[GroupShard], topic: str, topic_id: bytes) -> None:
    """Starts the removal on every loaded shard. It runs between requests; a crash may end it early.

    Args:
        shards: the group shards.
        topic: the deleted topic's name.
        topic_id: its id, 16 bytes: offsets of a later topic with the same name stay.
    """
    for shard in shards:
        # Most shards of a node without groups have nothing to look at: a slice of each would be a turn of the loop.
        if next(iter(shard.machine.offsets.groups()), None) is not None:
            shard.in_slices(delete_topic(shard.machine, topic, topic_id))


def delete_topic(shard: GroupShard, topic: str, topic_id: bytes) -> Iterator[Outcome | None]:
    """Removes a deleted topic's offsets, materialised and pending, from every group of a shard.

    Args:
        shard: the shard's state.
        topic: the topic's name.
        topic_id: its id; offsets with another id, of a later topic with the same name, stay.

    Yields:
        The decision of each slice: its tombstones, or None.
    """
    work = WorkSlice()
    for group_id in list(shard.offsets.groups()):
        work.steps += 1
        done: set[int] = set()  # decided once: commits during a pause belong to a later topic with the same name
        while True:
            for partition in _partitions(shard, group_id, topic, topic_id):
                if work.full:
                    break
                if partition not in done:
                    done.add(partition)
                    work.steps += 1
                    work.remove(group_id, topic, partition)
            if not work.full:
                break
            yield work.take()
    outcome = work.take()
    if outcome is not None:
        yield outcome


def _partitions(shard: GroupShard, group_id: str, topic: str, topic_id: bytes) -> list[int]:
    """Returns the partitions of a group whose offset, materialised or pending, may belong to the topic."""
    offsets = shard.offsets
    affected = {
        partition: None
        for partition, offset in offsets.topics(group_id).get(topic, NO_PARTITIONS).items()
        if offset.belongs_to(topic_id)
    }
    for partition, producers in offsets.pending_topics(group_id).get(topic, {}).items():
        for producer_id in producers:
            pending = offsets.pending(producer_id, group_id, topic, partition)
            if pending is not None and pending.belongs_to(topic_id):
                affected[partition] = None
    return list(affected)
