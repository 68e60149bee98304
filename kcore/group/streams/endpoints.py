"""The endpoints of members for interactive queries, with the input partitions of the tasks of each member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.protocol.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition

if TYPE_CHECKING:
    from kcore.group.streams.configure import ConfiguredTopology
    from kcore.group.streams.group import StreamsGroup
    from kcore.group.streams.member import MemberMetadata, StreamsMember
    from kcore.group.streams.tasks import Partitions, Tasks
    from kcore.runtime.topics import TopicImage


MAX_TOPICS: Final = 20_000
"""The maximum number of topic entries in the endpoints of a response.

A member has an entry for each input topic of its subtopologies. With a topology of 100 KB, these can be 24,000 entries.
"""
MAX_PARTITIONS: Final = 200_000
"""The maximum number of partitions in the endpoints of a response."""


class View(NamedTuple):
    """The entry for a member's endpoint in heartbeat responses.

    Attributes:
        endpoint: the entry as a struct of the response.
        topics: number of topics in the entry.
        partitions: number of partitions in the entry.
    """

    endpoint: EndpointToPartitions
    topics: int
    partitions: int


def endpoints(
    group: StreamsGroup, configured: ConfiguredTopology, member_id: str, metadata: MemberMetadata, assigned: Tasks
) -> list[EndpointToPartitions]:
    """Returns the endpoints of all members that have one. The member of the heartbeat is last, with its new tasks.

    If the endpoints exceed the limits of a response, the endpoints of the members that joined last are left out.
    """
    topics = group.shard.topics
    own = group.members.get(member_id)
    last: list[EndpointToPartitions] = []
    topic_count = partition_count = 0
    if metadata.endpoint is not None:
        if own is not None and own.metadata.endpoint == metadata.endpoint and own.current.assigned is assigned:
            view = _cached(own, configured, topics)
        else:
            view = _view(metadata.endpoint, assigned, configured, topics)
        last = [view.endpoint]
        topic_count, partition_count = view.topics, view.partitions
    views = []
    for member in group.members.values():
        if member is own or member.metadata.endpoint is None:
            continue
        view = _cached(member, configured, topics)
        topic_count += view.topics
        partition_count += view.partitions
        if topic_count > MAX_TOPICS or partition_count > MAX_PARTITIONS:
            break
        views.append(view.endpoint)
    return views + last


def _cached(member: StreamsMember, configured: ConfiguredTopology, topics: TopicImage) -> View:
    view = member.endpoint_view
    if view is None:
        assert member.metadata.endpoint is not None
        view = member.endpoint_view = _view(member.metadata.endpoint, member.current.assigned, configured, topics)
    return view


def _view(endpoint: tuple[str, int], assigned: Tasks, configured: ConfiguredTopology, topics: TopicImage) -> View:
    active = _partitions(assigned.active, configured, topics, MAX_TOPICS, MAX_PARTITIONS)
    topic_count, partition_count = len(active), sum(len(topic.partitions) for topic in active)
    standby = _partitions(
        assigned.standby, configured, topics, MAX_TOPICS - topic_count, MAX_PARTITIONS - partition_count
    )
    entry = EndpointToPartitions(
        user_endpoint=Endpoint(host=endpoint[0], port=endpoint[1]),
        active_partitions=active,
        standby_partitions=standby,
    )
    return View(entry, topic_count + len(standby), partition_count + sum(len(topic.partitions) for topic in standby))


def _partitions(
    tasks: Partitions, configured: ConfiguredTopology, topics: TopicImage, most_topics: int, most_partitions: int
) -> list[TopicPartition]:
    """Returns the input partitions of a member's tasks, up to a limit.

    A topic may have fewer partitions than its subtopology has tasks. If the topic has n partitions, its list then has
    the n lowest task numbers of the member. Some of these partitions may not exist. Kafka returns the same list.
    """
    partitions: list[TopicPartition] = []
    count = 0
    for part_id, numbers in sorted(tasks.items()):
        part = (configured.subtopologies or {}).get(part_id)
        ordered = sorted(numbers)
        for name in () if part is None else part.inputs:
            topic = topics.by_name(name)
            if topic is None:
                continue
            # Most topics of a subtopology have as many partitions as it has tasks: they share the list.
            listed = ordered if len(ordered) <= topic.partitions else ordered[: topic.partitions]
            count += len(listed)
            if len(partitions) >= most_topics or count > most_partitions:
                return partitions
            partitions.append(TopicPartition(topic=name, partitions=listed))
    return partitions
