"""`kcore groups` with streams groups: tasks beside their targets, topics that do not fit the topology, stale members,
filters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kcore
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from tests.cli.conftest import SETTINGS, Ran
from tests.group.streams.members import internal, subtopology, topology
from tests.kit import make_topic

AT_ONCE = {
    **SETTINGS,
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.num.standby.replicas": "1",
}
SHOWN = ("member", "member_epoch", "member_state", "assignment", "target", "waits_for")


def join(engine: Any, group_id: str, member_id: str, requested: Topology) -> Any:
    request = StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        process_id=member_id,
        topology=requested,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    response = engine.send(request)
    assert response.error_code == 0, response
    return response


def rows(run: Callable[..., Ran], folder: Path, group_id: str) -> list[list[Any]]:
    ran = run("groups", "describe", folder, "--group", group_id, "--format", "json")
    assert ran.status == 0
    return [[row[key] for key in SHOWN] for row in ran.rows]


def test_tasks_are_shown_by_role_beside_their_target(run: Callable[..., Ran], tmp_path: Path) -> None:
    """The output shows the reason why a member does not have its target yet.

    Member a must send its next heartbeat. Member b waits until another member releases tasks. The topology of member c
    is too old.
    """
    folder = tmp_path / "data"
    with kcore.open(folder, config=AT_ONCE) as engine:
        make_topic(engine, "lines", 2)
        make_topic(engine, "log", 2)
        requested = topology(subtopology("0", ["lines"], [internal("log")]), epoch=3)
        join(engine, "app", "a", requested)
        join(engine, "app", "b", requested)
        join(engine, "app", "c", topology(subtopology("0", ["lines"]), epoch=2))
    first, second, third = rows(run, folder, "app")
    assert first[:4] == ["a", 2, "Behind", "0:0,1"]
    assert first[5] == "its next heartbeat"
    assert second[:3] == ["b", 3, "Behind"]
    assert third[:3] == ["c", 4, "Stale"]
    assert third[5] == "an instance with topology epoch 3, this one has 2"
    targets = " ".join(row[4] or "" for row in (first, second, third)).split()
    assert sorted(part for part in targets if part != "standby") == ["0:0", "0:0", "0:1", "0:1"]
    assert targets.count("standby") == 2


def test_a_member_that_lacks_tasks_waits_for_their_release(run: Callable[..., Ran], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with kcore.open(folder, config=AT_ONCE) as engine:
        make_topic(engine, "lines", 2)
        requested = topology(subtopology("0", ["lines"]))
        join(engine, "app", "a", requested)
        join(engine, "app", "b", requested)
    behind, unreleased = rows(run, folder, "app")
    assert behind == ["a", 2, "Behind", "0:0,1", behind[4], "its next heartbeat"]
    assert unreleased == ["b", 3, "Unreleased", None, unreleased[4], f"the release of {unreleased[4]}"]
    assert {behind[4], unreleased[4]} == {"0:0", "0:1"}


def test_members_of_an_assigning_group_wait_for_its_target(run: Callable[..., Ran], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with kcore.open(folder, config={**AT_ONCE, "group.streams.assignment.interval.ms": "15000"}) as engine:
        make_topic(engine, "lines", 1)
        requested = topology(subtopology("0", ["lines"]))
        join(engine, "app", "a", requested)
        join(engine, "app", "b", requested)
    assert rows(run, folder, "app") == [
        ["a", 2, "Stable", "0:0", "0:0", "the target of epoch 3"],
        ["b", 2, "Stable", None, None, "the target of epoch 3"],
    ]


def test_topics_that_do_not_fit_are_named(run: Callable[..., Ran], tmp_path: Path) -> None:
    """Covers missing source topics, missing internal topics, and wrong partition counts."""
    folder = tmp_path / "data"
    with kcore.open(folder, config={**AT_ONCE, "default.replication.factor": "1"}) as engine:
        make_topic(engine, "lines", 2)
        make_topic(engine, "log", 3)
        join(engine, "no-source", "a", topology(subtopology("0", ["lines", "none", "gone"])))
        join(engine, "no-log", "a", topology(subtopology("0", ["lines"], [internal("bad-log", replication_factor=9)])))
        join(engine, "wrong", "a", topology(subtopology("0", ["lines"], [internal("log")])))
    assert rows(run, folder, "no-source") == [["a", 2, "Stable", None, None, "the source topics gone, none"]]
    assert rows(run, folder, "no-log") == [["a", 2, "Stable", None, None, "the internal topics bad-log"]]
    fault = "its next heartbeat, or other partition counts; the topics have lines=2, log=3"
    assert rows(run, folder, "wrong") == [["a", 2, "Stable", None, None, fault]]
    listed = run("groups", "list", folder, "--state", "notready", "--format", "json")
    assert [(row["group"], row["type"], row["state"]) for row in listed.rows] == [
        (group, "streams", "NotReady") for group in ("no-log", "no-source", "wrong")
    ]
