"""The typed API: value objects, names, user-defined assignors, user data."""

import copy
import gc
import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.assignors import (
    COOPERATIVE,
    Assignor,
    GroupAssignment,
    Member,
    MemberAssignment,
    PartitionAssignorError,
    TopicPartition,
    Topics,
    assignment_of,
    get,
    load_all,
    measure,
    names,
)
from kcore.assignors.api import GroupType
from kcore.assignors.sticky import StickyAssignorUserData
from kcore.assignors.streams_sticky import StreamsMember, Subtopology
from kcore.errors import ConfigError
from kcore_ext.assign.ids import id_order

Rows = dict[str, dict[str, list[int]]]


class FirstTakesAll:
    """A user-defined assignor that assigns all partitions to the member with the lowest member id."""

    name = "first-takes-all"

    def assign(self, members: list[Member], topics: Topics, previous: GroupAssignment | None = None) -> Rows:
        first = min(members, key=lambda m: m.member_id)
        return {first.member_id: {str(t): list(range(topics[t])) for t in first.topics if t in topics}}


class GivesToStrangers:
    name = "strangers"

    def assign(self, members: list[Member], topics: Topics, previous: GroupAssignment | None = None) -> Rows:
        return {members[0].member_id: {str(topic): [0] for topic in topics}}


class GivesTwice:
    name = "twice"

    def assign(self, members: list[Member], topics: Topics, previous: GroupAssignment | None = None) -> Rows:
        return {m.member_id: {str(t): [0] for t in m.topics} for m in members}


class NoAssignor:
    name = 7


def test_the_range_example_of_the_documentation_gives_its_result() -> None:
    assignment = get("range").assign([Member("b", ["orders"]), Member("a", ["orders"])], {"orders": 5})
    assert assignment == {"a": {"orders": (0, 1, 2)}, "b": {"orders": (3, 4)}}
    assert assignment["a"].partitions[0] == TopicPartition("orders", 0)
    assert assignment.members == ("a", "b")
    assert assignment["a"].size == 3


def test_every_assignor_is_found_by_kafkas_name() -> None:
    assert names("classic") == ("range", "roundrobin", "sticky", "cooperative-sticky", "kcore.balanced")
    assert names("consumer") == ("uniform", "range", "kcore.balanced")
    assert (names("share"), names("streams")) == (("simple",), ("sticky",))
    for kind in ("classic", "consumer", "share", "streams"):
        for name in names(kind):
            assert get(name, kind).name == name
            assert isinstance(get(name, kind), Assignor)
    assert COOPERATIVE in get("cooperative-sticky").protocols
    assert all(COOPERATIVE not in get(name).protocols for name in ("range", "roundrobin", "sticky", "kcore.balanced"))


def test_a_user_defined_assignor_is_one_class_and_one_line_of_configuration() -> None:
    found = load_all("uniform, range,tests.assignors.test_api:FirstTakesAll", "consumer")
    assert list(found) == ["uniform", "range", "first-takes-all"]
    members = [Member("y", ["t"]), Member("x", ["t", "gone"])]
    assignment = found["first-takes-all"].assign(members, {"t": 2})
    assert assignment == {"x": {"t": (0, 1)}, "y": {}}
    assert isinstance(assignment, GroupAssignment)


@pytest.mark.parametrize(
    ("name", "message"),
    [("GivesToStrangers", "without subscribing"), ("GivesTwice", "two members")],
)
def test_an_invalid_result_of_a_user_defined_assignor_is_refused(name: str, message: str) -> None:
    assignor = get(f"tests.assignors.test_api:{name}")
    with pytest.raises(PartitionAssignorError, match=message):
        assignor.assign([Member("a", ["t"]), Member("b", ["t"])], {"t": 2, "u": 1})


@pytest.mark.parametrize(
    "setting",
    [
        "nobody",
        "no.such.module:Class",
        "tests.assignors.test_api:Missing",
        "tests.assignors.test_api:NoAssignor",
        "range,range",
    ],
)
def test_a_wrong_name_is_a_configuration_error(setting: str) -> None:
    with pytest.raises(ConfigError):
        load_all(setting)
    with pytest.raises(ConfigError, match="at least one"):
        load_all([])


def test_the_error_for_a_missing_module_names_the_search_path() -> None:
    message = r"^assignor evenodd:EvenOdd: No module named 'evenodd'; is its folder in PYTHONPATH\?$"
    with pytest.raises(ConfigError, match=message):
        load_all("uniform,evenodd:EvenOdd", "consumer")


def test_values_are_immutable_and_compare_by_value() -> None:
    member = Member("m", ["b", "a", "b"], owned={"a": [1, 0]}, rack_id="", instance_id="i")
    assert member.topics == ("a", "b")
    assert member.rack_id is None
    assert member == Member("m", ("a", "b"), owned={"a": (1, 0)}, instance_id="i")
    assert member != Member("m", ["a"])
    with pytest.raises(AttributeError):
        member.member_id = "other"
    row = MemberAssignment({"t": [2, 0, 2], "u": []})
    assert row == {"t": (0, 2)}
    assert hash(row) == hash(MemberAssignment({"t": (0, 2)}))
    assert isinstance(row, Mapping)
    assert (dict(row), row.partitions, row.size) == ({"t": (0, 2)}, (TopicPartition("t", 0), TopicPartition("t", 2)), 2)
    changes: list[Callable[[], object]] = [
        lambda: row.__setitem__("t", (1,)),
        lambda: row.__delitem__("t"),
        lambda: row.__ior__({"t": (1,)}),
        lambda: row.__init__({"u": (1,)}),  # type: ignore[misc]
        lambda: row.update({"t": (1,)}),
        lambda: row.setdefault("u", (1,)),
        lambda: row.pop("t"),
        row.popitem,
        row.clear,
    ]
    for change in changes:
        with pytest.raises(TypeError, match="is immutable"):
            change()
    assert row == {"t": (0, 2)}


def test_members_that_keep_their_partitions_keep_their_row() -> None:
    """A member with unchanged partitions has the same row object in the previous and the new assignment.

    This holds both for rows read one by one and for `to_dict`. Other members have new row objects.
    """
    uniform = get("uniform", "consumer")
    topics = Topics({"t": 4, "u": 2})
    members = [Member(m, ["t", "u"]) for m in "abc"]
    before = uniform.assign(members, topics)
    for whole in (False, True):
        after = uniform.assign([*members, Member("d", ["t", "u"])], topics, before)
        changed = after.changed_members(before)
        rows = after.to_dict() if whole else {m: after[m] for m in after}
        assert changed == ["c", "d"]
        assert all((rows[m] is before[m]) is (m not in changed) for m in "abc")
        assert after == {m: dict(row) for m, row in rows.items()}
    renamed = uniform.assign(members, Topics({"t": 4, "u": 3}), before)
    assert renamed.to_dict() == {m: dict(renamed[m]) for m in "abc"}
    assert renamed["a"] is before["a"]
    assert json.loads(json.dumps(before.to_dict())) == {
        m: {t: list(p) for t, p in r.items()} for m, r in before.items()
    }


def test_only_one_earlier_assignment_is_kept() -> None:
    uniform = get("uniform", "consumer")
    topics = Topics({"t": 4})
    last = uniform.assign([Member("m0", ["t"])], topics)
    kept = []
    for i in range(1, 4):
        last = uniform.assign([Member(f"m{j}", ["t"]) for j in range(i + 1)], topics, last)
        kept.append(gc.get_referents(last))
    assert sum(isinstance(thing, GroupAssignment) for thing in kept[-1]) == 1
    last.to_dict()
    assert not any(isinstance(thing, GroupAssignment) for thing in gc.get_referents(last))


def test_values_survive_copying_and_pickling() -> None:
    topics = Topics(
        {bytes(15) + b"\1": 3}, names={"n": bytes(15) + b"\1"}, racks={bytes(15) + b"\1": [["r"], [], ["q"]]}
    )
    member = Member("m", ["n"], owned={"n": [0]}, generation_id=4, rack_id="r", user_data=b"x")
    assignment = get("range").assign([member], topics)
    for thing in (member, assignment, assignment["m"]):
        assert pickle.loads(pickle.dumps(thing)) == thing
        assert copy.deepcopy(thing) == thing
    again = pickle.loads(pickle.dumps(topics))
    assert (dict(again), again.key_of("n"), again.racks_of("n", 2)) == (dict(topics), bytes(15) + b"\1", {"q"})


def test_topics_keep_kafkas_orders() -> None:
    """Topic names sort by UTF-16 code units, topic ids as in Uuid.compareTo (signed halves). Invalid keys are
    refused.
    """
    assert tuple(Topics({"\U0001f600": 1, "\uffff": 1, "a": 1})) == ("a", "\U0001f600", "\uffff")
    high, low = b"\x80" + bytes(15), b"\x01" + bytes(15)
    assert tuple(Topics({low: 1, high: 1})) == (high, low)
    with pytest.raises(ValueError, match="topic 'a': the number of partitions is -1; valid: a whole number, 0 or more"):
        Topics({"a": -1})
    with pytest.raises(ValueError, match="topic b'short': a topic id has 16 bytes, not 5"):
        Topics({b"short": 1})
    with pytest.raises(TypeError):
        Topics({"a": 1, bytes(16): 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the racks of 2 partitions are needed, not of 1"):
        Topics({"a": 2}, racks={"a": [["r"]]})


@given(st.lists(st.text(max_size=12), unique=True))
def test_members_are_ordered_as_java_orders_strings(ids: list[str]) -> None:
    order = id_order(ids)
    assert [ids[i] for i in order] == sorted(ids, key=lambda s: s.encode("utf-16-be", "surrogatepass"))


@given(st.lists(st.text("ab\0", max_size=30), unique=True))
def test_ids_with_long_common_parts_are_ordered(ids: list[str]) -> None:
    """The sort first compares eight bytes of each id. These ids differ only after their first eight bytes."""
    assert [ids[i] for i in id_order(ids)] == sorted(ids)


def test_two_members_with_one_id_are_refused() -> None:
    for ids in (["a", "b", "a"], ["long-common-prefix-1"] * 2 + ["a"], ["é\U0001f600"] * 2):
        with pytest.raises(ValueError, match="id"):
            get("range").assign([Member(i, ["t"]) for i in ids], {"t": 1})
    before = get("uniform", "consumer").assign([Member("a", ["t"]), Member("b", ["t"])], {"t": 1})
    with pytest.raises(ValueError, match="id"):
        get("uniform", "consumer").assign([Member(i, ["t"]) for i in ("a", "b", "a")], {"t": 1}, before)


@pytest.mark.parametrize(
    ("owned", "found"),
    [({"t": ["x"]}, "'str'"), ({"t": 5}, "'int'"), ({"t": None}, "'NoneType'"), ({"t": [0.5]}, "'float'")],
)
def test_an_invalid_partition_is_refused_with_member_and_topic(owned: Any, found: str) -> None:
    """The error names member and topic, whether the partition comes from the subscription, user data, or the previous
    target.
    """
    where = f"^member 'm': topic 't': invalid partition numbers: {found}"
    for name, kind in (("uniform", "consumer"), ("simple", "share"), ("cooperative-sticky", "classic")):
        with pytest.raises(ValueError, match=where):
            get(name, kind).assign([Member("m", ["t"], owned=owned)], {"t": 2})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=where):
            get(name, kind).assign([Member("m", ["t"])], {"t": 2}, {"m": owned})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=where):
        get("sticky").assign([Member("m", ["t"], user_data=StickyAssignorUserData(owned, 1))], {"t": 2})
    with pytest.raises(ValueError, match=where):
        get("sticky", "streams").assign([StreamsMember("m", "p", active=owned)], {"t": Subtopology(2)})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"topics": None}, TypeError, "topics"),
        ({"topics": "t"}, TypeError, "topics"),
        ({"topics": [3]}, ValueError, "topic 3"),
        ({"topics": [b"short"]}, ValueError, "16 bytes"),
        ({"owned": [1]}, TypeError, "owned"),
        ({"generation_id": 2**31}, ValueError, "too large"),
        ({"rack_id": 1}, TypeError, "rack_id"),
        ({"instance_id": 1}, TypeError, "instance_id"),
        ({"user_data": "x"}, TypeError, "user_data"),
    ],
)
def test_the_error_for_a_member_with_invalid_fields_names_the_field(
    arguments: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=rf"^member 'm': .*{message}"):
        Member("m", **arguments)


@pytest.mark.parametrize("count", [-1, 2**31 - 1, 2**31, 2**70, 0.5, "3", None])
def test_the_error_for_an_invalid_count_names_the_topic(count: Any) -> None:
    with pytest.raises(ValueError, match=r"^topic 't': "):
        Topics({"t": count})
    with pytest.raises(ValueError, match=r"^topic 'u': "):
        Topics({"t": 2**31 - 2, "u": 1})


@pytest.mark.parametrize("replicas", [-1, 2**31 - 1, 2**40])
def test_an_invalid_number_of_standbys_is_refused(replicas: int) -> None:
    for count in (1, 4):
        with pytest.raises(ValueError, match="num_standby_replicas"):
            get("sticky", "streams").assign(
                [StreamsMember("m", "p")], {"s": Subtopology(count, stateful=True)}, num_standby_replicas=replicas
            )


def test_a_group_without_members_and_topics_is_empty() -> None:
    for kind in ("classic", "consumer", "share"):
        for name in names(kind):
            assert get(name, kind).assign([], {"t": 2}) == {}
            assert get(name, kind).assign([Member("m")], {"t": 2}) == {"m": {}}
            assert get(name, kind).assign([Member("m", ["t"])], {}) == {"m": {}}


def test_an_unknown_topic_id_is_an_error_and_an_unknown_name_is_not() -> None:
    for name, kind in (("uniform", "consumer"), ("range", "consumer"), ("simple", "share")):
        assignor = get(name, kind)  # type: ignore[arg-type]
        with pytest.raises(PartitionAssignorError):
            assignor.assign([Member("m", [bytes(16)])], {b"\1" * 16: 1})
        assert assignor.assign([Member("m", ["gone"])], {"t": 1}) == {"m": {}}


def test_a_static_member_that_returns_brings_its_target() -> None:
    """A static member returns with a new member id, so it is missing from `previous`. It keeps the partitions in
    `owned`.
    """
    uniform = get("uniform", "consumer")
    topics = Topics({"t": 4})
    before = uniform.assign([Member("a", ["t"], instance_id="i"), Member("b", ["t"])], topics)
    after = uniform.assign([Member("c", ["t"], instance_id="i", owned=before["a"]), Member("b", ["t"])], topics, before)
    assert (after["c"], after["b"]) == (before["a"], before["b"])


def test_only_initialised_share_partitions_are_assigned() -> None:
    assignment = get("simple", "share").assign([Member("m", ["t"])], {"t": 4}, assignable={"t": [1, 3, 9]})
    assert assignment == {"m": {"t": (1, 3)}}


def test_streams_need_a_process() -> None:
    assignor = get("sticky", "streams")
    with pytest.raises(PartitionAssignorError):
        assignor.assign([], {"s": Subtopology(1)})
    members = [StreamsMember("a", "p"), StreamsMember("b", "q"), StreamsMember("c", "q")]
    got = assignor.assign(members, {"s": Subtopology(4, stateful=True)}, num_standby_replicas=1)
    for number in range(4):
        holders = [m for kind in (got.active, got.standby) for m in members if number in kind[m.member_id].get("s", ())]
        assert len({m.process_id for m in holders}) == 2


@given(
    st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 2**31 - 1), max_size=4), max_size=4),
    st.integers(-1, 2**31 - 1),
)
def test_user_data_round_trips(owned: dict[str, list[int]], generation_id: int) -> None:
    data = StickyAssignorUserData({t: tuple(p) for t, p in owned.items()}, generation_id)
    assert StickyAssignorUserData.decode(data.encode()) == data
    assert StickyAssignorUserData.decode(data.encode(version=0)) == StickyAssignorUserData(data.owned)


@given(
    st.binary(max_size=40)
    | st.builds(lambda d, n: d[:n], st.just(StickyAssignorUserData({"t": (0, 1)}, 3).encode()), st.integers(0, 30))
)
def test_both_readers_agree_on_any_user_data(data: bytes) -> None:
    """The compiled reader and the pure Python reader give the same result for every input. Invalid user data owns no
    partitions.
    """
    raw = [Member("a", ["t"], user_data=data), Member("b", ["t"])]
    decoded = [Member("a", ["t"], user_data=StickyAssignorUserData.decode(data)), Member("b", ["t"])]
    assert get("sticky").assign(raw, {"t": 3}) == get("sticky").assign(decoded, {"t": 3})


def test_user_data_bytes_are_kafkas() -> None:
    data = StickyAssignorUserData({"t": (1, 2)}, 5)
    assert data.encode() == bytes.fromhex("00000001 0001 74 00000002 00000001 00000002 00000005")
    assert StickyAssignorUserData.decode(None) == StickyAssignorUserData()
    assert StickyAssignorUserData.decode(b"\0") == StickyAssignorUserData()


def test_the_newer_generation_wins_a_conflict() -> None:
    """Two members claim the same partition, and the member with the newer generation keeps it.

    One member sends its generation in the subscription (KIP-792). The other member sends it only as four bytes of user
    data, as cooperative-sticky did before KIP-792.
    """
    old, new = (4).to_bytes(4, "big"), (5).to_bytes(4, "big")
    members = [
        Member("a", ["t"], owned={"t": [0, 1]}, user_data=old),
        Member("b", ["t"], owned={"t": [0]}, generation_id=5, user_data=new),
    ]
    assert get("cooperative-sticky").assign(members, {"t": 2}) == {"a": {"t": (1,)}, "b": {"t": (0,)}}


def test_an_assignment_has_measures_of_balance_and_moves() -> None:
    topics = Topics({"t": 4}, racks={"t": [["a"], ["b"], ["a"], ["b"]]})
    members = [Member("m", ["t"], rack_id="a"), Member("n", ["t"], rack_id="b")]
    assignment = assignment_of({"m": {"t": [0, 1, 2]}, "n": {"t": [3]}}, topics)
    figures = measure(assignment, {"m": {"t": [0]}, "n": {"t": [1, 3]}}, members=members)
    assert (figures.counts, figures.spread, figures.topic_spread, figures.imbalance) == ((1, 3), 2, 2, 10)
    assert (figures.moved, figures.gained, figures.rack_matches, figures.rack_candidates) == (1, 2, 3, 4)
    with pytest.raises(ValueError, match="no partition 4"):
        assignment_of({"m": {"t": [4]}}, topics)
    with pytest.raises(ValueError, match="not known"):
        assignment_of({"m": {"u": [0]}}, topics)


@pytest.mark.parametrize(
    ("group_type", "class_name", "name"),
    [
        ("classic", "org.apache.kafka.clients.consumer.RangeAssignor", "range"),
        ("classic", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"),
        ("consumer", "org.apache.kafka.coordinator.group.assignor.UniformAssignor", "uniform"),
        ("consumer", "org.apache.kafka.coordinator.group.assignor.RangeAssignor", "range"),
        ("share", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor", "simple"),
    ],
)
def test_assignors_are_found_by_the_names_of_kafkas_classes(group_type: GroupType, class_name: str, name: str) -> None:
    assert type(get(class_name, group_type)) is type(get(name, group_type))


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=20))
def test_ids_sort_as_two_signed_halves(ids: list[bytes]) -> None:
    def halves(topic_id: bytes) -> tuple[int, int]:
        return tuple(int.from_bytes(topic_id[at : at + 8], "big", signed=True) for at in (0, 8))  # type: ignore[return-value]

    assert list(Topics(dict.fromkeys(ids, 1))) == sorted(set(ids), key=halves)


@given(st.lists(st.text(max_size=3) | st.binary(min_size=16, max_size=16), max_size=20))
def test_a_subscription_is_sorted_in_any_order_of_its_topics(topics: list[str | bytes]) -> None:
    expected = tuple(sorted(set(topics), key=lambda topic: (isinstance(topic, bytes), topic)))
    for given_order in (topics, topics[::-1], expected):
        assert Member("m", given_order).topics == expected  # type: ignore[arg-type]
