"""The delayed operations of a rebalance: DelayedJoin, InitialDelayedJoin, DelayedSync.

Each operation is a timer of the shard, and completes at most once. It completes when its condition is met, which
cancels the timer, or when the timer fires. A group has at most one join phase and one sync phase, and refers to their
operations.

The names of the operations come from Kafka's purgatory. kcore uses timers instead of a purgatory, like Kafka's new
coordinator. The completion of an operation may write a record. This record is part of the decision that completes the
operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.runtime.shard_timer import ShardTimer

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.runtime.machine import Outcome


class DelayedJoin(ShardTimer):
    """A join phase. It ends when all members have joined, or when the rebalance timeout expires.

    Attributes:
        group: the rebalancing group.
    """

    __slots__ = ("group",)

    def __init__(self, group: ClassicGroup) -> None:
        self.group = group

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.group.group_id}>"

    def fire(self) -> Outcome | None:
        """Ends the join phase: the members that have joined form the generation."""
        return self.group.join_phase_timed_out()


class InitialDelayedJoin(DelayedJoin):
    """The join phase of an empty group (KIP-134), prolonged as long as new members join.

    The phase continues even if all current members have joined, because further members may be starting.

    Attributes:
        delay_ms: the length of the current delay, in ms.
        remaining_ms: the part of the first member's rebalance timeout that remains after this delay.
    """

    __slots__ = ("delay_ms", "remaining_ms")

    def __init__(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        super().__init__(group)
        self.delay_ms = delay_ms
        self.remaining_ms = remaining_ms

    def fire(self) -> Outcome | None:
        """Starts another delay if a new member joined and time remains; otherwise ends the join phase."""
        return self.group.initial_delay_over(self)


class DelayedSync(ShardTimer):
    """A sync phase. It ends when every member has synced, or when the rebalance timeout expires (KAFKA-12890).

    Attributes:
        group: the rebalancing group.
        generation_id: the generation whose members must send SyncGroup.
    """

    __slots__ = ("generation_id", "group")

    def __init__(self, group: ClassicGroup, generation_id: int) -> None:
        self.group = group
        self.generation_id = generation_id

    def __repr__(self) -> str:
        return f"<DelayedSync of {self.group.group_id}>"

    def fire(self) -> Outcome | None:
        """Removes the members that have not synced."""
        return self.group.sync_phase_timed_out(self.generation_id)
