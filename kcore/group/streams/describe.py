"""The StreamsGroupDescribe response for a streams group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kcore.group.description import NAMES_A_MICROSECOND, Description
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
    from collections.abc import Generator

    from kcore.group.streams.configure import ConfiguredTopology
    from kcore.group.streams.group import StreamsGroup
    from kcore.group.streams.member import MemberMetadata
    from kcore.group.streams.tasks import CurrentAssignment
    from kcore.group.streams.topology import Topology as StoredTopology

MEMBER_COST_US: Final = 5
"""The cost of describing a member without its tasks, in microseconds."""
PART_COST_US: Final = 3
"""The cost of converting one subtopology, in the topology or in a list of a member's tasks, in microseconds."""
INTERNAL_COST_US: Final = 3
"""The cost of describing an internal topic, in microseconds."""

MemberObjects: TypeAlias = "tuple[str, MemberMetadata, CurrentAssignment, Tasks]"
"""A member in a description: (member id, metadata, current assignment, target). These objects are immutable."""


def describe(group: StreamsGroup) -> Description:
    """Returns the current description of the group. A member's tasks exclude the tasks that it must revoke."""
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )
    members = [
        (member.member_id, member.metadata, member.current, group.target_of(member.member_id))
        for member in group.members.values()
    ]
    names: set[str] = set()
    work = _convert(described, members, names, group.topology, group.configured)
    return Description(described, names, work)


def _convert(
    described: DescribedGroup,
    members: list[MemberObjects],
    names: set[str],
    topology: StoredTopology | None,
    configured: ConfiguredTopology | None,
) -> Generator[int, None, None]:
    """Adds the topology and the members to `described`, and the topology's topics to `names`.

    Yields the cost of each step in microseconds.
    """
    if topology is not None:
        names.update(topology.required_topics)
        yield len(names) // NAMES_A_MICROSECOND
        described.topology = yield from _topology(topology, configured)
    converted = []
    for member_id, metadata, current, target in members:
        tasks = [role for assigned in (current.assigned, target) for role in assigned]
        yield MEMBER_COST_US + sum(map(len, tasks)) * PART_COST_US + len(metadata.client_tags)
        converted.append(_member(member_id, metadata, current, target))
    described.members = converted


def _topology(topology: StoredTopology, configured: ConfiguredTopology | None) -> Generator[int, None, Topology]:
    """Returns the topology for the response. Yields the cost of each step in microseconds.

    If the topology is ready, the result has the partition counts that the coordinator has computed. If the topology is
    not ready, the result has the counts that the members sent.
    """
    counts: dict[str, int] = {}
    names: Callable[[Iterable[str]], Iterable[str]] = tuple
    if configured is not None and configured.is_ready and configured.subtopologies:
        names = set  # Kafka's configured topology has sets of names
        for decided in configured.subtopologies.values():
            counts.update({name: topic.partitions for name, topic in decided.internal.items()})
            yield 1 + len(decided.internal)
    parts = []
    for _, part in sorted(topology.subtopologies.items()):
        parts.append(
            Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=sorted(names(part.source_topics)),
                repartition_sink_topics=sorted(names(part.repartition_sink_topics)),
                state_changelog_topics=_internal(part.state_changelog_topics, counts),
                repartition_source_topics=_internal(part.repartition_source_topics, counts),
            )
        )
        internal = len(part.state_changelog_topics) + len(part.repartition_source_topics)
        external = len(part.source_topics) + len(part.repartition_sink_topics)
        yield PART_COST_US + INTERNAL_COST_US * internal + external // NAMES_A_MICROSECOND
    return Topology(epoch=topology.epoch, subtopologies=parts)


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


def _member(member_id: str, metadata: MemberMetadata, current: CurrentAssignment, target: Tasks) -> Member:
    endpoint = metadata.endpoint
    return Member(
        member_id=member_id,
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
        target_assignment=_assignment(target),
        is_classic=False,
    )


def _assignment(tasks: Tasks) -> Assignment:
    return Assignment(
        active_tasks=_tasks(tasks.active), standby_tasks=_tasks(tasks.standby), warmup_tasks=_tasks(tasks.warmup)
    )


def _tasks(partitions: Partitions) -> list[TaskIds]:
    return [TaskIds(subtopology_id=part, partitions=sorted(numbers)) for part, numbers in sorted(partitions.items())]
