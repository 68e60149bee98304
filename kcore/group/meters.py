"""Counters of members that join and leave, and durations of rebalances, for the metrics of a node."""

from __future__ import annotations

from typing import Final

from kcore.group.group import GroupType
from kcore.metrics import Histogram

REBALANCE_BOUNDS_S: Final[tuple[float, ...]] = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
"""The bucket bounds of the histogram `rebalance_times`.

They range from the duration of a commit to the longest common rebalance timeout.
"""

REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
"""The names of all states in which a group is rebalancing, for every type of group."""


class GroupMeters:
    """Counters of the groups of a node since its start. Loading a shard does not change them.

    Attributes:
        joins: number of new members by kind of group. The members of a group that is migrated to another kind count as
            new members of that kind.
        leaves: number of members that left or were removed, by kind of group.
        expirations: number of members that were removed because their session or rebalance timeout expired, by kind
            of group.
        new_epochs: number of new group epochs by kind of group; 0 for classic groups.
        rebalance_times: the durations of rebalances by kind of group, in seconds. A rebalance lasts from the change
            that begins it until every member has its assignment. Share groups have no rebalances, as in Kafka.
        metadata_bytes: the current size of the metadata of the members of all groups, which `metadata_bound` limits.
    """

    __slots__ = ("expirations", "joins", "leaves", "metadata_bytes", "new_epochs", "rebalance_times")

    def __init__(self) -> None:
        self.metadata_bytes = 0
        kinds = [kind.value for kind in GroupType]
        self.joins = dict.fromkeys(kinds, 0)
        self.leaves = dict.fromkeys(kinds, 0)
        self.expirations = dict.fromkeys(kinds, 0)
        self.new_epochs = dict.fromkeys(kinds, 0)
        self.rebalance_times = {kind: Histogram(REBALANCE_BOUNDS_S) for kind in kinds if kind != GroupType.SHARE.value}
