"""Members of consumer groups: metadata, current assignment and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.group.consumer.assignment import NEW_MEMBER, CurrentAssignment
from kcore.group.consumer.states import STABLE
from kcore.group.epoch_group import GroupMember
from kcore.group.metadata_bound import protocols_bytes, texts_bytes
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from kcore.assignors import Member as AssignorMember
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.timers import MemberTimer
    from kcore.runtime.machine import Outcome

STATIC_LEAVE_EPOCH: Final = -2
"""The member epoch of a static member that left temporarily (KIP-345, KIP-848)."""

NEVER: Final = -1_000
"""A value for `settled_epoch` that equals no member epoch, so that the fast path never serves the member."""

Protocols = tuple[tuple[str, bytes], ...]


class ClassicMetadata:
    """The JoinGroup metadata of a member that uses the classic protocol. Immutable by convention.

    Attributes:
        session_timeout_ms: maximum time without a heartbeat.
        protocols: (name, metadata), in order of preference.
    """

    __slots__ = ("protocols", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int, protocols: Protocols) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClassicMetadata):
            return NotImplemented
        return self.session_timeout_ms == other.session_timeout_ms and self.protocols == other.protocols

    __hash__ = None  # type: ignore[assignment]  # compared, never a key


class MemberMetadata:
    """The metadata that a member sends about itself. Immutable by convention: a change creates another object.

    Attributes:
        instance_id: the name that a static member keeps over restarts, or None.
        rack_id: the member's rack, or None.
        client_id: the client id of the member's requests.
        client_host: the client's address.
        rebalance_timeout_ms: maximum time to revoke partitions.
        names: the topics to which the member subscribes by name.
        regex: the pattern to which the member subscribes; "" for none.
        server_assignor: the assignor that the member requests, or None.
        classic: the member's metadata of the classic protocol; None for a member of the new protocol.
    """

    __slots__ = (
        "classic",
        "client_host",
        "client_id",
        "instance_id",
        "names",
        "rack_id",
        "rebalance_timeout_ms",
        "regex",
        "server_assignor",
    )

    def __init__(
        self,
        instance_id: str | None = None,
        rack_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout_ms: int = -1,
        names: frozenset[str] = frozenset(),
        regex: str = "",
        server_assignor: str | None = None,
        classic: ClassicMetadata | None = None,
    ) -> None:
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.names = names
        self.regex = regex
        self.server_assignor = server_assignor
        self.classic = classic

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemberMetadata):
            return NotImplemented
        return (
            self.names == other.names
            and self.client_id == other.client_id
            and self.client_host == other.client_host
            and self.instance_id == other.instance_id
            and self.rack_id == other.rack_id
            and self.rebalance_timeout_ms == other.rebalance_timeout_ms
            and self.regex == other.regex
            and self.server_assignor == other.server_assignor
            and self.classic == other.classic
        )

    __hash__ = None  # type: ignore[assignment]  # compared, never a key


def own_bytes(member_id: str, metadata: MemberMetadata | None) -> int:
    """Returns the size of a member's metadata for the metadata limit, in bytes; 0 if `metadata` is None.

    The names of topics are not included, because members share them.
    """
    if metadata is None:
        return 0
    classic = metadata.classic
    return (0 if classic is None else protocols_bytes(classic.protocols)) + texts_bytes(
        member_id,
        metadata.client_id,
        metadata.client_host,
        metadata.instance_id,
        metadata.rack_id,
        metadata.regex,
        metadata.server_assignor,
    )


class ConsumerMember(GroupMember):
    """A member of a consumer group. It uses the consumer protocol or the classic protocol.

    The object is also the `ShardTimer` of the member's session, which saves memory.

    Attributes:
        group: the group of the member.
        member_id: identifies the member in the group.
        metadata: the member's subscription, and other data from its requests.
        current: the member's current assignment and epochs.
        timer: the member's session timer; None while the shard is loading, or does not contain the group yet.
        rebalance_timer: armed while the member must revoke partitions.
        join_timer: armed while a classic member must send JoinGroup.
        sync_timer: armed while a classic member must send SyncGroup.
        settled_epoch: the member epoch while the member is STABLE and uses the new protocol, else `NEVER`. The fast
            path serves heartbeats with this epoch.
        reply: the cached response to a heartbeat with `settled_epoch` that changes nothing; None until it is needed.
        assignor_member: the member in the form that assignors receive; None until it is needed.
    """

    __slots__ = (
        "assignor_member",
        "current",
        "group",
        "join_timer",
        "member_id",
        "metadata",
        "rebalance_timer",
        "reply",
        "settled_epoch",
        "sync_timer",
    )

    def __init__(self, group: ConsumerGroup, member_id: str, metadata: MemberMetadata) -> None:
        self.group = group
        self.member_id = member_id
        self.metadata = metadata
        self.current = NEW_MEMBER
        self.timer = None
        self.rebalance_timer: MemberTimer | None = None
        self.join_timer: MemberTimer | None = None
        self.sync_timer: MemberTimer | None = None
        self.settled_epoch = NEVER
        self.reply: ConsumerGroupHeartbeatResponse | None = None
        self.assignor_member: AssignorMember | None = None

    def __repr__(self) -> str:
        return f"<ConsumerMember {self.member_id} of {self.group.group_id} {self.current!r}>"

    @property
    def is_classic(self) -> bool:
        """Returns True if the member uses the classic protocol."""
        return self.metadata.classic is not None

    def set_metadata(self, metadata: MemberMetadata) -> None:
        """Sets the member's metadata."""
        self.metadata = metadata
        self.assignor_member = None
        self.settle()

    def settle(self) -> None:
        """Recomputes `settled_epoch` after a change of the member, and discards the cached response."""
        current = self.current
        rests = current.state is STABLE and self.metadata.classic is None and current.member_epoch > 0
        self.settled_epoch = current.member_epoch if rests else NEVER
        self.reply = None

    def reply_at_rest(self, heartbeat_interval_ms: int) -> ConsumerGroupHeartbeatResponse:
        """Returns the response to a heartbeat that changes nothing. The object is cached until its contents change."""
        reply = self.reply
        if reply is None or reply.heartbeat_interval_ms != heartbeat_interval_ms:
            reply = self.reply = ConsumerGroupHeartbeatResponse(
                member_id=self.member_id,
                member_epoch=self.settled_epoch,
                heartbeat_interval_ms=heartbeat_interval_ms,
            )
        return reply

    def move(self, after: CurrentAssignment) -> None:
        """Sets the member's current assignment."""
        self.current = after
        self.settle()

    def stop(self) -> None:
        """Cancels all timers of the member."""
        self.disarm()
        if self.rebalance_timer is not None:
            self.rebalance_timer.disarm()
            self.rebalance_timer = None
        self.stop_classic_timers()

    def stop_classic_timers(self) -> None:
        """Cancels the join timer and the sync timer."""
        for timer in (self.join_timer, self.sync_timer):
            if timer is not None:
                timer.disarm()
        self.join_timer = self.sync_timer = None

    def fire(self) -> Outcome | None:
        """Removes the member, because its session timeout has ended."""
        return self.group.expire_session(self)
