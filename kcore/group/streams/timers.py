"""The timers of streams groups besides session timers: for revocation, and for the initial rebalance delay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.streams import target
from kcore.runtime.shard_timer import ShardTimer

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.group.streams.member import StreamsMember
    from kcore.runtime.machine import Outcome


class RevocationTimer(ShardTimer):
    """The timer that removes a member that does not confirm a revocation in time.

    Attributes:
        member: the member that the timer removes.
        member_epoch: the member's epoch when the timer was armed. The timer has no effect if the member has another
            epoch when it fires.
        timer: the scheduled timer.
    """

    __slots__ = ("member", "member_epoch")

    def __init__(self, member: StreamsMember) -> None:
        self.member = member
        self.member_epoch = member.current.member_epoch

    @classmethod
    def armed(cls, member: StreamsMember) -> RevocationTimer:
        """Returns a timer that fires after the member's rebalance timeout."""
        operation = cls(member)
        shard = member.group.shard
        delay_ms = max(member.metadata.rebalance_timeout_ms, 0)
        operation.timer = shard.context.schedule(shard.now.now_ms + delay_ms, operation)
        return operation

    def __repr__(self) -> str:
        return f"<RevocationTimer of {self.member!r}>"

    def fire(self) -> Outcome | None:
        """Removes the member that has not confirmed the revocation."""
        self.timer = None
        if self.member.current.member_epoch != self.member_epoch:
            return None
        return self.member.group.expire(self.member, "it did not revoke its tasks in time")


class InitialDelay(ShardTimer):
    """The initial rebalance delay of a group: members that join during the delay get their tasks together.

    The shard stores the delay, because the group may not exist when the delay begins. After a load there is no delay:
    the next heartbeat computes the target, as in Kafka.

    Attributes:
        group_id: the group that waits for more members.
        timer: the scheduled timer.
    """

    __slots__ = ("_machine", "group_id")

    def __init__(self, machine: GroupShard, group_id: str) -> None:
        self._machine = machine
        self.group_id = group_id
        self.timer = None

    def __repr__(self) -> str:
        return f"<InitialDelay of {self.group_id}>"

    def cancel(self) -> None:
        """Ends the delay without an assignment."""
        self.disarm()
        self._machine.initial_delays.pop(self.group_id, None)

    def fire(self) -> Outcome | None:
        """Computes the first target of all members."""
        self.timer = None
        self._machine.initial_delays.pop(self.group_id, None)
        return target.after_initial_delay(self._machine, self.group_id)


def start_initial_delay(machine: GroupShard, group_id: str, delay_ms: int) -> None:
    """Arms the initial delay of a group unless it is armed already."""
    if group_id not in machine.initial_delays:
        delay = machine.initial_delays[group_id] = InitialDelay(machine, group_id)
        delay.timer = machine.context.schedule(machine.now.now_ms + delay_ms, delay)
