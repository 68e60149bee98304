"""The responses of a real Kafka broker, as rows of the rebuild's tables, for the logs in `tests/data/kafka-logs`."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data" / "kafka-logs"
MOMENTS = ("moment-1", "moment-2", "moment-3", "moment-4")
SOME_MOMENTS = ["moment-4", *(pytest.param(moment, marks=pytest.mark.long) for moment in MOMENTS[:3])]
"""Moments for tests that read a whole log. Only `make test-long` runs the first three moments."""

Tables = Mapping[str, list[dict[str, Any]]]
Facts = dict[str, Any]

UNWRITTEN = {"PreparingRebalance", "CompletingRebalance"}
"""States of rebalancing classic groups. The log does not contain their new members until the rebalance ends."""


def unpack(folder: Path) -> Path:
    """Unpacks the logs: MOMENT/TOPIC-PARTITION/BASEOFFSET.log."""
    with tarfile.open(DATA / "logs.tar.xz", "r:xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def load() -> dict[str, dict[str, list[Facts]]]:
    """Reads the responses: moment -> kind -> lines."""
    found: dict[str, dict[str, list[Facts]]] = defaultdict(lambda: defaultdict(list))
    with lzma.open(DATA / "oracle.jsonl.xz", "rt") as lines:
        for line in lines:
            fact = json.loads(line)
            found[fact["moment"] or ""][fact["kind"]].append(fact)
    return found


def expected(oracle: Mapping[str, list[Facts]]) -> Facts:
    """Returns the state that the broker's responses showed at one moment, in the form of `rebuilt`.

    The keys are tuples such as ("classic", group id).
    """
    facts: Facts = {}
    for one in oracle["listed"]:
        facts["listed", one["group_id"]] = (one["group_type"], one["group_state"], one["protocol_type"])
    for one in oracle["classic_group"]:
        members = [
            (m["member_id"], m["group_instance_id"], m["client_id"], m["client_host"], m["member_metadata"],
             m["member_assignment"])
            for m in one["members"]
        ]  # fmt: skip
        facts["classic", one["group_id"]] = (one["group_state"], one["protocol_type"], one["protocol_data"],
                                             sorted(members))  # fmt: skip
    for one in oracle["consumer_group"]:
        members = [
            (m["member_id"], m["instance_id"], m["rack_id"], m["member_epoch"], m["client_id"], m["client_host"],
             sorted(m["subscribed_topic_names"]), m["subscribed_topic_regex"] or "", m["member_type"] == 0,
             _topics(m["assignment"]), _topics(m["target_assignment"]))
            for m in one["members"]
        ]  # fmt: skip
        facts["consumer", one["group_id"]] = _described(one, one["assignor_name"], members)
    for one in oracle["share_group"]:
        members = [
            (m["member_id"], m["rack_id"], m["member_epoch"], m["client_id"], m["client_host"],
             sorted(m["subscribed_topic_names"]), _topics(m["assignment"]))
            for m in one["members"]
        ]  # fmt: skip
        facts["share", one["group_id"]] = _described(one, one["assignor_name"], members)
    for one in oracle["streams_group"]:
        members = [
            (m["member_id"], m["instance_id"], m["rack_id"], m["member_epoch"], m["client_id"], m["client_host"],
             m["topology_epoch"], m["process_id"], m["user_endpoint"],
             {tag["key"]: tag["value"] for tag in m["client_tags"]}, _tasks(m["assignment"]),
             _tasks(m["target_assignment"]))
            for m in one["members"]
        ]  # fmt: skip
        facts["streams", one["group_id"]] = _described(one, _topology(one["topology"]), members)
    _expected_rest(oracle, facts)
    return facts


def _expected_rest(oracle: Mapping[str, list[Facts]], facts: Facts) -> None:
    for one in oracle["offset"]:
        where = ("offset", one["group"], one["topic"], one["partition"])
        if one["offset"] is None:
            facts[where] = (None, one["unstable"])
        else:
            facts[where] = (one["offset"], one["leader_epoch"], one["metadata"], one["unstable"])
    listed = {one["transactional_id"]: one for one in oracle["listed_transaction"]}
    for one in oracle["transaction"]:
        assert listed.pop(one["transactional_id"])["transaction_state"] == one["transaction_state"]
        facts["transaction", one["transactional_id"]] = (
            one["transaction_state"], one["transaction_timeout_ms"], one["transaction_start_time_ms"],
            one["producer_id"], one["producer_epoch"],
            sorted((topic["topic"], partition) for topic in one["topics"] for partition in topic["partitions"]),
        )  # fmt: skip
    assert not listed
    for one in oracle["producer"]:
        if one["topic"].startswith("__"):
            facts["producer", one["topic"], one["partition"], one["producer_id"]] = (
                one["producer_epoch"], one["last_sequence"], one["last_timestamp"], one["coordinator_epoch"],
                one["current_txn_start_offset"],
            )  # fmt: skip
    for one in oracle["share_state"]:
        if not one["error_code"]:
            facts["share_state", one["group"], one["topic_id"], one["partition"]] = (
                one["state_epoch"], one["leader_epoch"], one["start_offset"], one["delivery_complete_count"],
                _merged(one["state_batches"]),
            )  # fmt: skip
    for one in oracle["share_offset"]:
        facts["share_topic", one["group"], one["topic_id"], one["partition_index"]] = one["topic"]
    for one in oracle["partition"]:
        facts["log", one["topic"], one["partition"]] = (one["log_end_offset"], one["last_stable_offset"])


def _merged(batches: list[Facts]) -> list[Facts]:
    """Merges adjacent batches that have the same state, as the rebuild does. The broker itself merges such batches only
    when it changes one of them.
    """
    merged: list[Facts] = []
    for batch in batches:
        last = merged[-1] if merged else None
        alike = last is not None and all(last[name] == batch[name] for name in ("delivery_state", "delivery_count"))
        if last is not None and alike and last["last_offset"] + 1 == batch["first_offset"]:
            merged[-1] = {**last, "last_offset": batch["last_offset"]}
        else:
            merged.append(batch)
    return merged


def _described(one: Facts, what: Any, members: list[Any]) -> Any:
    return one["group_state"], one["group_epoch"], one["assignment_epoch"], what, sorted(members)


def _topics(assignment: Facts) -> dict[str, list[int]]:
    return {one["topic_id"]: sorted(one["partitions"]) for one in assignment["topic_partitions"] if one["partitions"]}


def _tasks(assignment: Facts) -> dict[tuple[str, str], list[int]]:
    return {
        (kind, task["subtopology_id"]): sorted(task["partitions"])
        for kind in ("active", "standby", "warmup")
        for task in assignment[f"{kind}_tasks"]
    }


def _topology(topology: Facts) -> Any:
    shown = ("subtopology_id", "source_topics", "repartition_sink_topics", "state_changelog_topics",
             "repartition_source_topics")  # fmt: skip
    return topology["epoch"], [{name: one[name] for name in shown} for one in topology["subtopologies"]]


# ---- the same views of tables


def rebuilt(tables: Tables, topics: Iterable[Facts]) -> Facts:
    """Returns the rows of a rebuild's tables in the form of the broker's responses, to compare them with `expected`.

    Leaves out partitions of deleted topics.
    """
    alive = {topic["topic_id"] for topic in topics}
    sizes = {topic["name"]: topic["partitions"] for topic in topics}
    facts: Facts = {}
    members = _by(tables["members"], "group_id")
    assignments: dict[tuple[str, str], dict[str, dict[Any, list[int]]]] = defaultdict(lambda: defaultdict(dict))
    for row in tables["assignments"]:
        if row.get("topic_id") is None or row["topic_id"] in alive:
            where = row.get("topic_id") or (row["task_type"], row["subtopology_id"])
            kind = "target" if row["kind"] == "target" else "current"  # partitions to be revoked are still shown
            had = assignments[row["group_id"], row["member_id"]][kind]
            had[where] = sorted({*had.get(where, ()), *row["partitions"]})
    topologies = {row["group_id"]: row for row in tables["topologies"]}
    for group in tables["groups"]:
        group_id, kind, state = group["group_id"], group["group_type"], group["state"]
        facts["listed", group_id] = (kind, state, group["protocol_type"])
        own = members.get(group_id, [])
        if kind == "classic":
            protocol = (group.get("protocol_name") or "") if state == "Stable" else ""
            shown = [_classic(member, protocol, state) for member in own]
            facts["classic", group_id] = (state, group["protocol_type"], protocol, sorted(shown))
            continue
        what = group["assignor_name"]
        if kind == "streams":
            topology = topologies[group_id]
            what = _topology({"epoch": topology["epoch"], "subtopologies": json.loads(topology["subtopologies"])})
            _size_changelogs(what[1], sizes)
        facts[kind, group_id] = (
            state, group["group_epoch"], group["assignment_epoch"], what,
            sorted(_member(kind, member, assignments[group_id, member["member_id"]]) for member in own),
        )  # fmt: skip
    _rebuilt_rest(tables, facts)
    return facts


def _size_changelogs(subtopologies: list[Facts], sizes: Mapping[str, int]) -> None:
    """Replaces the partition count 0 of changelogs by the count that an API would derive from the source topics."""
    for one in subtopologies:
        for changelog in one["state_changelog_topics"]:
            changelog["partitions"] = changelog["partitions"] or max(sizes[name] for name in one["source_topics"])


def _classic(member: Facts, protocol: str, state: str) -> tuple[Any, ...]:
    metadata = [one["metadata"].hex() for one in member["protocols"] if one["name"] == protocol]
    return (
        member["member_id"], member.get("group_instance_id"), member["client_id"], member["client_host"],
        metadata[0] if metadata else "", member["assignment"].hex(),
    )  # fmt: skip


def _member(kind: str, member: Facts, assigned: Mapping[str, dict[Any, list[int]]]) -> tuple[Any, ...]:
    current = {where: parts for where, parts in assigned.get("current", {}).items() if parts or kind == "streams"}
    target = {where: parts for where, parts in assigned.get("target", {}).items() if parts or kind == "streams"}
    names = sorted(member.get("subscribed_topic_names") or ())
    member_key = (member["member_id"],)
    member_state = (member.get("rack_id"), member["member_epoch"], member["client_id"], member["client_host"])
    if kind == "share":
        return (*member_key, *member_state, names, current)
    member_key = (*member_key, member.get("group_instance_id"))
    if kind == "consumer":
        return (
            *member_key,
            *member_state,
            names,
            member["subscribed_topic_regex"],
            member["is_classic"],
            current,
            target,
        )
    return (
        *member_key, *member_state, member["topology_epoch"], member["process_id"], member["user_endpoint"],
        member["client_tags"], current, target,
    )  # fmt: skip


def _rebuilt_rest(tables: Tables, facts: Facts) -> None:
    pending = {(row["group_id"], row["topic"], row["partition"]) for row in tables["offsets"] if row["pending"]}
    for row in tables["offsets"]:
        where = (row["group_id"], row["topic"], row["partition"])
        if not row["pending"]:
            facts["offset", *where] = (row["offset"], row["leader_epoch"], row["metadata"], where in pending)
    for where in pending:
        facts.setdefault(("offset", *where), (None, True))
    for row in tables["transactions"]:
        facts["transaction", row["transactional_id"]] = (
            row["state"], row["timeout_ms"], row["start_timestamp_ms"], row["producer_id"], row["producer_epoch"],
            [(part["topic"], part["partition"]) for part in row["partitions"]],
        )  # fmt: skip
    for row in tables["producers"]:
        facts["producer", row["topic"], row["coordinator_partition"], row["producer_id"]] = (
            row["producer_epoch"], row["last_sequence"], row["last_timestamp_ms"], row["coordinator_epoch"],
            row["current_txn_start_offset"],
        )  # fmt: skip
    for row in tables["share_states"]:
        facts["share_state", row["group_id"], row["topic_id"], row["partition"]] = (
            row["state_epoch"], row["leader_epoch"], row["start_offset"], row["delivery_complete_count"],
            row["state_batches"],
        )  # fmt: skip
    for row in tables["share_topics"]:
        if row["stage"] == "initialized":
            for partition in row["partitions"]:
                facts["share_topic", row["group_id"], row["topic_id"], partition] = row["topic"]
    for row in tables["partitions"]:
        facts["log", row["topic"], row["coordinator_partition"]] = (row["next_offset"], row["last_stable_offset"])


def _by(rows: Iterable[Facts], column: str) -> dict[Any, list[Facts]]:
    found: dict[Any, list[Facts]] = defaultdict(list)
    for row in rows:
        found[row[column]].append(row)
    return found


def differences(expected_facts: Facts, found: Facts) -> list[tuple[Any, Any, Any]]:
    """Returns (subject, broker's value, rebuild's value) of each difference. Two kinds of differences are expected and
    left out.

    During a rebalance of a classic group, the log has the previous generation, because joins are not written. A group
    without members that lost its last offset may stay in a broker's memory until its next sweep.
    """
    unlike = []
    for about in expected_facts.keys() | found.keys():
        one, other = expected_facts.get(about), found.get(about)
        if one == other:
            continue
        if about[0] in ("listed", "classic"):
            listed = expected_facts.get(("listed", about[1]))
            if listed is not None and listed[0] == "classic" and listed[1] in UNWRITTEN:
                continue
            nothing_left = listed == ("classic", "Empty", "") and other is None
            if nothing_left and not any(key[:2] == ("offset", about[1]) for key in expected_facts):
                continue
        unlike.append((about, one, other))
    return unlike
