"""Derives rebalances of classic groups from their generations.

The log contains only stable and empty generations, and no records of joins, leaves and timeouts. A comparison of a
generation with the previous generation shows which members joined and left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kcore.protocol import DecodeError
from kcore.protocol.consumer_protocol import Assignment, Subscription
from kcore.protocol.topic_partition import PartitionTuple
from kcore.spark.timeline import causes
from kcore.spark.timeline.event_kinds import TimelineEvent
from kcore.spark.timeline.last_commits import LastCommits
from kcore.spark.timeline.rebalance import Label, LogPosition, Move, Rebalance, TopicPartitions, moves_between

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
VERSION_BYTES: Final = 2


class Member(NamedTuple):
    """A member of a generation; `topics` and `parts` are None if they cannot be read."""

    label: Label
    topics: frozenset[str] | None
    parts: TopicPartitions | None
    rebalance_timeout_ms: int
    session_timeout_ms: int


class Generation(NamedTuple):
    """A record of a classic group: its members by `Label.identity`, the time of its state, and its position."""

    number: int
    protocol_name: str | None
    leader: str | None
    state_ms: int
    members: dict[str, Member]
    position: LogPosition

    @property
    def parts(self) -> dict[str, TopicPartitions] | None:
        """The partitions of every member by identity; None if an assignment cannot be decoded."""
        partitions = {}
        for identity, member in self.members.items():
            if member.parts is None:
                return None
            partitions[identity] = member.parts
        return partitions


class ClassicGroup:
    """The state of a classic group between two of its records.

    Attributes:
        last: the group's last generation.
        last_commits: the times of the group's latest commits.
        released: partitions that the last generation revoked from a member and did not assign.
    """

    __slots__ = ("last", "last_commits", "released")

    def __init__(self, last: Generation) -> None:
        self.last = last
        self.last_commits = LastCommits()
        self.released: set[PartitionTuple] = set()


def read_generation(value: Any, position: LogPosition) -> Generation:
    """Reads a generation from a GroupMetadata value."""
    readable = value.protocol_type == CONSUMER
    members = {}
    for entry in value.members:
        label = Label(entry.member_id, entry.group_instance_id, entry.client_id)
        timeout_ms = entry.session_timeout if entry.rebalance_timeout < 0 else entry.rebalance_timeout
        members[label.identity] = Member(
            label,
            _topics(entry.subscription) if readable else None,
            _parts(entry.assignment) if readable else None,
            timeout_ms,
            entry.session_timeout,
        )
    return Generation(value.generation, value.protocol, value.leader, value.current_state_timestamp, members, position)


def first_generation(group_id: str, now: Generation, whole: bool, inherited: frozenset[str] | None) -> Rebalance | None:
    """Returns the rebalance of a group's first record in the log; None for a group without a generation.

    Args:
        group_id: the id of the group.
        now: the generation in the group's first record.
        whole: True if the log is complete up to the generation.
        inherited: members of the consumer group before a migration, by identity; None without a migration.
    """
    if not now.members and not now.number:
        return None
    change = Rebalance(group_id, CLASSIC, now.position, now.number, None, whole)
    if inherited is not None:
        change.causes.add(causes.MIGRATED)
        change.joined.extend(now.members.keys() - inherited)
        change.left.extend(inherited - now.members.keys())
        change.causes.update({causes.JOINED} if change.joined else ())
        change.causes.update({causes.GONE} if change.left else ())
        change.detail.append("was a consumer group before")
    elif whole:
        change.joined.extend(now.members)
        if now.members:
            change.causes.add(causes.JOINED)
    else:
        change.detail.append("earlier records are not in the log")
    return change


def next_generation(group_id: str, group: ClassicGroup, now: Generation, whole: bool) -> Rebalance | None:
    """Returns the rebalance between a group's last record and the next record; None if the records do not differ."""
    was = group.last
    change = Rebalance(group_id, CLASSIC, now.position, now.number, was.number, whole)
    change.joined.extend(now.members.keys() - was.members.keys())
    change.left.extend(was.members.keys() - now.members.keys())
    replaced = sorted(
        identity
        for identity, member in now.members.items()
        if identity in was.members and was.members[identity].label.member_id != member.label.member_id
    )
    if replaced:
        change.causes.add(causes.REPLACED)
        change.detail.append("a new process for " + ", ".join(replaced))
    if now.number == was.number and not change.joined and not change.left:
        return change if replaced else None
    if now.number < was.number:
        change.previous_epoch = None
        change.detail.append(f"the group was at generation {was.number} and was created again")
    if change.joined:
        change.causes.add(causes.JOINED)
    for identity in sorted(change.left):
        cause, why = gone(was, was.members[identity], now, group.last_commits)
        change.causes.add(cause)
        change.detail.append(why)
    if not change.causes:
        _same_members(change, group, now)
    if now.number > was.number + 1 and whole:
        change.detail.append(f"{now.number - was.number - 1} earlier generations never completed")
    return change


def _same_members(change: Rebalance, group: ClassicGroup, now: Generation) -> None:
    """Finds the cause of a rebalance whose members did not change."""
    was = group.last
    if was.protocol_name != now.protocol_name:
        change.causes.add(causes.ASSIGNOR)
        change.detail.append(f"{was.protocol_name} became {now.protocol_name}")
    if any(was.members[identity].topics != member.topics for identity, member in now.members.items()):
        change.causes.add(causes.SUBSCRIPTION)
        return
    before, after = was.parts, now.parts
    if before is not None and after is not None and not change.causes:
        had, has = set().union(*before.values()), set().union(*after.values())
        if has > had and has - had <= group.released:
            change.causes.add(causes.FOLLOW_UP)
        elif has != had and not (had - has and now.protocol_name == was.protocol_name and _cooperative(now)):
            change.causes.add(causes.TOPICS)
            change.detail.append(f"{len(has - had)} more partitions and {len(had - has)} fewer are assigned")
    if not change.causes and was.leader != now.leader:
        change.causes.add(causes.LEADER)


def _cooperative(now: Generation) -> bool:
    return now.protocol_name is not None and "cooperative" in now.protocol_name


def gone(was: Generation, member: Member, now: Generation, last_commits: LastCommits) -> tuple[str, str]:
    """Returns the cause of a member's departure, and the evidence.

    A member's session restarts at the end of a join phase and at each commit. The coordinator removes a member whose
    session expires, or that does not join a rebalance within the longest rebalance timeout. If the member disappeared
    before both timeouts, it left, or it was removed by a request.
    """
    name = member.label.identity
    if was.state_ms < 0 or now.state_ms < 0:
        return causes.GONE, f"{name}: the log does not contain its join time"
    longest_timeout_ms = max(former.rebalance_timeout_ms for former in was.members.values())
    lived_ms = now.state_ms - was.state_ms
    if lived_ms < min(member.session_timeout_ms, longest_timeout_ms):
        return causes.LEFT, f"{name} was a member for {lived_ms} ms (session timeout {member.session_timeout_ms} ms)"
    seen_ms = None if member.parts is None else last_commits.newest(member.parts, was.position.timestamp_ms)
    if seen_ms is not None and now.state_ms - seen_ms < min(member.session_timeout_ms, longest_timeout_ms):
        return causes.LEFT, f"{name} committed {max(0, now.state_ms - seen_ms)} ms before"
    return causes.GONE, f"{name}: no sign of life within its session timeout of {member.session_timeout_ms} ms"


def generation_events(
    partition: int, change: Rebalance, group: ClassicGroup | None, now: Generation
) -> Iterator[TimelineEvent]:
    """Yields the rows of a generation. `group` is the state before it."""
    was = None if group is None else group.last
    before = {} if was is None else was.parts
    after = now.parts
    moves: list[Move] | None = None if before is None or after is None else moves_between(before, after)
    labels = {identity: member.label for identity, member in now.members.items()}
    if was is not None:
        labels = {identity: member.label for identity, member in was.members.items()} | labels
    if was is not None and was.number == now.number and change.causes == {causes.REPLACED}:
        yield from change.events(partition, now.position, "replaced", "none", len(now.members), moves, labels)
        return
    # A generation with members is written at its assignment and contains the end of its join phase.
    known = (
        bool(now.members) and 0 <= now.state_ms <= now.position.timestamp_ms and causes.MIGRATED not in change.causes
    )
    yield from change.events(
        partition,
        now.position,
        "completed" if now.members else "emptied",
        "sync" if known else "none",
        len(now.members),
        moves,
        labels,
        start_ms=now.state_ms if known else None,
    )


def released_by(was: Generation, now: Generation) -> set[PartitionTuple]:
    """Returns the partitions that lost their owner."""
    before, after = was.parts, now.parts
    if before is None or after is None:
        return set()
    return set[PartitionTuple]().union(*before.values()) - set[PartitionTuple]().union(*after.values())


def _topics(subscription: bytes) -> frozenset[str] | None:
    try:
        if len(subscription) < VERSION_BYTES or subscription[0] & 0x80:
            return None
        return frozenset(Subscription.decode(subscription, 0, VERSION_BYTES).topics)
    except DecodeError:
        return None


def _parts(assignment: bytes) -> TopicPartitions | None:
    if not assignment:
        return frozenset()
    try:
        owned, _ = Assignment.decode_versioned(assignment)
    except DecodeError:
        return None
    return frozenset((topic.topic, index) for topic in owned.assigned_partitions for index in topic.partitions)
