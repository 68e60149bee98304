"""The history of groups: joins, generations, ownership, commits and fencing, each with its time and cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from kcore.protocol.topic_partition import TopicPartition

Kind = Literal[
    "joined", "left", "state", "generation", "assigned", "revoked", "committed", "refused", "fenced", "fault", "control"
]
"""The kinds of events.

    joined, left         a member entered or left the group
    state                the group's state changed
    generation           a new generation (classic groups) or group epoch
    assigned, revoked    a member received or lost partitions
    committed, refused   offsets were committed, or a request was refused
    fenced               a request was refused because its sender is no longer a member of this generation
    fault, control       a fault of the test was applied, or the test changed the group
"""

KINDS: tuple[str, ...] = get_args(Kind)
SHORT = 28  # characters of a member id in tables: clients put their own name first, and a uuid after it
MAX_DETAIL = 60  # characters of the column with partitions and offsets


@dataclass(frozen=True, slots=True)
class Event:
    """One event in the history of a group.

    Attributes:
        at: seconds since the broker was created, on the broker's clock.
        kind: one of the words that `Kind` describes.
        member_id: the id of the member that the event concerns, if any.
        client_id: the client id of the member or of the request.
        epoch: the generation or epoch after the event.
        partitions: the partitions that the event concerns.
        offsets: the offsets that a commit has stored.
        detail: the error's name, or the old and the new state.
        cause: the request, timeout, fault or call of the test that caused the event.
    """

    at: float
    kind: Kind
    member_id: str = ""
    client_id: str = ""
    epoch: int = -1
    partitions: tuple[TopicPartition, ...] = ()
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    detail: str = ""
    cause: str = ""

    def described(self) -> str:
        """Returns the partitions or offsets, and the detail, as text."""
        names = [f"{partition}={offset}" for partition, offset in sorted(self.offsets.items())]
        names = names or [str(partition) for partition in sorted(self.partitions)]
        return " ".join([self.detail, *names] if self.detail else names)


@dataclass(frozen=True, slots=True)
class Ownership:
    """The time for which a member owned a partition.

    Attributes:
        partition: the topic and the partition number.
        member_id: the id of the owner.
        since: the time at which the member became the owner, in seconds since the broker was created.
        until: the time at which the ownership ended, in seconds since the broker was created; None while the member
            owns the partition.
        ended_by: the cause of the end of the ownership.
    """

    partition: TopicPartition
    member_id: str
    since: float
    until: float | None = None
    ended_by: str = ""


class History(Sequence[Event]):
    """The events of one group, the oldest first. `str(history)` is a table.

    Args:
        group_id: the id of the group.
        events: the events of the group, the oldest first.
        dropped: the number of older events that were not kept.

    Attributes:
        group_id: the id of the group.
        dropped: the number of older events that were not kept.
    """

    def __init__(self, group_id: str, events: Iterable[Event], dropped: int = 0) -> None:
        self.group_id = group_id
        self.dropped = dropped
        self._events = tuple(events)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._events[index]

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def of(self, *kinds: Kind) -> list[Event]:
        """Returns the events of the given kinds.

        Raises:
            ValueError: a kind does not exist.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(f"{kind!r} is not a kind of events; valid: {', '.join(KINDS)}")
        return [event for event in self._events if event.kind in kinds]

    def commits(self, partition: tuple[str, int]) -> list[int]:
        """Returns the committed offsets of a partition, in the order of the commits."""
        return [
            event.offsets[TopicPartition(*partition)] for event in self.of("committed") if partition in event.offsets
        ]

    def ownership(self, partition: tuple[str, int] | None = None) -> list[Ownership]:
        """Returns the owners of all partitions, or of one partition, over time."""
        found: list[Ownership] = []
        owned: dict[tuple[TopicPartition, str], int] = {}
        for event in self.of("assigned", "revoked"):
            for each in event.partitions:
                if event.kind == "assigned":
                    owned[each, event.member_id] = len(found)
                    found.append(Ownership(each, event.member_id, event.at))
                elif (index := owned.pop((each, event.member_id), None)) is not None:
                    found[index] = Ownership(each, event.member_id, found[index].since, event.at, event.cause)
        return [row for row in found if partition is None or row.partition == partition]

    def table(self, last: int | None = None) -> str:
        """Returns the events as a table of text; with `last`, only this number of the newest events."""
        events = self._events if last is None else self._events[max(0, len(self) - last) :]
        earlier = self.dropped + len(self) - len(events)
        head = ("seconds", "event", "member", "epoch", "what", "cause")
        rows = [
            (
                f"{event.at:.3f}",
                event.kind,
                _short(event.member_id or event.client_id),
                str(event.epoch) if event.epoch >= 0 else "",
                _cut(event.described(), MAX_DETAIL),
                event.cause,
            )
            for event in events
        ]
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in (head, *rows)]
        title = f"history of group {self.group_id}" + (f" after {earlier} earlier events" if earlier else "")
        return "\n".join([title, *(line.rstrip() for line in lines)])

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<History of {self.group_id}: {len(self)} events>"


def _short(name: str) -> str:
    return name if len(name) <= SHORT else f"{name[: SHORT - 9]}…{name[-8:]}"


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"
