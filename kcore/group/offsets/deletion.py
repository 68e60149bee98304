"""Removal of the offsets of deleted topics from all shards, in slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kcore.group.offsets.store import NO_PARTITIONS
from kcore.group.offsets.work import WorkSlice
from kcore.runtime.shard_state import ShardState

if TYPE_CHECKING:
    from kcore.group.offsets.store import OffsetStore
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Outcome
    from kcore.runtime.shards import Shards

TOPICS_PER_STEP: Final = 16
"""Number of a group's topics that one step of a slice compares with the deleted topics."""


def on_topic_deleted(shards: Shards[GroupShard], topic: str, topic_id: bytes) -> None:
    """Starts the removal on every loaded shard. The removal runs between requests, and a crash may end it early.

    If several topics are deleted before the removal starts on a shard, the removal visits each group once for all of
    them.

    Args:
        shards: the group shards.
        topic: the deleted topic's name.
        topic_id: the deleted topic's id, 16 bytes. Offsets of a later topic with the same name stay.
    """
    for shard in shards:
        # Shards without groups are skipped, because each slice would take a turn of the event loop.
        if shard.state is ShardState.ACTIVE and next(iter(shard.machine.offsets.groups()), None) is not None:
            deleted = shard.machine.deleted_topics
            if not deleted:
                shard.in_slices(delete_topics(shard.machine))
            deleted.append((topic, topic_id))


def delete_topics(shard: GroupShard) -> Iterator[Outcome | None]:
    """Removes the offsets of `deleted_topics`, committed and pending, from every group of a shard.

    The offsets of a later topic with the same name stay, because they have another topic id.

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
        topics = len(shard.offsets.topics(group_id)) + len(shard.offsets.pending_topics(group_id))
        work.steps += 1 + min(len(ids), topics) // TOPICS_PER_STEP
        for topic in _affected(shard, group_id, ids):
            for topic_id in ids[topic]:
                yield from _remove(shard, work, group_id, topic, topic_id)
        if work.full:
            yield work.end_slice()
    outcome = work.end_slice()
    if outcome is not None:
        yield outcome


def _affected(shard: GroupShard, group_id: str, ids: dict[str, list[bytes]]) -> list[str]:
    """Returns the deleted topics of which a group has offsets. The keys of `ids` are all deleted topics."""
    offsets = shard.offsets
    stored, pending = offsets.topics(group_id), offsets.pending_topics(group_id)
    if len(ids) <= len(stored) + len(pending):
        return [topic for topic in ids if topic in stored or topic in pending]
    order = {topic: None for topic in [*stored, *pending] if topic in ids}
    return list(order)


def _remove(shard: GroupShard, work: WorkSlice, group_id: str, topic: str, topic_id: bytes) -> Iterator[Outcome | None]:
    """Removes a group's offsets of one topic; yields the decisions of full slices.

    The removal examines each partition only once, because a commit between two slices belongs to a later topic with the
    same name.
    """
    offsets = shard.offsets
    partitions = dict.fromkeys(offsets.topics(group_id).get(topic, NO_PARTITIONS))
    partitions.update(dict.fromkeys(offsets.pending_topics(group_id).get(topic, ())))
    for partition in partitions:
        if work.full:
            yield work.end_slice()
        work.steps += 1
        if _belongs(offsets, group_id, topic, partition, topic_id):
            work.remove(group_id, topic, partition)


def _belongs(offsets: OffsetStore, group_id: str, topic: str, partition: int, topic_id: bytes) -> bool:
    """Returns True if the offset of a partition, committed or pending, may belong to the topic with that id."""
    offset = offsets.get(group_id, topic, partition)
    if offset is not None and offset.belongs_to(topic_id):
        return True
    for producer_id in offsets.pending_topics(group_id).get(topic, {}).get(partition, ()):
        pending = offsets.pending(producer_id, group_id, topic, partition)
        if pending is not None and pending.belongs_to(topic_id):
            return True
    return False
