"""Descriptions of consumer groups (KIP-848), and each member's reconciliation progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kcore.errors import KcoreError
from kcore.inspect.groups import Target
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

AWAY_EPOCH = -2
CLASSIC_MEMBER = 0
NOT_ONE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID)
TopicPartition = tuple[str, int]


class MemberProgress(NamedTuple):
    """The reconciliation progress of a member.

    Attributes:
        state: "Stable"; "Unrevoked" while it owns partitions outside of its target; "Unreleased" while target
            partitions are missing; "Behind" if only its epoch is old; "Away" for a static member that may return.
        waits_for: the next required step; None for a member that has its target, unless a newer target is due.
    """

    state: str
    waits_for: str | None


def consumer_groups(server: Target, group_ids: Sequence[str]) -> dict[str, Any]:
    """Describes the given groups that are consumer groups; a server without KIP-848 has none."""
    if not group_ids:
        return {}
    try:
        response = server.send(ConsumerGroupDescribeRequest(group_ids=list(group_ids)))
    except KcoreError:
        return {}
    return {group.group_id: group for group in response.groups if group.error_code not in NOT_ONE}


def progress(group: Any, member: Any) -> MemberProgress:
    """Returns the reconciliation progress of a described group's member."""
    has, target = parts_of(member.assignment), parts_of(member.target_assignment)
    if member.member_epoch == AWAY_EPOCH:
        return MemberProgress("Away", "its instance to come back")
    surplus, lacking = has - target, target - has
    if surplus:
        return MemberProgress("Unrevoked", f"giving up {shown(surplus)}")
    if lacking:
        return MemberProgress("Unreleased", _holders(group, member, lacking))
    if member.member_epoch < group.assignment_epoch:
        return MemberProgress("Behind", "its next heartbeat")
    if group.group_epoch > group.assignment_epoch:
        return MemberProgress("Stable", f"the target of epoch {group.group_epoch}")
    return MemberProgress("Stable", None)


def parts_of(assignment: Any) -> set[TopicPartition]:
    """Returns the partitions of a described assignment."""
    return {(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions}


def shown(parts: Iterable[TopicPartition]) -> str | None:
    """Formats partitions as `topic:0,1 other:2`; None for no partitions."""
    by_topic: dict[str, list[str]] = {}
    for topic, index in sorted(parts):
        by_topic.setdefault(topic, []).append(str(index))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in by_topic.items()) or None


def _holders(group: Any, member: Any, lacking: set[TopicPartition]) -> str:
    """Describes which members own the partitions that a member lacks."""
    waits = []
    free = set(lacking)
    for other in group.members:
        if other.member_id == member.member_id:
            continue
        held = parts_of(other.assignment) & lacking
        if held:
            free -= held
            waits.append(f"{shown(held)} of {other.member_id}")
    if free:
        waits.append(f"its next heartbeat for {shown(free)}")
    return ", ".join(waits)
