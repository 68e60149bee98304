"""Deletion of share-partition states, after the deletion of a group or topic, or by DeleteShareGroupOffsets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.group.group import GroupType
from kcore.group.share import records as share_records
from kcore.group.share.group import ShareGroup
from kcore.group.share.partitions import NOTHING, StatePartitions
from kcore.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
    PartitionData,
)
from kcore.runtime.machine import Outcome
from kcore.runtime.slices import until_settled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kcore.group.shard import GroupShard
    from kcore.protocol.messages.delete_share_group_state import DeleteShareGroupStateResponse
    from kcore.runtime.machine import Record
    from kcore.runtime.shards import Shards

GROUPS_OF_A_SLICE: Final = 500
"""Number of groups that one slice visits after a topic was deleted."""


class StateDeletion(NamedTuple):
    """The result of a decision after which the share coordinator must delete share-partition states.

    Attributes:
        request: the request to the share coordinator.
    """

    request: DeleteShareGroupStateRequest


def delete_request(group_id: str, topics: Mapping[bytes, Collection[int]]) -> DeleteShareGroupStateRequest:
    """Returns the request that deletes the states of share partitions."""
    return DeleteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            DeleteStateData(
                topic_id=topic_id, partitions=[PartitionData(partition=index) for index in sorted(partitions)]
            )
            for topic_id, partitions in topics.items()
        ],
    )


def failures(response: DeleteShareGroupStateResponse) -> dict[bytes, tuple[int, str | None]]:
    """Returns the first error of each topic that has one: topic id -> (code, message)."""
    failed: dict[bytes, tuple[int, str | None]] = {}
    for topic in response.results:
        for result in topic.partitions:
            if result.error_code:
                failed.setdefault(topic.topic_id, (result.error_code, result.error_message))
    return failed


def begin_deletion(group: ShareGroup) -> Outcome | None:
    """Decides the first step of the deletion of an empty group; returns None if the group has no state to delete.

    Initializing and initialized topics move to the deleting list. Topics that are already on this list are included,
    because the share coordinator may not have deleted their states.
    """
    state, by_id = group.state_partitions, group.shard.topics.by_id
    partitions: dict[bytes, set[int]] = {}
    deleting: dict[bytes, str] = {}
    for topic_id, name in state.deleting.items():
        topic = by_id(topic_id)
        if topic is not None:
            deleting[topic_id] = name
            partitions[topic_id] = set(range(topic.partitions))
    for topics in (state.initializing, state.initialized):
        for topic_id, of_topic in topics.items():
            deleting[topic_id] = of_topic.name
            partitions.setdefault(topic_id, set()).update(of_topic.partitions)
    if not deleting:
        return None
    record = share_records.state_partitions(group.group_id, StatePartitions({}, {}, deleting))
    return Outcome([record], StateDeletion(delete_request(group.group_id, partitions)))


def emptied_lists(group: ShareGroup) -> list[Record]:
    """Returns the record that empties the lists of a group without states, before the tombstones of the group.

    Kafka writes this record, too, unless the group never had a record of this type. It has no effect.
    """
    if group.state_partitions is NOTHING:
        return []
    return [share_records.state_partitions(group.group_id, NOTHING)]


def drop_topic_everywhere(shards: Shards[GroupShard], topic_id: bytes) -> None:
    """Starts removing a deleted topic from the lists of share partitions of all groups, in slices.

    If several topics are deleted before the slices start, the slices remove them together. Each removal writes a record
    with all topics of a group, so separate removals of 10,000 topics would take minutes. The share coordinator removes
    the states.
    """
    for shard in shards:
        if any(count for (kind, _), count in shard.machine.groups.counts.items() if kind == GroupType.SHARE.value):
            deleted = shard.machine.deleted_share_topics
            if not deleted:
                settled = until_settled(lambda deleted=deleted: len(deleted))  # type: ignore[misc]
                shard.in_slices(chain(settled, drop_topics(shard.machine)))
            deleted.append(topic_id)


def drop_topics(shard: GroupShard) -> Iterator[Outcome | None]:
    """Removes the shard's `deleted_share_topics` from the lists of share partitions of its groups.

    Yields:
        The decision about one group, or None at the end of a slice.
    """
    deleted, shard.deleted_share_topics = frozenset(shard.deleted_share_topics), []
    for count, group_id in enumerate([*shard.groups], start=1):
        group = shard.groups.get(group_id)
        if isinstance(group, ShareGroup):
            state = group.state_partitions.forget(deleted)
            if state is not group.state_partitions:
                yield Outcome([share_records.state_partitions(group_id, state)])
                continue
        if count % GROUPS_OF_A_SLICE == 0:
            yield None
