"""Every recorded result of Kafka 4.3.1's assignors, round by round."""

from typing import Any

import pytest

from kcore.assignors import Member, PartitionAssignorError, Topics, get, measure, validate
from tests.assignors import cases

VECTORS = cases.vectors()
CASES = cases.generated()


def vector_input(vector: dict[str, Any]) -> tuple[list[Member], Topics, dict[bytes, str]]:
    assignor = vector["assignor"]
    server = assignor in cases.SERVER_SIDE
    ids = {name: cases.topic_id(text) for name, text in vector.get("topic_ids", {}).items()}
    if server and not ids:
        ids = {name: name.encode().ljust(16, b"\0") for name in sorted(vector["topics"])}
    members = []
    for member_id, entry in vector["members"].items():
        owned = {t: tuple(p) for t, p in entry["owned"].items()}
        if server:
            # Topics have ids: a missing one is then an error, as in Kafka's spec of a group.
            entry = {**entry, "topics": [ids[t] for t in entry["topics"]]}  # noqa: PLW2901
            owned = {ids[t]: p for t, p in owned.items()}
        members.append(cases.member(assignor, {"id": member_id, "instance": entry["instance_id"], **entry}, owned))
    if server:
        return members, Topics({ids[t]: n for t, n in vector["topics"].items()}), {i: t for t, i in ids.items()}
    return members, Topics(vector["topics"], racks=vector.get("partition_racks")), {}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_hand_picked_case_gives_kafkas_result(vector: dict[str, Any]) -> None:
    """Compares the assignment with Kafka's result. Some cases have two results of Kafka: the test uses the one that was
    computed in sorted order.

    If Kafka's assignor loops forever, kcore's result must be valid and balanced.
    """
    members, topics, names = vector_input(vector)
    group_type, name = cases.GROUP_TYPES[vector["assignor"]]
    assignor = get(name, group_type)  # type: ignore[arg-type]
    if "expect_error" in vector:
        with pytest.raises(PartitionAssignorError):
            assignor.assign(members, topics)
        return
    assignment = assignor.assign(members, topics)
    if vector.get("never_ends"):
        validate(assignment, members)
        best = get("kcore.balanced").assign(members, topics)
        together = sum(measure(assignment).counts) + len(assignment.withheld)
        assert together == topics.total_partitions
        if vector["assignor"] == "sticky":
            assert measure(assignment).counts == measure(best).counts
        return
    expected = vector.get("expected_sorted", vector["expected"])
    whole = {m: {t: tuple(sorted(p)) for t, p in expected.get(m, {}).items()} for m in vector["members"]}
    assert cases.plain(assignment, names or None) == whole
    if "withheld" in vector and isinstance(vector["withheld"], dict):
        assert {f"{tp.topic}-{tp.partition}" for tp in assignment.withheld} == set(vector["withheld"])


@pytest.mark.parametrize("case", [c for c in CASES if c["assignor"] != "streams-sticky"], ids=lambda c: c["name"])
def test_recorded_rounds_give_kafkas_result(case: dict[str, Any]) -> None:
    """Compares all rounds of a changing group. If Kafka's result is itself invalid, kcore's must be valid."""
    for part in case["rounds"]:
        got, members, topics, assignment = cases.run_round(case, part)
        expected = {m["id"]: cases.grouped(part["expect"].get(m["id"], [])) for m in part["members"]}
        if "faults" not in part:
            assert got == expected, part["event"]
            continue
        if case["assignor"] == "share-simple":
            # Kafka keeps partitions of deleted topics; the rest of its result is right.
            wanted = {m["id"]: {t for t in m["topics"] if t in part["topics"]} for m in part["members"]}
            assert got == {m: {t: p for t, p in rows.items() if t in wanted[m]} for m, rows in expected.items()}
        else:
            validate(assignment, members)
            assigned = sum(measure(assignment).counts) + len(assignment.withheld)
            assert assigned == sum(topics[t] for t in {t for m in members for t in m.topics if t in topics})


@pytest.mark.parametrize("case", [c for c in CASES if c["assignor"] == "streams-sticky"], ids=lambda c: c["name"])
def test_recorded_rounds_of_streams_groups_give_kafkas_result(case: dict[str, Any]) -> None:
    for part in case["rounds"]:
        got = cases.run_streams(part)
        for kind, assignment in (("active", got.active), ("standby", got.standby)):
            expected = {m["id"]: cases.grouped(part["expect"][kind].get(m["id"], [])) for m in part["members"]}
            assert cases.plain(assignment) == expected, (part["event"], kind)
        assert not any(got.warmup.sizes().values())


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["assignor"] in ("server-uniform", "share-simple")], ids=lambda c: c["name"]
)
def test_previous_target_and_owned_partitions_are_the_same_input(case: dict[str, Any]) -> None:
    """A server-side assignor reads the earlier owners from `previous` or from the members, with the same result."""
    group_type, name = cases.GROUP_TYPES[case["assignor"]]
    assignor = get(name, group_type)  # type: ignore[arg-type]
    before = None
    for part in case["rounds"]:
        members, topics = cases.round_input(case, part)
        result = assignor.assign(members, topics)
        if before is not None and "static" not in case["tags"] and "faults" not in part:
            bare = [Member(m.member_id, m.topics, instance_id=m.instance_id) for m in members]
            fed = {m.member_id: m.owned for m in members}
            if all(before[m] == fed[m] for m in before if m in fed):
                assert assignor.assign(bare, topics, before) == result, part["event"]
        before = result


@pytest.mark.parametrize("case", [c for c in CASES if c["assignor"] != "streams-sticky"][::7], ids=lambda c: c["name"])
def test_measures_equal_the_recorded_measures(case: dict[str, Any]) -> None:
    """Compares balance, moves, rack matches, and readers per partition with the recorded values."""
    for part in case["rounds"]:
        if "faults" in part or part.get("target"):
            continue
        _, members, _, assignment = cases.run_round(case, part)
        recorded = part["measures"]
        figures = measure(assignment, members=members)
        assert list(figures.counts) == recorded["counts"]
        assert figures.spread == recorded["spread"]
        assert figures.topic_spread == recorded["topic_spread"]
        if "rack_matches" in recorded and "racks" in part:
            assert figures.rack_matches == recorded["rack_matches"]
        if "sharing" in recorded and any(counts := recorded["counts"]):
            assert list(figures.readers) == recorded["sharing"], counts
