"""The offsets that open transactions hold back, read through a node.

A read_committed reader sees a partition up to its *last stable offset*: the first record of the earliest open
transaction. This transaction holds back the offsets from its first record to the end of the partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kcore.errors import KcoreError
from kcore.node.types import TopicPartition

if TYPE_CHECKING:
    from kcore.node._sync.node import Node


class StableOffset(NamedTuple):
    """The offsets up to which readers see a partition.

    Attributes:
        last_stable_offset: the limit of read_committed readers.
        high_watermark: the limit of all other readers.
    """

    last_stable_offset: int
    high_watermark: int

    @property
    def held_back(self) -> int:
        """The number of offsets that open transactions hide from read_committed readers."""
        return self.high_watermark - self.last_stable_offset


def all_partitions(node: Node, topic: str | None = None, partition: int | None = None) -> list[TopicPartition]:
    """Returns the partitions that have a leader. `topic` and `partition` limit the result."""
    topics = node.topics.describe(None if topic is None else [topic], missing_ok=True)
    return [
        TopicPartition(found.name, row.partition)
        for found in topics
        for row in found.partitions
        if row.leader is not None and (partition is None or row.partition == partition)
    ]


def named_partitions(node: Node, topic: str, partition: int | None = None) -> list[TopicPartition]:
    """Returns the partitions of a topic that have a leader. `partition` limits the result to one partition.

    Raises:
        KcoreError: the topic or the partition does not exist, or has no leader.
    """
    partitions = all_partitions(node, topic, partition)
    if not partitions:
        name = f"topic {topic!r}" if partition is None else f"partition {partition} of topic {topic!r}"
        raise KcoreError(f"{name} does not exist, or has no leader")
    return partitions


def stable_offsets(node: Node, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, StableOffset]:
    """Returns the offsets up to which readers see each existing partition."""
    listed = list(partitions)
    stable = node.topics.end_offsets(listed)
    high = node.topics.end_offsets(listed, isolation="read_uncommitted")
    return {place: StableOffset(offset, high[place]) for place, offset in stable.items() if place in high}
