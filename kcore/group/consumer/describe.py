"""The ConsumerGroupDescribe response for a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kcore.group.consumer.assignment import merged
from kcore.group.consumer.target import preferred_assignor
from kcore.protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

if TYPE_CHECKING:
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import ConsumerMember
    from kcore.runtime.topics import TopicImage

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def describe(group: ConsumerGroup) -> DescribedGroup:
    """Returns the current description of the group. A member's assignment includes partitions that it is revoking."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group, None, None),
        members=[_member(group, member) for member in group.members.values()],
    )


def topics_of(described: DescribedGroup) -> set[str]:
    """Returns the topics that occur in the assignments of a description."""
    return {
        topic.topic_name
        for member in described.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _member(group: ConsumerGroup, member: ConsumerMember) -> Member:
    metadata, current, topics = member.metadata, member.current, group.shard.topics
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=group.shard.consumer.in_order(metadata.names),
        subscribed_topic_regex=metadata.regex,
        assignment=_assignment(merged(current.assigned, current.revoking), topics),
        target_assignment=_assignment(group.target_of(member.member_id), topics),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: TopicImage) -> Assignment:
    entries = []
    for topic_id, of_topic in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            entries.append(TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(of_topic)))
    return Assignment(topic_partitions=entries)
