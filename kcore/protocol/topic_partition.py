"""The name of a partition: a topic and a number."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

PartitionTuple: TypeAlias = tuple[str, int]
"""A partition as a tuple, for code in which a `TopicPartition` for each partition would cost too much.

The tuple and the `TopicPartition` are equal as keys of a dict."""


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
