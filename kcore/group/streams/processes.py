"""A table of the processes that have each task of a group, derived from the assignments of the members."""

from __future__ import annotations

from kcore.counts import add_count
from kcore.group.streams.tasks import CurrentAssignment, Partitions, Tasks

Holders = dict[tuple[str, int], dict[str, int]]
"""Task (subtopology id, number) -> process id -> number of members of this process that have the task."""

NO_PROCESSES: dict[str, int] = {}


class TaskProcesses:
    """The processes that have each task, by role. A process has a task until one of its members confirms revocation."""

    __slots__ = ("_active", "_copies")

    def __init__(self) -> None:
        self._active: Holders = {}
        self._copies: Holders = {}  # standby and warm-up tasks, which have the same rules

    def blocks_active(self, task: tuple[str, int], process_id: str) -> bool:
        """Returns True while the task must not be assigned to the process as an active task.

        This is the case while the task is active in any process, or while this process has it in another role.
        """
        return task in self._active or process_id in self._copies.get(task, NO_PROCESSES)

    def blocks_copy(self, task: tuple[str, int], process_id: str) -> bool:
        """Returns True while the task must not be assigned to the process as a standby or warm-up task.

        This is the case while the process has the task in any role.
        """
        return process_id in self._active.get(task, NO_PROCESSES) or process_id in self._copies.get(task, NO_PROCESSES)

    def replace(
        self, before: CurrentAssignment | None, before_process: str, after: CurrentAssignment | None, process_id: str
    ) -> None:
        """Replaces the tasks of a member whose assignment or process changed."""
        if before is not None:
            self._count(before.assigned, before_process, -1)
            self._count(before.revoking, before_process, -1)
        if after is not None:
            self._count(after.assigned, process_id, 1)
            self._count(after.revoking, process_id, 1)

    def _count(self, tasks: Tasks, process_id: str, change: int) -> None:
        _change(self._active, tasks.active, process_id, change)
        _change(self._copies, tasks.standby, process_id, change)
        _change(self._copies, tasks.warmup, process_id, change)


def _change(holders: Holders, partitions: Partitions, process_id: str, change: int) -> None:
    for part, numbers in partitions.items():
        for number in numbers:
            task = (part, number)
            processes = holders.get(task)
            if processes is None:
                holders[task] = {process_id: change}
                continue
            if not add_count(processes, process_id, change) and not processes:
                del holders[task]
