"""The result of `kcore.balanced` is optimal: it has the least imbalance, then the fewest moves, then the most rack
matches.
"""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.assignors import Member, Topics, get, measure, validate
from tests.assignors import cases

RACKS = ("a", "b")
Score = tuple[int, int, int]


@st.composite
def small_groups(draw: st.DrawFn) -> tuple[list[Member], Topics]:
    """Draws groups that can be solved exhaustively: at most four members and six partitions."""
    names = ["t0", "t1", "t2"][: draw(st.integers(1, 3))]
    counts = {name: draw(st.integers(0, 6 // len(names))) for name in names}
    racks = {name: [draw(st.sets(st.sampled_from(RACKS))) for _ in range(counts[name])] for name in names}
    free = [(name, p) for name in names for p in range(counts[name])]
    members = []
    for i in range(draw(st.integers(1, 4))):
        owned: dict[str, list[int]] = {}
        for name, p in list(free):
            if draw(st.booleans()):
                free.remove((name, p))
                owned.setdefault(name, []).append(p)
        wanted = draw(st.lists(st.sampled_from(names), unique=True))
        members.append(Member(f"m{i}", wanted, owned=owned, rack_id=draw(st.sampled_from([None, *RACKS]))))
    return members, Topics(counts, racks=racks)


def score(members: list[Member], topics: Topics, owners: dict[tuple[str, int], int]) -> Score:
    """Returns (sum of squared loads, number of partitions that leave an owner who may keep them, minus the number of
    rack matches).
    """
    loads = [0] * len(members)
    moves = matches = 0
    for (topic, number), owner in owners.items():
        loads[owner] += 1
        matches += members[owner].rack_id in topics.racks_of(topic, number)
        for i, member in enumerate(members):
            had = number in tuple(member.owned.get(topic, ())) and topic in member.topics
            moves += had and i != owner
    return sum(load * load for load in loads), moves, -matches


def best_score(members: list[Member], topics: Topics) -> Score:
    """Returns the lowest score of all valid assignments."""
    partitions = [(str(topic), p) for topic in topics for p in range(topics[topic])]
    choices = [[i for i, m in enumerate(members) if topic in m.topics] for topic, _ in partitions]
    kept = [(partition, who) for partition, who in zip(partitions, choices, strict=True) if who]
    return min(
        score(members, topics, {partition: owner for (partition, _), owner in zip(kept, owners, strict=True)})
        for owners in product(*(who for _, who in kept))
    )


@settings(max_examples=100, deadline=None)
@given(small_groups())
def test_no_assignment_is_better(group: tuple[list[Member], Topics]) -> None:
    """Compares all three criteria with the optimum of an exhaustive search."""
    members, topics = group
    assignment = get("kcore.balanced").assign(members, topics)
    validate(assignment, members)
    position = {member.member_id: i for i, member in enumerate(members)}
    owners = {
        (str(t), p): position[m] for m, rows in assignment.items() for t, numbers in rows.items() for p in numbers
    }
    assert score(members, topics, owners) == best_score(members, topics)


@pytest.mark.parametrize(
    "case",
    [c for c in cases.generated() if c["assignor"] in ("roundrobin", "sticky", "server-uniform")],
    ids=lambda c: c["name"],
)
def test_balance_and_moves_are_the_recorded_optimum(case: dict[str, Any]) -> None:
    """Compares the partition counts of the members, and the number of moves, with the recorded results of another
    solver.
    """
    for part in case["rounds"]:
        if "best_counts" not in part["measures"]:
            continue
        claims: dict[tuple[str, int], list[int]] = {}
        generations = {m["id"]: m.get("generation", -1) for m in part["members"]}
        for owner, pairs in part["owned"].items():
            for topic, number in pairs:
                claims.setdefault((topic, number), []).append(generations.get(owner, -1))
        members = [
            Member(
                m["id"],
                m["topics"],
                owned=cases.grouped(part["owned"].get(m["id"], [])),
                generation_id=generations[m["id"]],
            )
            for m in part["members"]
        ]
        assignment = get("kcore.balanced").assign(members, Topics(part["topics"]))
        assert sorted(assignment.sizes().values()) == part["measures"]["best_counts"]
        if all(len(known) == 1 for known in claims.values()):
            assert (
                measure(assignment, {m.member_id: m.owned for m in members}, members=members).moved
                == (part["measures"]["best_moved"])
            )


def test_racks_are_matched_if_balance_and_moves_allow() -> None:
    """With three members on three racks and one replica per partition, every member reads from its own rack."""
    topics = Topics({"t": 6}, racks={"t": [["a"], ["b"], ["c"], ["a"], ["b"], ["c"]]})
    members = [Member(f"m{rack}", ["t"], rack_id=rack) for rack in "cab"]
    assignment = get("kcore.balanced").assign(members, topics)
    assert assignment == {"ma": {"t": (0, 3)}, "mb": {"t": (1, 4)}, "mc": {"t": (2, 5)}}


def test_nothing_moves_for_a_rack_alone() -> None:
    """A balanced assignment stays unchanged, because few moves are more important than rack matches."""
    topics = Topics({"t": 2}, racks={"t": [["a"], ["b"]]})
    members = [Member("m0", ["t"], rack_id="a", owned={"t": [1]}), Member("m1", ["t"], rack_id="b", owned={"t": [0]})]
    assert get("kcore.balanced").assign(members, topics) == {"m0": {"t": (1,)}, "m1": {"t": (0,)}}


def test_a_chain_of_moves_reaches_the_optimum() -> None:
    """No single move improves the balance, but two moves together do: one from a to b, and one from b to c.

    Kafka's sticky assignor does not find such a chain.
    """
    members = [
        Member("a", ["t0"], owned={"t0": [0, 1]}),
        Member("b", ["t0", "t1"], owned={"t1": [0]}),
        Member("c", ["t1"]),
    ]
    assignment = get("kcore.balanced").assign(members, {"t0": 2, "t1": 1})
    assert assignment.sizes() == {"a": 1, "b": 1, "c": 1}
    assert measure(assignment, {m.member_id: m.owned for m in members}, members=members).moved == 2
