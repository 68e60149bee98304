"""Tests `kcore groups` and `kcore offsets` with share groups (KIP-932), on a data folder without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.cli.conftest import SETTINGS, Ran
from tests.kit import COMMIT_VERSION, batch, commit, make_topic, produce

NO_INTERVAL = {
    **SETTINGS,
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
}


def beat(engine: Any, member_id: str, epoch: int = 0) -> Any:
    topics = ["jobs"] if epoch == 0 else None
    return engine.send(
        ShareGroupHeartbeatRequest(
            group_id="workers", member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two share groups: one has two members, of which the second is in an older epoch, and the other
    group is empty.
    """
    with kcore.open(tmp_path / "data", config=NO_INTERVAL, clock=kcore.ManualClock()) as engine:
        make_topic(engine, "jobs", 2)
        engine.send(produce("jobs", batch([b"x"] * 10)), 9)
        beat(engine, "a")
        engine.advance(0)  # creates the share coordinator's topic
        engine.advance(1_000)  # initializes the partitions
        assert beat(engine, "a", 2).member_epoch == 3
        assert beat(engine, "b").member_epoch == 4
        offsets = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=4)]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name="jobs", partitions=offsets)
        assert engine.send(AlterShareGroupOffsetsRequest(group_id="idle", topics=[topic])).error_code == 0
        engine.send(commit("classic", {("jobs", 0): 3}), COMMIT_VERSION)
    return tmp_path / "data"


def test_members_are_described_with_their_partitions(run: Callable[..., Ran], folder: Path) -> None:
    """The output says that a member in an older epoch gets its new partitions with its next heartbeat."""
    ran = run("groups", "describe", folder, "--group", "workers", "--format", "json")
    of_group = {"group": "workers", "type": "share", "state": "Stable", "protocol": "simple"}
    of_group |= {"epoch": 4, "assignment_epoch": 4}
    assert [{key: row[key] for key in of_group} for row in ran.rows] == [of_group] * 2
    shown = ("member", "member_epoch", "member_state", "waits_for", "target")
    assert [[row[key] for key in shown] for row in ran.rows] == [
        ["a", 3, "Behind", "its next heartbeat", None],
        ["b", 4, "Stable", None, None],
    ]
    assert ran.rows[0]["assignment"] == "jobs:0,1"
    assert ran.rows[1]["assignment"] in ("jobs:0", "jobs:1")


def test_groups_of_all_types_are_listed_and_described(run: Callable[..., Ran], folder: Path) -> None:
    """An empty share group has a row of its own."""
    rows = run("groups", "list", folder, "--format", "json").rows
    assert [(row["group"], row["type"], row["state"]) for row in rows] == [
        ("classic", "classic", "Empty"),
        ("idle", "share", "Empty"),
        ("workers", "share", "Stable"),
    ]
    rows = run("groups", "describe", folder, "--format", "json").rows
    assert [(row["group"], row["type"], row["member"]) for row in rows] == [
        ("classic", "classic", None),
        ("idle", "share", None),
        ("workers", "share", "a"),
        ("workers", "share", "b"),
    ]


def test_start_offsets_are_listed_with_the_lag(run: Callable[..., Ran], folder: Path) -> None:
    """Share partitions without a start offset show neither offset nor lag. Groups of other types show committed
    offsets.
    """
    rows = run("offsets", "list", folder, "--format", "json").rows
    columns = ("group", "topic", "partition", "current_offset", "log_end_offset", "lag")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        ("classic", "jobs", 0, 3, 10, 7),
        ("idle", "jobs", 0, 4, 10, 6),
        ("workers", "jobs", 0, None, 10, None),
        ("workers", "jobs", 1, None, 0, None),
    ]
    (row,) = run("offsets", "list", folder, "--group", "idle", "--format", "json").rows
    assert row["current_offset"] == 4


def test_unknown_groups_are_an_error(run: Callable[..., Ran], folder: Path) -> None:
    """Each group that does not exist gives a message and status 1. The command still lists the other groups."""
    ran = run("offsets", "list", folder, "--group", "typo", "--group", "idle", "--group", "oops", "--format", "json")
    assert ran.status == 1
    assert [row["group"] for row in ran.rows] == ["idle"]
    assert ran.err == "kcore: group 'oops' does not exist\nkcore: group 'typo' does not exist\n"


def test_the_log_dump_shows_the_records(run: Callable[..., Ran], folder: Path) -> None:
    """The dump has the records of the group and of its share partitions, with their fields."""
    rows = run("log", "dump", folder, "--group", "idle", "--format", "json").rows
    assert [(row["topic"], row["type"]) for row in rows] == [
        ("__consumer_offsets", "ShareGroupStatePartitionMetadata"),
        ("__consumer_offsets", "ShareGroupStatePartitionMetadata"),
        ("__share_group_state", "ShareSnapshot"),
    ]
    assert rows[1]["value"]["initialized_topics"][0]["topic_name"] == "jobs"
    assert rows[2]["value"]["start_offset"] == 4


def test_a_folder_with_share_state_is_verified(run: Callable[..., Ran], folder: Path) -> None:
    """The verification replays every record, and finds no damage."""
    assert run("log", "verify", folder).status == 0
