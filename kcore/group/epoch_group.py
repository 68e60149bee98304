"""The base class of consumer, share and streams groups: epochs, sessions of members, and metrics of the state.

Members of these groups only send heartbeats (KIP-848, KIP-932, KIP-1071). A change that affects the assignment raises
the group epoch. A target assignment is computed for that epoch, and heartbeats bring each member to its target.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, cast

from kcore.group.group import Group
from kcore.group.removed_member import Client, log_removed_member
from kcore.process_logging import fields
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.runtime.machine import Outcome
from kcore.runtime.shard_timer import ShardTimer

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Record

logger = logging.getLogger(__name__)

FIRST_EPOCH: Final = 1
"""The group epoch and the assignment epoch of a group before its first join, as in Kafka since 4.3."""


class GroupMember(ShardTimer):
    """A member of an `EpochGroup`: a consumer, share or streams group.

    The object is also the `ShardTimer` of the member's session timeout.

    Attributes:
        member_id: the member's id.
    """

    __slots__ = ()

    member_id: str

    def stop(self) -> None:
        """Cancels all timers of the member."""
        self.disarm()


class NamedState(Protocol):
    """The interface of a group's state. Each kind of group has its own enumeration of states.

    Attributes:
        kafka_name: Kafka's name of the state.
    """

    kafka_name: str


Member = TypeVar("Member", bound=GroupMember)
Assignment = TypeVar("Assignment")


class EpochGroup(Group, Generic[Member, Assignment]):
    """A group whose members only send heartbeats: a consumer, share or streams group.

    Args:
        shard: the state machine that contains the group.
        group_id: the name of the group.
        live: True if members have timers.
        registered: True if the shard contains the group. False for a tentative group, which a decision builds before
            its records are replayed. Changes of a tentative group do not affect watchers, metrics or topics.

    Attributes:
        shard: the state machine that contains the group.
        group_epoch: counts changes that affect the assignment.
        metadata_hash: hash of the group's topics as of that epoch.
        assignment_epoch: the group epoch for which the target assignment was computed.
        assigned_at_ms: time of that computation, milliseconds since the epoch; 0 for never.
        members: by member id, in the order of joining.
        targets: target assignments by member id.
        counted_state: the state in which `GroupTable` currently counts the group.
        live: whether members have timers. False while the shard is loading, and in a tentative group.
    """

    __slots__ = (
        "assigned_at_ms",
        "assignment_epoch",
        "counted_state",
        "group_epoch",
        "live",
        "members",
        "metadata_hash",
        "shard",
        "targets",
    )

    members: dict[str, Member]

    no_target: Assignment
    """The empty target, which `target_of` returns for a member without a target."""

    def __init__(self, shard: GroupShard, group_id: str, live: bool, registered: bool = True) -> None:
        super().__init__(group_id, registered)
        self.protocol_type = self.group_type.value
        self.shard = shard
        self.live = live
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        self.members = {}
        self.targets: dict[str, Assignment] = {}
        self.counted_state: NamedState = self.state

    @classmethod
    def tentative(cls, shard: GroupShard, group_id: str) -> Self:
        """Returns a tentative group without members, for a decision."""
        return cls(shard, group_id, live=False, registered=False)

    def __repr__(self) -> str:
        epochs = f"{self.group_epoch}/{self.assignment_epoch}"
        return f"<{type(self).__name__} {self.group_id} epoch {epochs} {len(self.members)}>"

    @property
    @abstractmethod
    def state(self) -> NamedState:
        """The state of the group, derived from its members and epochs."""

    @abstractmethod
    def session_timeout_ms(self, member: Member) -> int:
        """Returns the session timeout of a member."""

    @abstractmethod
    def put_current(self, member: Member, current: Any) -> None:
        """Sets a member's current assignment."""

    @abstractmethod
    def remove(self, member: Member) -> None:
        """Removes a member."""

    @abstractmethod
    def fence(self, member: Member) -> list[Record]:
        """Returns the records that remove a member."""

    def target_of(self, member_id: str) -> Assignment:
        """Returns a member's target assignment."""
        return self.targets.get(member_id, self.no_target)

    # ---- changes by records; only replay calls these

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Sets the group epoch and the hash of the group's topics.

        Unless the shard is loading, counts and logs a new epoch.
        """
        if self.live and self._registered and epoch > self.group_epoch:
            self.shard.meters.new_epochs[self.group_type.value] += 1
            if logger.isEnabledFor(logging.INFO):
                event = fields(group=self.group_id, epoch=epoch, members=len(self.members))
                logger.info(
                    "group %s: new epoch of the %s group: %d; the next target assignment is for this epoch",
                    self.group_id,
                    self.group_type.value,
                    epoch,
                    extra=event,
                )
        self.group_epoch = epoch
        self.metadata_hash = metadata_hash

    def put_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Sets the epoch of a complete target assignment, and the time of its computation."""
        self.assignment_epoch = epoch
        self.assigned_at_ms = timestamp_ms

    def put_target(self, member_id: str, target: Assignment | None) -> None:
        """Sets a member's target assignment; None removes it."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def count_state(self) -> None:
        """Updates the counts of groups by state and logs the change, if the state of the group has changed."""
        state = self.state
        if state is not self.counted_state:
            before, self.counted_state = self.counted_state, state
            self.shard.groups.moved(self, before.kafka_name)
            if self.live and logger.isEnabledFor(logging.DEBUG):
                event = fields(group=self.group_id, epoch=self.group_epoch, state=state.kafka_name)
                logger.debug(
                    "group %s: state: %s -> %s", self.group_id, before.kafka_name, state.kafka_name, extra=event
                )

    # ---- timers

    def expire_session(self, member: Member) -> Outcome | None:
        """Removes a member whose session has expired, if it is still in the group."""
        return self.expire(member, f"it sent no heartbeat for {self.session_timeout_ms(member)} ms (session timeout)")

    def keep_session(self, member: Member) -> None:
        """Restarts a member's session with the full session timeout."""
        deadline_ms = self.shard.now.now_ms + self.session_timeout_ms(member)
        if member.timer is None:
            member.timer = self.shard.context.schedule(deadline_ms, member)
        else:
            member.timer.extend(deadline_ms)

    def expire(self, member: Member, reason: str) -> Outcome | None:
        """Removes a member whose timer fired, if it is still in the group."""
        if self.shard.groups.get(self.group_id) is not self or self.members.get(member.member_id) is not member:
            return None
        metadata: Client = cast("Any", member).metadata  # each kind of group has its own class of metadata
        log_removed_member(self.group_id, member.member_id, metadata, reason)
        self.shard.meters.expirations[self.group_type.value] += 1
        return Outcome(self.fence(member))

    # ---- Group

    def state_name(self) -> str:
        """Returns Kafka's name of the state."""
        return self.state.kafka_name

    def is_empty(self) -> bool:
        """Returns True if the group has no members."""
        return not self.members

    def validate_delete(self) -> ErrorCode:
        """Returns NON_EMPTY_GROUP while the group has members."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else NO_ERROR

    def on_unloaded(self) -> None:
        """Cancels all timers."""
        self.live = False
        self.count_metadata(-self.metadata_bytes)
        for member in self.members.values():
            member.stop()
