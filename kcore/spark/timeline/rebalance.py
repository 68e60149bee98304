"""A rebalance while it is being put together, and what it moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kcore.spark.timeline.causes import REPLACED, ranked
from kcore.spark.timeline.facts import Fact

Part = tuple[str, int]
"""(topic, partition), in whatever terms the group's records have; see the fact `moves`."""
Parts = frozenset[Part]
NOTHING: Final[Parts] = frozenset()


class Label(NamedTuple):
    """How a member is called: its id, its instance id if it is static, its client id."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str | None = None

    @property
    def identity(self) -> str:
        """What stays the same when a static member's process is replaced."""
        return self.group_instance_id or self.member_id


class Place(NamedTuple):
    """Where and when a record stands."""

    offset: int
    timestamp_ms: int


class Move(NamedTuple):
    """What one member gained and lost."""

    identity: str
    gained: Parts
    lost: Parts


def moves_between(before: Mapping[str, Parts], after: Mapping[str, Parts]) -> list[Move]:
    """Who gained and lost what, by identity; those that did neither are left out."""
    found = []
    for identity in sorted(before.keys() | after.keys()):
        had, has = before.get(identity, NOTHING), after.get(identity, NOTHING)
        if had != has:
            found.append(Move(identity, has - had, had - has))
    return found


@dataclass(slots=True)
class Rebalance:
    """One change of a group, from its first record on.

    Attributes:
        group_id: the group.
        group_type: its kind.
        start: the first record of the change.
        epoch: the generation or group epoch that it leads to.
        previous_epoch: the one before in the log, None for none.
        whole: whether the log still held everything at its start.
        causes: why, as far as was found.
        detail: what that was found by.
        joined: identities of members that came.
        left: identities of members that went.
        before: what members had whose part in it changed, by identity.
    """

    group_id: str
    group_type: str
    start: Place
    epoch: int
    previous_epoch: int | None
    whole: bool
    causes: set[str] = field(default_factory=set)
    detail: list[str] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    before: dict[str, Parts] = field(default_factory=dict)

    def facts(
        self,
        partition: int,
        end: Place | None,
        outcome: str,
        covers: str,
        members: int,
        moves: Iterable[Move] | None,
        labels: Mapping[str, Label],
        *,
        start_ms: int | None = None,
    ) -> Iterator[Fact]:
        """The rows of it.

        Args:
            partition: of the internal topic.
            end: the record that ended it, None while it is open.
            outcome: see the fact `rebalances`.
            covers: likewise; its duration is told unless that is `none`.
            members: how many members there are behind it.
            moves: who gained and lost what; None if assignments are opaque.
            labels: members by identity.
            start_ms: when it began, where something better than its first record says so.
        """
        began_ms = self.start.timestamp_ms if start_ms is None else start_ms
        duration_ms = None if end is None or covers == "none" else max(0, end.timestamp_ms - began_ms)
        causes = [REPLACED] if outcome == "replaced" else ranked(self.causes)
        skipped = 0 if self.previous_epoch is None else max(0, self.epoch - self.previous_epoch - 1)
        moves = None if moves is None else list(moves)
        gained: set[Part] = set()
        lost: set[Part] = set()
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
