"""Checks ownership in consumer and streams groups: a partition has one owner, which must release it first (KIP-848).

If a member must revoke a partition, the member still owns the partition until it confirms the revocation. Share groups
share partitions and are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kcore.protocol.records.consumer_group_current_member_assignment import ConsumerGroupCurrentMemberAssignmentKey
from kcore.protocol.records.streams_group_current_member_assignment import StreamsGroupCurrentMemberAssignmentKey
from kcore.protocol.topic_partition import PartitionTuple
from kcore.spark.audit.check import Check, Handler, Log
from kcore.spark.audit.classic import named
from kcore.spark.audit.finding import Evidence
from kcore.spark.events.event import EventRow

"""Topic id or subtopology, partition."""


def _partitions(value: Any) -> Iterator[PartitionTuple]:
    for entry in (*value.assigned_partitions, *value.partitions_pending_revocation):
        for partition in entry.partitions:
            yield bytes(entry.topic_id).hex(), partition


def _active_tasks(value: Any) -> Iterator[PartitionTuple]:
    for entry in (*value.active_tasks, *value.active_tasks_pending_revocation):
        for partition in entry.partitions:
            yield entry.subtopology_id, partition


class _Group:
    """Partition owners of one group, and the position of each member's current assignment."""

    __slots__ = ("members", "owners")

    def __init__(self) -> None:
        self.members: dict[str, tuple[frozenset[PartitionTuple], Evidence]] = {}
        self.owners: dict[PartitionTuple, str] = {}


class Owners(Check):
    """The check that each partition of a consumer group, and each active task of a streams group, has one owner."""

    __slots__ = ("_groups",)

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._groups: dict[tuple[type, str], _Group] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {
            ConsumerGroupCurrentMemberAssignmentKey: self._handler(_partitions),
            StreamsGroupCurrentMemberAssignmentKey: self._handler(_active_tasks),
        }

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._groups.clear()

    def _handler(self, owned: Callable[[Any], Iterator[PartitionTuple]]) -> Handler:
        def process(row: EventRow, key: Any, value: Any) -> None:
            group_key = (type(key), key.group_id)
            if value is None:
                group = self._groups.get(group_key)
                if group is not None:
                    self._release(group, key.member_id, frozenset())
                    group.members.pop(key.member_id, None)
                    if not group.members:
                        del self._groups[group_key]
                return
            group = self._groups.setdefault(group_key, _Group())
            self._claim(row, key.group_id, group, key.member_id, frozenset(owned(value)))

        return process

    @staticmethod
    def _release(group: _Group, member_id: str, kept: frozenset[PartitionTuple]) -> frozenset[PartitionTuple]:
        """Releases a member's partitions except `kept`. Returns its previous partitions."""
        before, _ = group.members.get(member_id, (frozenset(), None))
        for partition in before - kept:
            if group.owners.get(partition) == member_id:
                del group.owners[partition]
        return before

    def _claim(
        self, row: EventRow, group_id: str, group: _Group, member_id: str, owned: frozenset[PartitionTuple]
    ) -> None:
        previous = self._release(group, member_id, owned)
        current = self.log.evidence_of(row)
        shared: dict[tuple[str, str], list[int]] = {}
        for partition in owned - previous:
            other = group.owners.get(partition)
            if other is not None and other != member_id:
                shared.setdefault((other, partition[0]), []).append(partition[1])
            group.owners[partition] = member_id
        group.members[member_id] = (owned, current)
        for (other, topic), partitions in sorted(shared.items()):
            self.log.report(
                "two-owners",
                [group.members[other][1], current],
                f"In group {group_id}, {member_id} owns {named(topic, partitions)}, while {other} still owns "
                f"{'it' if len(partitions) == 1 else 'them'}.",
                group_id=group_id,
                member_id=member_id,
                about=(topic, min(partitions)),
            )
