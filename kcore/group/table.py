"""The groups of a shard, and how many of them are in which state: counted as they move, so that nobody has to look
through all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.group.group import Group


class GroupTable(dict[str, "Group"]):
    """Groups by id.

    A group is counted from when it is put here until it is taken out. Whoever changes the state of a group says so with
    `moved`; the kind of a group changes by putting another one in its place.

    Attributes:
        counts: how many groups there are, by (kind, state) as Kafka's names of both.
    """

    __slots__ = ("counts",)

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[tuple[str, str], int] = {}

    def moved(self, group: Group, before: str) -> None:
        """The state of `group` was `before` until now. One that is not here (any more, or yet) does not count."""
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
