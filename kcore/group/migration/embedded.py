"""Subscriptions and assignments as classic members embed them in their requests, to and from topic ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kcore.protocol.consumer_protocol import Assignment, Subscription, TopicPartition
from kcore.protocol.messages.consumer_group_heartbeat import TopicPartitions

if TYPE_CHECKING:
    from kcore.group.consumer.assignment import Target
    from kcore.runtime.topics import TopicImage

MAX_VERSION = Subscription.MAX_VERSION


def read_subscription(metadata: bytes) -> Subscription:
    """What a classic member wants.

    Raises:
        DecodeError: the bytes are no subscription.
    """
    return Subscription.decode_versioned(metadata)[0]


def read_assignment(assignment: bytes, topics: TopicImage) -> tuple[Target, bool]:
    """What a classic member was assigned: partitions by topic id, and whether its assignor added data of its own.

    Topics that do not exist any more are left out. No bytes at all are nothing assigned.

    Raises:
        DecodeError: the bytes are no assignment.
    """
    if not assignment:
        return {}, False
    decoded = Assignment.decode_versioned(assignment)[0]
    found: dict[bytes, set[int]] = {}
    for entry in decoded.assigned_partitions:
        topic = topics.by_name(entry.topic)
        if topic is not None and entry.partitions:
            found.setdefault(topic.topic_id, set()).update(entry.partitions)
    return {topic_id: tuple(sorted(parts)) for topic_id, parts in found.items()}, bool(decoded.user_data)


def owned_partitions(subscription: Subscription, topics: TopicImage) -> list[TopicPartitions]:
    """What a classic member says it uses, as a heartbeat would say it. A subscription of version 0 says nothing: then
    the member has given up everything before it joined."""
    reported = []
    for entry in subscription.owned_partitions:
        topic = topics.by_name(entry.topic)
        if topic is not None:
            reported.append(TopicPartitions(topic_id=topic.topic_id, partitions=list(entry.partitions)))
    return reported


def write_assignment(partitions: Mapping[bytes, Iterable[int]], topics: TopicImage, metadata: bytes) -> bytes:
    """An assignment for a classic member, in the version of its subscription `metadata`."""
    assigned = []
    for topic_id, of_topic in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            assigned.append(TopicPartition(topic=topic.name, partitions=sorted(of_topic)))
    version = min(int.from_bytes(metadata[:2], "big", signed=True), MAX_VERSION)
    return Assignment(assigned_partitions=assigned).encode_versioned(version)
