"""The ConsumerGroupDescribe response for a consumer group."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kcore.group.consumer.assignment import merged
from kcore.group.consumer.target import preferred_assignor
from kcore.group.description import NAMES_A_MICROSECOND, Description
from kcore.protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

if TYPE_CHECKING:
    from kcore.group.consumer.assignment import CurrentAssignment, Target
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import MemberMetadata
    from kcore.group.consumer.services import ConsumerServices
    from kcore.runtime.topics import TopicImage

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1

TOPICS_PER_STEP: Final = 500
TOPIC_COST_US: Final = 2
"""The cost of converting one topic of an assignment, in microseconds."""
PARTITIONS_A_MICROSECOND: Final = 20

MemberObjects: TypeAlias = "tuple[str, MemberMetadata, CurrentAssignment, Target]"
"""A member in a description: (member id, metadata, current assignment, target). These objects are immutable."""


def describe(group: ConsumerGroup) -> Description:
    """Returns the current description of the group. A member's assignment includes partitions that it is revoking."""
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group, None, None),
    )
    members = [
        (member.member_id, member.metadata, member.current, group.target_of(member.member_id))
        for member in group.members.values()
    ]
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
    converted = []
    for member_id, metadata, current, target in members:
        owned = merged(current.assigned, current.revoking)
        yield 1 + len(metadata.names) // NAMES_A_MICROSECOND + (len(owned) if current.revoking else 0)
        converted.append(
            Member(
                member_id=member_id,
                instance_id=metadata.instance_id,
                rack_id=metadata.rack_id,
                member_epoch=current.member_epoch,
                client_id=metadata.client_id,
                client_host=metadata.client_host,
                subscribed_topic_names=services.in_order(metadata.names),
                subscribed_topic_regex=metadata.regex,
                assignment=(yield from _assignment(owned, topics, names)),
                target_assignment=(yield from _assignment(target, topics, names)),
                member_type=CONSUMER_MEMBER if metadata.classic is None else CLASSIC_MEMBER,
            )
        )
    described.members = converted


def _assignment(
    partitions: Mapping[bytes, Collection[int]], topics: TopicImage, names: set[str]
) -> Generator[int, None, Assignment]:
    entries = []
    cost = 0
    for count, (topic_id, of_topic) in enumerate(partitions.items(), start=1):
        topic = topics.by_id(topic_id)
        if topic is not None:
            entries.append(TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(of_topic)))
            names.add(topic.name)
        cost += TOPIC_COST_US + len(of_topic) // PARTITIONS_A_MICROSECOND
        if count % TOPICS_PER_STEP == 0:
            yield cost
            cost = 0
    yield cost
    return Assignment(topic_partitions=entries)
