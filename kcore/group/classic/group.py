"""A classic group: its members, its state, and the rules for its offsets."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kcore.counts import add_count
from kcore.group.classic import expiry, rebalance
from kcore.group.classic.member import Member, PendingMember, Protocols
from kcore.group.classic.protocols import subscribed_topics
from kcore.group.classic.records import group_tombstone
from kcore.group.classic.replies import HEARTBEAT_IN_STATE, join_error, sync_error
from kcore.group.classic.states import COMPLETING, DEAD, EMPTY, REBALANCING, STABLE, STATES, GroupState, may_follow
from kcore.group.group import COMMIT_TIMESTAMP, ExpirationBase, Group, GroupType
from kcore.group.metadata_bound import protocols_bytes
from kcore.process_logging import fields
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE as CONSUMER
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from kcore.group.classic.delayed import DelayedJoin, DelayedSync, InitialDelayedJoin
    from kcore.group.offsets.commit import PlannedTopic
    from kcore.group.shard import GroupShard
    from kcore.protocol.messages.heartbeat import HeartbeatResponse
    from kcore.protocol.messages.join_group import JoinGroupResponse
    from kcore.protocol.messages.sync_group import SyncGroupResponse
    from kcore.runtime.machine import Record
    from kcore.runtime.pending import Pending
    from kcore_ext.runtime.timer_wheel import Timer

logger = logging.getLogger(__name__)

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""Maximum time that a new member waits for the response to its first join.

Meanwhile its client cannot send heartbeats, and the coordinator does not detect that the client disconnects.
"""

UNKNOWN_TIMESTAMP: Final = -1


class ClassicGroup(Group):
    """A group of the classic protocol, or a *simple* group, which has only offsets: no members, no protocol type.

    Attributes:
        shard: the state machine that contains the group.
        state: the current state; changed only by `transition`.
        rules: the row of `states.STATES` for the current state.
        previous_state: the state before the current one.
        state_timestamp_ms: time of the last state change, in ms since the epoch; -1 if an old log does not contain
            it.
        protocol_name: the protocol of the current generation; None before the first generation and in an empty
            generation.
        generation_id: the generation, counted from 0, including empty ones.
        members: by member id, in the order of joining.
        static_members: member ids by group instance id.
        pending_joins: member ids that were assigned but not yet used to join.
        pending_syncs: ids of members that have not synced in this generation; an ordered set.
        members_awaiting_join: number of members with a parked join.
        supported_protocols: number of members that support each protocol.
        subscribed_topics: the topics to which the members subscribed in the last completed join phase; None if unknown.
        new_member_added: True if a member joined since the current initial delay started.
        join_phase: the timer of the join phase, if one is in progress.
        sync_phase: the timer of the sync phase, until every member has synced.
        heartbeat_reply: the response to a valid heartbeat in the current state.
        superseded: parked requests of members that have sent a newer request of the same kind. Both requests get the
            same response. The key is (member id, API key of the request).
    """

    __slots__ = (
        "_leader_id",
        "_topics_work",
        "generation_id",
        "heartbeat_reply",
        "join_phase",
        "members",
        "members_awaiting_join",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "rules",
        "shard",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "superseded",
        "supported_protocols",
        "sync_phase",
    )

    group_type = GroupType.CLASSIC

    def __init__(self, shard: GroupShard, group_id: str) -> None:
        super().__init__(group_id)
        self.shard = shard
        self.state: GroupState = EMPTY
        self.rules = STATES[EMPTY]
        self.previous_state: GroupState = DEAD
        self.state_timestamp_ms = shard.now.wall_ms
        self.protocol_name: str | None = None
        self.generation_id = 0
        self._leader_id: str | None = None
        self._topics_work: Generator[None, None, frozenset[str] | None] | None = None  # computes `subscribed_topics`
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, PendingMember] = {}
        self.pending_syncs: dict[str, None] = {}
        self.members_awaiting_join = 0
        self.supported_protocols: dict[str, int] = {}
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.join_phase: Timer | None = None
        self.sync_phase: Timer | None = None
        self.heartbeat_reply: HeartbeatResponse = HEARTBEAT_IN_STATE[EMPTY]
        self.superseded: dict[tuple[str, ApiKey], Pending] = {}

    def __repr__(self) -> str:
        return f"<ClassicGroup {self.group_id} {self.state.value} generation {self.generation_id}>"

    # ---- state

    def transition(
        self, state: GroupState, reason: str, *, timestamp_ms: int | None = None, recorded: bool = False
    ) -> None:
        """Changes the state. No other function changes it.

        Args:
            state: the new state.
            reason: the cause, for the log.
            timestamp_ms: time of the change if a record contains it; None: now.
            recorded: True if the replay of a record causes the change. `states.may_follow` then allows more changes.
        """
        assert may_follow(self.state, state, recorded), f"{self!r} cannot become {state.value}: {reason}"
        before = self.state
        level = logging.INFO if (before, state) in REBALANCING else logging.DEBUG
        if logger.isEnabledFor(level):
            event = fields(
                group=self.group_id, generation=self.generation_id, members=len(self.members), state=state.value
            )
            logger.log(
                level, "group %s: state: %s -> %s: %s", self.group_id, before.value, state.value, reason, extra=event
            )
        self.previous_state = before
        self.state = state
        self.rules = STATES[state]
        self.shard.groups.moved(self, before.value)
        self.state_timestamp_ms = self.shard.now.wall_ms if timestamp_ms is None else timestamp_ms
        self.heartbeat_reply = HEARTBEAT_IN_STATE[state]

    # ---- members

    @property
    def leader_id(self) -> str | None:
        """The member that computes the assignment; None without members.

        If the leader has left, the oldest member becomes the leader when a caller reads this property. A choice at each
        leave would be too slow: it must skip the dictionary entries of removed members, so that 10,000 leaves would
        take quadratic time.
        """
        if self._leader_id is None:
            self._leader_id = next(iter(self.members), None)
        return self._leader_id

    @leader_id.setter
    def leader_id(self, member_id: str | None) -> None:
        self._leader_id = member_id

    def add_member(self, member: Member, awaiting_join: Pending | None) -> None:
        """Adds a member. The first member becomes the leader."""
        assert member.member_id not in self.members, member
        instance_id = member.group_instance_id
        if instance_id is not None:
            assert instance_id not in self.static_members, f"{instance_id} is taken in {self!r}"
            self.static_members[instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        elif self.members:
            leader = self.members.get(self.leader_id)
            if leader is not None and leader.protocols == member.protocols:
                member.protocols = leader.protocols  # most members send identical protocols: share one object
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        self._drop_pending(member.member_id)
        if self.shard.live:
            self.shard.meters.joins["classic"] += 1
        if awaiting_join is not None:
            member.awaiting_join = awaiting_join
            self.members_awaiting_join += 1

    def remove_member(self, member: Member) -> None:
        """Removes a member: stops its timer, and refuses its parked requests."""
        if member.awaiting_join is not None:
            self.refuse_join(member, "", ErrorCode.UNKNOWN_MEMBER_ID)
        if member.awaiting_sync is not None:
            self.respond_sync(member, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        member.disarm()
        self.shard.meters.leaves["classic"] += 1
        self.forget_member(member)

    def forget_member(self, member: Member) -> None:
        """Removes a member from every collection, without sending a response."""
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        self.pending_syncs.pop(member.member_id, None)
        self._count_protocols(member.protocols, -1)
        if self._leader_id == member.member_id:
            self._leader_id = None

    def replace_static_member(self, old: Member, member_id: str) -> Member:
        """Replaces a static member that rejoined under a new member id (KIP-345).

        Parked requests with the old id fail with FENCED_INSTANCE_ID. The new member takes over the client id and host
        of the old member, as in Kafka. If the old member has not synced in this generation, its id stays in
        `pending_syncs`.
        """
        assert old.group_instance_id is not None
        if old.awaiting_join is not None:
            self.refuse_join(old, old.member_id, ErrorCode.FENCED_INSTANCE_ID)
        if old.awaiting_sync is not None:
            self.respond_sync(old, sync_error(ErrorCode.FENCED_INSTANCE_ID))
        old.disarm()
        new = Member(
            self,
            member_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        leads = self.leader_id == old.member_id
        del self.members[old.member_id]
        self.members[member_id] = new
        self.static_members[old.group_instance_id] = member_id
        if leads:
            self.leader_id = member_id
        self.arm_session(new, new.session_timeout_ms)
        return new

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Returns NONE for a member, else the error.

        The error is FENCED_INSTANCE_ID if the instance id belongs to another member id, otherwise UNKNOWN_MEMBER_ID.
        """
        if group_instance_id is not None:
            current_id = self.static_members.get(group_instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return NO_ERROR if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add_pending(self, member_id: str, session_timeout_ms: int) -> None:
        """Registers an assigned member id, which the client must use within the session timeout.

        The number of unused ids in a shard is limited. If there are too many, the oldest ids expire early.
        """
        pending = PendingMember(self, member_id)
        pending.timer = self.shard.context.schedule(self.shard.now.now_ms + session_timeout_ms, pending)
        self.pending_joins[member_id] = pending
        for oldest in self.shard.unused_member_ids.add(pending):
            oldest.timer.cancel()
            oldest.timer = self.shard.context.schedule(self.shard.now.now_ms, oldest)

    def _drop_pending(self, member_id: str) -> None:
        pending = self.pending_joins.pop(member_id, None)
        if pending is not None:
            self.shard.unused_member_ids.discard(member_id)
            pending.disarm()

    def remove_by_id(self, member_id: str) -> None:
        """Removes a member or an assigned member id; ignores unknown ids."""
        self._drop_pending(member_id)
        member = self.members.get(member_id)
        if member is not None:
            self.remove_member(member)

    def has_all_members_joined(self) -> bool:
        """Returns True if every member has a parked join, and if clients have used all assigned member ids."""
        return len(self.members) == self.members_awaiting_join and not self.pending_joins

    def rebalance_timeout_ms(self) -> int:
        """Returns the longest rebalance timeout of all members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ---- protocols

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replaces the protocols that a member supports."""
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)

    def supports_protocols(self, protocol_type: str, protocols: Protocols) -> bool:
        """Returns True if a client with these protocols may join.

        An empty group accepts any protocol; otherwise one of the protocols must be common to all members.
        """
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        size = len(self.members)
        counts = self.supported_protocols
        for name, _ in protocols:  # noqa: SIM110  # any() makes a generator each time
            if counts.get(name, 0) == size:
                return True
        return False

    def find_subscribed_topics(self) -> None:
        """Sets `subscribed_topics` from the subscriptions of all members (KIP-496).

        Long subscriptions are read in slices. `subscribed_topics` is None until the last slice.
        """
        self.subscribed_topics = self._topics_work = None
        if self.protocol_type == CONSUMER:
            if not self.members:
                self.subscribed_topics = frozenset()
            elif self.protocol_name is not None:
                self._read_subscriptions(self.protocol_name)

    def _read_subscriptions(self, protocol_name: str) -> None:
        work = subscribed_topics(self.members.values(), protocol_name)
        try:
            next(work)
        except StopIteration as end:
            self.subscribed_topics = end.value
            return
        if self.shard.live:  # otherwise `on_loaded` begins again
            self._topics_work = work
            self.shard.context.in_slices(self._continue_reading(work))

    def _continue_reading(self, work: Generator[None, None, frozenset[str] | None]) -> Iterator[None]:
        """Reads the remaining subscriptions in slices. Stops if the next generation begins before the last slice."""
        while self._topics_work is work:
            try:
                next(work)
            except StopIteration as end:
                self.subscribed_topics, self._topics_work = end.value, None
                return
            yield

    def _count_protocols(self, protocols: Protocols, change: int) -> None:
        self.count_metadata(change * protocols_bytes(protocols))
        for name, _ in protocols:
            add_count(self.supported_protocols, name, change)

    # ---- waiting members

    def park_join(self, member: Member, pending: Pending) -> None:
        """Parks a member's join until the join phase ends. An earlier parked join receives the same response."""
        if member.awaiting_join is None:
            self.members_awaiting_join += 1
        else:
            self._supersede(member, member.awaiting_join)
        member.awaiting_join = pending

    def respond_join(self, member: Member, response: JoinGroupResponse, code: ErrorCode = NO_ERROR) -> None:
        """Completes a member's parked join; `code` is the error code of the response."""
        pending = member.awaiting_join
        assert pending is not None, member
        respond = self.shard.context.respond
        respond(pending, response)
        # The last join of a phase completes within its own decision. Its response waits at most for a commit.
        pending.parked = False
        member.awaiting_join = None
        self.members_awaiting_join -= 1
        if self.superseded:
            older = self.superseded.pop((member.member_id, ApiKey.JOIN_GROUP), None)
            if older is not None:
                if code:  # error responses differ by version, and the older request may have another version
                    response = join_error(older.context.api_version, response.member_id, code)
                respond(older, response)

    def refuse_join(self, member: Member, member_id: str, code: ErrorCode) -> None:
        """Completes a member's parked join with an error; `member_id` is the member id in the response."""
        assert member.awaiting_join is not None, member
        self.respond_join(member, join_error(member.awaiting_join.context.api_version, member_id, code), code)

    def park_sync(self, member: Member, pending: Pending) -> None:
        """Parks a member's sync until the leader has synced. An earlier parked sync receives the same response."""
        if member.awaiting_sync is not None:
            self._supersede(member, member.awaiting_sync)
        member.awaiting_sync = pending

    def respond_sync(self, member: Member, response: SyncGroupResponse) -> None:
        """Completes a member's parked sync."""
        assert member.awaiting_sync is not None, member
        respond = self.shard.context.respond
        respond(member.awaiting_sync, response)
        member.awaiting_sync = None
        if self.superseded:
            older = self.superseded.pop((member.member_id, ApiKey.SYNC_GROUP), None)
            if older is not None:
                respond(older, response)

    def _supersede(self, member: Member, pending: Pending) -> None:
        """Stores a parked request of a member that has sent a newer request of the same kind.

        Only one such request is stored: an older stored request fails with REBALANCE_IN_PROGRESS. Kafka never responds
        to such older requests. kcore responds to every request, and limits the parked requests of a member.
        """
        key = (member.member_id, pending.api.key)
        older = self.superseded.get(key)
        if older is not None:
            code = ErrorCode.REBALANCE_IN_PROGRESS
            is_join = older.api.key == ApiKey.JOIN_GROUP
            response = join_error(older.context.api_version, member.member_id, code) if is_join else sync_error(code)
            self.shard.context.respond(older, response)
        self.superseded[key] = pending

    # ---- timers

    def arm_session(self, member: Member, timeout_ms: int) -> None:
        """Starts a member's session timer; called once per member."""
        member.timer = self.shard.context.schedule(self.shard.now.now_ms + timeout_ms, member)

    def keep_session(self, member: Member) -> None:
        """Restarts the member's session timeout."""
        member.timer.extend(self.shard.now.now_ms + member.session_timeout_ms)

    def arm_join_phase(self, operation: DelayedJoin, delay_ms: int) -> None:
        """Arms the timer of the join phase."""
        self.end_join_phase()
        self.join_phase = self.shard.context.schedule(self.shard.now.now_ms + delay_ms, operation)

    def end_join_phase(self) -> None:
        """Cancels the timer of the join phase, because the phase ends or another delay starts."""
        if self.join_phase is not None:
            self.join_phase.cancel()
            self.join_phase = None

    def arm_sync_phase(self, operation: DelayedSync, delay_ms: int) -> None:
        """Arms the timer of the sync phase."""
        assert self.sync_phase is None, self
        self.sync_phase = self.shard.context.schedule(self.shard.now.now_ms + delay_ms, operation)

    def end_sync_phase(self) -> None:
        """Ends the sync phase: cancels its timer, and no longer waits for the syncs of members."""
        self.pending_syncs = {}
        if self.sync_phase is not None:
            self.sync_phase.cancel()
            self.sync_phase = None

    def mark_synced(self, member: Member) -> None:
        """Registers that a member has synced. The last member to sync ends the sync phase."""
        self.pending_syncs.pop(member.member_id, None)
        if not self.pending_syncs and self.sync_phase is not None:
            self.end_sync_phase()

    def expire_member(self, member: Member) -> Outcome | None:
        """Removes the member because its session timeout has expired. Called by the member's timer."""
        return _outcome(expiry.expire_member(self, member))

    def expire_pending(self, pending: PendingMember) -> Outcome | None:
        """Removes an assigned member id because no client has used it in time. Called by the timer of the id."""
        return _outcome(expiry.expire_pending(self, pending))

    def join_phase_timed_out(self) -> Outcome | None:
        """Ends the join phase because the rebalance timeout has expired. Called by the phase's timer."""
        return _outcome(rebalance.complete_join_phase(self))

    def initial_delay_over(self, operation: InitialDelayedJoin) -> Outcome | None:
        """Ends the initial join phase or starts another delay. Called by the timer of the initial delay."""
        return _outcome(rebalance.initial_delay_over(self, operation))

    def sync_phase_timed_out(self, generation_id: int) -> Outcome | None:
        """Removes the members that have not synced within the rebalance timeout. Called by the sync phase's timer."""
        return _outcome(expiry.expire_sync_phase(self, generation_id))

    # ---- Group

    def state_name(self) -> str:
        """Returns Kafka's name of the state."""
        return self.state.value

    def is_empty(self) -> bool:
        """Returns True in the state Empty."""
        return self.state is EMPTY

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        transactional: bool,
        topics: Iterable[PlannedTopic] = (),
    ) -> ErrorCode:
        """Returns NONE if the client may commit offsets, else the error.

        A client without member id and generation may send OffsetCommit only for an empty group, but TxnOffsetCommit for
        any group.
        """
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is EMPTY:
            return NO_ERROR
        if generation_id >= 0 or member_id or group_instance_id is not None:
            code = self.validate_member(member_id, group_instance_id)
            if code:
                return code
            if generation_id != self.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional and self.state is not EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return NO_ERROR

    def offset_commit_accepted(self, member_id: str) -> None:
        """Restarts the member's session timeout, if the current state permits it."""
        member = self.members.get(member_id)
        if member is not None and self.rules.keeps_session:
            self.keep_session(member)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Returns NONE: every client may read, because classic members send no member id."""
        return NO_ERROR

    def validate_offset_delete(self) -> ErrorCode:
        """Returns NONE if the group is empty or its members are consumers, else the error.

        The coordinator cannot read the subscriptions of members with another protocol type. Therefore the offsets of
        their group cannot be deleted.
        """
        if self.state is DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is EMPTY or self.protocol_type == CONSUMER:
            return NO_ERROR
        return ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns True if a consumer of the group subscribes to `topic`; unknown subscriptions count as all topics."""
        if self.state is EMPTY or self.protocol_type != CONSUMER:
            return False
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def offset_expiration_base(self) -> ExpirationBase | None:
        """Returns the start of the offsets' retention time; None while no offset may expire.

        For an empty group, it is the time at which the group became empty. For a simple group or a Stable group, it is
        the commit time of each offset. In a Stable group, offsets of subscribed topics do not expire.
        """
        if not self.protocol_type:
            return COMMIT_TIMESTAMP
        if self.state is EMPTY:
            has_timestamp = self.state_timestamp_ms != UNKNOWN_TIMESTAMP
            return ExpirationBase(self.state_timestamp_ms) if has_timestamp else COMMIT_TIMESTAMP
        if self.state is STABLE and self.subscribed_topics is not None:
            return ExpirationBase(None, self.subscribed_topics)
        return None

    def validate_delete(self) -> ErrorCode:
        """Returns the error of the current state, NONE if the group may be deleted."""
        return self.rules.delete

    def tombstones(self) -> list[Record]:
        """Returns the group's tombstone, even for a simple group, which may never have had a record."""
        return [group_tombstone(self.group_id)]

    def on_loaded(self) -> None:
        """Starts the session timers of all members. Begins a rebalance if the group exceeds `group.max.size`.

        This rebalance rejects the members that join last.
        """
        for member in self.members.values():
            self.arm_session(member, member.session_timeout_ms)
        if self.members and self.subscribed_topics is None:
            self.find_subscribed_topics()
        if len(self.members) > self.shard.config.group_max_size:
            records = rebalance.prepare_rebalance(self, "the group is larger than group.max.size")
            assert not records, "a group with members does not become empty by rebalancing"

    def on_unloaded(self) -> None:
        """Cancels all timers, completes parked joins, and moves the group to Dead."""
        for member in self.members.values():
            member.on_unloaded()
        for pending in self.pending_joins.values():
            pending.disarm()
        self.pending_joins = {}
        self.count_metadata(-self.metadata_bytes)
        self._topics_work = None
        self.end_join_phase()
        self.end_sync_phase()
        self.transition(DEAD, "the shard is unloaded")


def _outcome(records: list[Record]) -> Outcome | None:
    return Outcome(records) if records else None
