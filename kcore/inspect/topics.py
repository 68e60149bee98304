"""Topics with the offsets and settings of their partitions, read through a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kcore.node.types import TopicPartition

if TYPE_CHECKING:
    from kcore.node._sync.node import Node


class TopicPartitionRow(NamedTuple):
    """A partition in a listing.

    Attributes:
        topic: the name of the topic.
        partition: the partition number.
        leader: the node id of the partition's leader, None without a leader.
        start_offset: the first offset of the partition's log.
        end_offset: the offset of the next record.
        settings: the settings that were set for the topic, as `name=value`; "" if none was set.
    """

    topic: str
    partition: int
    leader: int | None
    start_offset: int | None
    end_offset: int | None
    settings: str


def describe_topics(node: Node, names: Sequence[str] = ()) -> list[TopicPartitionRow]:
    """Returns every partition of the topics, with the first and last offsets of its log.

    Args:
        node: an embedded engine or a cluster.
        names: names of the topics; empty: all topics except internal ones.

    Raises:
        KafkaError: a topic does not exist or cannot be described.
    """
    topics = [topic for topic in node.topics.describe(names or None) if names or not topic.internal]
    partitions = [TopicPartition(topic.name, row.partition) for topic in topics for row in topic.partitions]
    starts = node.topics.start_offsets(partitions)
    ends = node.topics.end_offsets(partitions, isolation="read_uncommitted")
    rows = []
    for topic in topics:
        own = node.topics[topic.name].config(own=True)
        settings = " ".join(f"{name}={'' if value is None else value}" for name, value in own.items())
        for row in topic.partitions:
            place = TopicPartition(topic.name, row.partition)
            rows.append(TopicPartitionRow(*place, row.leader, starts.get(place), ends.get(place), settings))
    return rows
