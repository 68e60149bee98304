"""What a coordinator may know of topics: a read-only view that the data plane fills, and what tells of changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class TopicInfo(NamedTuple):
    """A topic as coordinators see it.

    Attributes:
        name: the topic's name.
        topic_id: 16 bytes; a topic that is deleted and made again has another.
        partitions: how many partitions it has, numbered from 0.
    """

    name: str
    topic_id: bytes
    partitions: int


class TopicImage(Protocol):
    """The topics of the cluster, by name and by id."""

    def by_name(self, name: str) -> TopicInfo | None:
        """The topic of that name, or None."""
        ...

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """The topic of that id, or None."""
        ...

    def all(self) -> Iterable[TopicInfo]:
        """Every topic, internal ones too, in no particular order."""
        ...


class MetadataListener:
    """Is told of every change of the metadata, while it is replayed: before it is durable, after the image has it.

    Subclasses override what they care for. A change that is taken back (its commit failed) is told as the opposite
    change, once the metadata has been read again. No method may raise or ask for another change.
    """

    __slots__ = ()

    def on_topic_created(self, topic: TopicInfo) -> None:
        """`topic` is there, with all its partitions; its settings can be read."""

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """`topic` is gone."""

    def on_partitions_added(self, topic: TopicInfo, first: int) -> None:
        """`topic` has more partitions: those from `first` on are new."""

    def on_partitions_removed(self, topic: TopicInfo, first: int) -> None:
        """Partitions from `first` on were taken back: they were told of, but never became durable."""

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """A setting of a topic, a group, this broker (its id) or all brokers ("") changed.

        Not told for the settings that a topic is created or deleted with.
        """

    def on_feature_changed(self, name: str, level: int) -> None:
        """A feature has a new finalized level; 0 is off."""
