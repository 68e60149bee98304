"""Removal of the offsets of deleted topics from all shards, in slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kcore.group.offsets.store import NO_PARTITIONS
from kcore.group.offsets.work import WorkSlice
from kcore.runtime.shard import ShardState

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Outcome
    from kcore.runtime.shards import Shards


def on_topic_deleted(shards: Shards[GroupShard], topic: str, topic_id: bytes) -> None:
    """Starts the removal on every loaded shard. It runs between requests; a crash may end it early.

    Topics that are deleted before the removal starts on a shard are removed together: it visits each group once for all
    of them.

    Args:
        shards: the group shards.
        topic: the deleted topic's name.
        topic_id: its id, 16 bytes: offsets of a later topic with the same name stay.
    """
    for shard in shards:
        # Shards without groups are skipped, because each slice would take a turn of the event loop.
        if shard.state is ShardState.ACTIVE and next(iter(shard.machine.offsets.groups()), None) is not None:
            deleted = shard.machine.deleted_topics
            deleted.append((topic, topic_id))
            if len(deleted) == 1:
                shard.in_slices(delete_topics(shard.machine))


def delete_topics(shard: GroupShard) -> Iterator[Outcome | None]:
    """Removes the offsets of `deleted_topics`, materialised and pending, from every group of a shard.

    Offsets with another topic id, of a later topic with the same name, stay.

    Args:
        shard: the shard's state.

    Yields:
        The decision of each slice: its tombstones, or None.
    """
    work = WorkSlice()
    deleted, shard.deleted_topics = shard.deleted_topics, []
    ids: dict[str, list[bytes]] = {}
    for topic, topic_id in deleted:
        ids.setdefault(topic, []).append(topic_id)
    for group_id in list(shard.offsets.groups()):
        work.steps += 1
        for topic in _affected(shard, group_id, ids):
            for topic_id in ids[topic]:
                yield from _remove(shard, work, group_id, topic, topic_id)
        if work.full:
            yield work.take()
    outcome = work.take()
    if outcome is not None:
        yield outcome


def _affected(shard: GroupShard, group_id: str, ids: dict[str, list[bytes]]) -> list[str]:
    """Returns the topics of `ids` of which a group has offsets, in the order of their deletion."""
    offsets = shard.offsets
    stored, pending = offsets.topics(group_id), offsets.pending_topics(group_id)
    if len(ids) <= len(stored) + len(pending):
        return [topic for topic in ids if topic in stored or topic in pending]
    order = {topic: None for topic in [*stored, *pending] if topic in ids}
    return list(order)


def _remove(shard: GroupShard, work: WorkSlice, group_id: str, topic: str, topic_id: bytes) -> Iterator[Outcome | None]:
    """Removes a group's offsets of one topic; yields the decisions of full slices."""
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
            return
        yield work.take()


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
