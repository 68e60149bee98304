"""Checks of the epochs of consumer, share and streams groups (KIP-848, KIP-932, KIP-1071).

Epochs only grow. The coordinator computes a target assignment for a group epoch, and members move to that assignment.
Therefore, the assignment epoch and the member epochs never exceed the group epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.group.consumer.member import STATIC_LEAVE_EPOCH
from kcore.spark.audit.check import Check, Handler, Last, Log
from kcore.spark.events.event import EventRow
from kcore.spark.state.group_records import parts_of

_PARTS = {
    "Metadata": ("epoch", "group-epoch-decreased", "group epoch"),
    "TargetAssignmentMetadata": ("assignment_epoch", "assignment-epoch-decreased", "assignment epoch"),
    "CurrentMemberAssignment": ("member_epoch", "member-epoch-decreased", "member epoch"),
    "Topology": ("epoch", "topology-epoch-decreased", "topology epoch"),
}
"""Part of a group's state -> (record field with the epoch, kind of finding if the epoch decreases, name of the epoch).

The text of the finding contains the name of the epoch.
"""

EpochKey = tuple[str, str, str, str | None]
"""The key by which the check stores an epoch: (kind of group, part of its state, group id, member id).

The member id is None for an epoch of the group itself.
"""


class GroupEpochs(Check):
    """The check of the epochs of groups, assignments, members and topologies."""

    __slots__ = ("_groups", "_last")

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._last: dict[EpochKey, Last] = {}
        self._groups: dict[tuple[str, str], Last] = {}  # (kind, group) -> the group epoch

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {cls: self._handler(kind, part) for cls, (kind, part) in parts_of().items() if part in _PARTS}

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._last.clear()
        self._groups.clear()

    def _handler(self, kind: str, part: str) -> Handler:
        field = _PARTS[part][0]

        def process(row: EventRow, key: Any, value: Any) -> None:
            epoch_key = (kind, part, key.group_id, getattr(key, "member_id", None))
            if value is None:
                self._last.pop(epoch_key, None)
                if part == "Metadata":
                    self._groups.pop((kind, key.group_id), None)
                return
            self._see(row, epoch_key, getattr(value, field))

        return process

    def _see(self, row: EventRow, epoch_key: EpochKey, epoch: int) -> None:
        kind, part, group_id, member_id = epoch_key
        _, decrease, name = _PARTS[part]
        current = self.log.evidence_of(row)
        before = self._last.get(epoch_key)
        owner = f"group {group_id}" if member_id is None else f"member {member_id} of group {group_id}"
        if before is not None and epoch < before.value and epoch != STATIC_LEAVE_EPOCH:
            sentence = f"The {name} of {owner} fell from {before.value} to {epoch}."
            self.log.report(decrease, [before.evidence, current], sentence, group_id=group_id, member_id=member_id)
        self._last[epoch_key] = Last(epoch, current)
        if part == "Metadata":
            self._groups[kind, group_id] = Last(epoch, current)
            return
        group = self._groups.get((kind, group_id))
        if part == "Topology" or group is None or epoch <= group.value:
            return
        ahead = "member-epoch-ahead" if member_id is not None else "assignment-epoch-ahead"
        sentence = f"The {name} of {owner} is {epoch}, above the group epoch {group.value}."
        self.log.report(ahead, [group.evidence, current], sentence, group_id=group_id, member_id=member_id)
