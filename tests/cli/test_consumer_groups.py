"""`kcore groups describe` of consumer groups: epochs, target and current assignments, and the causes of delays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kcore
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.cli.conftest import SETTINGS, Ran
from tests.kit import make_topic

NO_INTERVAL = {**SETTINGS, "group.consumer.assignment.interval.ms": "0"}


def join(engine: Any, member_id: str, **more: Any) -> Any:
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["lines"], "topic_partitions": [], **more}
    return engine.send(ConsumerGroupHeartbeatRequest(group_id="modern", member_id=member_id, **fields))


def test_a_group_in_the_middle_of_a_rebalance_shows_who_waits_for_whom(run: Callable[..., Ran], tmp_path: Path) -> None:
    """The output lists the partitions that a member must revoke. It also lists the partitions that a member waits for,
    with their present owner.
    """
    folder = tmp_path / "data"
    with kcore.open(folder, config=NO_INTERVAL) as engine:
        make_topic(engine, "lines", 2)
        join(engine, "a")
        join(engine, "b")
        join(engine, "s", instance_id="i", subscribed_topic_names=[])
        leaving = ConsumerGroupHeartbeatRequest(group_id="modern", member_id="s", instance_id="i", member_epoch=-2)
        engine.send(leaving)
    ran = run("groups", "describe", folder, "--group", "modern", "--format", "json")
    assert ran.status == 0
    first, second, third = ran.rows
    (kept,) = first["target"].removeprefix("lines:").split(",")
    moved = "1" if kept == "0" else "0"
    of_group = {"group": "modern", "type": "consumer", "state": "Reconciling", "protocol": "uniform"}
    of_group |= {"epoch": 3, "assignment_epoch": 3}
    assert {key: first[key] for key in of_group} == of_group
    shown = ("member", "member_epoch", "member_state", "assignment", "target", "waits_for")
    assert [[row[key] for key in shown] for row in (first, second, third)] == [
        ["a", 2, "Unrevoked", "lines:0,1", f"lines:{kept}", f"giving up lines:{moved}"],
        ["b", 3, "Unreleased", None, f"lines:{moved}", f"lines:{moved} of a"],
        ["s", -2, "Away", None, None, "its instance to come back"],
    ]


def test_a_group_without_its_newest_target_shows_that(run: Callable[..., Ran], tmp_path: Path) -> None:
    """The group is in epoch 3, but the assignment interval (KIP-1263) delays the target assignment of this epoch.

    The output shows the target of epoch 2, and that all members wait for the target of epoch 3.
    """
    folder = tmp_path / "data"
    with kcore.open(folder, config={**SETTINGS, "group.consumer.assignment.interval.ms": "15000"}) as engine:
        make_topic(engine, "lines", 2)
        join(engine, "a")
        join(engine, "b")
    rows = run("groups", "describe", folder, "--group", "modern", "--format", "json").rows
    shown = ("member", "state", "epoch", "assignment_epoch", "member_epoch", "member_state", "assignment", "waits_for")
    assert [[row[key] for key in shown] for row in rows] == [
        ["a", "Assigning", 3, 2, 2, "Stable", "lines:0,1", "the target of epoch 3"],
        ["b", "Assigning", 3, 2, 2, "Stable", None, "the target of epoch 3"],
    ]


def test_an_empty_consumer_group_has_a_row(run: Callable[..., Ran], tmp_path: Path) -> None:
    """The row has the epochs of the group and no member."""
    folder = tmp_path / "data"
    with kcore.open(folder, config=NO_INTERVAL) as engine:
        make_topic(engine, "lines", 2)
        join(engine, "a")
        engine.send(ConsumerGroupHeartbeatRequest(group_id="modern", member_id="a", member_epoch=-1))
    (row,) = run("groups", "describe", folder, "--group", "modern", "--format", "json").rows
    assert (row["type"], row["state"], row["epoch"], row["member"]) == ("consumer", "Empty", 3, None)
