"""The array API gives the same results as the typed API, and its errors describe invalid input."""

from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.assignors import GroupAssignment, Member, Topics, arrays, get
from kcore.assignors.streams_sticky import StickyTaskAssignor, StreamsMember, Subtopology
from tests.assignors import cases
from tests.assignors.groups import groups, settled


def group_of(members: list[Member], topics: Topics) -> arrays.Group:
    """Converts a group to arrays; members must be sorted and subscribe to known topics only."""
    position = {topic: i for i, topic in enumerate(topics)}
    kinds: dict[tuple[int, ...], int] = {}
    kind_of = [kinds.setdefault(tuple(sorted(position[t] for t in m.topics)), len(kinds)) for m in members]
    racks = {rack: i for i, rack in enumerate(sorted({m.rack_id for m in members if m.rack_id} | {*topics.rack_names}))}
    first: list[int] = [0]
    flat: list[int] = []
    for topic in topics:
        for p in range(topics[topic]):
            flat.extend(racks[rack] for rack in topics.racks_of(topic, p))
            first.append(len(flat))
    static = sorted((m.instance_id, i) for i, m in enumerate(members) if m.instance_id is not None)
    order = [i for _, i in static] + [i for i, m in enumerate(members) if m.instance_id is None]
    return arrays.Group(
        [topics[t] for t in topics],
        kind_of=kind_of,
        kinds=[list(k) for k in kinds],
        order=order,
        member_racks=[racks[m.rack_id] if m.rack_id else -1 for m in members] if topics.has_racks else None,
        partition_racks=(first, flat) if topics.has_racks else None,
    )


def owners(assignment: GroupAssignment, topics: Topics) -> list[int]:
    """Returns the owner of every partition of all topics, as the index of the member in `assignment`."""
    start, total = {}, 0
    for topic in topics:
        start[topic] = total
        total += topics[topic]
    found = [-1] * total
    for i, rows in enumerate(assignment.values()):
        for topic, numbers in rows.items():
            for number in numbers:
                found[start[topic] + number] = i
    return found


@settings(max_examples=60, deadline=None)
@given(groups())
def test_arrays_give_the_results_of_value_objects(group: tuple[list[Member], Topics]) -> None:
    """The array and typed APIs give the same results for groups with racks, static members and earlier owners."""
    topics = group[1]
    members = [
        Member(
            m.member_id,
            [t for t in m.topics if t in topics],
            owned=m.owned,
            rack_id=m.rack_id,
            instance_id=m.instance_id,
        )
        for m in settled([m for m in group[0] if "gone" not in m.topics], topics)
    ]
    if not members:
        return
    made = group_of(members, topics)
    first = get("uniform", "consumer").assign([Member(m.member_id, m.topics) for m in members], topics)
    before = np.array(owners(first, topics), np.int32)
    bare = [Member(m.member_id, m.topics, rack_id=m.rack_id, instance_id=m.instance_id) for m in members]

    def typed(name: str, kind: str) -> list[int]:
        return owners(get(name, kind).assign(bare, topics, first), topics)  # type: ignore[arg-type]

    assert arrays.range_(made).tolist() == typed("range", "classic")
    assert arrays.server_range(made).tolist() == typed("range", "consumer")
    assert arrays.roundrobin(made).tolist() == typed("roundrobin", "classic")
    assert arrays.uniform_(made, before).tolist() == typed("uniform", "consumer")
    assert arrays.sticky(made, before).tolist() == typed("sticky", "classic")
    assert arrays.balanced(made, before).tolist() == typed("kcore.balanced", "classic")
    owner, withheld = arrays.cooperative_sticky(made, before)
    assert owner.tolist() == typed("cooperative-sticky", "classic")
    assert len(withheld) == len(get("cooperative-sticky").assign(bare, topics, first).withheld)
    rows_first, rows = arrays.share_simple(made, arrays.rows_of(before, made.members))
    shared = get("simple", "share").assign(bare, topics, first)
    assert np.diff(rows_first).tolist() == list(shared.sizes().values())
    assert len(rows) == sum(shared.sizes().values())


def streams_arrays(
    members: list[StreamsMember], parts: dict[str, Subtopology], replicas: int
) -> tuple[dict[str, set[tuple[str, int]]], dict[str, set[tuple[str, int]]]]:
    """Runs the array API on the input of the typed API; returns active and standby tasks of every member."""
    members = sorted(members, key=lambda m: m.member_id)
    names = sorted(parts)
    tasks = [(name, number) for name in names for number in range(parts[name].partitions)]
    index = {task: i for i, task in enumerate(tasks)}
    processes = sorted({m.process_id for m in members})
    active = np.full(len(tasks), -1, np.int32)
    first, rows = [0], []
    for i, member in enumerate(members):
        for name, numbers in member.active.items():
            for number in numbers:
                if (name, number) in index:
                    active[index[str(name), number]] = i
        rows += [index[str(n), p] for n, numbers in member.standby.items() for p in numbers if (n, p) in index]
        first.append(len(rows))
    got, (standby_first, standby) = arrays.streams_sticky(
        arrays.Group([parts[name].partitions for name in names], len(members)),
        # Numbers with gaps: only their order counts.
        [3 * processes.index(m.process_id) for m in members],
        [parts[name].stateful for name in names],
        num_standby_replicas=replicas,
        active=active,
        standby=(np.array(first, np.int32), np.array(rows, np.int32)),
    )
    return (
        {m.member_id: {tasks[t] for t in np.flatnonzero(got == i)} for i, m in enumerate(members)},
        {
            m.member_id: {tasks[t] for t in standby[standby_first[i] : standby_first[i + 1]]}
            for i, m in enumerate(members)
        },
    )


def tasks_of(assignment: GroupAssignment) -> dict[str, set[tuple[str, int]]]:
    return {m: {(str(t), n) for t, numbers in row.items() for n in numbers} for m, row in assignment.items()}


@settings(max_examples=60, deadline=None)
@given(
    processes=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    parts=st.dictionaries(
        st.sampled_from("abcd"), st.builds(Subtopology, st.integers(0, 6), st.booleans()), min_size=1
    ),
    joined=st.lists(st.integers(0, 5), max_size=3),
    replicas=st.integers(0, 3),
)
def test_streams_arrays_give_the_results_of_value_objects(
    processes: list[int], parts: dict[str, Subtopology], joined: list[int], replicas: int
) -> None:
    """The array and typed APIs give the same tasks: at first, and after members have joined and one has left."""
    assignor = StickyTaskAssignor()
    members = [StreamsMember(f"m{i}", f"p{process}") for i, process in enumerate(processes)]
    got = assignor.assign(members, parts, num_standby_replicas=replicas)
    assert streams_arrays(members, parts, replicas) == (tasks_of(got.active), tasks_of(got.standby))
    later = [
        StreamsMember(m.member_id, m.process_id, active=got.active[m.member_id], standby=got.standby[m.member_id])
        for m in members[len(joined) > 0 :]
    ]
    later += [StreamsMember(f"n{i}", f"p{process}") for i, process in enumerate(joined)]
    after = assignor.assign(later, parts, num_standby_replicas=replicas)
    assert streams_arrays(later, parts, replicas) == (tasks_of(after.active), tasks_of(after.standby))


@pytest.mark.parametrize(
    "case", [c for c in cases.generated() if c["assignor"] == "streams-sticky"], ids=itemgetter("name")
)
def test_streams_arrays_give_kafkas_result(case: dict[str, Any]) -> None:
    for part in case["rounds"]:
        members, parts = cases.streams_input(part)
        expected = tuple(
            {m["id"]: {(t, n) for t, n in part["expect"][kind].get(m["id"], [])} for m in part["members"]}
            for kind in ("active", "standby")
        )
        assert streams_arrays(members, parts, part["standby_replicas"]) == expected, part["event"]


@pytest.mark.parametrize(
    ("members", "arguments", "message"),
    [
        (2, {"process_of": [0], "stateful": [1]}, "process_of: one number for each member is needed: 2 values, not 1"),
        (1, {"process_of": [-1], "stateful": [1]}, "process_of: member 0"),
        (1, {"process_of": [0], "stateful": []}, "stateful"),
        (0, {"process_of": [], "stateful": [1]}, "no members"),
        (1, {"process_of": [0], "stateful": [1], "num_standby_replicas": -1}, "num_standby_replicas"),
        (1, {"process_of": [0], "stateful": [1], "active": np.array([0, 1], np.int32)}, "previous"),
        (1, {"process_of": [0], "stateful": [1], "standby": ([0, 1], [2])}, "rows"),
    ],
)
def test_invalid_arrays_of_streams_groups_are_refused(members: int, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrays.streams_sticky(arrays.Group([2], members), **arguments)


def test_a_million_partitions_need_no_million_objects() -> None:
    """Assigns 1,000,000 partitions to 10,000 members evenly; a join moves only the new member's share."""
    group = arrays.Group(np.full(100, 10_000, np.int32), 9_999)
    grown = arrays.Group(np.full(100, 10_000, np.int32), 10_000)
    for face in (arrays.uniform_, arrays.sticky):
        before = face(group)
        after = face(grown, before)
        counts = np.bincount(after, minlength=10_000)
        assert (counts.min(), counts.max()) == (100, 100)
        assert int((before != after).sum()) == 100


def test_unsubscribed_topics_have_no_owner() -> None:
    group = arrays.Group([3, 2], kind_of=[0, 0], kinds=[[1]])
    for face in (arrays.uniform_, arrays.sticky, arrays.balanced):
        assert face(group, np.array([0, 1, 0, 1, -1], np.int32)).tolist() == [-1, -1, -1, 1, 0]
    assert arrays.range_(group).tolist() == [-1, -1, -1, 0, 1]
    assert arrays.roundrobin(group).tolist() == [-1, -1, -1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"topic_partitions": [-1], "members": 1},
            "topic_partitions: -1 is negative; valid: the number of partitions, 0 or more",
        ),
        (
            {"topic_partitions": [2**30, 2**30], "members": 1},
            "topic_partitions: 2147483648 partitions in all; valid: at m",
        ),
        ({"topic_partitions": [1]}, "members or kind_of"),
        (
            {"topic_partitions": [1], "kind_of": [1], "kinds": [[0]]},
            "kind_of: 1 is not the index of a kind; valid: 0 to 0",
        ),
        ({"topic_partitions": [1], "kind_of": [0], "kinds": [[1]]}, r"kind_topics: the index 1 is outside of 0\.\.0"),
        (
            {"topic_partitions": [1, 1], "kind_of": [0], "kinds": [[1, 0]]},
            r"the topics of kind 0 are \[1, 0\]; they must ascend",
        ),
        (
            {"topic_partitions": [1], "members": 2, "order": [0, 0]},
            r"order: \[0, 0\] is not a permutation of the 2 members, 0 to 1",
        ),
        (
            {"topic_partitions": [1], "members": 2, "generations": [0]},
            "one number for each of the 2 members is needed, not 1 numbers",
        ),
        (
            {"topic_partitions": [1], "members": 1, "member_racks": [0], "partition_racks": ([0], [])},
            r"rack_first: 2 entries .*, not 1",
        ),
        (
            {"topic_partitions": [1], "members": 1, "member_racks": [-2], "partition_racks": ([0, 0], [])},
            "member_racks: -2 is below -1",
        ),
        (
            {"topic_partitions": [1], "members": 1, "member_racks": [0], "partition_racks": ([0, 2], [0])},
            r"rack_first: \[0, 2\] must rise from 0 to 1, the length of rack_list",
        ),
    ],
)
def test_invalid_shapes_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrays.Group(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("previous", "message"),
    [
        ([0], "previous: 2 entries are needed, not 1"),
        ([0, 2], "previous: 2 is neither -1 nor one of 2 members, 0 to 1"),
        ([0, -2], "previous: -2 is neither -1"),
    ],
)
def test_a_previous_owner_outside_the_group_is_refused(previous: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrays.uniform_(arrays.Group([2], 2), np.array(previous, np.int32))
