"""Members of streams groups: metadata, current assignment and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.group.epoch_group import GroupMember
from kcore.group.metadata_bound import texts_bytes
from kcore.group.streams.tasks import NEW_MEMBER, CurrentAssignment
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from kcore.group.streams.endpoints import View
    from kcore.group.streams.group import StreamsGroup
    from kcore.group.streams.timers import RevocationTimer
    from kcore.runtime.machine import Outcome

NEVER: Final = -1_000
"""A value for `rest_epoch` that equals no epoch, so that the fast path does not serve the member."""

NO_TOPOLOGY: Final = -1
"""The topology epoch of a member that has not sent a topology."""


class MemberMetadata(NamedTuple):
    """The metadata that a member sends about itself.

    Attributes:
        instance_id: the member's instance id, or None. kcore refuses requests with an instance id, but the log of a
            later version of Kafka may contain one.
        rack_id: the member's rack, or None.
        client_id: the client id of the member's requests.
        client_host: the client's address.
        rebalance_timeout_ms: maximum time in ms in which the member must revoke tasks.
        topology_epoch: the epoch of the topology that the member runs.
        process_id: the process to which the member belongs.
        endpoint: host and port of the member's interactive queries, or None.
        client_tags: pairs of key and value, ordered by key.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = NO_TOPOLOGY
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


TAG_BYTES: Final = 192
"""The memory of a client tag besides its characters, in bytes."""


def own_bytes(member_id: str, metadata: MemberMetadata) -> int:
    """Returns the size of a member's metadata for the metadata limit, in bytes."""
    endpoint, tags = metadata.endpoint, metadata.client_tags
    return (
        texts_bytes(
            member_id,
            metadata.instance_id,
            metadata.rack_id,
            metadata.client_id,
            metadata.client_host,
            metadata.process_id,
            None if endpoint is None else endpoint[0],
        )
        + TAG_BYTES * len(tags)
        + sum(len(key) + len(value) for key, value in tags)
    )


NEW_METADATA: Final = MemberMetadata()
"""The metadata of a member before its first heartbeat."""


class StreamsMember(GroupMember):
    """A member of a streams group. The object is also the `ShardTimer` of the member's session.

    Attributes:
        group: the group of the member.
        member_id: identifies the member in the group.
        metadata: the member's process, its topology epoch, and other data from its requests.
        current: the member's current assignment and epochs.
        timer: the member's session timer; None while the shard is loading, or does not contain the group yet.
        revocation_timer: armed while it must revoke tasks.
        rest_epoch: the group epoch at the member's last heartbeat if that heartbeat changed nothing and its response
            had no status, else `NEVER`. The fast path serves the member while the group has the same `rest_epoch`. Soft
            state.
        reply: the cached response to a heartbeat that changes nothing; None until it is needed.
        endpoint_view: the cached entry for the member's endpoint in heartbeat responses; None until it is needed.
    """

    __slots__ = (
        "current",
        "endpoint_view",
        "group",
        "member_id",
        "metadata",
        "reply",
        "rest_epoch",
        "revocation_timer",
    )

    def __init__(self, group: StreamsGroup, member_id: str, metadata: MemberMetadata) -> None:
        self.group = group
        self.member_id = member_id
        self.metadata = metadata
        self.current = NEW_MEMBER
        self.timer = None
        self.revocation_timer: RevocationTimer | None = None
        self.rest_epoch = NEVER
        self.reply: StreamsGroupHeartbeatResponse | None = None
        self.endpoint_view: View | None = None

    def __repr__(self) -> str:
        return f"<StreamsMember {self.member_id} of {self.group.group_id} {self.current!r}>"

    def set_metadata(self, metadata: MemberMetadata) -> None:
        """Sets the member's metadata."""
        self.metadata = metadata
        self.rest_epoch = NEVER
        self.endpoint_view = None

    def move(self, after: CurrentAssignment) -> None:
        """Sets the member's current assignment."""
        self.current = after
        self.rest_epoch = NEVER
        self.reply = None
        self.endpoint_view = None

    def reply_at_rest(self, heartbeat_interval_ms: int) -> StreamsGroupHeartbeatResponse:
        """Returns the response to a heartbeat that changes nothing. The object is cached until its contents change."""
        reply, endpoint_epoch = self.reply, self.group.endpoint_epoch
        if (
            reply is None
            or reply.heartbeat_interval_ms != heartbeat_interval_ms
            or reply.endpoint_information_epoch != endpoint_epoch
        ):
            reply = self.reply = StreamsGroupHeartbeatResponse(
                member_id=self.member_id,
                member_epoch=self.current.member_epoch,
                heartbeat_interval_ms=heartbeat_interval_ms,
                endpoint_information_epoch=endpoint_epoch,
            )
        return reply

    def stop(self) -> None:
        """Cancels all timers of the member."""
        self.disarm()
        if self.revocation_timer is not None:
            self.revocation_timer.disarm()
            self.revocation_timer = None

    def fire(self) -> Outcome | None:
        """Removes the member, because its session timeout has ended."""
        return self.group.expire_session(self)
