"""The StreamsGroupDescribe response for a streams group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kcore.group.streams.tasks import Partitions, Tasks
from kcore.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

if TYPE_CHECKING:
    from kcore.group.streams.group import StreamsGroup
    from kcore.group.streams.member import StreamsMember


def describe(group: StreamsGroup) -> DescribedGroup:
    """Returns the current description of the group. A member's tasks exclude those that it must revoke."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
    )


def _topology(group: StreamsGroup) -> Topology | None:
    """Returns the topology with the decided partition counts if it is ready, else as the members sent it."""
    topology, configured = group.topology, group.configured
    if topology is None:
        return None
    counts = {}
    if configured is not None and configured.is_ready and configured.subtopologies:
        for decided in configured.subtopologies.values():
            counts.update({name: topic.partitions for name, topic in decided.internal.items()})
    return Topology(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=sorted(part.source_topics),
                repartition_sink_topics=sorted(part.repartition_sink_topics),
                state_changelog_topics=_internal(part.state_changelog_topics, counts),
                repartition_source_topics=_internal(part.repartition_source_topics, counts),
            )
            for _, part in sorted(topology.subtopologies.items())
        ],
    )


def _internal(topics: Iterable[Any], counts: dict[str, int]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=counts.get(topic.name, topic.partitions),
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: str(topic.name))
    ]


def _member(group: StreamsGroup, member: StreamsMember) -> Member:
    metadata, current = member.metadata, member.current
    endpoint = metadata.endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=current.member_epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=value) for key, value in metadata.client_tags],
        assignment=_assignment(current.assigned),
        target_assignment=_assignment(group.target_of(member.member_id)),
        is_classic=False,
    )


def _assignment(tasks: Tasks) -> Assignment:
    return Assignment(
        active_tasks=_tasks(tasks.active), standby_tasks=_tasks(tasks.standby), warmup_tasks=_tasks(tasks.warmup)
    )


def _tasks(partitions: Partitions) -> list[TaskIds]:
    return [TaskIds(subtopology_id=part, partitions=sorted(numbers)) for part, numbers in sorted(partitions.items())]
