"""Tasks of members (assigned, to be revoked, target), and their conversion from and to messages and records.

A task is a subtopology id and a partition, in one of three roles: active, standby or warm-up. An active task of a
member carries its *assignment epoch*, the member epoch in which the member received the task. A commit with an older
member epoch is valid for tasks that the member already had in that epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kcore.group.streams.states import STABLE, MemberState
from kcore.protocol.messages.streams_group_heartbeat import TaskIds as HeartbeatTasks
from kcore.protocol.records.streams_group_current_member_assignment import TaskIds as CurrentTasks
from kcore.protocol.records.streams_group_target_assignment_member import TaskIds as TargetTasks

Partitions = dict[str, dict[int, int]]
"""Tasks of a member: subtopology id -> partition -> assignment epoch (0 for standby and warm-up tasks)."""

NO_TASKS: Final[Partitions] = {}
NO_PARTITIONS: Final[dict[int, int]] = {}


class Tasks(NamedTuple):
    """The tasks of a member by role. Immutable by convention.

    Attributes:
        active: tasks that process records.
        standby: tasks that only copy the state of a task of another process.
        warmup: tasks that restore state before they become active; the assignor of Kafka 4.3 assigns none.
    """

    active: Partitions = NO_TASKS
    standby: Partitions = NO_TASKS
    warmup: Partitions = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """True if there is no task in any role."""
        return not (self.active or self.standby or self.warmup)


NOTHING: Final = Tasks()


class ReportedTasks(Protocol):
    """The tasks of one subtopology that a member owns according to its heartbeat request."""

    subtopology_id: str
    partitions: Sequence[int]


class Report(NamedTuple):
    """The tasks that a member reports as owned, by role."""

    active: Sequence[ReportedTasks]
    standby: Sequence[ReportedTasks]
    warmup: Sequence[ReportedTasks]

    @property
    def is_empty(self) -> bool:
        """True if the member reports no task in any role."""
        return not (self.active or self.standby or self.warmup)


class CurrentAssignment:
    """A member's epochs, state and tasks. Immutable by convention: a change creates another object.

    Attributes:
        member_epoch: the epoch that the member must send.
        previous_epoch: the previous member epoch, which a member that missed a response may still send.
        state: the member's progress towards its target assignment.
        assigned: the tasks that the member may run.
        revoking: the tasks that the member must revoke.
    """

    __slots__ = ("assigned", "member_epoch", "previous_epoch", "revoking", "state")

    def __init__(
        self,
        member_epoch: int = 0,
        previous_epoch: int = 0,
        state: MemberState = STABLE,
        assigned: Tasks = NOTHING,
        revoking: Tasks = NOTHING,
    ) -> None:
        self.member_epoch = member_epoch
        self.previous_epoch = previous_epoch
        self.state = state
        self.assigned = assigned
        self.revoking = revoking

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CurrentAssignment):
            return NotImplemented
        return (
            self.member_epoch == other.member_epoch
            and self.previous_epoch == other.previous_epoch
            and self.state is other.state
            and self.assigned == other.assigned
            and self.revoking == other.revoking
        )

    __hash__ = None  # type: ignore[assignment]  # compared, never a key

    def __repr__(self) -> str:
        return f"<{self.state.name} epoch {self.member_epoch} assigned {self.assigned} revoking {self.revoking}>"


NEW_MEMBER: Final = CurrentAssignment()
"""The current assignment of a member before its first response."""


# ---- reports


def is_part_of(report: Report, tasks: Tasks) -> bool:
    """Returns True if every reported task is in `tasks`, in the same role."""
    for reported, of_role in zip(report, tasks, strict=True):
        for entry in reported:
            partitions = of_role.get(entry.subtopology_id, NO_PARTITIONS)
            if any(partition not in partitions for partition in entry.partitions):
                return False
    return True


def may_still_run(report: Report | None, tasks: Tasks) -> bool:
    """Returns True if the member may still run one of `tasks`.

    This is the case if the member has reported such a task, or if its heartbeat contains no report.
    """
    if report is None:
        return True
    for reported, of_role in zip(report, tasks, strict=True):
        for entry in reported:
            partitions = of_role.get(entry.subtopology_id)
            if partitions is not None and any(partition in partitions for partition in entry.partitions):
                return True
    return False


def has_same_tasks(one: Tasks, other: Tasks) -> bool:
    """Returns True if both have the same tasks; assignment epochs may differ."""
    if one is other:
        return True
    for left, right in zip(one, other, strict=True):
        if left is right:
            continue
        if left.keys() != right.keys() or any(left[part].keys() != right[part].keys() for part in left):
            return False
    return True


# ---- messages and records


def to_heartbeat(partitions: Partitions) -> list[HeartbeatTasks]:
    """Converts the tasks of one role to the form of a heartbeat response."""
    return [
        HeartbeatTasks(subtopology_id=part, partitions=sorted(numbers)) for part, numbers in sorted(partitions.items())
    ]


def to_current(partitions: Partitions, *, with_epochs: bool) -> list[CurrentTasks]:
    """Converts the tasks of one role to the form of a record; only active tasks have assignment epochs."""
    entries = []
    for part, numbers in sorted(partitions.items()):
        ordered = sorted(numbers)
        epochs = [numbers[number] for number in ordered] if with_epochs else ()
        entries.append(CurrentTasks(subtopology_id=part, partitions=ordered, assignment_epochs=epochs))
    return entries


def from_current(entries: Iterable[Any], member_epoch: int, *, with_epochs: bool) -> Partitions:
    """Converts a record's tasks of one role. If a record has no assignment epochs, each task has `member_epoch`."""
    tasks: Partitions = {}
    for entry in entries:
        numbers, epochs = entry.partitions, entry.assignment_epochs
        if not with_epochs:
            tasks[entry.subtopology_id] = dict.fromkeys(numbers, 0)
        elif not epochs or len(epochs) != len(numbers):
            tasks[entry.subtopology_id] = dict.fromkeys(numbers, max(member_epoch, 0))
        else:
            tasks[entry.subtopology_id] = dict(zip(numbers, epochs, strict=True))
    return tasks or NO_TASKS


def to_target(partitions: Mapping[str, Iterable[int]]) -> list[TargetTasks]:
    """Converts the target tasks of one role to the form of a record."""
    return [
        TargetTasks(subtopology_id=part, partitions=sorted(numbers)) for part, numbers in sorted(partitions.items())
    ]


def from_target(entries: Iterable[Any]) -> Partitions:
    """Converts a record's target tasks of one role."""
    return {
        entry.subtopology_id: dict.fromkeys(sorted(entry.partitions), 0) for entry in entries if entry.partitions
    } or NO_TASKS
