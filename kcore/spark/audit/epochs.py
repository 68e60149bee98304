"""Epochs of consumer, share and streams groups (KIP-848, KIP-932, KIP-1071): they only grow, and in an order.

A group's epoch comes first; a target assignment is made for one, and members follow: none is ever ahead of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.protocol.records import CONSUMER_OFFSETS, key_classes
from kcore.spark.audit.check import Check, Handler, Last, Log
from kcore.spark.event import EventRow

AWAY = -2
"""The member epoch of a static member that left for a while."""

_PREFIXES = ("ConsumerGroup", "ShareGroup", "StreamsGroup")
_PARTS = {
    "MetadataKey": ("epoch", "group-epoch-went-back", "group epoch"),
    "TargetAssignmentMetadataKey": ("assignment_epoch", "assignment-epoch-went-back", "assignment epoch"),
    "CurrentMemberAssignmentKey": ("member_epoch", "member-epoch-went-back", "member epoch"),
    "TopologyKey": ("epoch", "topology-epoch-went-back", "topology epoch"),
}


class GroupEpochs(Check):
    """Epochs of groups, assignments, members and topologies."""

    __slots__ = ("_groups", "_last")

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._last: dict[tuple[str, str, str | None], Last] = {}  # (part, group, member) -> its newest epoch
        self._groups: dict[tuple[str, str], Last] = {}  # (prefix, group) -> the group epoch

    def handlers(self) -> Mapping[type, Handler]:
        """See Check."""
        found: dict[type, Handler] = {}
        for cls in key_classes(CONSUMER_OFFSETS).values():
            for prefix in _PREFIXES:
                part = cls.__name__.removeprefix(prefix)
                if cls.__name__.startswith(prefix) and part in _PARTS:
                    found[cls] = self._handler(prefix, part)
        return found

    def forget(self) -> None:
        """See Check."""
        self._last.clear()
        self._groups.clear()

    def _handler(self, prefix: str, part: str) -> Handler:
        field = _PARTS[part][0]
        name = prefix + part

        def see(row: EventRow, key: Any, value: Any) -> None:
            place = (name, key.group_id, getattr(key, "member_id", None))
            if value is None:
                self._last.pop(place, None)
                if part == "MetadataKey":
                    self._groups.pop((prefix, key.group_id), None)
                return
            self._see(row, prefix, part, place, getattr(value, field))

        return see

    def _see(self, row: EventRow, prefix: str, part: str, place: tuple[str, str, str | None], epoch: int) -> None:
        _, kind, what = _PARTS[part]
        _, group_id, member_id = place
        here = self.log.here(row)
        before = self._last.get(place)
        of = f"group {group_id}" if member_id is None else f"member {member_id} of group {group_id}"
        if before is not None and epoch < before.value and epoch != AWAY:
            sentence = f"The {what} of {of} was {before.value}, and then {epoch}."
            self.log.found(kind, [before.evidence, here], sentence, group_id=group_id, member_id=member_id)
        self._last[place] = Last(epoch, here)
        if part == "MetadataKey":
            self._groups[prefix, group_id] = Last(epoch, here)
            return
        group = self._groups.get((prefix, group_id))
        if part == "TopologyKey" or group is None or epoch <= group.value:
            return
        kind = "member-epoch-ahead" if member_id is not None else "assignment-epoch-ahead"
        sentence = f"The {what} of {of} is {epoch}, and the group epoch {group.value}."
        self.log.found(kind, [group.evidence, here], sentence, group_id=group_id, member_id=member_id)
