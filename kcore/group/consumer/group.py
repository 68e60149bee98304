"""A consumer group: who is in it, what it reads, its epochs, and what others may ask of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kcore.group.consumer import leave
from kcore.group.consumer.assignment import NO_PARTITIONS, NO_TARGET, CurrentAssignment, Target
from kcore.group.consumer.member import ConsumerMember, MemberMetadata
from kcore.group.consumer.owners import PartitionOwners
from kcore.group.consumer.records import group_tombstones
from kcore.group.consumer.regex import resolution_is_due
from kcore.group.consumer.states import STABLE, UNREVOKED, GroupState
from kcore.group.consumer.subscriptions import ResolvedRegex, Subscriptions
from kcore.group.consumer.timers import Awaited, MemberTimer
from kcore.group.group import ExpirationBase, Group, GroupType
from kcore.process_logging import fields
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from kcore.assignors import GroupAssignment
    from kcore.group.consumer.target import KnownMembers
    from kcore.group.offsets.commit import PlannedTopic
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Record

logger = logging.getLogger(__name__)

FIRST_EPOCH: Final = 1
"""Group and assignment epoch of a group that nobody joined yet, since Kafka 4.3."""
NO_EPOCH: Final = -1
"""The assignment epoch once its record is gone."""
REFRESH_INTERVAL_MS: Final = (1 << 31) - 1
"""When topics are looked at again by themselves: never, as good as; a change of a topic says so."""
EMPTY, ASSIGNING, RECONCILING, REACHED = GroupState  # found once: see `states.STABLE`
MEMBER_EPOCHS_SINCE: Final = 9
"""The version of OffsetCommit from which on it can say STALE_MEMBER_EPOCH."""


class ConsumerGroup(Group):
    """A group of the new protocol. Its members may speak the classic one, in a group that migrates.

    Args:
        shard: the state machine it lives in.
        group_id: its id.
        live: see the attribute.
        registered: whether it is one of the shard's groups; False for one that is only thought of, which nobody is told
            of and nobody counts.

    Attributes:
        shard: the state machine it lives in.
        group_epoch: counts changes that the assignment depends on.
        metadata_hash: of the topics that are read, as of that epoch.
        assignment_epoch: the group epoch that the target assignment was computed for.
        assigned_at_ms: when it was computed, milliseconds since the epoch; 0 for never.
        members: by member id, in the order in which they came.
        static_members: member ids by instance id.
        targets: what each member shall have, by member id.
        subscriptions: what the members read.
        owners: who has which partition.
        has_legacy_metadata: whether a record of Kafka 4.0 lists its topics.
        reconciled: how many members are at rest in each epoch.
        refresh_at_ms: the monotonic time at which the topics are looked at again. A change of a topic sets it to 0.
        refresh_epoch: the group epoch when that was set: a write that was refused is not taken for done.
        target_job: whether a target is being computed beside other work.
        last_assignment: what the assignor returned last, while the targets are just that.
        last_members: what it was given, while they and their subscriptions are just that; others may have come.
        next_assignment: the group epoch, and what will be these two once the records that say so are replayed.
        counted_state: the state as of its last change, in which the shard's table counts it.
        live: whether members have timers: not while a log is read, nor in a group that is only thought of.
    """

    __slots__ = (
        "_registered",
        "assigned_at_ms",
        "assignment_epoch",
        "counted_state",
        "group_epoch",
        "has_legacy_metadata",
        "last_assignment",
        "last_members",
        "live",
        "members",
        "metadata_hash",
        "next_assignment",
        "owners",
        "reconciled",
        "refresh_at_ms",
        "refresh_epoch",
        "shard",
        "static_members",
        "subscriptions",
        "target_job",
        "targets",
    )

    group_type = GroupType.CONSUMER

    def __init__(self, shard: GroupShard, group_id: str, live: bool, registered: bool = True) -> None:
        super().__init__(group_id)
        self._registered = registered
        self.protocol_type = PROTOCOL_TYPE
        self.shard = shard
        self.live = live
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Target] = {}
        self.subscriptions = Subscriptions(self._topic_subscribed)
        self.owners = PartitionOwners()
        self.has_legacy_metadata = False
        self.reconciled: dict[int, int] = {}
        self.refresh_at_ms = 0
        self.refresh_epoch = 0
        self.target_job = False
        self.last_assignment: GroupAssignment | None = None
        self.last_members: KnownMembers | None = None
        self.next_assignment: tuple[int, GroupAssignment, KnownMembers | None] | None = None
        self.counted_state: GroupState = EMPTY

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.group_id} epoch {self.group_epoch}/{self.assignment_epoch} {len(self.members)}>"

    # ---- reading

    @property
    def state(self) -> GroupState:
        """Where the group is, as its members and epochs say."""
        if not self.members:
            return EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ASSIGNING
        if self.reconciled.get(self.assignment_epoch, 0) < len(self.members):
            return RECONCILING
        return REACHED

    def target_of(self, member_id: str) -> Target:
        """What a member shall have."""
        return self.targets.get(member_id, NO_TARGET)

    def session_timeout_ms(self, metadata: MemberMetadata) -> int:
        """How long a member may be silent: classic members say it themselves, for others the group's setting counts."""
        if metadata.classic is not None:
            return metadata.classic.session_timeout_ms
        return self.shard.consumer.settings(self.group_id).session_timeout_ms

    def topics_seen(self, group_epoch: int) -> None:
        """The topics were looked at, in a decision after which the group is in `group_epoch`. Soft."""
        self.refresh_at_ms = self.shard.now.now_ms + REFRESH_INTERVAL_MS
        self.refresh_epoch = group_epoch

    def refresh_due(self) -> bool:
        """Whether the topics must be looked at again."""
        return self.shard.now.now_ms >= self.refresh_at_ms or self.group_epoch < self.refresh_epoch

    def target_must_wait(self) -> bool:
        """Whether no new target is begun now: one is being computed, or the last one is too young (KIP-1263)."""
        if self.target_job:
            return True
        shard, assigned_at_ms = self.shard, self.assigned_at_ms
        if not assigned_at_ms:
            return False
        interval_ms = shard.consumer.settings(self.group_id).assignment_interval_ms
        return interval_ms > 0 and shard.now.wall_ms < assigned_at_ms + interval_ms

    def is_quiet(self) -> bool:
        """Whether nothing waits for the next heartbeat, whoever sends it: no target is due, no topic changed, no
        pattern is to be looked up."""
        return (
            self.shard.now.now_ms < self.refresh_at_ms  # this and the next are `refresh_due`, without a call
            and self.group_epoch >= self.refresh_epoch
            and (self.group_epoch == self.assignment_epoch or self.target_must_wait())
            and (not self.subscriptions.regexes or not resolution_is_due(self))
        )

    # ---- what records say; called by replay alone

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        """A new group epoch."""
        if self.live and self._registered and epoch > self.group_epoch:
            self.shard.consumer_rebalances += 1
            if logger.isEnabledFor(logging.INFO):
                event = fields(group=self.group_id, epoch=epoch, members=len(self.members))
                logger.info("a new epoch: the partitions are shared out anew", extra=event)
        self.group_epoch = epoch
        self.metadata_hash = metadata_hash
        self._changed()

    def put_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """A new target assignment is complete."""
        self.assignment_epoch = epoch
        self.assigned_at_ms = timestamp_ms
        if self.next_assignment is not None and self.next_assignment[0] == epoch:
            _, self.last_assignment, self.last_members = self.next_assignment
        self.next_assignment = None
        self._changed()

    def put_metadata(self, member_id: str, metadata: MemberMetadata) -> None:
        """A member says something (else) of itself; it may be new."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(self, member_id, metadata)
            self._count(member, 1)
            self.subscriptions.change(None, metadata)
            if self.live:
                self.keep_session(member)
        else:
            before = member.metadata
            self.subscriptions.change(before, metadata)
            member.say(metadata)
            self.last_members = None
            if self.live and (before.classic is None) is not (metadata.classic is None):
                self._speaks_another_protocol(member)
            if before.instance_id is not None and before.instance_id != metadata.instance_id:
                self._forget_instance(before.instance_id, member_id)
        if metadata.instance_id is not None:
            self.static_members[metadata.instance_id] = member_id
        self._changed()

    def remove(self, member: ConsumerMember) -> None:
        """A member is gone."""
        member_id, metadata = member.member_id, member.metadata
        self._count(member, -1)
        del self.members[member_id]
        self.last_members = None
        self.owners.replace(member.current, None)
        self.subscriptions.change(metadata, None)
        if metadata.instance_id is not None:
            self._forget_instance(metadata.instance_id, member_id)
        member.stop()
        self._changed()

    def put_current(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        """A member is somewhere else. Live, it is given its time if it has something to give up."""
        self.owners.replace(member.current, current)
        self._count(member, -1)
        member.move(current)
        self._count(member, 1)
        if self.live:
            self.await_revocation(member)
        self._changed()

    def put_target(self, member_id: str, target: Target | None) -> None:
        """A member shall have something else; None: nothing is said of it any more."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target
            self.last_assignment = None  # until the record behind all targets says that they are those
        if self.live:
            self.shard.consumer.events.touch(self)

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """A pattern was looked up, or is gone."""
        self.subscriptions.resolve(regex, resolved)
        self.last_members = None
        for member in self.members.values():
            if member.metadata.regex == regex:
                member.assignor_member = None
        self._changed()

    def _count(self, member: ConsumerMember, step: int) -> None:
        if member.current.state is STABLE:
            epoch = member.current.member_epoch
            count = self.reconciled.get(epoch, 0) + step
            if count:
                self.reconciled[epoch] = count
            else:
                del self.reconciled[epoch]

    def _forget_instance(self, instance_id: str, member_id: str) -> None:
        if self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _changed(self) -> None:
        state = self.state
        if state is not self.counted_state:
            before, self.counted_state = self.counted_state, state
            self.shard.groups.moved(self, before.kafka_name)
            if self.live and logger.isEnabledFor(logging.DEBUG):
                event = fields(group=self.group_id, epoch=self.group_epoch, state=state.value)
                logger.debug("%s -> %s", before.value, state.value, extra=event)
        if self.live:
            self.shard.consumer.events.touch(self)

    def _topic_subscribed(self, name: str, subscribed: bool) -> None:
        if self._registered:
            self.shard.topic_subscribed(self.group_id, name, subscribed)

    # ---- timers

    def keep_session(self, member: ConsumerMember) -> None:
        """A sign of life: the session begins anew, in full."""
        deadline_ms = self.shard.now.now_ms + self.session_timeout_ms(member.metadata)
        if member.timer is None:
            member.timer = self.shard.context.schedule(deadline_ms, member)
        else:
            member.timer.extend(deadline_ms)

    def _speaks_another_protocol(self, member: ConsumerMember) -> None:
        """A member moved between the protocols: the timers are those of the one it speaks now."""
        member.stop_classic_timers()
        self.keep_session(member)
        self.await_revocation(member)

    def await_revocation(self, member: ConsumerMember) -> None:
        """Arms the time a member has to give up partitions, anew with each time it is told to; or stops it.

        Classic members have none: they must join again, for which they have one already. Nor has a static member that
        is away: it has given up what it was to.
        """
        if member.rebalance_timer is not None:
            member.rebalance_timer.cancel()
            member.rebalance_timer = None
        current = member.current
        if current.state is UNREVOKED and current.member_epoch >= 0 and not member.is_classic:
            delay_ms = member.metadata.rebalance_timeout_ms
            member.rebalance_timer = MemberTimer.armed(member, Awaited.REVOCATION, delay_ms)

    def expire(self, member: ConsumerMember, reason: str) -> Outcome | None:
        """A timer of a member fired: it is out, if it is still there."""
        if self.shard.groups.get(self.group_id) is not self or self.members.get(member.member_id) is not member:
            return None
        logger.debug("group %s: member %s is out: %s", self.group_id, member.member_id, reason)
        return Outcome(leave.fence(self, [member]))

    # ---- Group

    def state_name(self) -> str:
        """See Group."""
        return self.state.kafka_name

    def is_empty(self) -> bool:
        """See Group."""
        return not self.members

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        transactional: bool,
        topics: Iterable[PlannedTopic] = (),
    ) -> ErrorCode:
        """See Group. An older epoch is good for partitions that the member had by then (KIP-1251)."""
        if generation_id < 0 and not self.members:
            return NO_ERROR
        if transactional and generation_id < 0 and not member_id and group_instance_id is None:
            return NO_ERROR
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and api_version < MEMBER_EPOCHS_SINCE and not member.is_classic:
            return ErrorCode.UNSUPPORTED_VERSION
        current = member.current
        if generation_id == current.member_epoch:
            return NO_ERROR
        if generation_id < current.member_epoch and _had_all(current, generation_id, topics):
            return NO_ERROR
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def offset_commit_accepted(self, member_id: str) -> None:
        """See Group: a commit is no sign of life here."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """See Group. An epoch without a member is a client's bug, which Kafka answers as its own."""
        if member_id is None:
            return NO_ERROR if member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch != member.current.member_epoch:
            return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        return NO_ERROR

    def validate_offset_delete(self) -> ErrorCode:
        """See Group: offsets of topics that nobody reads may go at any time."""
        return NO_ERROR

    def is_subscribed_to(self, topic: str) -> bool:
        """See Group."""
        return topic in self.subscriptions

    def offset_expiration_base(self) -> ExpirationBase | None:
        """See Group: every offset ages from its commit, but for topics that a member reads."""
        return ExpirationBase(None, self.subscriptions)

    def validate_delete(self) -> ErrorCode:
        """See Group."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else NO_ERROR

    def tombstones(self) -> list[Record]:
        """See Group."""
        return group_tombstones(self)

    def on_loaded(self) -> None:
        """See Group. Who was to give up partitions has its whole time again."""
        self.live = True
        for member in self.members.values():
            timeout_ms = self.shard.consumer.settings(self.group_id).session_timeout_ms
            member.timer = self.shard.context.schedule(self.shard.now.now_ms + timeout_ms, member)
            self.await_revocation(member)

    def on_unloaded(self) -> None:
        """See Group."""
        self.live = False
        for member in self.members.values():
            member.stop()


def _had_all(current: CurrentAssignment, epoch: int, topics: Iterable[PlannedTopic]) -> bool:
    """Whether a member had every partition of a commit in `epoch` already, and still has."""
    for topic_asked, topic, codes in topics:
        topic_id = topic.topic_id
        assigned = current.assigned.get(topic_id, NO_PARTITIONS)
        revoking = current.revoking.get(topic_id, NO_PARTITIONS)
        for i, asked in enumerate(topic_asked.partitions):
            if codes is not None and codes[i]:
                continue  # refused before it came here
            partition = asked.partition_index
            since = assigned.get(partition, revoking.get(partition))
            if since is None or since > epoch:
                return False
    return True
