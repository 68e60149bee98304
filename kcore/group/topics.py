"""Topics come, grow and go: what groups hear of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.offsets.deletion import on_topic_deleted
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from kcore.group.consumer.services import ConsumerServices
    from kcore.group.shard import GroupShard
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicInfo


class GroupTopics(MetadataListener):
    """Tells the group shards of topics and settings: consumer groups follow both, offsets go with their topic.

    Args:
        groups: the shards.
        consumer: what their consumer groups know of topics.
    """

    __slots__ = ("_consumer", "_groups")

    def __init__(self, groups: Shards[GroupShard], consumer: ConsumerServices) -> None:
        self._groups = groups
        self._consumer = consumer

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Groups that wait for it, or whose pattern may match it, find it with their next heartbeat."""
        self._consumer.metadata.created(topic.name)
        self._changed(topic)

    def on_partitions_added(self, topic: TopicInfo, first: int) -> None:
        """Groups that read it get the new partitions."""
        self._consumer.metadata.changed(topic.name)
        self._changed(topic)

    def on_partitions_removed(self, topic: TopicInfo, first: int) -> None:
        """What groups have of them is taken away again."""
        self.on_partitions_added(topic, first)

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Its offsets are removed, a slice at a time."""
        self._consumer.metadata.changed(topic.name)
        self._changed(topic)
        on_topic_deleted(self._groups, topic.name, topic.topic_id)

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Settings of groups are read anew."""
        self._consumer.settings_changed()

    def on_feature_changed(self, name: str, level: int) -> None:
        """The protocol of consumer groups may be on or off now."""
        self._consumer.feature_changed()

    def _changed(self, topic: TopicInfo) -> None:
        for shard in self._groups:
            shard.machine.on_topic_changed(topic.name)
