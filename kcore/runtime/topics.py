"""The coordinators' read-only view of topics, and the listener for changes of the metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class TopicInfo(NamedTuple):
    """A topic as coordinators see it.

    Attributes:
        name: the topic's name.
        topic_id: 16 bytes; a topic that is deleted and created again gets another id.
        partitions: the number of partitions, which are numbered from 0.
    """

    name: str
    topic_id: bytes
    partitions: int


class TopicImage(Protocol):
    """The topics of the cluster, by name and by id."""

    def by_name(self, name: str) -> TopicInfo | None:
        """Returns the topic of that name, or None."""
        ...

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Returns the topic of that id, or None."""
        ...

    def all(self) -> Iterable[TopicInfo]:
        """Returns every topic, internal ones too, in no particular order."""
        ...


class MetadataListener:
    """A listener for changes of the metadata.

    Its methods are called during replay: after the image has the change, and before the change is durable. Subclasses
    override the methods they need. If the commit of a change fails, the metadata is read again, and the listener gets
    the opposite change. No method may raise or request another change.
    """

    __slots__ = ()

    def on_metadata_unloaded(self) -> None:
        """Handles the beginning of a reload.

        Until the end of the reload, the image may have changes whose commit has failed.
        """

    def on_metadata_loaded(self) -> None:
        """Handles the end of a load, after the calls for the differences from the previous image."""

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Handles a new topic: all its partitions exist, and its settings can be read."""

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Handles a deleted topic."""

    def on_partitions_added(self, topic: TopicInfo, first: int) -> None:
        """Handles new partitions of `topic`: the partitions from `first` on."""

    def on_partitions_removed(self, topic: TopicInfo, first: int) -> None:
        """Handles the removal of the partitions from `first` on, which were reported as new, but never became
        durable.
        """

    def on_leader_changed(self, topic: TopicInfo, partition: int) -> None:
        """Handles a new leader of a partition. It is not called for the first leaders of new partitions."""

    def on_move_planned(self, topic: TopicInfo, partition: int) -> None:
        """Handles a planned move of a partition to its next leader. The present leader has to release the partition.

        It is also called if a reload of the metadata has removed a plan that never became durable.
        """

    def on_brokers_changed(self) -> None:
        """Handles changed nodes of the cluster."""

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Handles a changed setting of a topic, a group, this broker (its id) or all brokers ("").

        It is not called for the settings of a topic that is created or deleted.
        """

    def on_feature_changed(self, name: str, level: int) -> None:
        """Handles a new finalized level of a feature; 0 is off."""

    def on_quotas_changed(self) -> None:
        """Handles changed quotas of clients."""
