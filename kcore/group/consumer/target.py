"""Target assignments, computed by the assignor that most members request.

A target is due when the group epoch is newer than the assignment epoch and the assignment interval has passed
(KIP-1263). The next heartbeat of any member computes the target. For large groups, the computation runs in slices or in
the background, so that no heartbeat waits for it. Until then the old target applies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.assignors import Member as AssignorMember
from kcore.errors import KafkaError
from kcore.group.consumer import records as group_records
from kcore.process_logging import limited_logger, log_failure, next_step
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from kcore.assignors import GroupAssignment, MemberAssignment
    from kcore.group.consumer.assignment import Target
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import ConsumerMember, MemberMetadata
    from kcore.group.consumer.member_update import MemberChange
    from kcore.runtime.machine import Record

logger = limited_logger(__name__)

TOPIC_BYTES: Final = 24  # size of a topic in a target's record: its id, the length of its array, tags
PARTITION_BYTES: Final = 4
SLICE_RECORDS: Final = 256
"""Number of members' targets that one slice writes."""
INLINE_TOPICS: Final = 1_000
"""Number of topics in a subscription up to which a heartbeat computes a new target in its own decision.

If a member subscribes to more topics, slices compute the target, provided that the driver runs an event loop.
"""
INLINE_MATCHES: Final = 10_000
"""Number of topics matched by a group's patterns up to which a heartbeat computes a new target in its own decision.

If the patterns match more topics, slices compute the target, and the member receives its partitions one heartbeat
later. A long list of topic names causes no such delay, because the response to the heartbeat waits for the target.
Therefore, this limit is larger than `INLINE_TOPICS`.
"""
NAMES_PER_SLICE: Final = 20_000
"""Number of topic names that one slice collects from the members' subscriptions for the assignor."""


def update(change: MemberChange) -> tuple[int, Target]:
    """Returns the target epoch and the target that apply to a member in this decision.

    If a new target is due, either computes it and adds it to the decision's records, or starts its computation. In the
    second case, the previous target applies until the new target is complete.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR if the assignor failed; the group keeps its target, and the next heartbeat
            retries.
    """
    group = change.group
    if change.group_epoch <= group.assignment_epoch or group.target_must_wait():
        return group.assignment_epoch, change.target
    if group.shard.context.shard.slices.requests.enabled and (
        len(change.metadata.names) > INLINE_TOPICS or len(group.subscriptions.matched) > INLINE_MATCHES
    ):
        if group.live:  # otherwise the next heartbeat finds a live group
            group.shard.context.in_slices(_in_slices(group))
            group.target_job = True
        return group.assignment_epoch, change.target
    job = AssignmentJob(group, change)
    job.read_topics()
    if group.live and job.members_count > group.shard.consumer.inline_members:
        job.begin()
        return group.assignment_epoch, change.target
    try:
        assignment = job.compute()
    except Exception as error:
        logger.exception(
            "group %s: assignor %s failed; the group keeps its target assignment, and the next heartbeat tries again; "
            "if this repeats, correct the assignor, or configure another one",
            group.group_id,
            job.assignor_name,
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the assignor failed: {error}") from error
    changed = dict(job.differing(assignment))
    # Half of the bytes that a decision may write; the other half is for the member's metadata.
    most_bytes = group.shard.max_record_bytes // 2
    if job.most_bytes(len(changed)) > most_bytes and sum(map(_record_bytes, changed.values())) > most_bytes:
        job.write_in_slices(assignment)
        return group.assignment_epoch, change.target
    records, group_id = change.records, group.group_id
    records += [group_records.target_assignment(group_id, member_id, target) for member_id, target in changed.items()]
    records.append(group_records.assignment_epoch(group_id, change.group_epoch, group.shard.now.wall_ms))
    group.next_assignment = (change.group_epoch, assignment, job.known_members)
    return change.group_epoch, changed.get(change.member_id, change.target)


def preferred_assignor(group: ConsumerGroup, before: MemberMetadata | None, after: MemberMetadata | None) -> str:
    """Returns the name of the assignor that most members request.

    If several assignors have equal votes, or if no member requests an assignor, the order in the setting
    `group.consumer.assignors` decides. Kafka uses the order of a hash map.

    Args:
        group: the group before the change.
        before: the current metadata of the member that changes; None for a new member, or if no member changes.
        after: the new metadata of this member; None if no member changes.
    """
    votes = group.subscriptions.assignors
    less = None if before is None else before.server_assignor
    more = None if after is None else after.server_assignor
    preferred, most = "", -1
    for name in group.shard.consumer.assignors:
        count = votes.get(name, 0) - (name == less) + (name == more)
        if count > most:
            preferred, most = name, count
    return preferred


def _record_bytes(target: Target) -> int:
    """Returns an upper bound of the size of a member's target in the log, in bytes."""
    partitions = sum(map(len, target.values()))
    return group_records.MAX_TARGET_RECORD_BYTES + TOPIC_BYTES * len(target) + PARTITION_BYTES * partitions


class KnownMembers(NamedTuple):
    """The members of a group in the form in which the assignor received them for the current target.

    Attributes:
        members: the members in the order of joining.
        subscriptions: the different subscriptions of the members, each once.
    """

    members: list[AssignorMember]
    subscriptions: tuple[tuple[str | bytes, ...], ...]


def _in_slices(group: ConsumerGroup) -> Iterator[Outcome | None]:
    """Computes and writes the new target of a group with many topics, in slices after the decision of a heartbeat."""
    try:
        job = AssignmentJob(group)
    except Exception as error:
        log_failure(
            logger,
            error,
            "group %s: cannot compute a target assignment; the next heartbeat tries again%s",
            group.group_id,
            next_step(error),
        )
        group.target_job = False
        return
    yield from job.collect_and_work()


class AssignmentJob:
    """One computation of a target, with a snapshot of the assignor's input.

    Args:
        group: the group that receives the target.
        change: the member's change in the decision that starts the computation. If None, the job collects the members
            in slices between decisions.

    Attributes:
        group: the group that receives the target.
        group_epoch: the epoch of the target.
        assignor_name: the assignor that computes it.
        members_count: number of members.
    """

    __slots__ = (
        "_assignor",
        "_joins",
        "_member_id",
        "_members",
        "_previous",
        "_subscriptions",
        "_topics",
        "assignor_name",
        "group",
        "group_epoch",
        "members_count",
    )

    def __init__(self, group: ConsumerGroup, change: MemberChange | None = None) -> None:
        self.group = group
        services = group.shard.consumer
        before, after = (None, None) if change is None else (change.before, change.metadata)
        self.assignor_name = preferred_assignor(group, before, after)
        self._assignor: Any = services.assignors[self.assignor_name]
        self._previous = group.last_assignment
        self._members: list[AssignorMember] = []
        self._subscriptions: tuple[tuple[str | bytes, ...], ...] = ()
        self.members_count = 0
        self._joins = False
        self._member_id = ""
        self.group_epoch = group.group_epoch
        if change is not None:
            self.group_epoch = change.group_epoch
            self._member_id = change.member_id
            self._joins = change.member is None and change.replaced is None
            self._collect(change)

    def _collect(self, change: MemberChange) -> None:
        """Collects the assignor's input: all members, with the values that they have after the change."""
        group = self.group
        last = group.last_members if self._joins else None
        if last is None or self._previous is None or len(last.members) != len(group.members):
            self._members = self._make_members(change)
            self._collect_subscriptions()
        else:  # one member joins, the others are unchanged since the last assignment
            view = self._make_member(change.member_id, change.metadata, change.target, False)
            self._members = [*last.members, view]
            self._subscriptions = (
                last.subscriptions if view.topics in last.subscriptions else (*last.subscriptions, view.topics)
            )
        self.members_count = len(self._members)

    def _collect_subscriptions(self) -> None:
        subscriptions = {
            id(topics): topics for topics in [member.topics for member in self._members]
        }  # one object if equal
        self._subscriptions = tuple(subscriptions.values())

    def _collect_in_slices(self) -> Iterator[None]:
        """Collects the members of the group in slices.

        A member that joins or changes between two slices raises the group epoch, so that a next target includes it.
        """
        count = 0
        for member in list(self.group.members.values()):
            view = self._view_of(member)
            self._members.append(view)
            count += len(view.topics)
            if count > NAMES_PER_SLICE:
                count = 0
                yield
        self.members_count = len(self._members)
        self._collect_subscriptions()

    def read_topics(self) -> None:
        """Reads the partitions of all subscribed topics, before the computation."""
        self._topics = self.group.shard.consumer.topics(self._subscriptions)

    @property
    def known_members(self) -> KnownMembers | None:
        """The next value of `ConsumerGroup.last_members`; None if the next computation must collect the members again.

        With this value, the next computation only adds a joining member.
        """
        return KnownMembers(self._members, self._subscriptions) if self._joins and not self._members[-1].owned else None

    def most_bytes(self, count: int) -> int:
        """Returns an upper bound of the size of `count` targets in the log, in bytes, without examining them.

        The bound assumes that each target names all topics, and that each partition is in a single target.
        """
        a_member = group_records.MAX_TARGET_RECORD_BYTES + TOPIC_BYTES * len(self._topics)
        return count * a_member + PARTITION_BYTES * self._topics.total_partitions

    def _make_members(self, change: MemberChange) -> list[AssignorMember]:
        """Returns all members in the form that the assignor receives.

        The member that `change` concerns comes last, with its values after the change.
        """
        group = self.group
        replaced = change.replaced
        left_out = {change.member_id} if replaced is None else {change.member_id, replaced.member_id}
        members = []
        for member in group.members.values():
            if member.member_id in left_out:
                continue
            members.append(self._view_of(member))
        members.append(self._make_member(change.member_id, change.metadata, change.target, False))
        return members

    def _view_of(self, member: ConsumerMember) -> AssignorMember:
        """Returns a member that does not change, in the form that the assignor receives."""
        has_previous = self._previous is not None
        view = member.assignor_member if has_previous else None
        if view is None:
            target = self.group.target_of(member.member_id)
            view = self._make_member(member.member_id, member.metadata, target, has_previous)
            if has_previous:
                member.assignor_member = view
        return view

    def _make_member(
        self, member_id: str, metadata: MemberMetadata, target: Target, has_previous: bool
    ) -> AssignorMember:
        group = self.group
        topics = group.shard.consumer.in_order(group.subscriptions.topics_of(metadata))
        return AssignorMember(
            member_id,
            topics,
            owned=None if has_previous else target,
            rack_id=metadata.rack_id,
            instance_id=metadata.instance_id,
        )

    def compute(self) -> GroupAssignment:
        """Runs the assignor without reading the group, so that it may run on any thread."""
        result: GroupAssignment = self._assignor.assign(self._members, self._topics, self._previous)
        return result

    def differing(self, assignment: GroupAssignment) -> Iterator[tuple[str, Target]]:
        """Yields the members whose target is missing or differs from `assignment`, with their new targets.

        The target of a member that replaces another member in this decision counts as missing, as in Kafka.

        Args:
            assignment: the assignor's result.
        """
        group, previous = self.group, self._previous
        targets = group.targets
        changes: list[tuple[str, MemberAssignment | None]]
        if previous is None:
            changes = [(member.member_id, assignment.get(member.member_id)) for member in self._members]
        else:
            changes = [*assignment.changes(previous)]
            without_target = [self._member_id]  # the other members usually have targets
            if not group.members.keys() <= targets.keys():
                without_target = [member.member_id for member in self._members]
            without_target = [member_id for member_id in without_target if member_id not in targets]
            if without_target:
                changed_ids = {member_id for member_id, _ in changes}
                changes += [
                    (member_id, assignment.get(member_id))
                    for member_id in without_target
                    if member_id not in changed_ids
                ]
        for member_id, assigned in changes:
            target: Target = {} if assigned is None else dict(assigned)  # type: ignore[arg-type]
            stored = targets.get(member_id)
            if stored is None or stored != target:
                yield member_id, target

    # ---- in slices or in the background

    def begin(self) -> None:
        """Starts computing and writing the target. No other computation starts until the target is written."""
        self.group.target_job = True
        background = self.group.shard.consumer.background
        if background is None:
            self.group.shard.context.in_slices(self._work())
        else:
            background(self.compute, self._computed)

    def collect_and_work(self) -> Iterator[Outcome | None]:
        """Collects the members and their topics; then computes and writes the target."""
        services = self.group.shard.consumer
        try:
            yield from self._collect_in_slices()
            yield None
            self._topics = yield from services.topics_in_slices(self._subscriptions)
        except Exception as error:
            self._computed(error)
            return
        yield None
        if services.background is not None and self.members_count > services.inline_members:
            services.background(self.compute, self._computed)
        else:
            yield from self._work()

    def write_in_slices(self, assignment: GroupAssignment) -> None:
        """Starts writing a target that does not fit into one decision."""
        self.group.target_job = True
        self.group.shard.context.in_slices(self._write(assignment))

    def _work(self) -> Iterator[Outcome | None]:
        try:
            assignment = self.compute()
        except Exception as error:
            self._computed(error)
            return
        yield None
        yield from self._write(assignment)

    def _computed(self, result: Any) -> None:
        """Starts writing the target from the assignor's result.

        If the result is an exception, logs it. The next heartbeat then computes the target again.
        """
        group = self.group
        if isinstance(result, BaseException):
            logger.error(
                "group %s: assignor %s failed: %s; the group keeps its target assignment, and the next heartbeat tries "
                "again; if this repeats, correct the assignor, or configure another one",
                group.group_id,
                self.assignor_name,
                result,
            )
            group.target_job = False
        elif group.shard.context.shard.machine is group.shard:  # otherwise the shard was reloaded meanwhile
            group.shard.context.in_slices(self._write(result))

    def _write(self, assignment: GroupAssignment) -> Iterator[Outcome | None]:
        """Writes the changed targets of members in slices, and then the assignment epoch.

        After a crash between two slices, the log has targets of two computations. This is harmless, because ownership
        does not depend on targets. The assignment epoch is still old, so the next heartbeat computes a new target.
        """
        group = self.group
        group_id, shard = group.group_id, group.shard
        try:
            pending: list[Record] = []
            size_bytes = 0
            for member_id, target in self.differing(assignment):
                if shard.groups.get(group_id) is not group:
                    return
                if member_id not in group.members:
                    continue
                pending.append(group_records.target_assignment(group_id, member_id, target))
                size_bytes += _record_bytes(target)
                if len(pending) >= SLICE_RECORDS or size_bytes > shard.max_record_bytes // 4:
                    yield Outcome(group_records.in_one(pending))
                    pending, size_bytes = [], 0
            if shard.groups.get(group_id) is group:
                group.next_assignment = (self.group_epoch, assignment, None)
                pending.append(group_records.assignment_epoch(group_id, self.group_epoch, shard.now.wall_ms))
                yield Outcome(group_records.in_one(pending))
        finally:
            group.target_job = False
