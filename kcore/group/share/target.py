"""Target assignments of share groups."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcore.assignors import Member as AssignorMember
from kcore.assignors import Topics
from kcore.errors import KafkaError
from kcore.group.share import records as share_records
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.group.consumer.assignment import Target
    from kcore.group.share.group import ShareGroup
    from kcore.group.share.member import MemberMetadata
    from kcore.runtime.machine import Record

logger = logging.getLogger(__name__)


def compute(group: ShareGroup, member_id: str, metadata: MemberMetadata) -> dict[str, Target]:
    """Computes the targets of all members; only initialized partitions are assigned.

    Args:
        group: the group before the decision.
        member_id: the member that changes or joins in this decision.
        metadata: its new metadata.

    Returns:
        The targets that differ from the group's, or that are missing there.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR if the assignor failed; the group keeps its target, and the next heartbeat
            retries.
    """
    in_order = group.shard.consumer.in_order
    subscriptions = {name: member.metadata.names for name, member in group.members.items()}
    subscriptions[member_id] = metadata.names
    names: dict[str, None] = {}
    for subscribed in dict.fromkeys(subscriptions.values()):
        names.update(dict.fromkeys(in_order(subscribed)))
    topics = list(group.existing_topics(names))
    state = group.state_partitions
    assignor = group.shard.share.assignor
    try:
        assignment = assignor.assign(
            [
                AssignorMember(name, in_order(chosen), owned=group.target_of(name))
                for name, chosen in subscriptions.items()
            ],
            Topics(
                {topic.topic_id: topic.partitions for topic in topics},
                names={topic.name: topic.topic_id for topic in topics},
            ),
            assignable={topic.topic_id: state.initialized_of(topic.topic_id) for topic in topics},
        )
    except Exception as error:
        logger.exception(
            "group %s: assignor %s failed; the old target stays, the next heartbeat retries",
            group.group_id,
            assignor.name,
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the assignor failed: {error}") from error
    changed: dict[str, Target] = {}
    for name in subscriptions:
        target = {topic_id: tuple(partitions) for topic_id, partitions in assignment[name].items() if partitions}
        if group.targets.get(name) != target:
            changed[name] = target
    return changed


def records_of(group: ShareGroup, changed: dict[str, Target], group_epoch: int) -> list[Record]:
    """Returns the records of changed targets, and of the epoch that they belong to."""
    records = [share_records.target_assignment(group.group_id, name, target) for name, target in changed.items()]
    records.append(share_records.assignment_epoch(group.group_id, group_epoch, group.shard.now.wall_ms))
    return records
