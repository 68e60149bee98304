"""What a rebalance waits for: DelayedJoin, InitialDelayedJoin, DelayedSync.

Each is armed once and completed at most once: by its condition, which cancels its timer, or by the timer. They bear
the names that they have in Kafka's purgatory, and like Kafka's present coordinator they stand on timers of the shard:
there is one join and one sync phase a group, which the group itself holds, so that looking for them by key would be
in vain; and what completes them may write a record, which must be part of the decision that completed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.runtime.shard import ShardTimer

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.runtime.machine import Outcome


class DelayedJoin(ShardTimer):
    """A join phase, until all members are here (`maybe_complete_join_phase`) or the rebalance timeout is over.

    Attributes:
        group: whose phase it is.
    """

    __slots__ = ("group",)

    def __init__(self, group: ClassicGroup) -> None:
        self.group = group

    def fire(self) -> Outcome | None:
        """The time is up: those who came form the generation."""
        return self.group.join_phase_timed_out()


class InitialDelayedJoin(DelayedJoin):
    """The join phase of an empty group (KIP-134): it waits for company, and on as long as somebody came.

    Members that are all here do not end it: who would know that nobody else is on the way?

    Attributes:
        delay_ms: how long this turn lasts.
        remaining_ms: what is left after this turn of the first member's rebalance timeout.
    """

    __slots__ = ("delay_ms", "remaining_ms")

    def __init__(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        super().__init__(group)
        self.delay_ms = delay_ms
        self.remaining_ms = remaining_ms

    def fire(self) -> Outcome | None:
        """A turn is over: another one if somebody new came and there is time left."""
        return self.group.initial_delay_over(self)


class DelayedSync(ShardTimer):
    """A sync phase, until every member has synced or the rebalance timeout is over (KAFKA-12890).

    Attributes:
        group: whose phase it is.
        generation_id: in which generation.
    """

    __slots__ = ("generation_id", "group")

    def __init__(self, group: ClassicGroup, generation_id: int) -> None:
        self.group = group
        self.generation_id = generation_id

    def fire(self) -> Outcome | None:
        """The time is up: who has not synced is out."""
        return self.group.sync_phase_timed_out(self.generation_id)
