"""Partitions of a coordinator's topic that should be there and are not: whatever they held, no state has it.

No log says how many partitions its topic has. What is known: a partition has all those of lower numbers beside it, and
every id is in the partition that its hash leads to. The smallest number of partitions that puts all known ids where
they are is one that the topic has at least, since the true one does so, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kcore.errors import KcoreError
from kcore_ext.util.java_hash import partition_for

MOST_PARTITIONS: Final = 1_000
"""Topics of coordinators are taken to have no more; Kafka makes them with 50."""


class PlacedId(NamedTuple):
    """A group's or a transactional id, and the partition of the internal topic that it was found in."""

    topic: str
    partition: int
    name: str


class Absent(NamedTuple):
    """What a topic lacks.

    Attributes:
        topic: the topic.
        partition_count: how many partitions it has.
        at_least: whether it may have more.
        partitions: those that are not there, ascending; at least one.
    """

    topic: str
    partition_count: int
    at_least: bool
    partitions: tuple[int, ...]

    @property
    def sentence(self) -> str:
        """Why one of them is missed, for people."""
        return f"the partition is not there: the topic has {'at least ' if self.at_least else ''}{self.partition_count}"


def absent_partitions(
    present: Mapping[str, Collection[int]], ids: Iterable[PlacedId] = (), given: Mapping[str, int] | None = None
) -> list[Absent]:
    """What the topics lack, by topic; those that lack nothing are left out.

    Args:
        present: topic -> its partitions that are there.
        ids: ids and where they were found; not those of `__share_group_state`, which are hashed with their topics.
        given: topic -> how many partitions it has, where somebody knows.

    Raises:
        KcoreError: a partition is there that a topic of so many does not have.
    """
    counts = dict(given or {})
    for topic, count in counts.items():
        if max(present.get(topic, ()), default=-1) >= count:
            raise KcoreError(f"{topic} cannot have {count} partitions: number {max(present[topic])} is there")
    placed: dict[str, list[PlacedId]] = {}
    for one in ids:
        placed.setdefault(one.topic, []).append(one)
    for topic, numbers in present.items():
        if numbers and topic not in counts:
            counts[topic] = least_count(max(numbers) + 1, placed.get(topic, ()))
    found = []
    for topic, count in sorted(counts.items()):
        missing = tuple(sorted(set(range(count)) - set(present.get(topic, ()))))
        if missing:
            found.append(Absent(topic, count, topic not in (given or {}), missing))
    return found


def least_count(at_least: int, ids: Collection[PlacedId]) -> int:
    """The smallest number of partitions that puts ids where they are; one of a hundred may be elsewhere.

    Args:
        at_least: how many there must be; the answer if no number puts them there.
        ids: of one topic.
    """
    most_wrong = len(ids) // 100
    for count in range(at_least, MOST_PARTITIONS + 1):
        wrong = 0
        for one in ids:
            wrong += partition_for(one.name, count) != one.partition
            if wrong > most_wrong:
                break
        else:
            return count
    return at_least
