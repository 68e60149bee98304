"""What a coordinator may know of topics: a read-only view that the data plane fills."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TopicInfo:
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
