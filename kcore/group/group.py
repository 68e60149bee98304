"""The interface that all kinds of groups implement; offsets, lists and deletions use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.group.offsets.commit import PlannedTopic
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Record


class GroupType(Enum):
    """The kinds of groups; the value is Kafka's name for the kind, as ListGroups returns it (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class ExpirationBase(NamedTuple):
    """The start of the retention time of a group's offsets (KIP-211), and the topics whose offsets are retained
    (KIP-496).

    Attributes:
        timestamp_ms: start of the retention time of all offsets, in ms since the epoch. None if the retention time of
            each offset starts at its commit.
        subscribed_topics: topics whose offsets never expire.
    """

    timestamp_ms: int | None
    subscribed_topics: Container[str] = frozenset()


COMMIT_TIMESTAMP = ExpirationBase(None)
"""An `ExpirationBase` with which the retention time of each offset starts at its commit."""


class Group(ABC):
    """The interface of a group of any kind.

    Attributes:
        group_id: the group's name.
        group_type: the kind of the group.
        members: the group's members by id.
        protocol_type: the protocol type that its members declare ("consumer", "connect", ...); "" for a group that
            never had members.
        metadata_bytes: the size of the members' metadata, which `metadata_bound` limits.
        shard: the state machine that contains the group.
    """

    __slots__ = ("_registered", "group_id", "metadata_bytes", "protocol_type")

    group_type: GroupType
    members: Mapping[str, Any]
    shard: GroupShard

    def __init__(self, group_id: str, registered: bool = True) -> None:
        """Creates a group without members.

        Args:
            group_id: the group's name.
            registered: True if its shard contains the group. False for a tentative group, which a decision builds
                before its records are replayed.
        """
        self.group_id = group_id
        self.protocol_type = ""
        self.metadata_bytes = 0
        self._registered = registered

    def count_metadata(self, size_bytes: int) -> None:
        """Adds `size_bytes`, which may be negative, to the size of the members' metadata.

        If the group's shard contains the group, also adds `size_bytes` to the total of the node.
        """
        meters = self.shard.meters
        own_bytes, node_bytes = self.metadata_bytes + size_bytes, meters.metadata_bytes + size_bytes
        self.metadata_bytes = own_bytes  # nothing can raise between the two changes
        if self._registered:
            meters.metadata_bytes = node_bytes

    @abstractmethod
    def state_name(self) -> str:
        """Returns the state as DescribeGroups and ListGroups show it ("Stable")."""

    def state_filter_name(self) -> str:
        """Returns the name of the state that a filter of ListGroups matches, in lower case."""
        return self.state_name().lower()

    def topic_changed(self) -> None:  # noqa: B027  # only some kinds of groups depend on topics
        """Reacts to the creation, extension or deletion of a topic on which the group depends."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Returns True if the group has no members. Member ids that are assigned but not yet used do not count."""

    @abstractmethod
    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        transactional: bool,
        topics: Iterable[PlannedTopic] = (),
    ) -> ErrorCode:
        """Returns NONE if this member may commit offsets now, else the error for every partition of the request.

        Args:
            member_id: the committing member; "" for a client that is not a member.
            group_instance_id: the static member's instance id, or None.
            generation_id: the generation (or member epoch) that the client sent; negative if it sent none.
            api_version: the version of the OffsetCommit or TxnOffsetCommit request.
            transactional: True for a TxnOffsetCommit.
            topics: the partitions to commit; an older epoch may be valid for some of them (KIP-1251).
        """

    @abstractmethod
    def offset_commit_accepted(self, member_id: str) -> None:
        """Re-arms the member's session after an accepted OffsetCommit. Only classic groups do this.

        The caller does not call this method for TxnOffsetCommit, which does not extend the session.
        """

    @abstractmethod
    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Returns NONE if this member may read offsets, else the error.

        `member_id` None and `member_epoch` -1 mean a client that is not a member (KIP-848).
        """

    @abstractmethod
    def validate_offset_delete(self) -> ErrorCode:
        """Returns NONE if offsets of this group may be deleted (KIP-496), else the error.

        Even if the result is NONE, offsets of topics for which `is_subscribed_to` returns True must not be deleted.
        """

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Returns True if a member subscribes to `topic`; unknown subscriptions count as all topics."""

    @abstractmethod
    def offset_expiration_base(self) -> ExpirationBase | None:
        """Returns the start of the offsets' retention time; None while no offset of the group may expire."""

    @abstractmethod
    def validate_delete(self) -> ErrorCode:
        """Returns NONE if the group may be deleted (KIP-229), NON_EMPTY_GROUP while it has members."""

    @abstractmethod
    def tombstones(self) -> list[Record]:
        """Returns the records that remove the group itself; the offset store removes the offsets."""

    @abstractmethod
    def on_loaded(self) -> None:
        """Restarts every member's session with the full session timeout, after the shard has replayed its whole log."""

    @abstractmethod
    def on_unloaded(self) -> None:
        """Cancels the group's timers, because a scheduled timer would keep the group in memory.

        The runtime completes the pending responses.
        """

    def on_replaced(self) -> None:
        """Ends the group when a group of another kind takes its id in the same shard."""
        self.on_unloaded()


def not_found(group_id: str, existing: Group | None, required: GroupType) -> KafkaError:
    """Returns the error for a group id without a group of the required type.

    Args:
        group_id: the requested id.
        existing: the group with this id, which has another type; None: the group does not exist.
        required: the type that the request needs.
    """
    if existing is None:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    message = f"Group {group_id} is a {existing.group_type.value} group, not a {required.value} group."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
