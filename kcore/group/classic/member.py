"""Members of classic groups, and ids that were given out but not yet used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.runtime.shard import ShardTimer

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.runtime.machine import Outcome
    from kcore.runtime.pending import Pending
    from kcore_ext.runtime.timer_wheel import Timer

Protocols = tuple[tuple[str, bytes], ...]
"""What a member can do, best first: (protocol name, metadata), each name once."""


class Member(ShardTimer):
    """A member of a classic group.

    It is itself what its session timer carries, so that a member is one object and one timer: a node may have a
    hundred thousand of them. The timer is the *DelayedHeartbeat* of older Kafka, except that a sign of life does not
    complete and replace it, it only moves the deadline.

    Attributes:
        group: the group it is in.
        member_id: the id the coordinator gave it.
        group_instance_id: the name that a static member keeps over restarts (KIP-345), None for a dynamic member.
        client_id: the client's name for itself.
        client_host: the client's address.
        rebalance_timeout_ms: how long a rebalance may wait for it.
        session_timeout_ms: how long it may be silent.
        protocols: what it can do.
        assignment: what it works on, as the leader said; opaque.
        awaiting_join: its parked JoinGroup, or None.
        awaiting_sync: its parked SyncGroup, or None.
        is_new: whether its first join is still unanswered.
        timer: the timer of its session; there from when it joined, or from when its shard is loaded.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "timer",
    )

    timer: Timer

    def __init__(
        self,
        group: ClassicGroup,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
        is_new: bool = False,
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Pending | None = None
        self.awaiting_sync: Pending | None = None
        self.is_new = is_new
        self.timer = None  # type: ignore[assignment]  # only while the log is replayed: see ClassicGroup.on_loaded

    def __repr__(self) -> str:
        return f"<Member {self.member_id} of {self.group.group_id}>"

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it said with that protocol; empty if it does not know it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def stop(self) -> None:
        """Its session does not count any more."""
        if self.timer is not None:
            self.timer.cancel()

    def fire(self) -> Outcome | None:
        """Its session is over."""
        return self.group.expire_member(self)


class PendingMember(ShardTimer):
    """An id that a member was told to join with (KIP-394), until it does or its session timeout is over.

    Attributes:
        group: the group that gave it out.
        member_id: the id.
        timer: when it is forgotten.
    """

    __slots__ = ("group", "member_id", "timer")

    timer: Timer

    def __init__(self, group: ClassicGroup, member_id: str) -> None:
        self.group = group
        self.member_id = member_id

    def fire(self) -> Outcome | None:
        """Nobody came with the id."""
        return self.group.expire_pending(self)
