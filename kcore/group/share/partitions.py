"""The lists of a group's share partitions whose states are being initialized, exist, or are being deleted.

The group stores these lists in a record of type 15 (`ShareGroupStatePartitionMetadata`). The share coordinator stores
the states.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kcore.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from kcore_ext.group.share_state import encode_state


class StateTopic(NamedTuple):
    """Partitions of one topic.

    Attributes:
        name: the topic's name.
        partitions: the partitions; empty after an AlterShareGroupOffsets request without partitions for the topic.
    """

    name: str
    partitions: frozenset[int]


StateTopics = Mapping[bytes, StateTopic]
"""Topic id -> the topic's partitions."""
NO_PARTITIONS: Final[frozenset[int]] = frozenset()


class StatePartitions(NamedTuple):
    """The three lists of a record of type 15. Immutable by convention: a change returns another object.

    Attributes:
        initializing: partitions whose initialization the share coordinator has not confirmed.
        initialized: partitions with a state. During AlterShareGroupOffsets they are also in `initializing`.
        deleting: topics for which the share coordinator has not confirmed the deletion of states: topic id -> name.
    """

    initializing: StateTopics
    initialized: StateTopics
    deleting: Mapping[bytes, str]

    def begin(self, topics: StateTopics) -> StatePartitions:
        """Returns the lists with `topics` added to the initializing list and removed from the deleting list."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics}
        return StatePartitions(_union(self.initializing, topics), self.initialized, deleting)

    def confirm(self, topics: StateTopics) -> StatePartitions:
        """Returns the lists after the initialization of `topics` succeeded.

        Partitions that are no longer in the initializing list are not added to the initialized list, because their
        topic was deleted meanwhile.
        """
        confirmed = {}
        for topic_id, topic in topics.items():
            begun = self.initializing.get(topic_id)
            if begun is None:
                continue
            same = begun.partitions is topic.partitions
            done = topic if same else StateTopic(topic.name, topic.partitions & begun.partitions)
            if done.partitions:
                confirmed[topic_id] = done
        return StatePartitions(_minus(self.initializing, topics), _union(self.initialized, confirmed), self.deleting)

    def cancel(self, topics: StateTopics) -> StatePartitions:
        """Returns the lists without the `topics` whose initialization has failed."""
        return StatePartitions(_minus(self.initializing, topics), self.initialized, self.deleting)

    def delete(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """Returns the lists with initialized topics moved to the deleting list."""
        deleting = dict(self.deleting)
        deleting.update((key, self.initialized[key].name) for key in topic_ids if key in self.initialized)
        return StatePartitions(self.initializing, _without(self.initialized, topic_ids), deleting)

    def deleted(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """Returns the lists with `topic_ids` removed from the deleting list, because their states were deleted."""
        deleted_ids = frozenset(topic_ids)  # the ids may be a list of 20,000
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in deleted_ids}
        return StatePartitions(self.initializing, self.initialized, deleting)

    def forget(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """Returns the lists without the deleted topics `topic_ids`; returns this object if no list has such a topic."""
        deleted_ids = frozenset(topic_ids)
        if (
            deleted_ids.isdisjoint(self.initializing)
            and deleted_ids.isdisjoint(self.initialized)
            and deleted_ids.isdisjoint(self.deleting)
        ):
            return self
        return StatePartitions(
            _without(self.initializing, deleted_ids),
            _without(self.initialized, deleted_ids),
            self.deleted(deleted_ids).deleting,
        )

    def initialized_of(self, topic_id: bytes) -> frozenset[int]:
        """Returns the initialized partitions of a topic."""
        topic = self.initialized.get(topic_id)
        return NO_PARTITIONS if topic is None else topic.partitions

    def initializing_of(self, topic_id: bytes) -> frozenset[int]:
        """Returns the initializing partitions of a topic."""
        topic = self.initializing.get(topic_id)
        return NO_PARTITIONS if topic is None else topic.partitions


NOTHING: Final = StatePartitions({}, {}, {})
"""The empty lists of a group that has no record of type 15."""


def _union(one: StateTopics, other: StateTopics) -> StateTopics:
    both = dict(one)
    for topic_id, topic in other.items():
        present = both.get(topic_id)
        both[topic_id] = topic if present is None else StateTopic(topic.name, present.partitions | topic.partitions)
    return both


def _minus(topics: StateTopics, removed: StateTopics) -> StateTopics:
    """Returns `topics` without the removed partitions, and without topics that then have no partitions."""
    rest = {}
    for topic_id, topic in topics.items():
        removed_topic = removed.get(topic_id)
        if removed_topic is None:
            rest[topic_id] = topic
        elif removed_topic.partitions is not topic.partitions:
            partitions = topic.partitions - removed_topic.partitions
            if partitions:
                rest[topic_id] = StateTopic(topic.name, partitions)
    return rest


def _without(topics: StateTopics, topic_ids: Collection[bytes]) -> StateTopics:
    deleted_ids = frozenset(topic_ids)
    return {topic_id: topic for topic_id, topic in topics.items() if topic_id not in deleted_ids}


# ---- records


class StateValue:
    """The value of a record of type 15. It refers to the lists that a decision has built.

    After a decision, the replay uses these lists, because decoding up to 20,000 topics from the value would take long.
    During a load, the replay decodes the value from the log.

    Attributes:
        state: the lists.
    """

    __slots__ = ("state",)

    def __init__(self, state: StatePartitions) -> None:
        self.state = state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateValue) and self.state == other.state

    __hash__ = None  # type: ignore[assignment]

    def encode_value(self, version: int) -> bytes:
        """Encodes the lists for the log. After a load, `from_value` returns equal lists."""
        state = self.state
        if version == 0:
            with suppress(ValueError, OverflowError, TypeError):  # the codec raises the error with its cause
                return encode_state(dict(state.initializing), dict(state.initialized), dict(state.deleting))
        return to_value(state).encode_value(version)


def to_value(state: StatePartitions) -> ShareGroupStatePartitionMetadataValue:
    """Converts the lists of share partitions to the value of a record of type 15."""
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=_to_topics(state.initializing),
        initialized_topics=_to_topics(state.initialized),
        deleting_topics=[TopicInfo(topic_id=key, topic_name=name) for key, name in state.deleting.items()],
    )


def from_value(value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    """Converts the value of a record of type 15 to the lists of share partitions."""
    return StatePartitions(
        _from_topics(value.initializing_topics),
        _from_topics(value.initialized_topics),
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )


def _to_topics(topics: StateTopics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for topic_id, topic in topics.items()
    ]


def _from_topics(topics: Iterable[Any]) -> dict[bytes, StateTopic]:
    return {topic.topic_id: StateTopic(topic.topic_name, frozenset(topic.partitions)) for topic in topics}
