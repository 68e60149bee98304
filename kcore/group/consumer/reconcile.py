"""The steps of a member towards its target, one per heartbeat, as pure functions of its assignment and its report.

A partition moves from member A to member B in three steps. A's heartbeat response omits the partition. A sends a report
without the partition. B's next heartbeat response contains it. No other member is involved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.group.consumer.assignment import CurrentAssignment, Reported, Target, merged, overlaps
from kcore.group.consumer.states import (
    FENCE,
    KEEP,
    NEXT_IN_TARGET_EPOCH,
    SHRINK,
    STABLE,
    STEPS,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
)
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.group.consumer_assignment import next_partitions, with_granted

if TYPE_CHECKING:
    from kcore_ext.group.consumer_assignment import PartitionOwners


def reconcile(
    current: CurrentAssignment,
    target_epoch: int,
    target: Target,
    *,
    owners: PartitionOwners,
    reported: Reported | None,
    subscribed: Callable[[bytes], bool],
    has_topics: bool,
    changed: bool,
) -> CurrentAssignment:
    """Returns the member's assignment after a heartbeat.

    Args:
        current: the member's assignment before the heartbeat.
        target_epoch: the assignment epoch.
        target: the member's target in that epoch.
        owners: the owners of partitions.
        reported: the partitions that the member reports; None if it sends no report.
        subscribed: given a topic id, returns True if the member now subscribes to the topic.
        has_topics: whether the member now subscribes to any topic, existing or not.
        changed: whether this heartbeat changed the member's subscription.

    Returns:
        The new assignment; `current` itself if there is no change.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH; see `Step.FENCE`.
    """
    state = current.state
    if state is UNREVOKED:
        holds = overlaps(reported, current.revoking)
    else:
        holds = state is UNKNOWN and (reported is None or len(reported) > 0)
    step = STEPS[state << 3 | (current.member_epoch == target_epoch) << 2 | holds << 1 | changed]
    if step is KEEP:
        return current
    if step is SHRINK:
        return _shrunk(current, reported, subscribed, has_topics)
    if step is FENCE:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "this coordinator does not support the member's state: the member must drop its partitions and rejoin",
        )
    base_epoch = target_epoch if step is NEXT_IN_TARGET_EPOCH else current.member_epoch
    after = _next(current, base_epoch, target_epoch, target, owners, reported, subscribed)
    return current if after == current else after


def _next(
    current: CurrentAssignment,
    base_epoch: int,
    target_epoch: int,
    target: Target,
    owners: PartitionOwners,
    reported: Reported | None,
    subscribed: Callable[[bytes], bool],
) -> CurrentAssignment:
    kept, revoking, granted, waits = next_partitions(
        current.assigned, current.revoking, target, target_epoch, owners, subscribed
    )
    if revoking and overlaps(reported, revoking):
        return CurrentAssignment(base_epoch, current.member_epoch, UNREVOKED, kept, revoking)
    assigned = with_granted(kept, granted)
    return CurrentAssignment(target_epoch, current.member_epoch, UNRELEASED if waits else STABLE, assigned)


def _shrunk(
    current: CurrentAssignment,
    reported: Reported | None,
    subscribed: Callable[[bytes], bool],
    has_topics: bool,
) -> CurrentAssignment:
    dropped = {topic_id: parts for topic_id, parts in current.assigned.items() if not subscribed(topic_id)}
    # Kafka also takes this branch for a member without any topics and partitions: its previous epoch is updated.
    if not dropped and (current.revoking or has_topics):
        return current
    kept = {topic_id: parts for topic_id, parts in current.assigned.items() if topic_id not in dropped}
    revoking = merged(current.revoking, dropped)
    epoch = current.member_epoch
    if revoking and overlaps(reported, revoking):
        after = CurrentAssignment(epoch, epoch, UNREVOKED, kept, revoking)
    else:
        after = CurrentAssignment(epoch, epoch, current.state, kept, current.revoking)
    return current if after == current else after
