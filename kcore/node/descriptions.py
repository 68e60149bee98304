"""Descriptions of topics and groups, read from responses without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kcore.errors import KafkaError
from kcore.node.requests import error_about
from kcore.node.types import (
    GroupDescription,
    MemberDescription,
    PartitionDescription,
    Tasks,
    TopicDescription,
    Topology,
)
from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.metadata import MetadataResponse
from kcore.protocol.topic_partition import TopicPartition

CLASSIC_MEMBER = 0  # the member type of ConsumerGroupDescribe


def described_topics(response: MetadataResponse, missing_ok: bool) -> Sequence[TopicDescription]:
    """Converts the topics of a MetadataResponse, sorted by name.

    Args:
        response: the broker's response to a Metadata request.
        missing_ok: True to leave out topics that do not exist.

    Raises:
        KafkaError: a topic does not exist, and `missing_ok` is False; or the client may not describe it.
    """
    described = []
    for row in response.topics:
        if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and missing_ok:
            continue
        if row.error_code and row.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise error_about(row.error_code, f"topic {row.name!r}")
        partitions = tuple(
            PartitionDescription(
                part.partition_index,
                part.leader_id if part.leader_id >= 0 else None,
                tuple(part.replica_nodes),
                tuple(part.isr_nodes),
            )
            for part in sorted(row.partitions, key=lambda part: int(part.partition_index))
        )
        described.append(TopicDescription(row.name or "", row.topic_id, partitions, row.is_internal))
    return sorted(described, key=lambda topic: topic.name)


def described_group(group_id: str, kind: str, row: Any) -> GroupDescription:
    """Converts an entry of a describe response of any group type.

    Raises:
        KafkaError: the server refused to describe the group, or the group does not exist.
    """
    if row.error_code:
        raise KafkaError.of(row.error_code, row.error_message)
    if kind == "classic":
        if row.group_state == "Dead":
            raise KafkaError.of(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        members = tuple(map(_classic_member, row.members))
        return GroupDescription(
            group_id, kind, row.group_state, members, assignor=row.protocol_data, protocol_type=row.protocol_type
        )
    if kind == "streams":
        sources = _sources(row.topology)
        members = tuple(_streams_member(each, sources) for each in row.members)
    else:
        members = tuple(map(_epoch_member, row.members))
    return GroupDescription(
        group_id,
        kind,
        row.group_state,
        members,
        epoch=row.group_epoch,
        assignment_epoch=row.assignment_epoch,
        assignor=getattr(row, "assignor_name", ""),
        topology=_topology(row.topology) if kind == "streams" and row.topology is not None else None,
    )


def _topology(row: Any) -> Topology:
    subtopologies = row.subtopologies or ()
    sources = frozenset(name for each in subtopologies for name in each.source_topics)
    internal = frozenset(
        topic.name
        for each in subtopologies
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics)
    )
    return Topology(row.epoch, sources, internal)


def _classic_member(row: Any) -> MemberDescription:
    assigned: list[TopicPartition] | None = []
    topics: tuple[str, ...] = ()
    rack = None
    try:
        if row.member_assignment:
            assignment, _ = ConsumerProtocolAssignment.decode_versioned(row.member_assignment)
            assigned = [
                TopicPartition(each.topic, n) for each in assignment.assigned_partitions for n in each.partitions
            ]
    except ValueError:
        assigned = None  # it is of another protocol type, such as Kafka Connect's
    try:
        if row.member_metadata:
            subscription, _ = ConsumerProtocolSubscription.decode_versioned(row.member_metadata)
            topics, rack = tuple(subscription.topics), subscription.rack_id
    except ValueError:
        pass  # it is of another protocol type
    partitions = tuple(sorted(assigned or ()))
    return MemberDescription(
        row.member_id,
        row.group_instance_id,
        row.client_id,
        row.client_host,
        assignment=partitions,
        target=partitions,
        topics=topics,
        rack=rack,
        raw_assignment=row.member_assignment,
        assignment_decoded=assigned is not None,
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(row.topic_name, n) for row in assignment.topic_partitions for n in row.partitions)
    )


def _epoch_member(row: Any) -> MemberDescription:
    assigned = _partitions(row.assignment)
    return MemberDescription(
        row.member_id,
        getattr(row, "instance_id", None),
        row.client_id,
        row.client_host,
        epoch=row.member_epoch,
        assignment=assigned,
        target=_partitions(row.target_assignment) if hasattr(row, "target_assignment") else assigned,
        topics=tuple(row.subscribed_topic_names),
        pattern=getattr(row, "subscribed_topic_regex", None) or None,
        rack=row.rack_id,
        classic=getattr(row, "member_type", None) == CLASSIC_MEMBER,
    )


def _tasks(assignment: Any) -> Tasks:
    def listed(rows: Any) -> tuple[tuple[str, int], ...]:
        return tuple(sorted((row.subtopology_id, number) for row in rows for number in row.partitions))

    return Tasks(listed(assignment.active_tasks), listed(assignment.standby_tasks), listed(assignment.warmup_tasks))


def _sources(topology: Any) -> dict[str, list[str]]:
    """Returns the topics that the tasks of each subtopology read."""
    subtopologies = topology.subtopologies or () if topology is not None else ()
    return {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in subtopologies
    }


def _read_by(tasks: Iterable[tuple[str, int]], sources: Mapping[str, list[str]]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted({TopicPartition(topic, n) for subtopology_id, n in tasks for topic in sources.get(subtopology_id, ())})
    )


def _streams_member(row: Any, sources: Mapping[str, list[str]]) -> MemberDescription:
    assigned, target = _tasks(row.assignment), _tasks(row.target_assignment)
    return MemberDescription(
        row.member_id,
        row.instance_id,
        row.client_id,
        row.client_host,
        epoch=row.member_epoch,
        assignment=_read_by(assigned.active, sources),
        target=_read_by(target.active, sources),
        rack=row.rack_id,
        tasks=assigned.active,
        assigned_tasks=assigned,
        target_tasks=target,
        topology_epoch=row.topology_epoch,
    )
