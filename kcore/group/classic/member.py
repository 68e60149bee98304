"""Members of classic groups, and member ids that were assigned but not yet used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.classic.replies import join_error
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.shard_timer import ShardTimer

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.runtime.machine import Outcome
    from kcore.runtime.pending import Pending
    from kcore_ext.runtime.timer_wheel import Timer

Protocols = tuple[tuple[str, bytes], ...]
"""Protocols that a member supports, in order of preference: (protocol name, metadata), each name once."""


class Member(ShardTimer):
    """A member of a classic group.

    The object is also the `ShardTimer` of the member's session. This saves memory, because a node may have a hundred
    thousand members. Older Kafka versions call this timer *DelayedHeartbeat*, and replace it at each heartbeat. In
    kcore, a heartbeat moves the deadline of the timer.

    Attributes:
        group: the group of the member.
        member_id: the id that the coordinator assigned.
        group_instance_id: the name that a static member keeps over restarts (KIP-345), None for a dynamic member.
        client_id: the client id of the member's requests.
        client_host: the client's address.
        rebalance_timeout_ms: maximum time in ms that a rebalance waits for the member.
        session_timeout_ms: maximum time in ms without a heartbeat.
        protocols: the protocols that the member supports.
        assignment: the member's assignment, as the bytes that the group's leader has sent.
        awaiting_join: the member's parked JoinGroup, or None.
        awaiting_sync: the member's parked SyncGroup, or None.
        is_new: True until the member's first join gets a response.
        timer: the member's session timer; set when the member joins, or when the shard is loaded.
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
        self.timer = None  # type: ignore[assignment]  # None only until ClassicGroup.on_loaded, and after `disarm`

    def __repr__(self) -> str:
        return f"<Member {self.member_id} of {self.group.group_id}>"

    def metadata(self, protocol_name: str | None) -> bytes:
        """Returns the member's metadata of a protocol; empty if the member does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def on_unloaded(self) -> None:
        """Cancels the session, and refuses a parked join.

        The response has the member's id, as in Kafka. A new member does not know the id yet.
        """
        self.disarm()
        pending = self.awaiting_join
        if pending is not None and not pending.done:
            code = ErrorCode.NOT_COORDINATOR
            pending.complete(join_error(pending.context.api_version, self.member_id, code))

    def fire(self) -> Outcome | None:
        """Expires the member's session."""
        return self.group.expire_member(self)


class PendingMember(ShardTimer):
    """A member id that the coordinator assigned (KIP-394) and that the client has not used yet.

    Attributes:
        group: the group that assigned it.
        member_id: the assigned id.
        timer: removes the id after the session timeout.
    """

    __slots__ = ("group", "member_id")

    timer: Timer

    def __init__(self, group: ClassicGroup, member_id: str) -> None:
        self.group = group
        self.member_id = member_id

    def __repr__(self) -> str:
        return f"<PendingMember {self.member_id} of {self.group.group_id}>"

    def fire(self) -> Outcome | None:
        """Removes a member id that was never used to join."""
        return self.group.expire_pending(self)
