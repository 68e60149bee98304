"""Subscriptions and assignments of classic groups: encoding, decoding, and the leader's assignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kcore.assignors import COOPERATIVE, EAGER, Member, Topics
from kcore.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kcore.protocol.consumer_protocol import TopicPartition as TopicPartitions
from kcore.protocol.topic_partition import TopicPartition

SUBSCRIPTION_VERSION = 3
STICKY = "sticky"
COOPERATIVE_STICKY = "cooperative-sticky"


def rebalance_protocol(assignors: Sequence[Any]) -> str:
    """Returns the highest protocol that all assignors support: COOPERATIVE or EAGER.

    Raises:
        ValueError: the assignors have no protocol in common.
    """
    common = {COOPERATIVE, EAGER}
    for assignor in assignors:
        common &= set(getattr(assignor, "protocols", (EAGER,)))
    if not common:
        raise ValueError(f"the assignors {[one.name for one in assignors]} have no rebalance protocol in common")
    return COOPERATIVE if COOPERATIVE in common else EAGER


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        grouped.setdefault(topic, []).append(number)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in grouped.items()]


def encode_subscription(
    assignor: str,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    previous: Iterable[TopicPartition],
    generation_id: int,
    rack: str | None,
) -> bytes:
    """Encodes a subscription for one assignor.

    Args:
        assignor: the assignor's name; it determines the user data.
        topics: the subscribed topics.
        owned: the partitions that the member still owns.
        previous: the partitions of the last assignment, which the sticky assignor keeps if possible.
        generation_id: the member's generation; -1 after it was reset.
        rack: the member's rack.
    """
    user_data = None
    if assignor == COOPERATIVE_STICKY:
        user_data = generation_id.to_bytes(4, "big", signed=True)
    elif assignor == STICKY:
        user_data = _sticky_data(previous, generation_id)
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=_by_topic(owned),
        generation_id=generation_id,
        rack_id=rack,
    )
    return subscription.encode_versioned(SUBSCRIPTION_VERSION)


def _sticky_data(owned: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Encodes the sticky assignor's user data: topics with partitions, and the generation."""
    listed = _by_topic(owned)
    parts = [len(listed).to_bytes(4, "big")]
    for topic in listed:
        name = topic.topic.encode()
        parts += [len(name).to_bytes(2, "big"), name, len(topic.partitions).to_bytes(4, "big")]
        parts += [number.to_bytes(4, "big") for number in topic.partitions]
    return b"".join([*parts, generation_id.to_bytes(4, "big", signed=True)])


def decode_sticky_data(data: bytes) -> tuple[dict[str, list[int]], int]:
    """Decodes the sticky assignor's user data.

    Raises:
        ValueError: the bytes are malformed.
    """
    position = 0

    def take(size: int) -> int:
        nonlocal position
        position += size
        if position > len(data):
            raise ValueError("the sticky assignor's user data is truncated")
        return int.from_bytes(data[position - size : position], "big", signed=True)

    owned: dict[str, list[int]] = {}
    for _ in range(take(4)):
        length = take(2)
        if length < 0 or position + length > len(data):
            raise ValueError("the sticky assignor's user data is truncated")
        name = data[position : position + length].decode()
        position += length
        owned[name] = [take(4) for _ in range(take(4))]
    return owned, take(4) if position + 4 <= len(data) else -1


def decode_member(member: Any, assignor: str) -> Member:
    """Decodes a member of a JoinGroup response into the input of the assignors."""
    subscription, _ = ConsumerProtocolSubscription.decode_versioned(member.metadata)
    owned = {row.topic: list(row.partitions) for row in subscription.owned_partitions}
    generation_id = subscription.generation_id
    if assignor == STICKY and subscription.user_data:
        try:
            owned, generation_id = decode_sticky_data(subscription.user_data)
        except ValueError:
            owned, generation_id = {}, -1  # another client's mistake: the assignor treats the member as a new one
    return Member(
        member.member_id,
        list(subscription.topics),
        owned=owned,
        generation_id=generation_id,
        rack_id=subscription.rack_id,
        instance_id=member.group_instance_id,
        user_data=subscription.user_data,
    )


def assign(assignor: Any, members: Sequence[Member], counts: Mapping[str, int]) -> dict[str, bytes]:
    """Assigns the partitions of a group as its leader.

    Args:
        assignor: the chosen assignor.
        members: the members of the generation, with their subscriptions.
        counts: the number of partitions of each existing topic.

    Returns:
        Member id -> encoded assignment.
    """
    assigned = assignor.assign(members, Topics(dict(counts)))
    encoded = {}
    for member in members:
        partitions = [
            TopicPartition(str(topic), number)
            for topic, numbers in assigned.get(member.member_id, {}).items()
            for number in numbers
        ]
        encoded[member.member_id] = ConsumerProtocolAssignment(
            assigned_partitions=_by_topic(partitions)
        ).encode_versioned(SUBSCRIPTION_VERSION)
    return encoded


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Decodes an assignment; empty bytes are an empty assignment."""
    if not data:
        return frozenset()
    assignment, _ = ConsumerProtocolAssignment.decode_versioned(data)
    return frozenset(
        TopicPartition(topic.topic, number) for topic in assignment.assigned_partitions for number in topic.partitions
    )
