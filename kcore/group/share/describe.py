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
    names: dict[bytes, str | None] = {}
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.shard.share.assignor_name,
        members=[_member(group, member, names) for member in group.members.values()],
    )


def topics_of(described: DescribedGroup) -> set[str]:
    """Returns the topics that occur in the assignments of a description."""
    return {topic.topic_name for member in described.members for topic in member.assignment.topic_partitions}


def _member(group: ShareGroup, member: ShareMember, names: dict[bytes, str | None]) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=group.shard.consumer.in_order(metadata.names),
        assignment=_assignment(member.current.assigned, group.shard.topics, names),
    )


def _assignment(partitions: Target, topics: TopicImage, names: dict[bytes, str | None]) -> Assignment:
    """Returns a member's assignment.

    Args:
        partitions: the member's partitions.
        topics: the topics of the cluster.
        names: the names of the topics of earlier members by id, None for deleted ones; others are added.
    """
    entries = []
    for topic_id, of_topic in partitions.items():
        if topic_id in names:
            name = names[topic_id]
        else:
            topic = topics.by_id(topic_id)
            name = names[topic_id] = None if topic is None else topic.name
        if name is not None:
            entries.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=of_topic))
    return Assignment(topic_partitions=entries)
