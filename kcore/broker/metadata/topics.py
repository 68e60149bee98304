"""The topics that the rest of the node sees, and who is told when they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kcore.broker.metadata.image import ConfigKey, ConfigType, MetadataImage
from kcore.runtime.topics import MetadataListener, TopicInfo


class Topics:
    """A `TopicImage` that outlives the machines behind it, and the list of its listeners.

    The metadata machine is thrown away and made anew whenever its log is read again; everybody else holds this
    object. While the log is being read, it shows what was there before.
    """

    __slots__ = ("_listeners", "image")

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._listeners: list[MetadataListener] = []

    def by_name(self, name: str) -> TopicInfo | None:
        """The topic of that name, or None."""
        return self.image.names.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """The topic of that id, or None."""
        return self.image.ids.get(topic_id)

    def all(self) -> Iterable[TopicInfo]:
        """Every topic, internal ones too, in order of creation."""
        return self.image.names.values()

    def settings_of(self, config_type: int, name: str) -> Mapping[str, str]:
        """What was set for one owner, name -> value as written."""
        return self.image.settings_of(config_type, name)

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature; 0 is off."""
        return self.image.features.get(name, 0)

    def listen(self, listener: MetadataListener) -> None:
        """Tells `listener` of every change from now on, after those who came before it, and of all there is at once."""
        self._listeners.append(listener)
        image = self.image
        for key in list(image.settings):
            if key.type != ConfigType.TOPIC:  # a topic's own come with the topic
                listener.on_config_changed(key.type, key.name)
        for name, level in image.features.items():
            listener.on_feature_changed(name, level)
        for topic in list(image.names.values()):
            listener.on_topic_created(topic)

    # ---- for the machine

    def created(self, topic: TopicInfo) -> None:
        """Tells of a new topic."""
        for listener in self._listeners:
            listener.on_topic_created(topic)

    def deleted(self, topic: TopicInfo) -> None:
        """Tells of a topic that is gone."""
        for listener in self._listeners:
            listener.on_topic_deleted(topic)

    def grown(self, topic: TopicInfo, first: int) -> None:
        """Tells of new partitions."""
        for listener in self._listeners:
            listener.on_partitions_added(topic, first)

    def configured(self, key: ConfigKey) -> None:
        """Tells of a changed setting."""
        for listener in self._listeners:
            listener.on_config_changed(key.type, key.name)

    def levelled(self, name: str, level: int) -> None:
        """Tells of a feature's new level."""
        for listener in self._listeners:
            listener.on_feature_changed(name, level)

    def replace(self, image: MetadataImage) -> None:
        """The log was read: shows `image` from now on, and tells how it differs from what was shown before."""
        before, self.image = self.image, image
        for key in {**before.settings, **image.settings}:
            if key.type != ConfigType.TOPIC and before.settings.get(key) != image.settings.get(key):
                self.configured(key)
        for name in {**before.features, **image.features}:
            if before.features.get(name, 0) != image.features.get(name, 0):
                self.levelled(name, image.features.get(name, 0))
        self._replace_topics(before, image)

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
            key = ConfigKey(ConfigType.TOPIC, topic.name)
            if before.settings.get(key) != image.settings.get(key):
                self.configured(key)
