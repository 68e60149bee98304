"""The array face gives what the typed face gives, and says what is wrong with its input."""

import numpy as np
import pytest
from hypothesis import given, settings

from kcore.assignors import GroupAssignment, Member, Topics, arrays, get
from tests.assignors.groups import groups, settled


def group_of(members: list[Member], topics: Topics) -> arrays.Group:
    """The same group as arrays; members must come sorted and subscribe to known topics only."""
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
    """Owner of every partition of all topics, by position of the member."""
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


@settings(max_examples=150, deadline=None)
@given(groups())
def test_arrays_equal_values(group: tuple[list[Member], Topics]) -> None:
    """Every assignor, with racks, static members and earlier owners."""
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


def test_a_million_partitions_without_a_million_objects() -> None:
    """10,000 members and 1,000,000 partitions: even, complete, and one join moves only what the new member gets."""
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
        ({"topic_partitions": [-1], "members": 1}, "negative"),
        ({"topic_partitions": [1]}, "members or kind_of"),
        ({"topic_partitions": [1], "kind_of": [1], "kinds": [[0]]}, "kind_of"),
        ({"topic_partitions": [1], "kind_of": [0], "kinds": [[1]]}, "kind_topics"),
        ({"topic_partitions": [1, 1], "kind_of": [0], "kinds": [[1, 0]]}, "ascend"),
        ({"topic_partitions": [1], "members": 2, "order": [0, 0]}, "permutation"),
        ({"topic_partitions": [1], "members": 2, "generations": [0]}, "generations"),
        ({"topic_partitions": [1], "members": 1, "member_racks": [0], "partition_racks": ([0], [])}, "rack_first"),
    ],
)
def test_wrong_shapes_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrays.Group(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("previous", [[0], [0, 2], [0, -2]])
def test_a_previous_owner_that_is_no_member_is_refused(previous: list[int]) -> None:
    with pytest.raises(ValueError, match="previous"):
        arrays.uniform_(arrays.Group([2], 2), np.array(previous, np.int32))
