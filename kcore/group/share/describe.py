"""The ShareGroupDescribe response for a share group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.protocol.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

if TYPE_CHECKING:
    from kcore.group.consumer.assignment import Target
    from kcore.group.share.group import ShareGroup
    from kcore.group.share.member import ShareMember
    from kcore.runtime.topics import TopicImage


def describe(group: ShareGroup) -> DescribedGroup:
    """Returns the current description of the group. Deleted topics are not part of the assignments."""
    entries: dict[bytes, TopicPartitions] = {}
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.shard.share.assignor_name,
        members=[_member(group, member, entries) for member in group.members.values()],
    )


def topics_of(described: DescribedGroup) -> set[str]:
    """Returns the topics that occur in the assignments of a description."""
    return {topic.topic_name for member in described.members for topic in member.assignment.topic_partitions}


def _member(group: ShareGroup, member: ShareMember, entries: dict[bytes, TopicPartitions]) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=group.shard.consumer.in_order(metadata.names),
        assignment=_assignment(member.current.assigned, group.shard.topics, entries),
    )


def _assignment(partitions: Target, topics: TopicImage, earlier: dict[bytes, TopicPartitions]) -> Assignment:
    """Returns a member's assignment.

    Args:
        partitions: the member's partitions.
        topics: the topics of the cluster.
        earlier: the last entry of each topic in earlier members' assignments; members with the same partitions of a
            topic share the entry.
    """
    entries = []
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
    return Assignment(topic_partitions=entries)
