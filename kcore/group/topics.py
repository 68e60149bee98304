"""Notifies the group shards of created, extended and deleted topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.offsets.deletion import on_topic_deleted
from kcore.group.share.deletion import drop_topic_everywhere
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from kcore.group.consumer.services import ConsumerServices
    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.group.streams.services import StreamsServices
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicInfo


class GroupTopics(MetadataListener):
    """A metadata listener that forwards changes of topics, settings and features to the groups of this node.

    Consumer, share and streams groups react to these changes. Offsets of a deleted topic are removed from all groups.

    Args:
        groups: the group shards.
        consumer: the consumer group services, which cache settings, and topic metadata for all kinds of groups.
        streams: the streams group services, which cache settings.
        share: the share group services, which cache settings; None: there are no share groups.
    """

    __slots__ = ("_consumer", "_groups", "_share", "_streams")

    def __init__(
        self,
        groups: Shards[GroupShard],
        consumer: ConsumerServices,
        streams: StreamsServices,
        share: ShareGroupServices | None = None,
    ) -> None:
        self._groups = groups
        self._share = share
        self._consumer = consumer
        self._streams = streams

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Makes groups that subscribe to the topic, or to patterns, check their topics at their next heartbeat."""
        self._consumer.metadata.created(topic.name)
        self._changed(topic)

    def on_partitions_added(self, topic: TopicInfo, first: int) -> None:
        """Makes subscribed groups assign the new partitions."""
        self._consumer.metadata.changed(topic.name)
        self._changed(topic)

    def on_partitions_removed(self, topic: TopicInfo, first: int) -> None:
        """Makes subscribed groups revoke the removed partitions."""
        self.on_partitions_added(topic, first)

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Removes the topic's offsets and its share partitions, a slice at a time."""
        self._consumer.metadata.changed(topic.name)
        self._changed(topic)
        on_topic_deleted(self._groups, topic.name, topic.topic_id)
        drop_topic_everywhere(self._groups, topic.topic_id)

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Reloads the settings of groups."""
        self._consumer.settings_changed()
        self._streams.settings_changed()
        if self._share is not None:
            self._share.settings_changed()

    def on_feature_changed(self, name: str, level: int) -> None:
        """Enables or disables the protocols of consumer, streams and share groups according to the new level."""
        self._consumer.feature_changed()
        self._streams.feature_changed()
        if self._share is not None:
            self._share.feature_changed()

    def _changed(self, topic: TopicInfo) -> None:
        for shard in self._groups:
            shard.machine.on_topic_changed(topic.name)
