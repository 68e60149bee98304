"""Detects missing partitions of internal topics; their contents are absent from any rebuilt state.

No log contains the partition count of its topic. Two rules give a lower bound. First, a partition exists only together
with all partitions of lower numbers. Second, every id is in the partition that its hash implies. The lower bound is the
smallest partition count whose hashes match the partitions of all known ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kcore.errors import KcoreError
from kcore_ext.util.java_hash import partition_for

MOST_PARTITIONS: Final = 1_000
"""Assumed maximum number of partitions of an internal topic. Kafka creates these topics with 50 partitions."""


class PlacedId(NamedTuple):
    """A group id or transactional id, and the partition of the internal topic that contains it."""

    topic: str
    partition: int
    name: str


class Absent(NamedTuple):
    """The missing partitions of a topic.

    Attributes:
        topic: the name of an internal topic.
        partition_count: the given or inferred number of the topic's partitions.
        at_least: True if the topic may have more partitions than `partition_count`.
        partitions: the missing partitions, ascending; at least one.
    """

    topic: str
    partition_count: int
    at_least: bool
    partitions: tuple[int, ...]

    @property
    def sentence(self) -> str:
        """The reason why a partition counts as missing, for people."""
        return f"the partition is missing: the topic has {'at least ' if self.at_least else ''}{self.partition_count}"


def absent_partitions(
    present: Mapping[str, Collection[int]], ids: Iterable[PlacedId] = (), given: Mapping[str, int] | None = None
) -> list[Absent]:
    """Returns the missing partitions by topic; complete topics are left out.

    Args:
        present: topic -> its existing partitions.
        ids: ids and their partitions; without the ids of `__share_group_state`, which are hashed with their topics.
        given: topic -> partition count, if known.

    Raises:
        KcoreError: a partition exists that is outside of the given count.
    """
    counts = dict(given or {})
    for topic, count in counts.items():
        if max(present.get(topic, ()), default=-1) >= count:
            raise KcoreError(f"{topic} cannot have {count} partitions: number {max(present[topic])} exists")
    placed: dict[str, list[PlacedId]] = {}
    for placed_id in ids:
        placed.setdefault(placed_id.topic, []).append(placed_id)
    for topic, numbers in present.items():
        if numbers and topic not in counts:
            counts[topic] = least_count(max(numbers) + 1, placed.get(topic, ()))
    absent = []
    for topic, count in sorted(counts.items()):
        missing = tuple(sorted(set(range(count)) - set(present.get(topic, ()))))
        if missing:
            absent.append(Absent(topic, count, topic not in (given or {}), missing))
    return absent


def least_count(at_least: int, ids: Collection[PlacedId]) -> int:
    """Returns the smallest partition count for which the hashes of the ids give their partitions.

    Up to one percent of the ids may be in other partitions.

    Args:
        at_least: the lower limit; returned if no count matches.
        ids: ids of one topic.
    """
    most_wrong = len(ids) // 100
    for count in range(at_least, MOST_PARTITIONS + 1):
        wrong = 0
        for placed_id in ids:
            wrong += partition_for(placed_id.name, count) != placed_id.partition
            if wrong > most_wrong:
                break
        else:
            return count
    return at_least
