"""The groups of a shard and their number per state, counted at each change so that metrics need no scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.meters import REBALANCING

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.group.group import Group
    from kcore.group.meters import GroupMeters


class GroupTable(dict[str, "Group"]):
    """The groups by id, with counts per kind and state.

    The table counts a group from its insertion until its removal. Code that changes the state of a group calls `moved`.
    To change the kind of a group, assign another object to the same id.

    Attributes:
        counts: number of groups by (kind, state), both in Kafka's names.
    """

    __slots__ = ("_began_ms", "_meters", "_now", "counts")

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[tuple[str, str], int] = {}
        self._began_ms: dict[str, int] = {}  # start of the rebalance of each group that is rebalancing
        self._meters: GroupMeters | None = None
        self._now: Now | None = None

    def measure(self, meters: GroupMeters, now: Now) -> None:
        """Starts measuring the durations of rebalances. Called after a load, so that replayed changes do not count."""
        self._meters = meters
        self._now = now

    def moved(self, group: Group, before: str) -> None:
        """Updates the counts after the state of `group` changed from `before`. Ignores a group that is not in the
        table."""
        if self.get(group.group_id) is group:
            kind, state = group.group_type.value, group.state_name()
            self._count(kind, before, -1)
            self._count(kind, state, 1)
            if self._now is not None:
                self._measure(group.group_id, kind, state, self._now.now_ms)

    def _measure(self, group_id: str, kind: str, state: str, now_ms: int) -> None:
        """Stores the time at which a rebalance begins. Records its duration when the group becomes Stable."""
        if state in REBALANCING:
            self._began_ms.setdefault(group_id, now_ms)
            return
        began_ms = self._began_ms.pop(group_id, None)
        if began_ms is not None and state == "Stable" and self._meters is not None:
            times = self._meters.rebalance_times.get(kind)
            if times is not None:
                times.observe((now_ms - began_ms) / 1_000)

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
        self._began_ms.pop(group_id, None)

    def _count(self, kind: str, state: str, change: int) -> None:
        self.counts[kind, state] = self.counts.get((kind, state), 0) + change
