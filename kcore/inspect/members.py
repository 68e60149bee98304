"""Members of groups as text: their partitions or tasks, and the progress of their reconciliation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.node.types import GroupDescription, MemberDescription, Tasks, TopicPartition

if TYPE_CHECKING:
    from kcore.node._sync.node import Node

AWAY_EPOCH: Final = -2
NOT_READY: Final = "NotReady"
ROLES: Final = ("", "standby ", "warmup ")
"""Prefixes of tasks in texts, in the order: active, standby and warmup tasks."""


class MemberProgress(NamedTuple):
    """The reconciliation progress of a member.

    Attributes:
        state: "Unrevoked" if the member owns partitions outside of its target; "Unreleased" if it lacks partitions of
            its target; "Behind" if only its epoch is old; "Away" for a static member that may return; "Stale" for a
            streams member with an old topology; otherwise "Stable".
        waits_for: the next required step; None if the member has its target, and no newer target is due.
    """

    state: str
    waits_for: str | None


def progress(group: GroupDescription, member: MemberDescription) -> MemberProgress:
    """Returns the reconciliation progress of a member of a consumer group (KIP-848)."""
    has, target = set(member.assignment), set(member.target)
    if member.epoch == AWAY_EPOCH:
        return MemberProgress("Away", "its instance to come back")
    surplus, lacking = has - target, target - has
    if surplus:
        return MemberProgress("Unrevoked", f"giving up {shown(surplus)}")
    if lacking:
        return MemberProgress("Unreleased", _holders(group, member, lacking))
    return _with_target(group, member)


def _with_target(group: GroupDescription, member: MemberDescription) -> MemberProgress:
    """Returns the progress of a member that owns its target."""
    if member.epoch < group.assignment_epoch:
        return MemberProgress("Behind", "its next heartbeat")
    if group.epoch > group.assignment_epoch:
        return MemberProgress("Stable", f"the target of epoch {group.epoch}")
    return MemberProgress("Stable", None)


def share_progress(group: GroupDescription, member: MemberDescription) -> MemberProgress:
    """Returns the progress of a member of a share group (KIP-932), which owns its target without waiting."""
    if member.epoch < group.epoch:
        return MemberProgress("Behind", "its next heartbeat")
    return MemberProgress("Stable", None)


def task_progress(group: GroupDescription, member: MemberDescription) -> MemberProgress:
    """Returns the reconciliation progress of a member of a streams group (KIP-1071).

    A group's description does not contain the tasks that a member must still revoke. The function returns "Behind" for
    a member that must revoke tasks.
    """
    has, target = _task_set(member.assigned_tasks), _task_set(member.target_tasks)
    if group.topology is not None and member.topology_epoch < group.topology.epoch:
        waits_for = f"an instance with topology epoch {group.topology.epoch}, this one has {member.topology_epoch}"
        return MemberProgress("Stale", waits_for)
    if has - target:
        return MemberProgress("Behind", "its next heartbeat")
    if target - has and member.epoch >= group.assignment_epoch:
        return MemberProgress("Unreleased", f"the release of {_shown_task_set(target - has)}")
    return _with_target(group, member)


def shown(partitions: Iterable[tuple[str, int]]) -> str | None:
    """Formats partitions as `topic:0,1 other:2`; None for no partitions."""
    by_topic: dict[str, list[str]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(index))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in by_topic.items()) or None


def shown_tasks(tasks: Tasks) -> str | None:
    """Formats tasks as `0:1,2 1:0 standby 0:0`; None for no tasks."""
    return _shown_task_set(_task_set(tasks))


def _task_set(tasks: Tasks) -> set[tuple[int, str, int]]:
    """Returns tasks as tuples (role, subtopology, partition), where the role is an index in `ROLES`."""
    return {(role, *task) for role, own in enumerate(tasks) for task in own}


def _shown_task_set(tasks: Iterable[tuple[int, str, int]]) -> str | None:
    by_part: dict[tuple[int, str], list[str]] = {}
    for role, part, partition in sorted(tasks):
        by_part.setdefault((role, part), []).append(str(partition))
    return " ".join(f"{ROLES[role]}{part}:{','.join(numbers)}" for (role, part), numbers in by_part.items()) or None


def _holders(group: GroupDescription, member: MemberDescription, lacking: set[TopicPartition]) -> str:
    """Describes, as text, the owners of the partitions that `member` lacks, and the partitions of each owner."""
    waits = []
    free = set(lacking)
    for other in group.members:
        if other.member_id == member.member_id:
            continue
        owned_by_other = lacking.intersection(other.assignment)
        if owned_by_other:
            free -= owned_by_other
            waits.append(f"{shown(owned_by_other)} of {other.member_id}")
    if free:
        waits.append(f"its next heartbeat for {shown(free)}")
    return ", ".join(waits)


def topic_fault(node: Node, group: GroupDescription) -> str | None:
    """Describes the topics for which a streams group is not ready; None for a ready group."""
    if group.state != NOT_READY or group.topology is None:
        return None
    sources, internal = group.topology.source_topics, group.topology.internal_topics
    topics = node.topics.describe(sorted(sources | internal), missing_ok=True)
    counts = {topic.name: len(topic.partitions) for topic in topics}
    for kind, wanted in (("source", sources), ("internal", internal)):
        missing = sorted(wanted - counts.keys())
        if missing:
            return f"the {kind} topics {', '.join(missing)}"
    found = ", ".join(f"{name}={count}" for name, count in sorted(counts.items()))
    return f"its next heartbeat, or other partition counts; the topics have {found}"
