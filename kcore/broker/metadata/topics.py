"""The topics in the form that all other code of the node uses, and the notification of listeners about changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kcore.broker.metadata.image import ConfigKey, ConfigType, MetadataImage
from kcore.runtime.topics import MetadataListener, TopicInfo
from kcore_ext.runtime.topics import TopicsCore


class Topics(TopicsCore):
    """A `TopicImage` that outlives its metadata machines, and the list of its listeners.

    Each reload of the metadata log replaces the metadata machine, so other components hold this object instead. During
    a reload it shows the previous image.

    Attributes:
        image: the current metadata.
        deciding: True while listeners are notified of a decision of this node that is not committed yet. False while
            they are notified of records that are already in the log, after a reload or from another node.
    """

    __slots__ = ("_listeners", "deciding")

    image: MetadataImage

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.deciding = False
        self._listeners: list[MetadataListener] = []

    def all(self) -> Iterable[TopicInfo]:
        """Returns every topic including internal ones, in order of creation."""
        return self.image.names.values()

    def settings_of(self, config_type: int, name: str) -> Mapping[str, str]:
        """Returns the settings of one owner, name -> value as written."""
        return self.image.settings_of(config_type, name)

    def feature_level(self, name: str) -> int:
        """Returns the finalized level of a feature; 0 means off."""
        return self.image.features.get(name, 0)

    def listen(self, listener: MetadataListener) -> None:
        """Adds a listener and notifies it of the current state.

        Listeners are notified of later changes in the order in which the listeners were added.
        """
        self._listeners.append(listener)
        image = self.image
        for key in list(image.settings):
            if key.type != ConfigType.TOPIC:  # a topic's settings come with the topic
                listener.on_config_changed(key.type, key.name)
        for name, level in image.features.items():
            listener.on_feature_changed(name, level)
        for topic in list(image.names.values()):
            listener.on_topic_created(topic)

    # ---- for the machine

    def unloaded(self) -> None:
        """Notifies the listeners that the metadata is being read again."""
        for listener in self._listeners:
            listener.on_metadata_unloaded()

    def created(self, topic: TopicInfo) -> None:
        """Notifies the listeners of a new topic."""
        for listener in self._listeners:
            listener.on_topic_created(topic)

    def deleted(self, topic: TopicInfo) -> None:
        """Notifies the listeners of a deleted topic."""
        for listener in self._listeners:
            listener.on_topic_deleted(topic)

    def grown(self, topic: TopicInfo, first: int) -> None:
        """Notifies the listeners of new partitions."""
        for listener in self._listeners:
            listener.on_partitions_added(topic, first)

    def moved(self, topic: TopicInfo, partition: int) -> None:
        """Notifies the listeners of a partition's new leader."""
        for listener in self._listeners:
            listener.on_leader_changed(topic, partition)

    def planned(self, topic: TopicInfo, partition: int) -> None:
        """Notifies the listeners that the leadership of a partition will move."""
        for listener in self._listeners:
            listener.on_move_planned(topic, partition)

    def brokers_changed(self) -> None:
        """Notifies the listeners of changed nodes."""
        for listener in self._listeners:
            listener.on_brokers_changed()

    def configured(self, key: ConfigKey) -> None:
        """Notifies the listeners of a changed setting."""
        for listener in self._listeners:
            listener.on_config_changed(key.type, key.name)

    def levelled(self, name: str, level: int) -> None:
        """Notifies the listeners of a feature's new level."""
        for listener in self._listeners:
            listener.on_feature_changed(name, level)

    def quotas_changed(self) -> None:
        """Notifies the listeners of changed quotas."""
        for listener in self._listeners:
            listener.on_quotas_changed()

    def replace(self, image: MetadataImage) -> None:
        """Installs the image of a loaded log and notifies the listeners of the differences from the previous image."""
        before, self.image = self.image, image
        for key in {**before.settings, **image.settings}:
            if key.type != ConfigType.TOPIC and before.settings.get(key) != image.settings.get(key):
                self.configured(key)
        for name in {**before.features, **image.features}:
            if before.features.get(name, 0) != image.features.get(name, 0):
                self.levelled(name, image.features.get(name, 0))
        if before.quotas != image.quotas:
            self.quotas_changed()
        if before.brokers != image.brokers:
            self.brokers_changed()
        self._replace_topics(before, image)
        for listener in self._listeners:
            listener.on_metadata_loaded()

    def _replace_topics(self, before: MetadataImage, image: MetadataImage) -> None:
        for topic in list(before.names.values()):
            if topic.topic_id not in image.ids:
                self.deleted(topic)
        for topic in list(image.names.values()):
            old = before.ids.get(topic.topic_id)
            if old is None:
                self.created(topic)
                continue
            if topic.partitions > old.partitions:
                self.grown(topic, old.partitions)
            elif topic.partitions < old.partitions:
                for listener in self._listeners:
                    listener.on_partitions_removed(topic, topic.partitions)
            self._replace_leaders(before, image, topic, old.partitions)
            key = ConfigKey(ConfigType.TOPIC, topic.name)
            if before.settings.get(key) != image.settings.get(key):
                self.configured(key)

    def _replace_leaders(
        self, before: MetadataImage, image: MetadataImage, topic: TopicInfo, known_partitions: int
    ) -> None:
        """Notifies the listeners of new leaders of partitions that existed before."""
        topic_id = topic.topic_id
        changed = {**before.leaders.get(topic_id, {}), **image.leaders.get(topic_id, {})}
        for partition in changed:
            leader = image.leader(topic_id, partition)
            if partition < known_partitions and leader not in (None, before.leader(topic_id, partition)):
                self.moved(topic, partition)
        # A plan that the new image lacks was never durable. A node that gave the partition up because of the plan leads
        # it again.
        for partition in {**before.successors.get(topic_id, {}), **image.successors.get(topic_id, {})}:
            if before.successor(topic_id, partition) != image.successor(topic_id, partition):
                self.planned(topic, partition)
