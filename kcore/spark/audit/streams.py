"""Checks of streams groups (KIP-1071): tasks within one process, and topologies of removed groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kcore.protocol.records.streams_group_current_member_assignment import StreamsGroupCurrentMemberAssignmentKey
from kcore.protocol.records.streams_group_member_metadata import StreamsGroupMemberMetadataKey
from kcore.protocol.records.streams_group_metadata import StreamsGroupMetadataKey
from kcore.protocol.records.streams_group_topology import StreamsGroupTopologyKey
from kcore.spark.audit.check import Check, Handler, Log
from kcore.spark.audit.classic import named
from kcore.spark.audit.finding import Evidence
from kcore.spark.events.event import EventRow

ROLES: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
Task = tuple[str, int]


def _tasks(value: Any) -> Iterator[Task]:
    """Yields the tasks of a current assignment in every role, assigned or to be revoked."""
    for role in ROLES:
        for entry in (*getattr(value, role), *getattr(value, f"{role}_pending_revocation")):
            for partition in entry.partitions:
                yield entry.subtopology_id, partition


class _Group:
    """The members of one group: their processes and tasks."""

    __slots__ = ("members", "processes")

    def __init__(self) -> None:
        self.processes: dict[str, str] = {}
        self.members: dict[str, tuple[frozenset[Task], Evidence]] = {}


class StreamsTasks(Check):
    """The check that no task occurs twice in one process, and that each topology belongs to a group.

    An active task and its standby or warm-up task count as the same task.
    """

    __slots__ = ("_groups", "_removed", "_topologies")

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._groups: dict[str, _Group] = {}
        self._topologies: dict[str, Evidence] = {}
        self._removed: set[str] = set()  # groups that were removed after their topology was written

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {
            StreamsGroupMemberMetadataKey: self._member,
            StreamsGroupCurrentMemberAssignmentKey: self._current,
            StreamsGroupMetadataKey: self._epoch,
            StreamsGroupTopologyKey: self._topology,
        }

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._groups.clear()
        self._topologies.clear()
        self._removed.clear()

    def end(self) -> None:
        """Reports the topologies of removed groups.

        The topology of a group without any epoch record is not reported. Compaction may have removed the group's old
        epoch records, and the log may end before the newest epoch record.
        """
        for group_id in sorted(self._removed & self._topologies.keys()):
            sentence = f"The topology of group {group_id} remains, but the group was removed."
            self.log.report("topology-without-group", [self._topologies[group_id]], sentence, group_id=group_id)

    def _epoch(self, row: EventRow, key: Any, value: Any) -> None:
        if value is None and key.group_id in self._topologies:
            self._removed.add(key.group_id)
        else:
            self._removed.discard(key.group_id)

    def _topology(self, row: EventRow, key: Any, value: Any) -> None:
        if value is None:
            self._topologies.pop(key.group_id, None)
            self._removed.discard(key.group_id)
        else:
            self._topologies[key.group_id] = self.log.evidence_of(row)
            self._removed.discard(key.group_id)

    def _member(self, row: EventRow, key: Any, value: Any) -> None:
        group = self._groups.setdefault(key.group_id, _Group())
        if value is None:
            group.processes.pop(key.member_id, None)
            group.members.pop(key.member_id, None)
            if not group.processes and not group.members:
                del self._groups[key.group_id]
        else:
            group.processes[key.member_id] = value.process_id

    def _current(self, row: EventRow, key: Any, value: Any) -> None:
        group = self._groups.setdefault(key.group_id, _Group())
        member_id = key.member_id
        if value is None:
            group.members.pop(member_id, None)
            return
        current = self.log.evidence_of(row)
        listed = list(_tasks(value))
        tasks = frozenset(listed)
        before = group.members.get(member_id, (frozenset[Task](), current))[0]
        if len(listed) > len(tasks):
            doubled = sorted({task for task in tasks if listed.count(task) > 1})
            self._report(key.group_id, member_id, member_id, doubled, [current])
        process = group.processes.get(member_id)
        for other, (tasks_of_other, evidence) in sorted(group.members.items()):
            shared = sorted((tasks - before) & tasks_of_other)
            if other != member_id and shared and process is not None and group.processes.get(other) == process:
                self._report(key.group_id, member_id, other, shared, [evidence, current])
        group.members[member_id] = (tasks, current)

    def _report(self, group_id: str, member_id: str, other: str, tasks: list[Task], evidence: list[Evidence]) -> None:
        by_part: dict[str, list[int]] = {}
        for part, partition in tasks:
            by_part.setdefault(part, []).append(partition)
        for part, partitions in by_part.items():
            holder = "it already has in another role" if other == member_id else f"{other} of the same process also has"
            sentence = f"In group {group_id}, {member_id} has task {named(part, partitions)}, which {holder}."
            self.log.report(
                "task-twice-in-process",
                evidence,
                sentence,
                group_id=group_id,
                member_id=member_id,
                about=(part, min(partitions)),
            )
