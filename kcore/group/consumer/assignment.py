"""Partitions of a member: what it may use, what it must give up, what it shall have; to records and back.

An assignment is a dictionary from topic id (16 bytes) to partitions. What a member may use says for each partition in
which member epoch it was given out, its *assignment epoch* (KIP-1251): commits of an older epoch are good for what was
the member's own by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from kcore.group.consumer.states import MemberState
from kcore.protocol.messages.consumer_group_heartbeat import Assignment as HeartbeatAssignment
from kcore.protocol.messages.consumer_group_heartbeat import TopicPartitions as HeartbeatTopic
from kcore.protocol.records.consumer_group_current_member_assignment import TopicPartitions as CurrentTopic
from kcore.protocol.records.consumer_group_target_assignment_member import TopicPartition as TargetTopic

Owned = dict[bytes, dict[int, int]]
"""Topic id -> partition -> assignment epoch."""
Target = dict[bytes, tuple[int, ...]]
"""Topic id -> partitions, ascending."""

NOTHING: Final[Owned] = {}
NO_PARTITIONS: Final[dict[int, int]] = {}
NO_TARGET: Final[Target] = {}


class ReportedTopic(Protocol):
    """Partitions of one topic as a client reports them."""

    topic_id: bytes
    partitions: Sequence[int]


Reported = Sequence[ReportedTopic]


class CurrentAssignment:
    """Where a member is. Immutable by agreement: a change is another object.

    Attributes:
        member_epoch: the epoch that the member must echo; -2 for a static member that left for a while.
        previous_epoch: the one before, which a member that missed an answer may still say.
        state: its state.
        assigned: what it may use.
        revoking: what it was told to give up.
    """

    __slots__ = ("assigned", "member_epoch", "previous_epoch", "revoking", "state")

    def __init__(
        self,
        member_epoch: int = 0,
        previous_epoch: int = -1,
        state: MemberState = MemberState.STABLE,
        assigned: Owned = NOTHING,
        revoking: Owned = NOTHING,
    ) -> None:
        self.member_epoch = member_epoch
        self.previous_epoch = previous_epoch
        self.state = state
        self.assigned = assigned
        self.revoking = revoking

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CurrentAssignment):
            return NotImplemented
        return (
            self.member_epoch == other.member_epoch
            and self.previous_epoch == other.previous_epoch
            and self.state is other.state
            and self.assigned == other.assigned
            and self.revoking == other.revoking
        )

    __hash__ = None  # type: ignore[assignment]  # compared, never a key

    def __repr__(self) -> str:
        return f"<{self.state.name} epoch {self.member_epoch} has {self.assigned} gives up {self.revoking}>"


NEW_MEMBER: Final = CurrentAssignment()
"""A member before its first answer."""


def is_part_of(reported: Reported, owned: Owned) -> bool:
    """Whether every reported partition is in `owned`."""
    for topic in reported:
        partitions = owned.get(topic.topic_id, NO_PARTITIONS)
        for partition in topic.partitions:
            if partition not in partitions:
                return False
    return True


def overlaps(reported: Reported | None, owned: Owned) -> bool:
    """Whether a member may still use any of `owned`: it said so, or it did not say what it uses."""
    if reported is None:
        return True
    for topic in reported:
        partitions = owned.get(topic.topic_id)
        if partitions is not None:
            for partition in topic.partitions:
                if partition in partitions:
                    return True
    return False


def merged(one: Owned, other: Owned) -> Owned:
    """What is in one of two assignments, or in both."""
    if not other:
        return one
    both = {topic_id: dict(partitions) for topic_id, partitions in one.items()}
    for topic_id, partitions in other.items():
        both.setdefault(topic_id, {}).update(partitions)
    return both


def with_epoch(owned: Owned, epoch: int) -> Owned:
    """The same partitions, all given out in `epoch`."""
    return {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in owned.items()}


# ---- responses


def heartbeat_assignment(owned: Owned) -> HeartbeatAssignment:
    """An assignment as a heartbeat's answer says it."""
    return HeartbeatAssignment(
        topic_partitions=[
            HeartbeatTopic(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in owned.items()
        ]
    )


# ---- records


def to_current_topics(owned: Owned) -> list[CurrentTopic]:
    """Partitions with their assignment epochs, as a record holds them."""
    return [
        CurrentTopic(topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic_id, partitions in owned.items()
    ]


def from_current_topics(topics: Sequence[Any], member_epoch: int) -> Owned:
    """Partitions of a record; records before Kafka 4.3 do not say when each was given out: in `member_epoch`."""
    if not topics:
        return NOTHING  # most members give up nothing, and an empty dictionary is 64 bytes for each of them
    owned: Owned = {}
    for topic in topics:
        partitions, epochs = topic.partitions, topic.assignment_epochs
        if epochs is None or len(epochs) != len(partitions):
            owned[topic.topic_id] = dict.fromkeys(partitions, max(member_epoch, 0))
        else:
            owned[topic.topic_id] = dict(zip(partitions, epochs, strict=True))
    return owned


def to_target_topics(target: Mapping[bytes, Sequence[int]]) -> list[TargetTopic]:
    """A target as a record holds it."""
    return [TargetTopic(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()]


def from_target_topics(topics: Iterable[Any]) -> Target:
    """A target of a record."""
    return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in topics if topic.partitions}
