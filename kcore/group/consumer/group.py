"""A consumer group: its members, its subscriptions, its epochs, and the rules for its offsets."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from kcore.counts import add_count
from kcore.group.committing_group import CommittingGroup
from kcore.group.consumer import leave
from kcore.group.consumer.assignment import NO_PARTITIONS, NO_TARGET, CurrentAssignment, Target
from kcore.group.consumer.member import ConsumerMember, MemberMetadata, own_bytes
from kcore.group.consumer.records import group_tombstones
from kcore.group.consumer.regex import resolution_is_due
from kcore.group.consumer.states import STABLE, UNREVOKED, GroupState
from kcore.group.consumer.subscriptions import ResolvedRegex, Subscriptions
from kcore.group.consumer.timers import Awaited, MemberTimer
from kcore.group.group import ExpirationBase, GroupType
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore_ext.group.consumer_assignment import PartitionOwners

if TYPE_CHECKING:
    from kcore.assignors import GroupAssignment
    from kcore.group.consumer.target import KnownMembers
    from kcore.group.offsets.commit import PlannedTopic
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Record

REFRESH_INTERVAL_MS: Final = (1 << 31) - 1
"""Time after which a group checks its topics even if no topic has changed: 25 days."""
EMPTY, ASSIGNING, RECONCILING, REACHED = GroupState  # looked up once: see `states.STABLE`


class ConsumerGroup(CommittingGroup[ConsumerMember, Target]):
    """A group of the new protocol. During a migration, some members may use the classic protocol.

    See `EpochGroup` for the arguments and the other attributes.

    Attributes:
        static_members: member ids by instance id.
        subscriptions: the subscriptions of all members.
        owners: the owners of partitions.
        hash_outdated: True if a pattern was removed since the last group epoch. `metadata_hash` then includes topics of
            that pattern. A member that changes to a new pattern removes the old one without a new group epoch.
        has_legacy_metadata: whether the log has a record of Kafka 4.0 with the topics of the group.
        reconciled: number of members in state STABLE, by member epoch.
        refresh_at_ms: the monotonic time of the next check of the topics. A change of a topic sets it to 0.
        refresh_epoch: the group epoch after the decision that last checked the topics. If the current group epoch is
            lower, the records of that decision were not written, and the check is due again.
        target_job: whether a target is being computed in slices or in the background.
        last_assignment: the assignor's last result; None if it differs from the targets of the group.
        last_members: the members in the assignor's last input. None after a member has left or changed. Members that
            joined later are missing.
        next_assignment: the epoch of a new target, and the new values of `last_assignment` and `last_members`. The
            replay of the target's records sets these values.
    """

    __slots__ = (
        "has_legacy_metadata",
        "hash_outdated",
        "last_assignment",
        "last_members",
        "next_assignment",
        "owners",
        "reconciled",
        "refresh_at_ms",
        "refresh_epoch",
        "static_members",
        "subscriptions",
        "target_job",
    )

    group_type = GroupType.CONSUMER
    no_target = NO_TARGET

    def __init__(self, shard: GroupShard, group_id: str, live: bool, registered: bool = True) -> None:
        super().__init__(shard, group_id, live, registered)
        self.static_members: dict[str, str] = {}
        # Methods of this group would form a reference cycle between the group and its subscriptions.
        self.subscriptions = (
            Subscriptions(partial(shard.topic_subscribed, group_id), partial(shard.topics_subscribed, group_id))
            if registered
            else Subscriptions(_ignore, _ignore)
        )
        self.owners = PartitionOwners()
        self.hash_outdated = False
        self.has_legacy_metadata = False
        self.reconciled: dict[int, int] = {}
        self.refresh_at_ms = 0
        self.refresh_epoch = 0
        self.target_job = False
        self.last_assignment: GroupAssignment | None = None
        self.last_members: KnownMembers | None = None
        self.next_assignment: tuple[int, GroupAssignment, KnownMembers | None] | None = None

    # ---- reading

    @property
    def state(self) -> GroupState:
        """The state of the group, derived from its members and epochs."""
        if not self.members:
            return EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ASSIGNING
        if self.reconciled.get(self.assignment_epoch, 0) < len(self.members):
            return RECONCILING
        return REACHED

    def session_timeout_ms(self, member: ConsumerMember) -> int:
        """Returns a member's session timeout in ms.

        The timeout comes from the JoinGroup request of a classic member, and from the group's settings for any other
        member.
        """
        classic = member.metadata.classic
        if classic is not None:
            return classic.session_timeout_ms
        return self.shard.consumer.settings(self.group_id).session_timeout_ms

    def topics_seen(self, group_epoch: int) -> None:
        """Registers in memory that a decision has checked the group's topics. No record stores this.

        `group_epoch` is the group epoch after that decision.
        """
        self.refresh_at_ms = self.shard.now.now_ms + REFRESH_INTERVAL_MS
        self.refresh_epoch = group_epoch

    def refresh_due(self) -> bool:
        """Returns True if the topics must be checked again."""
        return self.shard.now.now_ms >= self.refresh_at_ms or self.group_epoch < self.refresh_epoch

    def topic_changed(self) -> None:
        """Makes the next heartbeat check the topics again."""
        self.refresh_at_ms = 0

    def target_must_wait(self) -> bool:
        """Returns True while no new target may be computed.

        Either a computation is running, or the last target is too recent (KIP-1263).
        """
        if self.target_job:
            return True
        shard, assigned_at_ms = self.shard, self.assigned_at_ms
        if not assigned_at_ms:
            return False
        interval_ms = shard.consumer.settings(self.group_id).assignment_interval_ms
        return interval_ms > 0 and shard.now.wall_ms < assigned_at_ms + interval_ms

    def is_quiet(self) -> bool:
        """Returns True if heartbeats currently find no work for the group.

        No new target is due, the topics need no check, and no pattern must be resolved.
        """
        return (
            self.shard.now.now_ms < self.refresh_at_ms  # this line and the next are `refresh_due`, without a call
            and self.group_epoch >= self.refresh_epoch
            and (self.group_epoch == self.assignment_epoch or self.target_must_wait())
            and (not self.subscriptions.regexes or not resolution_is_due(self))
        )

    # ---- changes by records; only replay calls these

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Sets a new group epoch."""
        self.set_epoch(epoch, metadata_hash)
        self.hash_outdated = False
        self._changed()

    def put_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Sets the epoch of a complete target assignment. Moves `next_assignment` to `last_assignment`."""
        super().put_assignment_epoch(epoch, timestamp_ms)
        if self.next_assignment is not None and self.next_assignment[0] == epoch:
            _, self.last_assignment, self.last_members = self.next_assignment
        self.next_assignment = None
        self._changed()

    def put_metadata(self, member_id: str, metadata: MemberMetadata) -> None:
        """Sets a member's metadata; adds the member if it is new."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(self, member_id, metadata)
            self._count(member, 1)
            self._subscribe(None, member_id, metadata)
            if self.live:
                self.keep_session(member)
                self.shard.meters.joins["consumer"] += 1
        else:
            before = member.metadata
            self._subscribe(before, member_id, metadata)
            member.set_metadata(metadata)
            self.last_members = None
            if self.live and (before.classic is None) is not (metadata.classic is None):
                self._change_protocol_timers(member)
            if before.instance_id is not None and before.instance_id != metadata.instance_id:
                self._forget_instance(before.instance_id, member_id)
        if metadata.instance_id is not None:
            self.static_members[metadata.instance_id] = member_id
        self._changed()

    def remove(self, member: ConsumerMember) -> None:
        """Removes a member."""
        member_id, metadata = member.member_id, member.metadata
        self._count(member, -1)
        del self.members[member_id]
        self.last_members = None
        self.owners.replace(member.current, None)
        self._subscribe(metadata, member_id, None)
        if metadata.instance_id is not None:
            self._forget_instance(metadata.instance_id, member_id)
        member.stop()
        if self.live:
            self.shard.meters.leaves["consumer"] += 1
        self._changed()

    def put_current(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        """Sets a member's current assignment.

        Unless the shard is loading, arms the revocation timer if partitions must be revoked.
        """
        self.owners.replace(member.current, current)
        self._count(member, -1)
        member.move(current)
        self._count(member, 1)
        if self.live:
            self.await_revocation(member)
        self._changed()

    def put_target(self, member_id: str, target: Target | None) -> None:
        """Sets a member's target assignment; None removes it."""
        super().put_target(member_id, target)
        if target is not None:
            self.last_assignment = None  # until the record of the assignment epoch, which follows all targets
        if self.live:
            self.shard.consumer.events.touch(self)

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Sets the topics that a pattern matched; None removes the pattern."""
        self.subscriptions.resolve(regex, resolved)
        if resolved is None:
            self.hash_outdated = True
        self.last_members = None
        for member in self.members.values():
            if member.metadata.regex == regex:
                member.assignor_member = None
        self._changed()

    def _subscribe(self, before: MemberMetadata | None, member_id: str, after: MemberMetadata | None) -> None:
        """Updates the group's counts of subscriptions and of metadata bytes after a change of a member's metadata."""
        subscriptions = self.subscriptions
        size_bytes = subscriptions.size_bytes
        subscriptions.change(before, after)
        size_bytes = subscriptions.size_bytes - size_bytes
        self.count_metadata(size_bytes + own_bytes(member_id, after) - own_bytes(member_id, before))

    def _count(self, member: ConsumerMember, step: int) -> None:
        if member.current.state is STABLE:
            add_count(self.reconciled, member.current.member_epoch, step)

    def _forget_instance(self, instance_id: str, member_id: str) -> None:
        if self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _changed(self) -> None:
        self.count_state()
        if self.live:
            self.shard.consumer.events.touch(self)

    # ---- timers

    def _change_protocol_timers(self, member: ConsumerMember) -> None:
        """Replaces the timers of a member that changed from the classic to the new protocol, or back."""
        member.stop_classic_timers()
        self.keep_session(member)
        self.await_revocation(member)

    def await_revocation(self, member: ConsumerMember) -> None:
        """Restarts a member's revocation timer if it must revoke partitions, else cancels the timer.

        Classic members have no revocation timer, because they must rejoin before their join timer fires. A static
        member that left temporarily has no revocation timer, because it uses no partitions.
        """
        if member.rebalance_timer is not None:
            member.rebalance_timer.disarm()
            member.rebalance_timer = None
        current = member.current
        if current.state is UNREVOKED and current.member_epoch >= 0 and not member.is_classic:
            delay_ms = member.metadata.rebalance_timeout_ms
            member.rebalance_timer = MemberTimer.armed(member, Awaited.REVOCATION, delay_ms)

    def fence(self, member: ConsumerMember) -> list[Record]:
        """Returns the records that remove a member."""
        return leave.fence(self, [member])

    # ---- Group

    def uses_generations(self, member: ConsumerMember) -> bool:
        """Returns True if the member uses the classic protocol, whose requests have a generation as the epoch."""
        return member.is_classic

    def member_epoch(self, member: ConsumerMember) -> int:
        """Returns the epoch of a member."""
        return member.current.member_epoch

    def had_all(self, member: ConsumerMember, epoch: int, topics: Iterable[PlannedTopic]) -> bool:
        """Returns True if the member has owned every partition of a commit since `epoch` or earlier."""
        current = member.current
        for requested_topic, topic, codes in topics:
            topic_id = topic.topic_id
            assigned = current.assigned.get(topic_id, NO_PARTITIONS)
            revoking = current.revoking.get(topic_id, NO_PARTITIONS)
            for i, requested in enumerate(requested_topic.partitions):
                if codes is not None and codes[i]:
                    continue  # already refused
                partition = requested.partition_index
                since = assigned.get(partition, revoking.get(partition))
                if since is None or since > epoch:
                    return False
        return True

    def validate_offset_delete(self) -> ErrorCode:
        """Returns NONE: offsets of topics without subscribers may be deleted at any time."""
        return NO_ERROR

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns True if a member subscribes to `topic`."""
        return topic in self.subscriptions

    def offset_expiration_base(self) -> ExpirationBase | None:
        """Returns the rules of expiration: the retention time of an offset starts at its commit.

        While a member subscribes to a topic, the offsets of this topic do not expire.
        """
        return ExpirationBase(None, self.subscriptions)

    def tombstones(self) -> list[Record]:
        """Returns the tombstones of all records of the group."""
        return group_tombstones(self)

    def on_loaded(self) -> None:
        """Starts all timers. The rebalance timeout of members that must revoke partitions starts again."""
        self.live = True
        for member in self.members.values():
            timeout_ms = self.shard.consumer.settings(self.group_id).session_timeout_ms
            member.timer = self.shard.context.schedule(self.shard.now.now_ms + timeout_ms, member)
            self.await_revocation(member)


def _ignore(*topics: object) -> None:
    """Does nothing. A group that the shard does not contain yet uses this function in place of the shard's callback."""
