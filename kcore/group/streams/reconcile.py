"""The steps of a member towards its target, one per heartbeat, as pure functions of its assignment and its report.

A task moves from member A to member B in three steps. A's heartbeat response omits the task. A sends a report without
the task. B's next heartbeat response contains it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.group.streams.states import (
    FENCE,
    KEEP,
    NEXT_AFTER_REVOCATION,
    NEXT_IN_TARGET_EPOCH,
    RECONCILIATION,
    STABLE,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
    EpochState,
)
from kcore.group.streams.tasks import (
    NO_PARTITIONS,
    NO_TASKS,
    NOTHING,
    CurrentAssignment,
    Partitions,
    Report,
    Tasks,
    may_still_run,
)
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.group.streams.processes import TaskProcesses


def reconcile(
    current: CurrentAssignment,
    target_epoch: int,
    target: Tasks,
    *,
    process_id: str,
    processes: TaskProcesses,
    report: Report | None,
) -> CurrentAssignment:
    """Returns the member's assignment after a heartbeat.

    Args:
        current: the member's assignment before the heartbeat.
        target_epoch: the assignment epoch.
        target: the member's target in that epoch.
        process_id: the process in which the member runs.
        processes: the processes that have each task.
        report: the tasks that the member reports; None if it sends no report.

    Returns:
        The new assignment; `current` itself if there is no change.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH; see `Step.FENCE`.
    """
    state, epoch = current.state, current.member_epoch
    if state is UNREVOKED:
        holds = may_still_run(report, current.revoking)
    else:
        holds = state is UNKNOWN and (report is None or not report.is_empty)
    step = RECONCILIATION[EpochState(state, epoch == target_epoch, holds)]
    if step is KEEP:
        return current
    if step is FENCE:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "this coordinator does not support the member's state: the member must drop its tasks and rejoin",
        )
    if step is NEXT_AFTER_REVOCATION:
        epoch += 1
    elif step is NEXT_IN_TARGET_EPOCH:
        epoch = target_epoch
    after = _next(current, epoch, target_epoch, target, process_id, processes, report)
    return current if after == current else after


def _next(
    current: CurrentAssignment,
    base_epoch: int,
    target_epoch: int,
    target: Tasks,
    process_id: str,
    processes: TaskProcesses,
    report: Report | None,
) -> CurrentAssignment:
    kept, revoking = [], []
    for owned, targets in zip(current.assigned, target, strict=True):
        stay, drop = _split(owned, targets)
        kept.append(stay)
        revoking.append(drop)
    to_revoke = Tasks(*revoking)
    if not to_revoke.is_empty and may_still_run(report, to_revoke):
        return CurrentAssignment(base_epoch, current.member_epoch, UNREVOKED, Tasks(*kept), to_revoke)
    waits = False
    assigned = []
    for owned, targets, is_active in zip(kept, target, (True, False, False), strict=True):
        blocked = processes.blocks_active if is_active else processes.blocks_copy
        merged, waiting = _granted(owned, targets, target_epoch if is_active else 0, process_id, blocked)
        assigned.append(merged)
        waits = waits or waiting
    state = UNRELEASED if waits else STABLE
    return CurrentAssignment(target_epoch, current.member_epoch, state, Tasks(*assigned), NOTHING)


def _split(owned: Partitions, targets: Partitions) -> tuple[Partitions, Partitions]:
    """Returns the tasks of one role that a member keeps, and the tasks that it must revoke."""
    kept: Partitions = {}
    revoking: Partitions = {}
    for part, numbers in owned.items():
        target_numbers = targets.get(part, NO_PARTITIONS)
        if numbers.keys() <= target_numbers.keys():
            kept[part] = numbers
            continue
        stay = {number: epoch for number, epoch in numbers.items() if number in target_numbers}
        if stay:
            kept[part] = stay
        revoking[part] = {number: epoch for number, epoch in numbers.items() if number not in target_numbers}
    return kept or NO_TASKS, revoking or NO_TASKS


def _granted(
    kept: Partitions, targets: Partitions, epoch: int, process_id: str, blocked: Callable[[tuple[str, int], str], bool]
) -> tuple[Partitions, bool]:
    """Adds the tasks of a target to the kept tasks of one role, except those that `blocked` excludes.

    Returns a pair: the resulting tasks, and True if tasks were excluded because they are not released yet.
    """
    merged = dict(kept)
    waits = False
    for part, numbers in targets.items():
        owned = kept.get(part, NO_PARTITIONS)
        if len(owned) == len(numbers):
            continue
        free = dict(owned)
        for number in numbers:
            if number in owned:
                continue
            if blocked((part, number), process_id):
                waits = True
            else:
                free[number] = epoch
        if free:
            merged[part] = free
    return merged or NO_TASKS, waits
