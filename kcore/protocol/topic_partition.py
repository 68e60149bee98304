"""The name of a partition: a topic and a number."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

PartitionTuple: TypeAlias = tuple[str, int]
"""The same as a plain tuple, where an object for each partition would cost too much. Both kinds are equal as keys."""


class TopicPartition(NamedTuple):
    """A partition of a topic. It equals the tuple `(topic, partition)`.

    Attributes:
        topic: the topic's name.
        partition: the partition's number, from 0.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
