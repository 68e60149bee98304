"""Results recorded from Apache Kafka 4.3.1, converted to the types of kcore.assignors.

`assignor-vectors.json` contains hand-picked cases. `assignor-cases.json.gz` contains generated groups that change over
several rounds. In each round, the members own the partitions that the previous round assigned to them. Kafka's classes
computed the results in both files. In cases with `exact`, the result does not depend on the order of a hash table. In
all other cases, Kafka's classes iterated in sorted order, as kcore does.
"""

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kcore.assignors import GroupAssignment, Member, Topics, get
from kcore.assignors.sticky import StickyAssignorUserData
from kcore.assignors.streams_sticky import StreamsAssignment, StreamsMember, Subtopology

DATA = Path(__file__).parent.parent / "data"
GROUP_TYPES = {
    "range": ("classic", "range"),
    "roundrobin": ("classic", "roundrobin"),
    "sticky": ("classic", "sticky"),
    "cooperative-sticky": ("classic", "cooperative-sticky"),
    "server-range": ("consumer", "range"),
    "server-uniform": ("consumer", "uniform"),
    "share-simple": ("share", "simple"),
}
SERVER_SIDE = ("server-range", "server-uniform", "share-simple")
Plain = dict[str, dict[str, tuple[int, ...]]]


def vectors() -> list[dict[str, Any]]:
    """Returns the hand-picked cases of Kafka 4.3. Omits the cases of Kafka 4.0, whose uniform assignor moved partitions
    needlessly.
    """
    found: list[dict[str, Any]] = json.loads((DATA / "assignor-vectors.json").read_text())
    return [case for case in found if case.get("version") != "4.0"]


def generated() -> list[dict[str, Any]]:
    with gzip.open(DATA / "assignor-cases.json.gz") as file:
        cases: list[dict[str, Any]] = json.load(file)
    return cases


def topic_id(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def grouped(pairs: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    rows: dict[str, list[int]] = {}
    for topic, number in pairs:
        rows.setdefault(topic, []).append(number)
    return {topic: tuple(sorted(numbers)) for topic, numbers in rows.items()}


def plain(assignment: GroupAssignment, names: Mapping[bytes, str] | None = None) -> Plain:
    """Converts an assignment to dicts, by topic name."""
    return {
        member: {names[t] if names else t: numbers for t, numbers in rows.items()}  # type: ignore[index,misc]
        for member, rows in assignment.to_dict().items()
    }


def member(assignor: str, entry: Mapping[str, Any], owned: Mapping[Any, tuple[int, ...]]) -> Member:
    """Makes a member. Its owned partitions are in the user data for "sticky", and in `owned` for other assignors."""
    generation = entry.get("generation")
    known = -1 if generation is None else generation
    data = StickyAssignorUserData(owned, known).encode() if assignor == "sticky" and generation is not None else None
    return Member(
        entry["id"],
        entry["topics"],
        owned=None if assignor == "sticky" else owned,
        generation_id=known,
        rack_id=entry.get("rack"),
        instance_id=entry.get("instance"),
        user_data=data,
    )


def round_input(case: Mapping[str, Any], part: Mapping[str, Any]) -> tuple[list[Member], Topics]:
    """Makes members and topics of one recorded round."""
    assignor = case["assignor"]
    ids: dict[str, bytes] = {name: topic_id(text) for name, text in case.get("topic_ids", {}).items()}
    server = assignor in SERVER_SIDE
    owned = {m: grouped(pairs) for m, pairs in part["owned"].items()}
    if server:
        topics = Topics(
            {ids[t]: n for t, n in part["topics"].items()},
            names=ids,
            racks={ids[t]: r for t, r in part["racks"].items() if t in part["topics"]} if "racks" in part else None,
        )
    else:
        racks = {t: r for t, r in part["racks"].items() if t in part["topics"]} if "racks" in part else None
        topics = Topics(part["topics"], racks=racks)
    members = []
    for entry in part["members"]:
        mine = owned.get(entry["id"], {})
        members.append(member(assignor, entry, {ids[t]: p for t, p in mine.items()} if server else mine))
    return members, topics


def run_round(case: Mapping[str, Any], part: Mapping[str, Any]) -> tuple[Plain, list[Member], Topics, GroupAssignment]:
    """Runs one recorded round. Returns the assignment as dicts, the members, the topics, and the assignment object."""
    members, topics = round_input(case, part)
    group_type, name = GROUP_TYPES[case["assignor"]]
    assignment = get(name, group_type).assign(members, topics)  # type: ignore[arg-type]
    names = {topic_id(text): topic for topic, text in case.get("topic_ids", {}).items()}
    return plain(assignment, names if case["assignor"] in SERVER_SIDE else None), members, topics, assignment


def streams_input(part: Mapping[str, Any]) -> tuple[list[StreamsMember], dict[str, Subtopology]]:
    """Makes members and subtopologies of one recorded round of a streams group."""
    members = [
        StreamsMember(
            m["id"],
            m["process"],
            active=grouped(part["owned"]["active"].get(m["id"], [])),
            standby=grouped(part["owned"]["standby"].get(m["id"], [])),
        )
        for m in part["members"]
    ]
    return members, {name: Subtopology(p["partitions"], p["stateful"]) for name, p in part["subtopologies"].items()}


def run_streams(part: Mapping[str, Any]) -> StreamsAssignment:
    """Runs one recorded round of a streams group."""
    members, parts = streams_input(part)
    return get("sticky", "streams").assign(members, parts, num_standby_replicas=part["standby_replicas"])  # type: ignore[no-any-return]
