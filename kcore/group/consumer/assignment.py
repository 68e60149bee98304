"""Assignments of members (assigned, revoking, target), and their conversion from and to records.

An assignment is a dictionary from topic id (16 bytes) to partitions. An assigned partition carries its *assignment
epoch*: the member epoch in which it was assigned (KIP-1251). A commit with an older member epoch is valid for
partitions that the member already owned in that epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from kcore.group.consumer.states import MemberState
from kcore.protocol.messages.consumer_group_heartbeat import Assignment as HeartbeatAssignment
from kcore.protocol.messages.consumer_group_heartbeat import TopicPartitions as HeartbeatTopic
from kcore.protocol.records.consumer_group_current_member_assignment import TopicPartitions as CurrentTopic
from kcore.protocol.records.consumer_group_target_assignment_member import TopicPartition as TargetTopic
from kcore_ext.codec.fields import FieldLayout
from kcore_ext.group.consumer_assignment import topics_of

Owned = dict[bytes, dict[int, int]]
"""The partitions of a member: topic id -> partition -> assignment epoch."""
Target = dict[bytes, tuple[int, ...]]
"""A target assignment: topic id -> partitions, ascending."""

NOTHING: Final[Owned] = {}
NO_PARTITIONS: Final[dict[int, int]] = {}
NO_TARGET: Final[Target] = {}
_HEARTBEAT_TOPIC: Final = FieldLayout(HeartbeatTopic, {0: "topic_id", 1: "partitions"})


class ReportedTopic(Protocol):
    """The partitions of one topic that a member owns according to its heartbeat request."""

    topic_id: bytes
    partitions: Sequence[int]


Reported = Sequence[ReportedTopic]


class CurrentAssignment:
    """A member's epochs, state and partitions. Immutable by convention: a change creates another object.

    Attributes:
        member_epoch: the epoch that the member must send; -2 for a static member that left temporarily.
        previous_epoch: the previous member epoch, which a member that missed a response may still send.
        state: the member's progress towards its target assignment.
        assigned: the partitions that the member may use.
        revoking: the partitions that the member must revoke.
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
        return f"<{self.state.name} epoch {self.member_epoch} assigned {self.assigned} revoking {self.revoking}>"


NEW_MEMBER: Final = CurrentAssignment()
"""The current assignment of a member before its first response."""


def is_part_of(reported: Reported, owned: Owned) -> bool:
    """Returns True if every reported partition is in `owned`."""
    for topic in reported:
        partitions = owned.get(topic.topic_id, NO_PARTITIONS)
        for partition in topic.partitions:
            if partition not in partitions:
                return False
    return True


def overlaps(reported: Reported | None, owned: Owned) -> bool:
    """Returns True if the member may still use a partition of `owned`.

    This is the case if the member has reported such a partition, or if its heartbeat contains no report.
    """
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
    """Returns the union of two assignments."""
    if not other:
        return one
    both = {topic_id: dict(partitions) for topic_id, partitions in one.items()}
    for topic_id, partitions in other.items():
        both.setdefault(topic_id, {}).update(partitions)
    return both


def with_epoch(owned: Owned, epoch: int) -> Owned:
    """Returns these partitions with `epoch` as the assignment epoch of each."""
    return {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in owned.items()}


# ---- responses


def heartbeat_assignment(owned: Owned) -> HeartbeatAssignment:
    """Converts an assignment to the form of a heartbeat response."""
    return HeartbeatAssignment(topic_partitions=topics_of(owned, _HEARTBEAT_TOPIC))


# ---- records


def to_current_topics(owned: Owned) -> list[CurrentTopic]:
    """Converts partitions and their assignment epochs to the form of a record."""
    return [
        CurrentTopic(topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic_id, partitions in owned.items()
    ]


def from_current_topics(topics: Sequence[Any], member_epoch: int) -> Owned:
    """Converts the partitions in the record of a member's current assignment.

    Records of Kafka before 4.3 have no assignment epochs. Each partition then gets `member_epoch`.
    """
    if not topics:
        return NOTHING  # most members revoke nothing, and an empty dictionary takes 64 bytes for each of them
    owned: Owned = {}
    for topic in topics:
        partitions, epochs = topic.partitions, topic.assignment_epochs
        if epochs is None or len(epochs) != len(partitions):
            owned[topic.topic_id] = dict.fromkeys(partitions, max(member_epoch, 0))
        else:
            owned[topic.topic_id] = dict(zip(partitions, epochs, strict=True))
    return owned


def to_target_topics(target: Mapping[bytes, Sequence[int]]) -> list[TargetTopic]:
    """Converts a target to the form of a record."""
    return [TargetTopic(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()]


def from_target_topics(topics: Iterable[Any]) -> Target:
    """Converts the topics in a record to a target assignment."""
    return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in topics if topic.partitions}
