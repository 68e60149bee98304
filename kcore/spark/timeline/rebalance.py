"""One rebalance of a group: its properties, collected from the records of the log, and the partitions that it moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kcore.protocol.topic_partition import PartitionTuple
from kcore.spark.timeline.causes import REPLACED, ranked
from kcore.spark.timeline.event_kinds import TimelineEvent

"""(topic, partition), in the terms of the group's records, as in the table `moves`."""
TopicPartitions = frozenset[PartitionTuple]
NOTHING: Final[TopicPartitions] = frozenset()


class Label(NamedTuple):
    """The names of a member: its id, its instance id if it is static, its client id."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str | None = None

    @property
    def identity(self) -> str:
        """The instance id of a static member, which does not change at a restart; else the member id."""
        return self.group_instance_id or self.member_id


class LogPosition(NamedTuple):
    """Offset and timestamp of a record."""

    offset: int
    timestamp_ms: int


class Move(NamedTuple):
    """The partitions that one member gained and lost."""

    identity: str
    gained: TopicPartitions
    lost: TopicPartitions


def moves_between(before: Mapping[str, TopicPartitions], after: Mapping[str, TopicPartitions]) -> list[Move]:
    """Returns the gains and losses of members by `Label.identity`; unchanged members are left out."""
    moves = []
    for identity in sorted(before.keys() | after.keys()):
        had, has = before.get(identity, NOTHING), after.get(identity, NOTHING)
        if had != has:
            moves.append(Move(identity, has - had, had - has))
    return moves


@dataclass(slots=True)
class Rebalance:
    """One change of a group, from its first record on.

    Attributes:
        group_id: the id of the group.
        group_type: the kind of the group.
        start: the first record of the change.
        epoch: the resulting generation or group epoch.
        previous_epoch: the previous generation or group epoch in the log; None if the log has none.
        whole: True if the log is complete at the start of the change.
        causes: the known causes.
        detail: the evidence for the causes.
        joined: the identities (`Label.identity`) of members that joined.
        left: the identities of members that left.
        before: the previous partitions of members whose assignment changed, by identity.
    """

    group_id: str
    group_type: str
    start: LogPosition
    epoch: int
    previous_epoch: int | None
    whole: bool
    causes: set[str] = field(default_factory=set)
    detail: list[str] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    before: dict[str, TopicPartitions] = field(default_factory=dict)

    def events(
        self,
        partition: int,
        end: LogPosition | None,
        outcome: str,
        covers: str,
        members: int,
        moves: Iterable[Move] | None,
        labels: Mapping[str, Label],
        *,
        start_ms: int | None = None,
    ) -> Iterator[TimelineEvent]:
        """Yields the rows of the rebalance.

        Args:
            partition: the partition of the internal topic.
            end: the record that ended the rebalance; None if the rebalance has not ended in the log.
            outcome: the column `outcome` of the table `rebalances`.
            covers: the column `covers`: the part of the rebalance that the duration covers. The duration is null if the
                value is `none`.
            members: the number of members afterwards.
            moves: gains and losses of members; None if assignments cannot be decoded.
            labels: members by identity.
            start_ms: the start of the rebalance, in ms since the epoch; None: the timestamp of its first record.
        """
        began_ms = self.start.timestamp_ms if start_ms is None else start_ms
        duration_ms = None if end is None or covers == "none" else max(0, end.timestamp_ms - began_ms)
        causes = [REPLACED] if outcome == "replaced" else ranked(self.causes)
        skipped = 0 if self.previous_epoch is None else max(0, self.epoch - self.previous_epoch - 1)
        moves = None if moves is None else list(moves)
        gained: set[PartitionTuple] = set()
        lost: set[PartitionTuple] = set()
        for move in moves or ():
            gained |= move.gained
            lost |= move.lost
        yield (
            "rebalances",
            (
                partition,
                self.group_id,
                self.group_type,
                self.epoch,
                self.previous_epoch,
                skipped,
                self.start.offset,
                None if end is None else end.offset,
                began_ms,
                None if end is None else end.timestamp_ms,
                duration_ms,
                covers,
                outcome,
                causes[0],
                causes,
                "; ".join(self.detail),
                members,
                sorted(self.joined),
                sorted(self.left),
                None if moves is None else len(gained & lost),
                None if moves is None else sum(len(move.gained) for move in moves),
                None if moves is None else sum(len(move.lost) for move in moves),
                self.whole,
            ),
        )
        for move in moves or ():
            label = labels.get(move.identity, Label(move.identity))
            yield "moves", (partition, self.group_id, self.epoch, self.start.offset, *label, *_shown(move))


def _shown(move: Move) -> tuple[list[Any], list[Any]]:
    gained, lost = (
        [{"topic": topic, "partition": index} for topic, index in sorted(parts)] for parts in (move.gained, move.lost)
    )
    return gained, lost
