"""The endpoints of members for interactive queries, with the partitions that each member has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.protocol.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition

if TYPE_CHECKING:
    from kcore.group.streams.configure import ConfiguredTopology
    from kcore.group.streams.group import StreamsGroup
    from kcore.group.streams.member import MemberMetadata
    from kcore.group.streams.tasks import Partitions, Tasks
    from kcore.runtime.topics import TopicImage


def endpoints(
    group: StreamsGroup, configured: ConfiguredTopology, member_id: str, metadata: MemberMetadata, assigned: Tasks
) -> list[EndpointToPartitions]:
    """Returns the endpoints of all members that have one. The member of the heartbeat is last, with its new tasks."""
    topics = group.shard.topics
    views = []
    for member in group.members.values():
        if member.member_id == member_id or member.metadata.endpoint is None:
            continue
        view = member.endpoint_view
        if view is None:
            view = _view(member.metadata.endpoint, member.current.assigned, configured, topics)
            member.endpoint_view = view
        views.append(view)
    if metadata.endpoint is not None:
        views.append(_view(metadata.endpoint, assigned, configured, topics))
    return views


def _view(
    endpoint: tuple[str, int], assigned: Tasks, configured: ConfiguredTopology, topics: TopicImage
) -> EndpointToPartitions:
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=endpoint[0], port=endpoint[1]),
        active_partitions=_partitions(assigned.active, configured, topics),
        standby_partitions=_partitions(assigned.standby, configured, topics),
    )


def _partitions(tasks: Partitions, configured: ConfiguredTopology, topics: TopicImage) -> list[TopicPartition]:
    """Returns the input partitions of tasks.

    A topic may have fewer partitions than its subtopology has tasks. Its list then has the lowest task numbers of the
    member, at most as many as the topic has partitions. Some of these partitions may not exist. Kafka does the same.
    """
    partitions = []
    for part_id, numbers in sorted(tasks.items()):
        part = (configured.subtopologies or {}).get(part_id)
        for name in () if part is None else part.inputs:
            topic = topics.by_name(name)
            if topic is not None:
                partitions.append(TopicPartition(topic=name, partitions=sorted(numbers)[: topic.partitions]))
    return partitions
