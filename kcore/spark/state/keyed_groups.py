"""Streams groups (KIP-1071) in the form of their records: the newest value of each key, by group.

The tables of streams groups contain the fields of these records. Derived properties, such as the state of the group,
are computed when a table is written.
"""

from __future__ import annotations

from typing import Any, Final

from kcore.spark.state.group_records import STREAMS, Part, parts_of

STREAMS_STABLE: Final = 1
"""Kafka's state number of a member of a streams group that owns its whole target assignment."""

PARTS: Final[dict[type, Part]] = parts_of((STREAMS,))
"""Key class of streams groups -> kind of group, and the part of its state."""


class KeyedGroup:
    """A streams group, whose state is the newest value of each record key.

    Attributes:
        kind: `STREAMS`.
        values: the newest values of the records about the group itself: kind of record -> value.
        members: the newest values of the records about its members: kind of record -> member id -> value, in order of
            arrival.
    """

    __slots__ = ("kind", "members", "values")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.values: dict[str, Any] = {}
        self.members: dict[str, dict[str, Any]] = {}

    def of_members(self, part: str) -> dict[str, Any]:
        """Returns one part of every member's state, by member id."""
        return self.members.get(part, {})

    def epoch(self) -> int:
        """Returns the group epoch; 0 before the first epoch."""
        metadata = self.values.get("Metadata")
        return 0 if metadata is None else int(metadata.epoch)

    def assignment_epoch(self) -> int:
        """Returns the epoch of the target assignment; 0 before the first target."""
        metadata = self.values.get("TargetAssignmentMetadata")
        return 0 if metadata is None else int(metadata.assignment_epoch)

    def state_name(self) -> str:
        """Derives the group state as Kafka does."""
        members = self.of_members("MemberMetadata")
        if not members:
            return "Empty"
        metadata, topology = self.values.get("Metadata"), self.values.get("Topology")
        if metadata is None or topology is None or topology.epoch != metadata.validated_topology_epoch:
            return "NotReady"
        if self.epoch() > self.assignment_epoch():
            return "Assigning"
        current = self.of_members("CurrentMemberAssignment")
        for member_id in members:
            value = current.get(member_id)
            if value is None or value.state != STREAMS_STABLE or value.member_epoch != self.assignment_epoch():
                return "Reconciling"
        return "Stable"

    @property
    def is_deleted(self) -> bool:
        """True if all of its records were deleted."""
        return not self.values and not self.members


class KeyedGroups:
    """The streams groups of one partition of `__consumer_offsets`, by id."""

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: dict[str, KeyedGroup] = {}

    def replay(self, key: Any, value: Any) -> None:
        """Applies a record whose key class is in `PARTS`."""
        kind, part = PARTS[type(key)]
        group = self.groups.get(key.group_id)
        if group is None or group.kind != kind:
            if value is None:
                return
            group = self.groups[key.group_id] = KeyedGroup(kind)
        member_id = getattr(key, "member_id", None)
        if member_id is None:
            if value is None:
                group.values.pop(part, None)
            else:
                group.values[part] = value
        elif value is not None:
            group.members.setdefault(part, {})[member_id] = value
        else:
            of_members = group.of_members(part)
            of_members.pop(member_id, None)
            if not of_members:
                group.members.pop(part, None)
        if group.is_deleted:
            del self.groups[key.group_id]
