"""The timers of a member beside its session: to give up partitions, and for classic members to join and to sync."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kcore.runtime.shard import ShardTimer

if TYPE_CHECKING:
    from kcore.group.consumer.member import ConsumerMember
    from kcore.runtime.machine import Outcome
    from kcore_ext.runtime.timer_wheel import Timer


class Awaited(Enum):
    """What a member must do before its time is up; the value says so in the log."""

    REVOCATION = "it did not give up its partitions in time"
    JOIN = "it did not join again in time"
    SYNC = "it did not sync in time"


class MemberTimer(ShardTimer):
    """A time within which a member must do something, or is out.

    Attributes:
        member: who.
        awaited: what.
        member_epoch: in which epoch; a revocation that is due in another one is not this one.
        timer: on the wheel.
    """

    __slots__ = ("awaited", "member", "member_epoch", "timer")

    timer: Timer

    def __init__(self, member: ConsumerMember, awaited: Awaited) -> None:
        self.member = member
        self.awaited = awaited
        self.member_epoch = member.current.member_epoch

    @classmethod
    def armed(cls, member: ConsumerMember, awaited: Awaited, delay_ms: int) -> MemberTimer:
        """A timer for `member` that fires in `delay_ms`."""
        made = cls(member, awaited)
        shard = member.group.shard
        made.timer = shard.context.schedule(shard.now.now_ms + max(delay_ms, 0), made)
        return made

    def cancel(self) -> None:
        """It was done, or does not matter any more."""
        self.timer.cancel()

    def fire(self) -> Outcome | None:
        """The time is up."""
        member = self.member
        if self.awaited is Awaited.REVOCATION and member.current.member_epoch != self.member_epoch:
            return None
        return member.group.expire(member, self.awaited.value)
