"""Target assignments of share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kcore.assignors import GroupAssignment
from kcore.assignors import Member as AssignorMember
from kcore.errors import KafkaError
from kcore.group.share import records as share_records
from kcore.process_logging import limited_logger
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.assignors import Topics
    from kcore.group.consumer.assignment import Target
    from kcore.group.share.group import ShareGroup
    from kcore.group.share.member import MemberMetadata
    from kcore.runtime.machine import Record

logger = limited_logger(__name__)


class LastTarget(NamedTuple):
    """The assignor's last result and its input. With it, the next join need not examine every member.

    Attributes:
        assignment: the result.
        members: all members in the form that the assignor received, in the order of joining.
        subscriptions: the different subscriptions of the members, each once.
    """

    assignment: GroupAssignment
    members: list[AssignorMember]
    subscriptions: tuple[tuple[str, ...], ...]


def compute(group: ShareGroup, member_id: str, metadata: MemberMetadata) -> tuple[dict[str, Target], LastTarget]:
    """Computes the targets of all members; only initialized partitions are assigned.

    Args:
        group: the group before the decision.
        member_id: the member that changes or joins in this decision.
        metadata: the new metadata of that member.

    Returns:
        A pair: the targets that are new or differ from the group's current targets, and the new value of the group's
        `last_target`. The new value applies when these targets have been replayed.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR if the assignor failed; the group keeps its target, and the next heartbeat
            retries.
    """
    last = group.last_target if member_id not in group.members else None
    members, subscriptions = (
        _all_members(group, member_id, metadata) if last is None else _joined(group, member_id, metadata)
    )
    topics = group.shard.consumer.topics(subscriptions)
    assignor = group.shard.share.assignor
    try:
        assignment = assignor.assign(
            members,
            topics,
            None if last is None else last.assignment,
            assignable=_assignable(group, topics),
        )
    except Exception as error:
        logger.exception(
            "group %s: assignor %s failed; the group keeps its target assignment, and the next heartbeat tries again; "
            "if this repeats, correct the assignor, or configure another one",
            group.group_id,
            assignor.name,
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the assignor failed: {error}") from error
    if last is None:
        changes = {member.member_id: assignment[member.member_id] for member in members}
    else:
        changes = dict(assignment.changes(last.assignment))
        changes.setdefault(member_id, assignment[member_id])
        if len(changes) > 1:  # the records are written in the order of joining
            changes = {member.member_id: changes[member.member_id] for member in members if member.member_id in changes}
    changed: dict[str, Target] = {}
    for name, assigned in changes.items():
        target = {topic_id: tuple(partitions) for topic_id, partitions in assigned.items() if partitions}
        if group.targets.get(name) != target:
            changed[name] = target
    return changed, LastTarget(assignment, members, subscriptions)


def prepare(group: ShareGroup) -> None:
    """Looks up the topics of all members, so that a later computation of the target finds them in the cache."""
    consumer = group.shard.consumer
    subscriptions = dict.fromkeys(member.metadata.names for member in group.members.values())
    consumer.topics(tuple(consumer.in_order(names) for names in subscriptions))


def _all_members(
    group: ShareGroup, member_id: str, metadata: MemberMetadata
) -> tuple[list[AssignorMember], tuple[tuple[str, ...], ...]]:
    """Returns the assignor's input: the members after the decision, and their different subscriptions."""
    in_order = group.shard.consumer.in_order
    subscriptions = {name: member.metadata.names for name, member in group.members.items()}
    subscriptions[member_id] = metadata.names
    distinct = tuple(in_order(names) for names in dict.fromkeys(subscriptions.values()))
    views = [
        AssignorMember(name, in_order(names), owned=group.target_of(name)) for name, names in subscriptions.items()
    ]
    return views, distinct


def _joined(
    group: ShareGroup, member_id: str, metadata: MemberMetadata
) -> tuple[list[AssignorMember], tuple[tuple[str, ...], ...]]:
    """Returns the assignor's input, by adding a joining member to the members and subscriptions of `last_target`."""
    last = group.last_target
    assert last is not None
    names = group.shard.consumer.in_order(metadata.names)
    subscriptions = last.subscriptions if names in last.subscriptions else (*last.subscriptions, names)
    return [*last.members, AssignorMember(member_id, names)], subscriptions


def _assignable(group: ShareGroup, topics: Topics) -> dict[bytes, frozenset[int]] | None:
    """Returns the initialized partitions of each topic; None if all partitions of all topics are initialized."""
    state = group.state_partitions
    assignable = {topic_id: state.initialized_of(topic_id) for topic_id in topics if isinstance(topic_id, bytes)}
    if all(len(assignable[topic_id]) == topics[topic_id] for topic_id in assignable):
        return None
    return assignable


def records_of(group: ShareGroup, changed: dict[str, Target], group_epoch: int) -> list[Record]:
    """Returns the records of changed targets, and the record of the epoch of these targets."""
    records = [share_records.target_assignment(group.group_id, name, target) for name, target in changed.items()]
    records.append(share_records.assignment_epoch(group.group_id, group_epoch, group.shard.now.wall_ms))
    return records
