"""A share group: its members, its epochs, its target assignment and its share partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kcore.counts import add_count
from kcore.group.consumer.assignment import NO_TARGET, Target
from kcore.group.epoch_group import EpochGroup
from kcore.group.group import ExpirationBase, GroupType
from kcore.group.metadata_bound import TOPIC_BYTES, NameSets
from kcore.group.share import leave
from kcore.group.share.member import CurrentAssignment, MemberMetadata, ShareMember, own_bytes
from kcore.group.share.partitions import NOTHING, StatePartitions
from kcore.group.share.records import group_tombstones
from kcore.group.share.states import EMPTY, STABLE, GroupState
from kcore.protocol.error_codes import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from kcore.group.offsets.commit import PlannedTopic
    from kcore.group.shard import GroupShard
    from kcore.group.share.target import LastTarget
    from kcore.runtime.machine import Record
    from kcore.runtime.topics import TopicInfo

NEVER_MS: Final = (1 << 63) - 1
"""A monotonic time in ms that is never reached."""
NO_READERS: Final[dict[int, int]] = {}
"""The empty mapping from partition to number of members, for topics without assigned partitions."""


class ShareGroup(EpochGroup[ShareMember, Target]):
    """A share group.

    See `EpochGroup` for the arguments and the other attributes. Soft state is in memory only: no record stores it.

    Attributes:
        names: for each topic name, the number of members that subscribe to it.
        sets: the different sets of topic names to which members subscribe.
        state_partitions: the lists of share partitions that have a state, or whose state is being initialized or
            deleted.
        initializing_since_ms: monotonic time in ms of the last change of `state_partitions`. After the retry interval,
            a heartbeat repeats the initialization of partitions that the share coordinator has not confirmed.
        topics_checked: whether a heartbeat has compared the hash of the topics since a topic last changed. Soft state.
        checked_epoch: the group epoch after the decision that last made this comparison. If the current group epoch is
            lower, the records of that decision were not written, and the comparison is due again. Soft state.
        quiet_until_ms: monotonic time in ms until which heartbeats of unchanged members find no work. Soft state.
        last_target: the assignor's last result and input; None if they differ from the group's targets or members.
            Soft state.
        next_target: the assignment epoch of a new target, and the new value of `last_target`. The replay of the record
            of this epoch sets the value.
    """

    __slots__ = (
        "_assigned",
        "_unassigned",
        "checked_epoch",
        "initializing_since_ms",
        "last_target",
        "names",
        "next_target",
        "quiet_until_ms",
        "sets",
        "state_partitions",
        "topics_checked",
    )

    group_type = GroupType.SHARE
    no_target = NO_TARGET

    def __init__(self, shard: GroupShard, group_id: str, live: bool, registered: bool = True) -> None:
        super().__init__(shard, group_id, live, registered)
        self.names: dict[str, int] = {}
        self.sets = NameSets()
        self.state_partitions: StatePartitions = NOTHING
        self.initializing_since_ms = 0
        self.topics_checked = False
        self.checked_epoch = 0
        self.quiet_until_ms = 0
        self.last_target: LastTarget | None = None
        self.next_target: tuple[int, LastTarget] | None = None
        self._assigned: dict[bytes, dict[int, int]] = {}  # topic id -> partition -> number of members that have it
        self._unassigned: bool | None = None  # the last result of `has_unassigned`; None after a change

    # ---- reading

    @property
    def state(self) -> GroupState:
        """The state of the group, derived from its members."""
        return STABLE if self.members else EMPTY

    def session_timeout_ms(self, member: ShareMember) -> int:
        """Returns the session timeout of the group's settings."""
        return self.shard.share.settings(self.group_id).session_timeout_ms

    def target_must_wait(self) -> bool:
        """Returns True while the last target is too recent for the computation of a new target (KIP-1263)."""
        if not self.assigned_at_ms:
            return False
        interval_ms = self.shard.share.settings(self.group_id).assignment_interval_ms
        return interval_ms > 0 and self.shard.now.wall_ms < self.assigned_at_ms + interval_ms

    def existing_topics(self, names: Iterable[str]) -> Iterator[TopicInfo]:
        """Yields the topics of these names that exist."""
        by_name = self.shard.topics.by_name
        for name in names:
            topic = by_name(name)
            if topic is not None:
                yield topic

    def has_unassigned(self) -> bool:
        """Returns True if the initialized partitions of a subscribed topic are not exactly the partitions in the
        targets.

        In this case the target must be computed again, although neither members nor topics changed.
        """
        if not self.members:
            return False
        if self._unassigned is None:
            self._unassigned = self._find_unassigned()
        return self._unassigned

    def _find_unassigned(self) -> bool:
        by_id, assigned = self.shard.topics.by_id, self._assigned
        for topic_id, topic in self.state_partitions.initialized.items():
            if topic.name in self.names and assigned.get(topic_id, NO_READERS).keys() != topic.partitions:
                existing = by_id(topic_id)
                if existing is not None and existing.name == topic.name:
                    return True
        return False

    # ---- changes by records; only replay calls these

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Sets a new group epoch."""
        self.set_epoch(epoch, metadata_hash)
        self.quiet_until_ms = 0

    def put_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Sets the epoch of a complete target assignment."""
        super().put_assignment_epoch(epoch, timestamp_ms)
        next_target = self.next_target
        self.last_target = next_target[1] if next_target is not None and next_target[0] == epoch else None
        self.next_target = None
        self.quiet_until_ms = 0

    def put_metadata(self, member_id: str, metadata: MemberMetadata) -> None:
        """Sets a member's metadata; adds the member if it is new."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ShareMember(self, member_id, metadata)
            self._subscribe(frozenset(), metadata.names)
            self.count_metadata(own_bytes(member_id, metadata))
            if self.live:
                self.keep_session(member)
                self.shard.meters.joins["share"] += 1
        else:
            self._subscribe(member.metadata.names, metadata.names)
            self.count_metadata(own_bytes(member_id, metadata) - own_bytes(member_id, member.metadata))
            member.metadata = metadata
        self.last_target = None
        self._changed()

    def remove(self, member: ShareMember) -> None:
        """Removes a member."""
        del self.members[member.member_id]
        self.last_target = None
        self._subscribe(member.metadata.names, frozenset())
        self.count_metadata(-own_bytes(member.member_id, member.metadata))
        member.stop()
        if self.live:
            self.shard.meters.leaves["share"] += 1
        self._changed()

    def put_current(self, member: ShareMember, current: CurrentAssignment) -> None:
        """Sets a member's current assignment."""
        member.move(current)
        self.quiet_until_ms = 0

    def put_target(self, member_id: str, target: Target | None) -> None:
        """Sets a member's target assignment; None removes it."""
        before = self.targets.get(member_id)
        super().put_target(member_id, target)
        if before != target:
            self._count(_only_in(target, before), 1)
            self._count(_only_in(before, target), -1)
            self.last_target = None
        self.quiet_until_ms = 0

    def _count(self, target: Target, change: int) -> None:
        """Adds `change` to the count of members of each partition in `target`."""
        for topic_id, partitions in target.items():
            counts = self._assigned.setdefault(topic_id, {})
            for partition in partitions:
                if add_count(counts, partition, change) == (change > 0):
                    self._unassigned = None
            if not counts:
                del self._assigned[topic_id]

    def put_state_partitions(self, state: StatePartitions) -> None:
        """Sets the lists of share partitions.

        If the shard is loading, the next heartbeat repeats the initializations that are not confirmed.
        """
        self.state_partitions = state
        self.initializing_since_ms = self.shard.now.now_ms if self.live else -NEVER_MS
        self.quiet_until_ms = 0
        self._unassigned = None

    def _subscribe(self, before: frozenset[str], after: frozenset[str]) -> None:
        if before == after:
            return
        self._unassigned = None
        names, sets = self.names, self.sets
        size_bytes = sets.size_bytes + TOPIC_BYTES * len(names)
        sets.change(before, after)
        for name in after - before:
            count = names[name] = names.get(name, 0) + 1
            if count == 1 and self._registered:
                self.shard.topic_subscribed(self.group_id, name, True)
        for name in before - after:
            names[name] -= 1
            if not names[name]:
                del names[name]
                if self._registered:
                    self.shard.topic_subscribed(self.group_id, name, False)
        self.count_metadata(sets.size_bytes + TOPIC_BYTES * len(names) - size_bytes)

    def _changed(self) -> None:
        self.quiet_until_ms = 0
        self.count_state()

    # ---- soft state

    def topic_changed(self) -> None:
        """Makes the next heartbeat compare the topics, because a topic was created, extended or deleted."""
        self.topics_checked = False
        self.quiet_until_ms = 0
        self._unassigned = None

    def must_check_topics(self) -> bool:
        """Returns True if the hash of the topics may differ from the hash that was stored with the group epoch."""
        return not self.topics_checked or self.group_epoch < self.checked_epoch

    def fence(self, member: ShareMember) -> list[Record]:
        """Returns the records that remove a member."""
        return leave.fence(self, member)

    # ---- Group

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        transactional: bool,
        topics: Iterable[PlannedTopic] = (),
    ) -> ErrorCode:
        """Returns GROUP_ID_NOT_FOUND: share groups have no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def offset_commit_accepted(self, member_id: str) -> None:
        """Does nothing: no commit is accepted."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Returns NONE for a client that is not a member, although a share group has no offsets.

        For a member, returns GROUP_ID_NOT_FOUND.
        """
        return NO_ERROR if member_id is None and member_epoch < 0 else ErrorCode.GROUP_ID_NOT_FOUND

    def validate_offset_delete(self) -> ErrorCode:
        """Returns GROUP_ID_NOT_FOUND: share groups have no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns True if a member subscribes to `topic`."""
        return topic in self.names

    def offset_expiration_base(self) -> ExpirationBase | None:
        """Returns None: the group does not expire by the retention of offsets."""
        return None

    def tombstones(self) -> list[Record]:
        """Returns the tombstones of all records of the group."""
        return group_tombstones(self)

    def on_loaded(self) -> None:
        """Starts the session timer of every member with the whole session timeout."""
        self.live = True
        for member in self.members.values():
            self.keep_session(member)


def _only_in(target: Target | None, other: Target | None) -> Target:
    """Returns the topics of a target whose partitions differ from the partitions in another target."""
    if not target or not other:
        return target or NO_TARGET
    return {topic_id: partitions for topic_id, partitions in target.items() if other.get(topic_id) != partitions}
