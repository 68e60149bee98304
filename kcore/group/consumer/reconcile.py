"""A member's way to its target, one heartbeat at a time: pure functions of where it is and what it says it uses.

The steps of a rebalance that moves a partition from A to B: A's heartbeat is answered without the partition, A reports
what it uses and the partition is not in it any more, B's next heartbeat is answered with it. No other member notices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.group.consumer.assignment import NO_PARTITIONS, CurrentAssignment, Owned, Reported, Target, merged, overlaps
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

if TYPE_CHECKING:
    from kcore.group.consumer.owners import PartitionOwners


def reconcile(
    current: CurrentAssignment,
    target_epoch: int,
    target: Target,
    *,
    owners: PartitionOwners,
    reported: Reported | None,
    subscribed: Callable[[bytes], bool],
    subscribes_to_something: Callable[[], bool],
    changed: bool,
) -> CurrentAssignment:
    """Where the member is after a heartbeat.

    Args:
        current: where it is.
        target_epoch: the assignment epoch.
        target: what it shall have by then.
        owners: who has which partition.
        reported: what the member says it uses; None if it does not say.
        subscribed: whether it reads the topic of that id, now.
        subscribes_to_something: whether it reads any topic that exists.
        changed: whether this heartbeat changed what it reads.

    Returns:
        The same object if nothing changes.

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
        return _shrunk(current, reported, subscribed, subscribes_to_something)
    if step is FENCE:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "the member is in a state that this coordinator does not know: it must give up its partitions and rejoin",
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
    kept: Owned = {}
    revoking: Owned = {}
    given: dict[bytes, list[int]] = {}
    waits = False
    for topic_id, partitions in current.assigned.items():
        if not (topic_id in target and subscribed(topic_id)):
            revoking[topic_id] = partitions
            continue
        wanted = target[topic_id]
        if len(wanted) == len(partitions) and all(map(partitions.__contains__, wanted)):
            kept[topic_id] = partitions  # most heartbeats change nothing in most topics: the same object
            continue
        shall = set(wanted)
        stay = {partition: epoch for partition, epoch in partitions.items() if partition in shall}
        if stay:
            kept[topic_id] = stay
        if len(stay) < len(partitions):
            revoking[topic_id] = {partition: epoch for partition, epoch in partitions.items() if partition not in shall}
    for topic_id, wanted in target.items():
        if not subscribed(topic_id):
            continue
        has = kept.get(topic_id, NO_PARTITIONS)
        if len(has) == len(wanted):
            continue
        taken, own = owners.of(topic_id), current.revoking.get(topic_id, NO_PARTITIONS)
        free = []
        for partition in wanted:
            if partition in has:
                continue
            if partition in taken and partition not in own:
                waits = True
            else:
                free.append(partition)
        if free:
            given[topic_id] = free
    if revoking and overlaps(reported, revoking):
        return CurrentAssignment(base_epoch, current.member_epoch, UNREVOKED, kept, revoking)
    for topic_id, free in given.items():
        kept[topic_id] = {**kept.get(topic_id, NO_PARTITIONS), **dict.fromkeys(free, target_epoch)}
    return CurrentAssignment(target_epoch, current.member_epoch, UNRELEASED if waits else STABLE, kept)


def _shrunk(
    current: CurrentAssignment,
    reported: Reported | None,
    subscribed: Callable[[bytes], bool],
    subscribes_to_something: Callable[[], bool],
) -> CurrentAssignment:
    dropped = {topic_id: parts for topic_id, parts in current.assigned.items() if not subscribed(topic_id)}
    # Kafka takes a member that reads nothing at all through here even if it has nothing: its previous epoch moves up.
    if not dropped and (current.revoking or subscribes_to_something()):
        return current
    kept = {topic_id: parts for topic_id, parts in current.assigned.items() if topic_id not in dropped}
    revoking = merged(current.revoking, dropped)
    epoch = current.member_epoch
    if revoking and overlaps(reported, revoking):
        after = CurrentAssignment(epoch, epoch, UNREVOKED, kept, revoking)
    else:
        after = CurrentAssignment(epoch, epoch, current.state, kept, current.revoking)
    return current if after == current else after
