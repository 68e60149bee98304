"""Properties of assignments of any group: validity, balance, stickiness, convergence, independence from order."""

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.assignors import GroupAssignment, Member, Topics, assignment_of, get, measure, validate
from kcore.assignors.sticky import StickyAssignorUserData
from tests.assignors.groups import groups, settled

EXCLUSIVE = [
    ("classic", "range"),
    ("classic", "roundrobin"),
    ("classic", "sticky"),
    ("classic", "cooperative-sticky"),
    ("consumer", "uniform"),
    ("consumer", "range"),
    ("consumer", "kcore.balanced"),
]
Group = tuple[list[Member], Topics]


def with_user_data(members: list[Member]) -> list[Member]:
    """Returns copies of the members whose owned partitions are in their user data, as the eager sticky assignor reads
    them.
    """
    return [
        Member(
            m.member_id,
            m.topics,
            generation_id=m.generation_id,
            rack_id=m.rack_id,
            instance_id=m.instance_id,
            user_data=StickyAssignorUserData({str(t): tuple(p) for t, p in m.owned.items()}, m.generation_id).encode()
            if m.owned
            else None,
        )
        for m in members
    ]


def assign(kind: str, name: str, group: Group) -> GroupAssignment:
    members, topics = group
    result: GroupAssignment = get(name, kind).assign(  # type: ignore[arg-type]
        with_user_data(members) if name == "sticky" else members, topics
    )
    return result


def wanted_partitions(group: Group) -> int:
    members, topics = group
    return sum(topics[t] for t in {t for m in members for t in m.topics} if t in topics)


@pytest.mark.parametrize(("kind", "name"), EXCLUSIVE)
@settings(max_examples=15, deadline=None)
@given(group=groups())
def test_every_partition_is_assigned_once_and_only_to_a_subscriber(kind: str, name: str, group: Group) -> None:
    """The result has all members. Each partition is either assigned to a subscriber or withheld."""
    assignment = assign(kind, name, group)
    validate(assignment, group[0])
    assert set(assignment) == {m.member_id for m in group[0]}
    assigned = {(t, p) for rows in assignment.values() for t, numbers in rows.items() for p in numbers}
    assert not assigned & set(assignment.withheld)
    assert len(assigned) + len(assignment.withheld) == wanted_partitions(group)


@pytest.mark.parametrize(("kind", "name"), [*EXCLUSIVE, ("share", "simple")])
@settings(max_examples=15, deadline=None)
@given(group=groups(), data=st.data())
def test_the_order_of_the_members_does_not_matter(kind: str, name: str, group: Group, data: st.DataObject) -> None:
    members, topics = group
    other = data.draw(st.permutations(members))
    assert assign(kind, name, (other, topics)) == assign(kind, name, group)


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "uniform", "kcore.balanced"])
@settings(max_examples=15, deadline=None)
@given(group=groups(equal=True))
def test_equal_subscriptions_differ_by_one_at_most(name: str, group: Group) -> None:
    kind = "consumer" if name == "uniform" else "classic"
    if any(m.topics for m in group[0]):
        assert measure(assign(kind, name, group)).spread <= 1


@pytest.mark.parametrize("kind", ["classic", "consumer"])
@settings(max_examples=15, deadline=None)
@given(group=groups())
def test_range_is_even_within_each_topic(kind: str, group: Group) -> None:
    assert measure(assign(kind, "range", group), members=group[0]).topic_spread <= 1


@pytest.mark.parametrize("name", ["sticky", "uniform", "kcore.balanced"])
@settings(max_examples=15, deadline=None)
@given(group=groups(equal=True, racks=False))
def test_equal_subscriptions_keep_as_much_as_balance_allows(name: str, group: Group) -> None:
    """Each member keeps its partitions up to the lower quota. As many members as balance allows keep one partition more
    (KAFKA-9987, KAFKA-18688).
    """
    members, topics = settled(group[0], group[1]), group[1]
    kind = "consumer" if name == "uniform" else "classic"
    least, extra = divmod(wanted_partitions((members, topics)), len(members))
    held = [sum(len(tuple(p)) for p in m.owned.values()) for m in members]
    kept = sum(min(n, least) for n in held) + min(extra, sum(n > least for n in held))
    figures = measure(assign(kind, name, (members, topics)), {m.member_id: m.owned for m in members}, members=members)
    assert figures.moved == sum(held) - kept


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky", "uniform", "kcore.balanced"])
@settings(max_examples=15, deadline=None)
@given(group=groups(racks=False))
def test_a_second_run_moves_nothing(name: str, group: Group) -> None:
    """Applying the assignor to its own result moves no partition, for equal and unequal subscriptions. The groups have
    no racks.
    """
    kind = "consumer" if name == "uniform" else "classic"
    first = assign(kind, name, group)
    rounds = 1
    while first.withheld:
        rounds += 1
        assert rounds < 12, "withheld partitions are assigned in the end"
        first = get(name, kind).assign(group[0], group[1], first)  # type: ignore[arg-type]
    again: GroupAssignment = get(name, kind).assign(group[0], group[1], first)  # type: ignore[arg-type]
    assert again == first


@settings(max_examples=15, deadline=None)
@given(group=groups(equal=True, racks=False))
def test_two_cooperative_rounds_reach_the_sticky_target(group: Group) -> None:
    """The second round assigns the partitions that the first round withheld. No round assigns a partition that another
    member owns.
    """
    members, topics = settled(group[0], group[1]), group[1]
    target = assign("classic", "sticky", (members, topics))
    first = assign("classic", "cooperative-sticky", (members, topics))
    holders = {(t, n): m.member_id for m in members for t, numbers in m.owned.items() for n in numbers}
    for member_id, rows in first.items():
        for topic, numbers in rows.items():
            for number in numbers:
                assert holders.get((topic, number), member_id) == member_id
    kept = [
        Member(m.member_id, m.topics, owned=first[m.member_id], generation_id=2, instance_id=m.instance_id)
        for m in members
    ]
    second = assign("classic", "cooperative-sticky", (kept, topics))
    assert second.withheld == ()
    assert measure(second).counts == measure(target).counts
    if not first.withheld:
        assert second == first


@settings(max_examples=15, deadline=None)
@given(group=groups(owned=False))
def test_one_move_cannot_improve_a_sticky_result_for_unequal_subscriptions(group: Group) -> None:
    """If a member owns at least two partitions more than another member, none of these partitions may go to the other
    member (Kafka's oracle for KIP-54).
    """
    members, _topics = group
    assignment = assign("classic", "sticky", group)
    sizes = assignment.sizes()
    for rich in members:
        for poor in members:
            if sizes[rich.member_id] >= sizes[poor.member_id] + 2:
                assert not set(assignment[rich.member_id]) & set(poor.topics)


@settings(max_examples=15, deadline=None)
@given(group=groups(equal=True))
def test_share_partitions_have_readers_and_members_have_their_share(group: Group) -> None:
    """Every partition has between one and ceil(members / partitions) readers (KIP-932)."""
    members, _topics = group
    assignment = assign("share", "simple", group)
    partitions = wanted_partitions(group)
    if not partitions or not any(m.topics for m in members):
        return
    low, high = measure(assignment).readers if not assignment.exclusive else (1, 1)
    assert low >= 1
    assert high <= -(-len(members) // partitions)
    assert sum(measure(assignment).counts) >= partitions


@settings(max_examples=15, deadline=None)
@given(group=groups(equal=True, racks=False), data=st.data())
def test_changed_members_are_those_whose_partitions_differ(group: Group, data: st.DataObject) -> None:
    """`changed_members` returns the members with other partitions than before. Topics and members may have come or
    gone.

    The coordinator writes a record for each of these members (KIP-848).
    """
    members, topics = group
    before = assign("consumer", "uniform", group)
    grown = Topics({t: topics[t] + data.draw(st.integers(0, 2)) for t in topics if data.draw(st.booleans())})
    stayed = [m for m in members if data.draw(st.booleans())] + [Member("new", members[0].topics)]
    after: GroupAssignment = get("uniform", "consumer").assign(stayed, grown, before)
    differ = [m for m in after if m not in before or before[m] != after[m]]
    assert after.changed_members(before) == differ
    assert after.changes(before) == [(member_id, after[member_id]) for member_id in differ]


@settings(max_examples=15, deadline=None)
@given(group=groups())
def test_an_assignment_round_trips_through_dicts(group: Group) -> None:
    assignment = assign("consumer", "uniform", group)
    assert assignment_of(assignment.to_dict(), group[1]) == assignment
    assert {m: a.size for m, a in assignment.items()} == assignment.sizes()


def test_every_process_gives_the_same_result() -> None:
    """Hash randomisation has no influence: processes with different seeds print the same assignments."""
    program = (
        "from kcore.assignors import *\n"
        "topics = Topics({f't{i}': 7 + i for i in range(9)}, racks={f't{i}': [[f'r{p % 3}'] for p in range(7 + i)]"
        " for i in range(9)})\n"
        "members = [Member(f'm{i}', [f't{j}' for j in range(9) if (i * j) % 4 != 1], rack_id=f'r{i % 4}')"
        " for i in range(23)]\n"
        "for kind in ('classic', 'consumer', 'share'):\n"
        "    for name in names(kind):\n"
        "        print(kind, name, get(name, kind).assign(members, topics))\n"
    )
    outputs: list[Any] = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"GroupAssignment") == 9
