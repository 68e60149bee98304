"""What all kinds of groups have in common: the face that offsets, lists and deletions see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kcore.group.offsets.commit import PlannedTopic
    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.machine import Record


class GroupType(Enum):
    """The kinds of groups; the value is Kafka's name of it, as ListGroups shows it (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class ExpirationBase(NamedTuple):
    """From when on a group's offsets age (KIP-211), and which of them do not age at all (KIP-496).

    Attributes:
        timestamp_ms: milliseconds since the epoch from which every offset ages; None: each from its own commit.
        subscribed_topics: topics whose offsets are kept, however old.
    """

    timestamp_ms: int | None
    subscribed_topics: Container[str] = frozenset()


COMMIT_TIMESTAMP = ExpirationBase(None)
"""Every offset ages from its own commit."""


class Group(ABC):
    """A group of any kind, as the parts that do not care for its kind see it.

    Attributes:
        group_id: its name.
        group_type: its kind.
        protocol_type: what its members say they do ("consumer", "connect", ...); "" for a group that never had members.
    """

    __slots__ = ("group_id", "protocol_type")

    group_type: GroupType

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.protocol_type = ""

    @abstractmethod
    def state_name(self) -> str:
        """The state as DescribeGroups and ListGroups show it ("Stable")."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members. Ids that were given out and not yet used are no members."""

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
        """May this member commit offsets now?

        Args:
            member_id: who commits; "" for nobody in particular.
            group_instance_id: the static member's instance id, or None.
            generation_id: the generation (or member epoch) in which it believes to be; below 0 for none.
            api_version: of the OffsetCommit or TxnOffsetCommit request.
            transactional: whether it is a TxnOffsetCommit.
            topics: what it wants to commit; an older epoch may be good for some partitions (KIP-1251).

        Returns:
            NONE, or the code that every partition of the request is answered with.
        """

    @abstractmethod
    def offset_commit_accepted(self, member_id: str) -> None:
        """A commit of that member was taken: re-arms its session where the group's kind says so.

        Only for OffsetCommit: a TxnOffsetCommit is no sign of life.
        """

    @abstractmethod
    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """May this member read offsets? `member_id` None and `member_epoch` -1: nobody in particular (KIP-848)."""

    @abstractmethod
    def validate_offset_delete(self) -> ErrorCode:
        """May offsets of this group be deleted at all (KIP-496)? `is_subscribed_to` then says which not."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads `topic`, as far as is known: unknown subscriptions count as all topics."""

    @abstractmethod
    def offset_expiration_base(self) -> ExpirationBase | None:
        """From when the offsets age; None while none of them may expire."""

    @abstractmethod
    def validate_delete(self) -> ErrorCode:
        """May the group be deleted (KIP-229)? NON_EMPTY_GROUP while it has members."""

    @abstractmethod
    def tombstones(self) -> list[Record]:
        """The records that remove the group itself; its offsets are the offset store's matter."""

    @abstractmethod
    def on_loaded(self) -> None:
        """The shard's log was replayed to its end: every member's session begins anew, in full."""

    @abstractmethod
    def on_unloaded(self) -> None:
        """The shard goes: drop what would keep this memory alive (armed timers). Answers are the runtime's matter."""
