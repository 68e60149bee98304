"""Conversion of the subscriptions and assignments that classic members embed in their requests, from and to topic
ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kcore.protocol.consumer_protocol import Assignment, Subscription, TopicPartition
from kcore.protocol.messages.consumer_group_heartbeat import TopicPartitions

if TYPE_CHECKING:
    from kcore.group.consumer.assignment import Target
    from kcore.runtime.topics import TopicImage

MAX_VERSION = Subscription.MAX_VERSION


def read_subscription(metadata: bytes, max_elements: int | None = None) -> Subscription:
    """Decodes a classic member's subscription.

    Args:
        metadata: the subscription with its version.
        max_elements: the maximum number of topics and partitions; None: no limit.

    Raises:
        DecodeError: the bytes are not a subscription, or the subscription has too many elements.
    """
    return Subscription.decode_versioned(metadata, max_elements)[0]


def read_assignment(assignment: bytes, topics: TopicImage) -> tuple[Target, bool]:
    """Decodes a classic member's assignment. Returns the partitions by topic id, and True if the assignment has user
    data.

    Topics that no longer exist are omitted. If `assignment` has no bytes, the member has no partitions.

    Raises:
        DecodeError: the bytes are not an assignment.
    """
    if not assignment:
        return {}, False
    decoded = Assignment.decode_versioned(assignment)[0]
    partitions_of: dict[bytes, set[int]] = {}
    for entry in decoded.assigned_partitions:
        topic = topics.by_name(entry.topic)
        if topic is not None and entry.partitions:
            partitions_of.setdefault(topic.topic_id, set()).update(entry.partitions)
    return {topic_id: tuple(sorted(parts)) for topic_id, parts in partitions_of.items()}, bool(decoded.user_data)


def owned_partitions(subscription: Subscription, topics: TopicImage) -> list[TopicPartitions]:
    """Returns the partitions that a classic member reports in its subscription, as in a ConsumerGroupHeartbeat.

    A subscription of version 0 has no report. Such a member has revoked all of its partitions before it joins.
    """
    by_topic: dict[str, list[int]] = {}
    for entry in subscription.owned_partitions:  # a client may name one topic a hundred thousand times
        by_topic.setdefault(entry.topic, []).extend(entry.partitions)
    reported = []
    for name, partitions in by_topic.items():
        topic = topics.by_name(name)
        if topic is not None:
            reported.append(TopicPartitions(topic_id=topic.topic_id, partitions=partitions))
    return reported


def write_assignment(partitions: Mapping[bytes, Iterable[int]], topics: TopicImage, metadata: bytes) -> bytes:
    """Encodes an assignment for a classic member, in the version of its subscription `metadata`."""
    assigned = []
    for topic_id, of_topic in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            assigned.append(TopicPartition(topic=topic.name, partitions=sorted(of_topic)))
    version = min(int.from_bytes(metadata[:2], "big", signed=True), MAX_VERSION)
    return Assignment(assigned_partitions=assigned).encode_versioned(version)
