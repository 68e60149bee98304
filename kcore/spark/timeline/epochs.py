"""Derives rebalances of consumer, share and streams groups (KIP-848, KIP-932, KIP-1071) from their epochs.

The log contains every step. The records of one request are adjacent: members that joined, left or changed, then the
group's next epoch, then the targets, then the members' current assignments. The records right before an epoch
therefore show its cause. The epoch is complete when every member has reached it and owns its target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kcore.group.consumer.member import STATIC_LEAVE_EPOCH
from kcore.group.consumer.states import MemberState
from kcore.group.streams.states import MemberState as StreamsMemberState
from kcore.printable import counted
from kcore.protocol.topic_partition import PartitionTuple
from kcore.spark.state.group_records import CONSUMER, SHARE, STREAMS
from kcore.spark.state.keyed_groups import STREAMS_STABLE
from kcore.spark.timeline import causes
from kcore.spark.timeline.event_kinds import TimelineEvent
from kcore.spark.timeline.last_commits import LastCommits
from kcore.spark.timeline.rebalance import NOTHING, Label, LogPosition, Rebalance, TopicPartitions, moves_between

UNREVOKED: Final = {CONSUMER: int(MemberState.UNREVOKED), STREAMS: int(StreamsMemberState.UNREVOKED)}
"""Kind of group -> the state of a member that must revoke partitions or tasks."""

TASKS: Final = {"active": "active_tasks", "standby": "standby_tasks", "warmup": "warmup_tasks"}


class Described(NamedTuple):
    """The properties of a member that can start an epoch when they change."""

    label: Label
    reads: Any
    assignor: str | None
    rebalance_timeout_ms: int
    session_timeout_ms: int | None = None


class MemberStanding(NamedTuple):
    """A member's epoch and state, the time of the state, and the time of the last heartbeat that wrote a record."""

    epoch: int
    state: int
    pending: bool
    since_ms: int
    beat_ms: int


@dataclass(slots=True)
class Step:
    """Adjacent records of one group with the same timestamp, before the next epoch.

    Attributes:
        start: the position of the first record.
        last_offset: the offset of the last record.
        joined: members that joined, by `Label.identity`.
        left: the cause and the evidence for each member that left, by identity.
        before: the previous partitions of members whose target changed.
        causes: the changes in this step, other than members that joined or left, which may have caused a rebalance.
        detail: the evidence, for people.
    """

    start: LogPosition
    last_offset: int
    joined: dict[str, str] = field(default_factory=dict)
    left: dict[str, tuple[str, str]] = field(default_factory=dict)
    before: dict[str, TopicPartitions] = field(default_factory=dict)
    causes: set[str] = field(default_factory=set)
    detail: list[str] = field(default_factory=list)

    @property
    def replaced(self) -> list[str]:
        """The static members that left and joined again in one step."""
        return sorted(self.joined.keys() & self.left.keys())


class EpochGroup:
    """The live state of a group, and its epoch in progress.

    Args:
        group_id: the id of the group.
        kind: `CONSUMER`, `SHARE` or `STREAMS`.
        partition: the partition of `__consumer_offsets`.
        session_timeout_ms: the session timeout of members of consumer groups, which is not in the log; None: unknown.
        inherited: members of the classic group before a migration, by identity; None without a migration.
    """

    __slots__ = (
        "_migrated",
        "_named",
        "_partition",
        "_session_timeout_ms",
        "assignment_configs",
        "assignment_epoch",
        "epoch",
        "group_id",
        "hash",
        "inherited",
        "kind",
        "last_commits",
        "members",
        "open",
        "patterns",
        "rested",
        "share_ready",
        "standing",
        "step",
        "targets",
        "topology_epoch",
    )

    def __init__(
        self,
        group_id: str,
        kind: str,
        partition: int,
        session_timeout_ms: int | None,
        inherited: frozenset[str] | None = None,
    ) -> None:
        self.group_id = group_id
        self.kind = kind
        self.members: dict[str, Described] = {}
        self.standing: dict[str, MemberStanding] = {}
        self.targets: dict[str, TopicPartitions] = {}
        self.patterns: dict[str, tuple[str, ...]] = {}
        self.epoch: int | None = None
        self.assignment_epoch = -1
        self.hash = 0
        self.assignment_configs: dict[str, str] = {}
        self.topology_epoch = -1
        self.share_ready = False
        self.rested: set[str] = set()
        self.open: Rebalance | None = None
        self.step: Step | None = None
        self.last_commits = LastCommits()
        self._named: dict[str, Label] = {}  # members that left during the epoch in progress
        self.inherited = inherited or frozenset()
        self._migrated = inherited is not None
        self._partition = partition
        self._session_timeout_ms = session_timeout_ms

    def change_session_timeout(self, session_timeout_ms: int | None) -> None:
        """Sets the session timeout of members of consumer groups; None: unknown."""
        self._session_timeout_ms = session_timeout_ms

    # ---- processing of a record

    def replay(self, part: str, key: Any, value: Any, position: LogPosition, whole: bool) -> Iterator[TimelineEvent]:
        """Applies one record.

        Args:
            part: the part of the group's state that the record changes: "Metadata", "MemberMetadata", ...
            key: the decoded key of the record.
            value: the decoded value of the record, None for a tombstone.
            position: the offset and timestamp of the record.
            whole: True if the log is complete up to here.

        Returns:
            The events that the record completes.
        """
        step = self.step
        if step is None or step.last_offset + 1 != position.offset or step.start.timestamp_ms != position.timestamp_ms:
            yield from self.end_step(whole)
            step = self.step = Step(position, position.offset)
        step.last_offset = position.offset
        if part == "Metadata":
            yield from self._epoch(value, position, whole)
        else:
            handler = self.HANDLERS.get(part)
            if handler is not None:
                handler(self, step, key, value, position)
            yield from self._complete_if_stable(position)

    def end_step(self, whole: bool) -> Iterator[TimelineEvent]:
        """Ends a step (see `Step`) that brought no new epoch. Yields the replacement of static members in it."""
        step, self.step = self.step, None
        if step is None or not step.replaced:
            return
        if self.open is not None:
            for identity, parts in step.before.items():
                self.open.before.setdefault(identity, parts)
        epoch = self.epoch or 0
        change = Rebalance(
            self.group_id, self.kind, step.start, epoch, epoch, whole, detail=[_processes(step.replaced)]
        )
        end = LogPosition(step.last_offset, step.start.timestamp_ms)
        yield from change.events(self._partition, end, "replaced", "none", len(self.members), [], {})

    def end(self, outcome: str, end: LogPosition | None) -> Iterator[TimelineEvent]:
        """Ends the rebalance in progress with an outcome.

        `end` is the record that ends it; None at the end of the log.
        """
        change, self.open = self.open, None
        if change is None:
            return
        holders = {described.label.identity: member_id for member_id, described in self.members.items()}
        after = {identity: self.targets.get(holders.get(identity, identity), NOTHING) for identity in change.before}
        labels = {described.label.identity: described.label for described in self.members.values()}
        moves = moves_between(change.before, after)
        yield from change.events(
            self._partition,
            end,
            outcome,
            "none" if end is None else "whole",
            len(self.members),
            moves,
            self._named | labels,
        )
        self._named = {}

    # ---- epochs

    def _epoch(self, value: Any, position: LogPosition, whole: bool) -> Iterator[TimelineEvent]:
        step = self.step
        assert step is not None
        self.step = None
        if value is None:
            yield from self.end("deleted", position)
            return
        yield from self.end("superseded", position)
        change = Rebalance(self.group_id, self.kind, step.start, value.epoch, self.epoch, whole)
        self._set_causes(change, step, value, whole)
        change.before.update(step.before)
        self.open = change
        self.epoch = value.epoch
        self.hash = value.metadata_hash
        self.assignment_configs = _assignment_configs(self.kind, value)
        self.share_ready = False
        self.rested.clear()
        if not self.members:
            yield from self.end("emptied", position)

    def _set_causes(self, change: Rebalance, step: Step, value: Any, whole: bool) -> None:
        replaced = step.replaced
        before = step.left.keys() | self.inherited
        change.joined.extend(identity for identity in step.joined if identity not in before)
        change.left.extend(identity for identity in step.left if identity not in step.joined)
        self.inherited = frozenset()
        change.causes.update(step.causes)
        change.detail.extend(step.detail)
        if self._migrated:
            self._migrated = False
            change.causes.add(causes.MIGRATED)
            change.detail.append("was a classic group before")
        if replaced:
            change.causes.add(causes.REPLACED)
            change.detail.append(_processes(replaced))
        if change.joined:
            change.causes.add(causes.JOINED)
        configs = _assignment_configs(self.kind, value)
        if self.epoch is not None and configs != self.assignment_configs:
            change.causes.add(causes.ASSIGNMENT_SETTINGS)
            changed = configs.items() ^ self.assignment_configs.items()
            for name in sorted({name for name, _ in changed}):
                change.detail.append(f"{name}: {self.assignment_configs.get(name)} -> {configs.get(name)}")
        for identity in sorted(change.left):
            cause, why = step.left[identity]
            change.causes.add(cause)
            change.detail.append(why)
        if not change.causes and self.epoch is not None:
            if self.share_ready:
                change.causes.add(causes.SHARE_READY)
            elif value.metadata_hash != self.hash:
                change.causes.add(causes.TOPICS)
        if self.epoch is None and not whole:
            change.causes.clear()
            change.detail.append("earlier records are not in the log")
        elif self.epoch is not None and value.epoch > self.epoch + 1:
            change.detail.append(f"epochs {self.epoch + 1} to {value.epoch - 1} are not in the log")

    def _complete_if_stable(self, position: LogPosition) -> Iterator[TimelineEvent]:
        change = self.open
        if change is None or self.assignment_epoch < change.epoch or len(self.rested) < len(self.members):
            return
        if self.members and self.rested >= self.members.keys():
            yield from self.end("completed", position)

    # ---- handlers of records, each named after its key class

    def _member(self, step: Step, key: Any, value: Any, position: LogPosition) -> None:
        member_id = key.member_id
        was = self.members.get(member_id)
        if value is None:
            if was is not None:
                self._gone(step, member_id, was, position)
            return
        now = _described(self.kind, member_id, value)
        self.members[member_id] = now
        self._named.pop(now.label.identity, None)
        if was is None:
            step.joined[now.label.identity] = member_id
            return
        if was.reads != now.reads:
            step.causes.add(causes.SUBSCRIPTION)
            step.detail.append(f"{now.label.identity} changed its subscription")
        if was.assignor != now.assignor:
            step.causes.add(causes.ASSIGNOR)
            step.detail.append(f"{now.label.identity} requests {now.assignor or 'the default'}")

    def _gone(self, step: Step, member_id: str, was: Described, position: LogPosition) -> None:
        identity = was.label.identity
        standing = self.standing.pop(member_id, None)
        target = self.targets.pop(member_id, None)
        if target:
            step.before.setdefault(identity, target)
        step.left[identity] = self._departure_cause(was, standing, step.before.get(identity, NOTHING), position)
        del self.members[member_id]
        self.rested.discard(member_id)
        self._named[identity] = was.label

    def _departure_cause(
        self, was: Described, standing: MemberStanding | None, parts: TopicPartitions, position: LogPosition
    ) -> tuple[str, str]:
        name = was.label.identity
        if standing is None:
            return causes.GONE, f"{name}: the log has no assignment of it"
        for_ms = position.timestamp_ms - standing.since_ms
        if standing.epoch == STATIC_LEAVE_EPOCH:
            return causes.TIMED_OUT, f"{name} was away for {for_ms} ms and did not return"
        if standing.state == UNREVOKED.get(self.kind) and 0 < was.rebalance_timeout_ms <= for_ms:
            revoked = "tasks" if self.kind == STREAMS else "partitions"
            return causes.TIMED_OUT, f"{name} did not revoke {revoked} within {was.rebalance_timeout_ms} ms"
        if self.kind == CONSUMER and self._session_timeout_ms is not None:
            session_ms = min(self._session_timeout_ms, was.session_timeout_ms or self._session_timeout_ms)
            silent_ms = position.timestamp_ms - standing.beat_ms
            if silent_ms < session_ms:
                return causes.LEFT, f"{name} sent a heartbeat {silent_ms} ms before"
            # A commit does not renew the session, but its client sends at least two heartbeats per session.
            committed_ms = self.last_commits.newest(parts, standing.beat_ms)
            if committed_ms is not None and position.timestamp_ms - committed_ms < session_ms // 2:
                return causes.LEFT, f"{name} committed {position.timestamp_ms - committed_ms} ms before"
        return causes.GONE, f"{name}: leaving and timing out write the same records"

    def _target(self, step: Step, key: Any, value: Any, position: LogPosition) -> None:
        member_id = key.member_id
        described = self.members.get(member_id)
        identity = member_id if described is None else described.label.identity
        had = self.targets.get(member_id, NOTHING)
        # The targets of members that left or were replaced belong to this step, all others to the open epoch.
        if value is None or step.left or self.open is None:
            step.before.setdefault(identity, had)
        else:
            self.open.before.setdefault(identity, had)
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = _parts(self.kind, value)

    def _assignment_epoch(self, _step: Step, _key: Any, value: Any, _position: LogPosition) -> None:
        self.assignment_epoch = -1 if value is None else value.assignment_epoch

    def _current(self, _step: Step, key: Any, value: Any, position: LogPosition) -> None:
        member_id = key.member_id
        if value is None:
            # the member's position is kept in `standing`, which shows the cause of its departure
            self.rested.discard(member_id)
            return
        pending = _pending(self.kind, value)
        was = self.standing.get(member_id)
        same = was is not None and was[:3] == (value.member_epoch, value.state, pending)
        since_ms = was.since_ms if was is not None and same else position.timestamp_ms
        self.standing[member_id] = MemberStanding(
            value.member_epoch, value.state, pending, since_ms, position.timestamp_ms
        )
        stable = STREAMS_STABLE if self.kind == STREAMS else MemberState.STABLE
        if value.member_epoch == self.epoch and value.state == stable and not pending:
            self.rested.add(member_id)
        else:
            self.rested.discard(member_id)

    def _pattern(self, step: Step, key: Any, value: Any, _position: LogPosition) -> None:
        regex = key.regular_expression
        if value is None:
            self.patterns.pop(regex, None)
            return
        topics = tuple(value.topics)
        if self.patterns.get(regex, ()) != topics:
            step.causes.add(causes.SUBSCRIPTION)
            step.detail.append(f"the pattern {regex} matches {counted(len(topics), 'topics')}")
        self.patterns[regex] = topics

    def _topology(self, step: Step, _key: Any, value: Any, _position: LogPosition) -> None:
        epoch = -1 if value is None else value.epoch
        if self.topology_epoch >= 0 and epoch != self.topology_epoch:
            step.causes.add(causes.TOPOLOGY)
        self.topology_epoch = epoch

    def _share_state(self, _step: Step, _key: Any, value: Any, _position: LogPosition) -> None:
        self.share_ready = value is not None

    HANDLERS: Final[dict[str, Callable[[EpochGroup, Step, Any, Any, LogPosition], None]]] = {
        "MemberMetadata": _member,
        "TargetAssignmentMember": _target,
        "TargetAssignmentMetadata": _assignment_epoch,
        "CurrentMemberAssignment": _current,
        "RegularExpression": _pattern,
        "Topology": _topology,
        "StatePartitionMetadata": _share_state,
    }


def _assignment_configs(kind: str, value: Any) -> dict[str, str]:
    """Returns the assignment settings in the record of an epoch; empty except for streams groups."""
    return {entry.key: entry.value for entry in value.last_assignment_configs or ()} if kind == STREAMS else {}


def _processes(identities: list[str]) -> str:
    return "a new process for " + ", ".join(identities)


def _described(kind: str, member_id: str, value: Any) -> Described:
    label = Label(member_id, getattr(value, "instance_id", None), value.client_id)
    if kind == STREAMS:
        return Described(label, value.topology_epoch, None, value.rebalance_timeout_ms)
    names = tuple(value.subscribed_topic_names)
    if kind == SHARE:
        return Described(label, names, None, -1)
    classic = value.classic_member_metadata
    return Described(
        label,
        (names, value.subscribed_topic_regex or ""),
        value.server_assignor or None,
        value.rebalance_timeout_ms,
        None if classic is None else classic.session_timeout_ms,
    )


def _parts(kind: str, value: Any) -> TopicPartitions:
    if kind == STREAMS:
        return frozenset(
            (f"{task_type}:{task.subtopology_id}", index)
            for task_type, name in TASKS.items()
            for task in getattr(value, name)
            for index in task.partitions
        )
    parts: set[PartitionTuple] = set()
    for topic in value.topic_partitions:
        parts.update((topic.topic_id.hex(), index) for index in topic.partitions)
    return frozenset(parts)


def _pending(kind: str, value: Any) -> bool:
    """Returns True if a member still owns partitions that it must revoke."""
    if kind == STREAMS:
        return any(getattr(value, name + "_pending_revocation") for name in TASKS.values())
    return kind == CONSUMER and bool(value.partitions_pending_revocation)
