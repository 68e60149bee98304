"""The rebalances of a member of a classic group: the member joins, assigns if it is the leader, syncs, and adopts its
assignment.

The member supports both rebalance protocols. With the eager protocol, it gives up all partitions before it joins. With
the cooperative protocol (KIP-429), it gives up only the partitions that move, after it has synced.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from kcore.assignors import COOPERATIVE
from kcore.client.consumer_coordinator.base import (
    NO_COORDINATOR,
    GroupMemberMachine,
    sorted_partitions,
)
from kcore.client.consumer_coordinator.classic_requests import join_request, sync_request
from kcore.client.consumer_coordinator.commit_requests import OffsetsByPartition
from kcore.client.consumer_coordinator.interface import (
    Assigned,
    Generation,
    Lost,
    MemberSettings,
    Revoked,
)
from kcore.client.consumer_coordinator.leader import assign, decode_assignment, decode_member, rebalance_protocol
from kcore.client.consumer_coordinator.states import CLASSIC, ClassicState
from kcore.errors import ConnectionClosedError, KafkaError
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE
from kcore.protocol.error_codes import RETRIABLE, ErrorCode
from kcore.protocol.messages.join_group import JoinGroupResponse
from kcore.protocol.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse
from kcore.protocol.topic_partition import TopicPartition

UNJOINED, PREPARING, JOINING = ClassicState.UNJOINED, ClassicState.PREPARING, ClassicState.JOINING
SYNCING, COMPLETING, STABLE = ClassicState.SYNCING, ClassicState.COMPLETING, ClassicState.STABLE
FATAL = ClassicState.FATAL

JOIN_MARGIN_MS = 5_000  # beyond the rebalance timeout, within which the coordinator responds to a join
MAX_REASON = 255
FREE_REPETITIONS = 3
"""The number of refused joins and syncs that the member repeats without a pause. An assignment resets the count."""


class ClassicRebalance(GroupMemberMachine):
    """The rebalances of a classic member: the base class of `ClassicMember`.

    Attributes:
        state: the present state of the member.
        generation: the generation that the member is in.
        is_leader: True if the member assigns the partitions of its generation.
    """

    def __init__(
        self, settings: MemberSettings, now_ms: int, *, consumed: Callable[[], OffsetsByPartition] = dict
    ) -> None:
        super().__init__(settings, now_ms, consumed=consumed)
        self.state = UNJOINED
        self.generation = Generation()
        self.is_leader = False
        self._cooperative = rebalance_protocol(settings.assignors) == COOPERATIVE
        self._pattern = None if settings.pattern is None else re.compile(settings.pattern)
        self._last_generation_id = -1
        self._rejoin = True
        self._reason = ""
        self._join_at_ms = now_ms
        self._join_attempts = 0
        self._repetitions = 0  # joins after refusals that are no errors, since the last assignment
        self._in_flight = ""  # "Join" or "Sync" while its response is expected
        self._polled_once = False
        self._joined_topics: frozenset[str] = frozenset()
        self._previous: frozenset[TopicPartition] = frozenset()  # the last assignment, for the sticky assignor
        self._snapshot: dict[str, int] = {}
        self._heartbeat_at_ms = now_ms
        self._heartbeats_failed = 0  # since the last successful heartbeat
        self._session_deadline_ms = 0
        self._leader_topics: set[str] = set()

    @property
    def epoch(self) -> int:
        """The generation; -1 outside of the group."""
        return self.generation.id

    @property
    def _lost_epoch(self) -> int:
        return self._last_generation_id

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self.generation.member_id

    def _enter(self, state: ClassicState) -> None:
        assert state in CLASSIC[self.state], f"{self.state} cannot become {state}"
        self.state = state

    def rejoin(self, reason: str) -> None:
        """Makes the member join again at its next poll."""
        self._rejoin = True
        self._reason = reason[:MAX_REASON]

    def _topics(self) -> frozenset[str]:
        if self._pattern is None:
            return frozenset(self.settings.topics)
        matches = self._pattern.fullmatch
        return frozenset(name for name in self.metadata.counts if not name.startswith("__") and matches(name))

    def _current_snapshot(self) -> dict[str, int]:
        return {name: self.metadata.counts[name] for name in self._leader_topics if name in self.metadata.counts}

    # ---- preparing a join

    def _prepare(self, now_ms: int) -> None:
        self._enter(PREPARING)
        if not self._cooperative:
            self.revoking = self.assignment
        self._commit_consumed(now_ms, self.settings.rebalance_timeout_ms, self._give_up)

    def _give_up(self, now_ms: int) -> None:
        """Passes an event to the user's code, if the member must give partitions up. Called after the automatic
        commit.
        """
        if self.state is not PREPARING:
            return
        partitions = sorted_partitions(self.assignment)
        if self.generation.id < 0 or not self.generation.member_id:
            if partitions:
                self._emit(Lost(partitions, self._lost_epoch), partial(self._given_up, self.assignment))
                return
        elif not self._cooperative:
            self._emit(Revoked(partitions, self.generation.id), partial(self._given_up, self.assignment))
            return
        else:
            topics = self._topics()
            dropped = tuple(each for each in partitions if each.topic not in topics)
            if dropped:
                self.revoking = frozenset(dropped)
                self._emit(Revoked(dropped, self.generation.id), partial(self._given_up, self.revoking))
                return
        self._begin_join(now_ms)

    def _given_up(self, partitions: frozenset[TopicPartition], error: BaseException | None, now_ms: int) -> None:
        self.assignment -= partitions
        self.revoking = frozenset()
        if self.generation.id < 0 and self.assignment:
            self._give_up(now_ms)  # the member was fenced meanwhile, and has lost the other partitions
            return
        self._begin_join(now_ms)

    def _begin_join(self, now_ms: int) -> None:
        if self.state is not PREPARING:
            return
        self.revoking = frozenset()
        if not self._cooperative:
            self.assignment = frozenset()
        self._enter(JOINING)
        self._join_at_ms = max(self._join_at_ms, now_ms)  # a failed attempt may have set a later time
        self._send_join(now_ms)

    # ---- joining

    def _send_join(self, now_ms: int) -> None:
        if self._in_flight or self._broker is None or now_ms < self._join_at_ms or self._metadata_in_flight:
            return
        generation = self.generation
        self._joined_topics = topics = self._topics()
        request = join_request(self.settings, generation, topics, self.assignment, self._previous, self._reason)
        self._in_flight = "join"
        self._send(
            request,
            lambda response, at_ms: self._joined(response, generation, at_ms),
            self._attempt_failed,
            timeout_ms=max(self.settings.request_timeout_ms, self.settings.rebalance_timeout_ms + JOIN_MARGIN_MS),
        )

    def _joined(self, response: JoinGroupResponse, sent: Generation, now_ms: int) -> None:
        self._in_flight = ""
        if self.state is not JOINING:
            return
        code = response.error_code
        if code:
            self._join_refused(code, response.member_id, sent, now_ms)
            return
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            self._attempt_failed(KafkaError.of(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), now_ms)
            return
        self.generation = Generation(response.generation_id, response.member_id, response.protocol_name or "")
        self._last_generation_id = response.generation_id
        self.is_leader = response.leader == response.member_id
        self._heartbeat_at_ms = now_ms + self.settings.heartbeat_interval_ms
        self._session_deadline_ms = now_ms + self.settings.session_timeout_ms
        self._poll_deadline_ms = now_ms + self.settings.rebalance_timeout_ms
        self._enter(SYNCING)
        self._join_attempts = 0
        self._rejoin = False
        self._reason = ""
        self._sync = (response.members, response.skip_assignment)
        if self.is_leader:
            self._join_at_ms = now_ms
            self._look_up_leader_topics(now_ms)
        else:
            self._send_sync([])

    _sync: tuple[Any, bool] = ((), False)

    def _look_up_leader_topics(self, now_ms: int) -> None:
        members = [decode_member(member, self.generation.protocol) for member in self._sync[0]]
        self._leader_topics = {str(topic) for member in members for topic in member.topics}
        generation = self.generation

        def then(at_ms: int) -> None:
            if self.state is SYNCING and self.generation == generation:
                self._assign(members, at_ms)

        self._request_metadata(self._leader_topics, (), then)

    def _continue_sync(self, now_ms: int) -> None:
        """Repeats the leader's lookup of topics after a failure; joins again if the member was fenced meanwhile."""
        if self.generation.id < 0:
            self._unjoin(now_ms, 0)
        elif self.is_leader and now_ms >= self._metadata_at_ms:
            self._look_up_leader_topics(now_ms)

    def _assign(self, members: list[Any], now_ms: int) -> None:
        assignor = next(one for one in self.settings.assignors if one.name == self.generation.protocol)
        self._snapshot = self._current_snapshot()
        if self._sync[1]:
            self._send_sync([])
            return
        try:
            assigned = assign(assignor, members, self._snapshot)
        except Exception as error:
            self._unjoin(now_ms, self.settings.retry_backoff_max_ms)
            self.error = error
            return
        self._send_sync(
            [SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in assigned.items()]
        )

    def _send_sync(self, assignments: list[SyncGroupRequestAssignment]) -> None:
        generation = self.generation
        request = sync_request(self.settings, generation, assignments)
        self._in_flight = "sync"
        self._send(
            request,
            lambda response, at_ms: self._synced(response, generation, at_ms),
            self._attempt_failed,
            timeout_ms=max(self.settings.request_timeout_ms, self.settings.rebalance_timeout_ms + JOIN_MARGIN_MS),
        )

    def _synced(self, response: SyncGroupResponse, sent: Generation, now_ms: int) -> None:
        self._in_flight = ""
        if self.state is not SYNCING:
            return
        if self.generation.id < 0 or self.generation != sent:
            self._unjoin(now_ms, 0)
        elif response.error_code:
            self._sync_refused(response.error_code, sent, now_ms)
        else:
            self._complete(decode_assignment(response.assignment), now_ms)

    # ---- completing

    def _complete(self, assigned: frozenset[TopicPartition], now_ms: int) -> None:
        self._enter(COMPLETING)
        self._repetitions = 0
        topics = self._joined_topics
        if self._pattern is None and any(each.topic not in topics for each in assigned):
            self.rejoin("the assignment has topics that the member does not subscribe to")
            assigned = frozenset(each for each in assigned if each.topic in topics)
        self._previous = assigned
        dropped = self.assignment - assigned
        if self._cooperative and dropped:
            self.revoking = dropped
            self.rejoin("partitions were revoked: the group may assign them now")
            # Fetching went on, so records may have been consumed since the commit before the join.
            then = partial(self._revoke_dropped, assigned, dropped)
            self._commit_consumed(now_ms, self.settings.rebalance_timeout_ms, then)
        else:
            self._adopt(assigned, frozenset(), now_ms)

    def _revoke_dropped(
        self, assigned: frozenset[TopicPartition], dropped: frozenset[TopicPartition], now_ms: int
    ) -> None:
        if self.state is not COMPLETING:
            return
        if self.generation.id < 0:
            self._adopt(assigned, frozenset(), now_ms)
            return
        event = Revoked(sorted_partitions(dropped), self.generation.id)
        self._emit(event, lambda error, at_ms: self._adopt(assigned, dropped, at_ms))

    def _adopt(self, assigned: frozenset[TopicPartition], dropped: frozenset[TopicPartition], now_ms: int) -> None:
        if self.state is not COMPLETING:
            return
        if self.generation.id < 0:  # fenced while the user's code handled the revocation
            self.assignment -= dropped
            self.revoking = self.assignment
            self._enter(UNJOINED)
            return
        added = assigned - self.assignment
        self.revoking = added  # owned, but not fetched until the user's code has handled the event
        self.assignment = assigned
        self._auto_commit_at_ms = now_ms + (self.settings.auto_commit_ms or 0)
        self._emit(Assigned(sorted_partitions(added), self.generation.id), self._completed)

    def _completed(self, error: BaseException | None, now_ms: int) -> None:
        if self.state is not COMPLETING:
            return
        self.revoking = frozenset()
        self._enter(STABLE if self.generation.id >= 0 else UNJOINED)
        self._metadata_at_ms = max(self._metadata_at_ms, now_ms)

    # ---- errors

    def _reset(self, keep_id: bool) -> None:
        """Resets the generation. The member has lost its partitions, and joins again."""
        if self.generation.id >= 0:
            self.ownership.end_membership()
        self.generation = Generation(member_id=self.generation.member_id if keep_id else "")
        self._rejoin = True
        self.is_leader = False
        self.revoking = self.assignment

    def _unjoin(self, now_ms: int, pause_ms: int) -> None:
        """Ends the join in progress. A new join begins after a pause."""
        self._join_at_ms = now_ms + pause_ms
        self._rejoin = True
        if self.generation.id < 0:
            self._enter(UNJOINED)  # the next preparation reports the lost partitions
        elif self.state is SYNCING:
            self._enter(JOINING)

    def _repetition_pause_ms(self) -> int:
        """Returns the pause in ms before a repeated join.

        The first `FREE_REPETITIONS` repetitions have no pause. Later pauses grow until an assignment arrives. Kafka's
        clients never pause before a repeated join.
        """
        self._repetitions += 1
        late = self._repetitions - FREE_REPETITIONS
        return 0 if late <= 0 else self._backoff_ms(late - 1)

    def _join_refused(self, code: int, member_id: str, sent: Generation, now_ms: int) -> None:
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.generation = Generation(member_id=member_id)
            self._reason = "the coordinator has given the member its id"
            self._join_at_ms = now_ms + self._repetition_pause_ms()
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            if self.generation == sent:
                self._reset(keep_id=False)
            self._join_at_ms = now_ms + self._repetition_pause_ms()
            if self.state is JOINING and self.assignment:
                self._enter(UNJOINED)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join_at_ms = now_ms + self._repetition_pause_ms()
        else:
            self._attempt_failed(KafkaError.of(code), now_ms)

    def _sync_refused(self, code: int, sent: Generation, now_ms: int) -> None:
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self._reset(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
            self._unjoin(now_ms, self._repetition_pause_ms())
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._unjoin(now_ms, self._repetition_pause_ms())
        else:
            self._attempt_failed(KafkaError.of(code), now_ms)

    def _attempt_failed(self, error: Exception, now_ms: int) -> None:
        """Handles a failed JoinGroup or SyncGroup: repeats it after a retriable error, or reports it to the user."""
        self._in_flight = ""
        if self.state not in (JOINING, SYNCING):
            return
        pause_ms = self._backoff_ms(self._join_attempts)
        self._join_attempts += 1
        lost = isinstance(error, ConnectionClosedError | TimeoutError)
        if lost or (isinstance(error, KafkaError) and error.code in NO_COORDINATOR):
            self._lose_coordinator(now_ms)
        elif not (isinstance(error, KafkaError) and error.code in RETRIABLE):
            self.error = error
            self._polled_once = False  # the next poll tries again
            if isinstance(error, KafkaError) and error.code == ErrorCode.FENCED_INSTANCE_ID:
                self._end_fenced(now_ms)
                return
        self._unjoin(now_ms, pause_ms)

    def _end_fenced(self, now_ms: int) -> None:
        """Ends the membership permanently, because two members with one instance id would fence each other again and
        again.
        """
        text = f"another member of group {self.settings.group_id!r} uses instance_id {self.settings.instance_id!r}"
        self.error = self.fatal = KafkaError.of(ErrorCode.FENCED_INSTANCE_ID, text)
        self._reset(keep_id=False)
        self._enter(FATAL)
        self._lose_assignment(self._lost_epoch, now_ms, self._lost)

    def _lost(self, now_ms: int) -> None:
        self.assignment = self.revoking = frozenset()
