"""The ShareGroupDescribe response for a share group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from kcore.group.description import NAMES_A_MICROSECOND, Description
from kcore.protocol.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

if TYPE_CHECKING:
    from collections.abc import Generator

    from kcore.group.consumer.assignment import Target
    from kcore.group.consumer.services import ConsumerServices
    from kcore.group.share.group import ShareGroup
    from kcore.group.share.member import CurrentAssignment, MemberMetadata
    from kcore.runtime.topics import TopicImage


TOPICS_PER_STEP: Final = 500

MemberObjects: TypeAlias = "tuple[str, MemberMetadata, CurrentAssignment]"
"""A member in a description: (member id, metadata, current assignment). These objects are immutable."""


def describe(group: ShareGroup) -> Description:
    """Returns the current description of the group. Deleted topics are not part of the assignments."""
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.shard.share.assignor_name,
    )
    members = [(member.member_id, member.metadata, member.current) for member in group.members.values()]
    names: set[str] = set()
    return Description(described, names, _convert(described, members, names, group.shard.consumer, group.shard.topics))


def _convert(
    described: DescribedGroup,
    members: list[MemberObjects],
    names: set[str],
    services: ConsumerServices,
    topics: TopicImage,
) -> Generator[int, None, None]:
    """Adds the members to `described`, and the names of their topics to `names`.

    Yields the cost of each step in microseconds.
    """
    entries: dict[bytes, TopicPartitions] = {}
    converted = []
    for member_id, metadata, current in members:
        yield 1 + len(metadata.names) // NAMES_A_MICROSECOND
        converted.append(
            Member(
                member_id=member_id,
                rack_id=metadata.rack_id,
                member_epoch=current.member_epoch,
                client_id=metadata.client_id,
                client_host=metadata.client_host,
                subscribed_topic_names=services.in_order(metadata.names),
                assignment=(yield from _assignment(current.assigned, topics, entries)),
            )
        )
    names.update(entry.topic_name for entry in entries.values())
    yield len(entries) // NAMES_A_MICROSECOND
    described.members = converted


def _assignment(
    partitions: Target, topics: TopicImage, earlier: dict[bytes, TopicPartitions]
) -> Generator[int, None, Assignment]:
    """Returns a member's assignment.

    Args:
        partitions: the member's partitions.
        topics: the topics of the cluster.
        earlier: for each topic id, the entry that was last used in an assignment. If this member has the same
            partitions of the topic, its assignment shares the entry. Otherwise a new entry replaces it.
    """
    entries: list[TopicPartitions] = []
    for topic_id, of_topic in partitions.items():
        entry = earlier.get(topic_id)
        if entry is None:
            topic = topics.by_id(topic_id)
            if topic is None:
                continue
            entry = earlier[topic_id] = TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=of_topic)
        elif entry.partitions != of_topic:
            entry = earlier[topic_id] = TopicPartitions(
                topic_id=topic_id, topic_name=entry.topic_name, partitions=of_topic
            )
        entries.append(entry)
        if len(entries) % TOPICS_PER_STEP == 0:
            yield TOPICS_PER_STEP
    yield len(entries) % TOPICS_PER_STEP
    return Assignment(topic_partitions=entries)
