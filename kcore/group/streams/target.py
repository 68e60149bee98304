"""Target assignments, computed by the task assignor.

A target is due when the group epoch is newer than the assignment epoch, the initial rebalance delay is over, and the
assignment interval has passed (KIP-1263). The next heartbeat of any member then computes the targets of all members. If
they do not fit into one decision, slices write them, and they apply after the last slice. While the topology is not
ready, every target is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kcore.assignors.streams_sticky import StickyTaskAssignor, Subtopology
from kcore.assignors.streams_sticky import StreamsMember as AssignorMember
from kcore.errors import KafkaError
from kcore.group.streams import records as group_records
from kcore.group.streams.configure import Status, TopicFault
from kcore.group.streams.services import STANDBY_REPLICAS
from kcore.group.streams.tasks import NO_TASKS, NOTHING, Partitions, Tasks
from kcore.process_logging import limited_logger
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.group.streams.configure import ConfiguredTopology
    from kcore.group.streams.group import StreamsGroup
    from kcore.group.streams.member_update import MemberChange
    from kcore.runtime.machine import Record

logger = limited_logger(__name__)

Item = TypeVar("Item")

TARGET_BYTES: Final = 128  # approximate size of one member's target besides its tasks
PART_BYTES: Final = 16  # size of one subtopology in a target besides its id and partitions
PARTITION_BYTES: Final = 4
INLINE_MEMBERS: Final = 512
"""Maximum number of members of a group whose new target is computed within the decision of a heartbeat.

If the driver runs an event loop, the target of a larger group is computed in slices.
"""
SLICE_RECORDS: Final = 256
"""Number of members' targets that one slice writes."""
MEMBERS_PER_SLICE: Final = 1_000
"""Number of members whose targets one slice reads or compares."""

IN_INITIAL_DELAY = TopicFault(
    Status.ASSIGNMENT_DELAYED,
    "the assignment waits until streams.initial.rebalance.delay.ms after the first join of the empty group",
)
IN_ASSIGNMENT_INTERVAL = TopicFault(
    Status.ASSIGNMENT_DELAYED,
    "the assignment waits until streams.assignment.interval.ms after the previous one",
)


def update(change: MemberChange) -> tuple[int, Tasks]:
    """Returns the target epoch and the target that apply to a member in this decision.

    If a new target is due, computes it and adds it to the decision's records. If the target must wait, adds a status to
    the response.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR if the assignor failed; the group keeps its target, and the next heartbeat
            retries.
    """
    group, member_id = change.group, change.member_id
    if group.group_id in group.shard.initial_delays:
        change.statuses.append(IN_INITIAL_DELAY)
        return group.assignment_epoch, NOTHING
    if change.group_epoch <= group.assignment_epoch:
        return group.assignment_epoch, group.target_of(member_id)
    waits = group.target_job or _is_too_early(group)
    if not waits and _is_large(group):
        _compute_in_slices(group)
        waits = True
    if waits:
        change.statuses.append(IN_ASSIGNMENT_INTERVAL)
        return group.assignment_epoch, group.target_of(member_id)
    processes = {member.member_id: member.metadata.process_id for member in group.members.values()}
    processes[member_id] = change.metadata.process_id
    targets = _compute(group, change.configured, processes, change.settings.num_standby_replicas)
    changed = _changed(group, targets)
    # Half of the bytes that a decision may write; the other half is for the member's metadata.
    if _bytes(changed) > group.shard.max_record_bytes // 2:
        _write_in_slices(group, changed, change.group_epoch)
        change.statuses.append(IN_ASSIGNMENT_INTERVAL)
        return group.assignment_epoch, group.target_of(member_id)
    change.records += _records(group, changed, change.group_epoch)
    return change.group_epoch, targets[member_id]


def after_initial_delay(shard: GroupShard, group_id: str) -> Outcome | None:
    """Computes the targets of all members at the end of the initial rebalance delay.

    Uses the settings that were recorded with the current group epoch.
    """
    from kcore.group.streams.group import StreamsGroup  # noqa: PLC0415  # the group imports the timers

    group = shard.groups.get(group_id)
    if not isinstance(group, StreamsGroup) or not group.members or group.configured is None:
        return None
    if group.group_epoch <= group.assignment_epoch or group.target_job or _is_too_early(group):
        return None
    if _is_large(group):
        _compute_in_slices(group)
        return None
    processes = {member.member_id: member.metadata.process_id for member in group.members.values()}
    changed = _changed(group, _compute(group, group.configured, processes, _replicas(group)))
    if _bytes(changed) > shard.max_record_bytes // 2:
        _write_in_slices(group, changed, group.group_epoch)
        return None
    return Outcome(_records(group, changed, group.group_epoch))


def _is_large(group: StreamsGroup) -> bool:
    """Returns True if the group has so many members that its target must be computed in slices."""
    return group.live and len(group.members) > INLINE_MEMBERS and group.shard.context.shard.slices.requests.enabled


def _replicas(group: StreamsGroup) -> int:
    """Returns the number of standby tasks for each stateful task, as recorded with the group epoch."""
    return int(dict(group.assignment_configs).get(STANDBY_REPLICAS, "0"))


def _is_too_early(group: StreamsGroup) -> bool:
    """Returns True while the age of the last target is less than the assignment interval."""
    shard = group.shard
    interval_ms = shard.streams.settings(group.group_id).assignment_interval_ms
    return interval_ms > 0 and group.assigned_at_ms > 0 and shard.now.wall_ms < group.assigned_at_ms + interval_ms


def _compute(
    group: StreamsGroup, configured: ConfiguredTopology, processes: Mapping[str, str], replicas: int
) -> dict[str, Tasks]:
    """Returns the targets of all members.

    Args:
        group: the group; its targets are the assignor's previous result.
        configured: the topology.
        processes: process id by member id, of all members after the decision.
        replicas: standby tasks for each stateful task.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR if the assignor failed.
    """
    if not configured.is_ready or not configured.subtopologies:
        return dict.fromkeys(processes, NOTHING)
    members = [_view(group, member_id, process_id) for member_id, process_id in processes.items()]
    assigned = _assign(group, configured, members, replicas)
    return {member_id: _tasks(assigned, member_id) for member_id in processes}


def _view(group: StreamsGroup, member_id: str, process_id: str) -> AssignorMember:
    """Returns a member in the form that the assignor receives, with its current target."""
    previous = group.target_of(member_id)
    return AssignorMember(member_id, process_id, active=previous.active, standby=previous.standby)


def _assign(group: StreamsGroup, configured: ConfiguredTopology, members: list[AssignorMember], replicas: int) -> Any:
    """Runs the assignor.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR if the assignor failed.
    """
    parts = {name: Subtopology(part.tasks, part.stateful) for name, part in (configured.subtopologies or {}).items()}
    assignor = group.shard.streams.assignor
    try:
        result = assignor.assign(members, parts, num_standby_replicas=replicas)
        if not isinstance(assignor, StickyTaskAssignor):
            processes = {member.member_id: member.process_id for member in members}
            _validate({member_id: _tasks(result, member_id) for member_id in processes}, processes, parts)
        return result
    except Exception as error:
        logger.exception(
            "streams group %s: assignor %s failed; the group keeps its target assignment, and the next heartbeat tries "
            "again; if this repeats, correct the assignor, or configure another one",
            group.group_id,
            assignor.name,
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the assignor failed: {error}") from error


def _tasks(result: Any, member_id: str) -> Tasks:
    """Returns the target of a member in the assignor's result."""
    return Tasks(
        _partitions(result.active.get(member_id)),
        _partitions(result.standby.get(member_id)),
        _partitions(result.warmup.get(member_id)),
    )


def _compute_in_slices(group: StreamsGroup) -> None:
    """Starts computing the target of a large group. No other computation starts until this target is written."""
    group.target_job = True
    group.shard.context.in_slices(_computed(group))


def _computed(group: StreamsGroup) -> Iterator[Outcome | None]:
    """Computes and writes a target in slices, after the decision that started the computation.

    If a member joins, leaves or changes meanwhile, the group epoch rises, and a next target includes the change.
    """
    shard = group.shard
    try:
        configured, epoch = group.configured, group.group_epoch
        if shard.groups.get(group.group_id) is not group or configured is None or epoch <= group.assignment_epoch:
            return
        is_ready, replicas = configured.is_ready and bool(configured.subtopologies), _replicas(group)
        members: list[AssignorMember] = []
        for some in _in_parts(list(group.members.values())):
            members += [_view(group, member.member_id, member.metadata.process_id) for member in some]
            yield None
        assigned = None
        if is_ready:
            try:
                assigned = _assign(group, configured, members, replicas)
            except KafkaError:
                return  # `_assign` has logged the error
            yield None
        changed: dict[str, Tasks] = {}
        for views in _in_parts(members):
            for view in views:
                tasks = NOTHING if assigned is None else _tasks(assigned, view.member_id)
                if group.targets.get(view.member_id) != tasks:
                    changed[view.member_id] = tasks
            yield None
        yield from _slices(group, changed, epoch)
    finally:
        group.target_job = False


def _in_parts(items: list[Item]) -> Iterator[list[Item]]:
    for first in range(0, len(items), MEMBERS_PER_SLICE):
        yield items[first : first + MEMBERS_PER_SLICE]


def _validate(targets: Mapping[str, Tasks], processes: Mapping[str, str], parts: Mapping[str, Subtopology]) -> None:
    """Checks the result of a user's assignor.

    Raises:
        ValueError: a task does not exist, is active in two members or in none, or is twice in one process.
    """
    active: set[tuple[str, int]] = set()
    assigned_keys: set[tuple[str, str, int]] = set()
    for member_id, tasks in targets.items():
        for role in tasks:
            for part, numbers in role.items():
                for number in numbers:
                    if part not in parts or not 0 <= number < parts[part].partitions:
                        raise ValueError(f"member {member_id} gets task {part}-{number}, which does not exist")
                    key = (processes[member_id], part, number)
                    if key in assigned_keys:
                        raise ValueError(f"the process of member {member_id} gets task {part}-{number} twice")
                    assigned_keys.add(key)
                    if role is tasks.active and (part, number) in active:
                        raise ValueError(f"two members get the active task {part}-{number}")
                    if role is tasks.active:
                        active.add((part, number))
    if len(active) < sum(part.partitions for part in parts.values()):
        raise ValueError("some active tasks are not assigned to any member")


def _partitions(assigned: Any) -> Partitions:
    if assigned is None:
        return NO_TASKS
    return {part: dict.fromkeys(numbers, 0) for part, numbers in assigned.items() if numbers} or NO_TASKS


def _changed(group: StreamsGroup, targets: Mapping[str, Tasks]) -> dict[str, Tasks]:
    """Returns those of `targets` that are new or differ from the group's current targets."""
    stored = group.targets
    return {member_id: tasks for member_id, tasks in targets.items() if stored.get(member_id) != tasks}


def _records(group: StreamsGroup, changed: Mapping[str, Tasks], epoch: int) -> list[Record]:
    """Returns the records of changed targets, and the record of their epoch."""
    group_id = group.group_id
    records = [group_records.target_assignment(group_id, member_id, tasks) for member_id, tasks in changed.items()]
    records.append(group_records.assignment_epoch(group_id, epoch, group.shard.now.wall_ms))
    return records


def _bytes(targets: Mapping[str, Tasks]) -> int:
    """Returns an upper bound of the size of targets in the log, in bytes."""
    parts = [(part, numbers) for tasks in targets.values() for role in tasks for part, numbers in role.items()]
    names = sum(4 * len(part) + PART_BYTES for part, _ in parts)
    return TARGET_BYTES * len(targets) + names + PARTITION_BYTES * sum(len(numbers) for _, numbers in parts)


def _write_in_slices(group: StreamsGroup, changed: dict[str, Tasks], epoch: int) -> None:
    """Starts writing a target that does not fit into one decision. No computation starts until it is written."""
    group.target_job = True
    group.shard.context.in_slices(_slices(group, changed, epoch))


def _slices(group: StreamsGroup, changed: dict[str, Tasks], epoch: int) -> Iterator[Outcome | None]:
    """Writes the changed targets of members in slices, and then the assignment epoch.

    After a crash between two slices, the log has targets of two computations. This is harmless, because ownership does
    not depend on targets. The assignment epoch is still old, so the next heartbeat computes a new target.

    If the records of a slice are not stored, this function does not write the epoch. With the new epoch, the incomplete
    target would apply, and some tasks would have no member.
    """
    shard, group_id = group.shard, group.group_id
    pending: list[Record] = []
    in_slice: dict[str, Tasks] = {}
    size_bytes = 0
    try:
        for member_id, tasks in changed.items():
            if shard.groups.get(group_id) is not group:
                return
            if member_id not in group.members:
                continue
            pending.append(group_records.target_assignment(group_id, member_id, tasks))
            in_slice[member_id] = tasks
            size_bytes += _bytes({member_id: tasks})
            if len(pending) >= SLICE_RECORDS or size_bytes > shard.max_record_bytes // 4:
                yield Outcome(pending)
                if not _are_stored(group, in_slice):
                    return
                pending, in_slice, size_bytes = [], {}, 0
        if shard.groups.get(group_id) is group:
            pending.append(group_records.assignment_epoch(group_id, epoch, shard.now.wall_ms))
            yield Outcome(pending)
    finally:
        group.target_job = False


def _are_stored(group: StreamsGroup, targets: Mapping[str, Tasks]) -> bool:
    """Returns True if the group has stored these targets. Targets of members that have left are ignored."""
    return all(
        group.targets.get(member_id) == tasks or member_id not in group.members for member_id, tasks in targets.items()
    )
