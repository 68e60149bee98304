"""Measures the quality of an assignment: its balance, moved partitions and rack matches."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kcore.assignors.api import GroupAssignment, Member


class Measures(NamedTuple):
    """The measured properties of one assignment. Unless stated otherwise, each is a number of partitions.

    Attributes:
        counts: number of partitions of each member, ascending.
        spread: largest minus smallest count.
        topic_spread: the largest `spread` of any single topic. It compares the members that subscribe to the topic. If
            `measure` is called without `members`, it compares the members that own partitions of the topic.
        imbalance: the sum of the squared counts, which `kcore.balanced` minimises.
        moved: partitions that a member lost although it could have kept them (0 without a previous assignment).
        gained: partitions that a member owns and did not own before.
        rack_matches: partitions that have a replica on their member's rack.
        rack_candidates: partitions whose member has a rack.
        withheld: partitions without an owner until they are revoked (cooperative-sticky).
        readers: smallest and largest number of members per assigned partition ((1, 1) except for share groups).
    """

    counts: tuple[int, ...]
    spread: int
    topic_spread: int
    imbalance: int
    moved: int
    gained: int
    rack_matches: int
    rack_candidates: int
    withheld: int
    readers: tuple[int, int]


def measure(
    assignment: GroupAssignment,
    previous: Mapping[str, Mapping[str | bytes, Iterable[int]]] | GroupAssignment | None = None,
    *,
    members: Iterable[Member] | Mapping[str, Member] = (),
) -> Measures:
    """Measures the balance, the moved partitions and the rack matches of an assignment.

    Args:
        assignment: the assignment to measure.
        previous: the previous assignment: member id -> topic -> partitions.
        members: the members with their racks and subscriptions. A member may keep the partitions of the topics to which
            it subscribes. A member that is missing here may keep every partition that exists.

    Returns:
        The measured properties.
    """
    by_id = members if isinstance(members, Mapping) else {member.member_id: member for member in members}
    counts = sorted(assignment.sizes().values())
    moved, gained = _moves(assignment, previous or {}, by_id)
    matches, candidates = _racks(assignment, by_id)
    return Measures(
        counts=tuple(counts),
        spread=counts[-1] - counts[0] if counts else 0,
        topic_spread=_topic_spread(assignment, by_id),
        imbalance=sum(count * count for count in counts),
        moved=moved,
        gained=gained,
        rack_matches=matches,
        rack_candidates=candidates,
        withheld=len(assignment.withheld),
        readers=_readers(assignment),
    )


def _wanted(assignment: GroupAssignment, member: Member) -> set[str | bytes]:
    keys = (assignment.topics.key_of(topic) for topic in member.topics)
    return {key for key in keys if key is not None}


def _moves(
    assignment: GroupAssignment,
    previous: Mapping[str, Mapping[str | bytes, Iterable[int]]] | GroupAssignment,
    by_id: Mapping[str, Member],
) -> tuple[int, int]:
    moved = gained = 0
    topics = assignment.topics
    for member_id, now in assignment.items():
        member = by_id.get(member_id)
        wanted = None if member is None else _wanted(assignment, member)
        had_in_all = 0
        for topic, numbers in previous.get(member_id, {}).items():
            key = topics.key_of(topic)
            if key is None or (wanted is not None and key not in wanted):
                continue
            had = {number for number in numbers if number < topics[key]}
            kept = len(had.intersection(now.get(key, ())))
            moved += len(had) - kept
            had_in_all += kept
        gained += now.size - had_in_all
    return moved, gained


def _racks(assignment: GroupAssignment, by_id: Mapping[str, Member]) -> tuple[int, int]:
    matches = candidates = 0
    for member_id, member in by_id.items():
        if member.rack_id is None or member_id not in assignment:
            continue
        for topic, numbers in assignment[member_id].items():
            candidates += len(numbers)
            matches += sum(member.rack_id in assignment.topics.racks_of(topic, number) for number in numbers)
    return matches, candidates


def _topic_spread(assignment: GroupAssignment, by_id: Mapping[str, Member]) -> int:
    per_topic: dict[str | bytes, list[int]] = {}
    for member_id, assigned in assignment.items():
        member = by_id.get(member_id)
        for topic in assigned if member is None else _wanted(assignment, member):
            per_topic.setdefault(topic, []).append(len(assigned.get(topic, ())))
    return max((max(counts) - min(counts) for counts in per_topic.values()), default=0)


def _readers(assignment: GroupAssignment) -> tuple[int, int]:
    if assignment.exclusive:
        return (1, 1)
    readers: dict[tuple[str | bytes, int], int] = {}
    for assigned in assignment.values():
        for topic, numbers in assigned.items():
            for number in numbers:
                readers[topic, number] = readers.get((topic, number), 0) + 1
    return (min(readers.values()), max(readers.values())) if readers else (0, 0)
