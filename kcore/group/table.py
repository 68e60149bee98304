"""The groups of a shard and their number per state, counted at each change so that metrics need no scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.group.group import Group


class GroupTable(dict[str, "Group"]):
    """Groups by id, with counts per kind and state.

    A group counts from its insertion until its removal. Code that changes the state of a group calls `moved`. To change
    the kind of a group, assign another object to the same id.

    Attributes:
        counts: number of groups by (kind, state), both in Kafka's names.
    """

    __slots__ = ("counts",)

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[tuple[str, str], int] = {}

    def moved(self, group: Group, before: str) -> None:
        """Updates the counts after the state of `group` changed from `before`. Ignores a group that is not in the
        table."""
        if self.get(group.group_id) is group:
            kind = group.group_type.value
            self._count(kind, before, -1)
            self._count(kind, group.state_name(), 1)

    def __setitem__(self, group_id: str, group: Group) -> None:
        present = self.get(group_id)
        if present is not None:
            self._count(present.group_type.value, present.state_name(), -1)
        super().__setitem__(group_id, group)
        self._count(group.group_type.value, group.state_name(), 1)

    def __delitem__(self, group_id: str) -> None:
        group = self[group_id]
        super().__delitem__(group_id)
        self._count(group.group_type.value, group.state_name(), -1)

    def _count(self, kind: str, state: str, change: int) -> None:
        self.counts[kind, state] = self.counts.get((kind, state), 0) + change
