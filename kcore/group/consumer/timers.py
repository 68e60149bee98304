"""The timers of a member besides its session timer: for revocation, and for the join and sync of classic members."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kcore.runtime.shard_timer import ShardTimer

if TYPE_CHECKING:
    from kcore.group.consumer.member import ConsumerMember
    from kcore.runtime.machine import Outcome


class Awaited(Enum):
    """The actions of a member for which a timer waits. The value is the reason in the log if the action is late."""

    REVOCATION = "it did not revoke its partitions in time"
    JOIN = "it did not rejoin in time"
    SYNC = "it did not sync in time"


class MemberTimer(ShardTimer):
    """A timer that removes a member unless the member acts in time.

    Attributes:
        member: the member that the timer removes.
        awaited: the action for which the timer waits.
        member_epoch: the epoch of the member when the timer was armed. A revocation timer has no effect if the member
            has another epoch when the timer fires.
        timer: the scheduled timer.
    """

    __slots__ = ("awaited", "member", "member_epoch")

    def __init__(self, member: ConsumerMember, awaited: Awaited) -> None:
        self.member = member
        self.awaited = awaited
        self.member_epoch = member.current.member_epoch

    @classmethod
    def armed(cls, member: ConsumerMember, awaited: Awaited, delay_ms: int) -> MemberTimer:
        """Returns a timer for `member` that fires in `delay_ms`."""
        operation = cls(member, awaited)
        shard = member.group.shard
        operation.timer = shard.context.schedule(shard.now.now_ms + max(delay_ms, 0), operation)
        return operation

    def __repr__(self) -> str:
        return f"<MemberTimer {self.awaited.name} of {self.member!r}>"

    def fire(self) -> Outcome | None:
        """Removes the member, because it did not act before the timer expired."""
        self.timer = None
        member = self.member
        if self.awaited is Awaited.REVOCATION and member.current.member_epoch != self.member_epoch:
            return None
        return member.group.expire(member, self.awaited.value)
