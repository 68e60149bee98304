"""Descriptions of streams groups (KIP-1071): each member's progress, and the faults of the topology's topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kcore.errors import KcoreError
from kcore.inspect.consumer_groups import NOT_ONE, MemberProgress
from kcore.inspect.groups import Target
from kcore.node import versions
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest

NOT_READY: Final = "NotReady"
ROLES: Final = (("active_tasks", ""), ("standby_tasks", "standby "), ("warmup_tasks", "warmup "))
Task = tuple[str, str, int]


def streams_groups(server: Target, group_ids: Sequence[str]) -> dict[str, Any]:
    """Describes the given groups that are streams groups; a server without KIP-1071 has none."""
    if not group_ids:
        return {}
    try:
        response = server.send(StreamsGroupDescribeRequest(group_ids=list(group_ids)))
    except KcoreError:
        return {}
    return {group.group_id: group for group in response.groups if group.error_code not in NOT_ONE}


def tasks_of(assignment: Any) -> set[Task]:
    """Returns the tasks of a described assignment: (role, subtopology, partition)."""
    return {
        (role, entry.subtopology_id, partition)
        for role, _ in ROLES
        for entry in getattr(assignment, role)
        for partition in entry.partitions
    }


def shown_tasks(tasks: Iterable[Task]) -> str | None:
    """Formats tasks as `0:1,2 1:0 standby 0:0`; None for no tasks."""
    ordered = sorted(tasks)
    texts = []
    for role, prefix in ROLES:
        of_role: dict[str, list[str]] = {}
        for task_role, part, partition in ordered:
            if task_role == role:
                of_role.setdefault(part, []).append(str(partition))
        texts += [f"{prefix}{part}:{','.join(numbers)}" for part, numbers in of_role.items()]
    return " ".join(texts) or None


def task_progress(group: Any, member: Any) -> MemberProgress:
    """Returns the reconciliation progress of a described group's member.

    The description does not contain the tasks that a member must still revoke: such a member is "Behind".
    """
    has, target = tasks_of(member.assignment), tasks_of(member.target_assignment)
    if group.topology is not None and member.topology_epoch < group.topology.epoch:
        waits_for = f"an instance with topology epoch {group.topology.epoch}, this one has {member.topology_epoch}"
        return MemberProgress("Stale", waits_for)
    if has - target or member.member_epoch < group.assignment_epoch:
        return MemberProgress("Behind", "its next heartbeat")
    if target - has:
        return MemberProgress("Unreleased", f"the release of {shown_tasks(target - has)}")
    if group.group_epoch > group.assignment_epoch:
        return MemberProgress("Stable", f"the target of epoch {group.group_epoch}")
    return MemberProgress("Stable", None)


def topic_fault(server: Target, group: Any) -> str | None:
    """Describes the topics for which a group is not ready; None for a ready group."""
    if group.group_state != NOT_READY or group.topology is None:
        return None
    parts = group.topology.subtopologies or ()
    sources = {name for part in parts for name in part.source_topics}
    internal = {
        topic.name for part in parts for topic in (*part.repartition_source_topics, *part.state_changelog_topics)
    }
    names = sorted(sources | internal)
    topics = [MetadataRequestTopic(name=name) for name in names]
    response = server.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False), versions.METADATA)
    counts = {topic.name: len(topic.partitions) for topic in response.topics if not topic.error_code}
    for kind, wanted in (("source", sources), ("internal", internal)):
        missing = sorted(wanted - counts.keys())
        if missing:
            return f"the {kind} topics {', '.join(missing)}"
    found = ", ".join(f"{name}={count}" for name, count in sorted(counts.items()))
    return f"its next heartbeat, or other partition counts; the topics have {found}"
