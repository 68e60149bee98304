"""`kcore log`, `groups` and `offsets` give the same output for a folder and for a running server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import kcore
from kcore.config.security import STANDARD_AUTHORIZER
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.testing import ServerProcess
from tests.cli.conftest import CommandTarget, Ran

Run = Callable[..., Ran]


def test_groups_are_listed(run: Run, command_target: CommandTarget) -> None:
    ran = run("groups", "list", *command_target.arguments, "--format", "json")
    assert (ran.status, ran.err) == (0, "")
    assert [{**row, "type": row["type"].lower()} for row in ran.rows] == [
        {"group": "crew", "type": "classic", "protocol_type": "work", "state": "Stable"},
        {"group": "simple", "type": "classic", "protocol_type": None, "state": "Empty"},
    ]
    assert [line.split()[0] for line in run("groups", "list", *command_target.arguments).out.splitlines()] == [
        "GROUP",
        "crew",
        "simple",
    ]


def test_groups_are_listed_by_state(run: Run, command_target: CommandTarget) -> None:
    assert [
        row["group"]
        for row in run("groups", "list", *command_target.arguments, "--state", "Empty", "--format", "json").rows
    ] == ["simple"]
    both = run(
        "groups", "list", *command_target.arguments, "--state", "Empty", "--state", "Stable", "--format", "json"
    ).rows
    assert [row["group"] for row in both] == ["crew", "simple"]


def test_an_unknown_state_is_invalid_usage(run: Run, command_target: CommandTarget) -> None:
    """The case of state names does not matter, as in Kafka. The error for an unknown state lists the valid ones."""
    rows = run("groups", "list", *command_target.arguments, "--state", "empty", "--format", "json").rows
    assert [row["group"] for row in rows] == ["simple"]
    ran = run("groups", "list", *command_target.arguments, "--state", "Foo")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == (
        "kcore groups list: error: argument --state: 'Foo' is not a group state; valid: Assigning, "
        "CompletingRebalance, Dead, Empty, NotReady, PreparingRebalance, Reconciling, Stable"
    )


def test_groups_are_described(run: Run, command_target: CommandTarget) -> None:
    rows = run("groups", "describe", *command_target.arguments, "--format", "json").rows
    assert [(row["group"], row["state"], row["member"], row["assignment"]) for row in rows] == [
        ("crew", "Stable", command_target.member, "10 bytes"),
        ("simple", "Empty", None, None),
    ]
    (row,) = run("groups", "describe", *command_target.arguments, "--group", "simple", "--format", "json").rows
    assert row["group"] == "simple"


def test_a_missing_group_is_a_finding(run: Run, command_target: CommandTarget) -> None:
    ran = run("groups", "describe", *command_target.arguments, "--group", "nobody", "--format", "json")
    assert ran.status == 1
    assert ran.rows[0]["state"] == "GROUP_ID_NOT_FOUND"


def test_offsets_are_listed_with_their_lag(run: Run, command_target: CommandTarget) -> None:
    ran = run("offsets", "list", *command_target.arguments, "--format", "json")
    assert ran.rows == [
        {
            "group": "simple",
            "topic": "lines",
            "partition": partition,
            "current_offset": offset,
            "log_end_offset": end,
            "lag": end - offset,
            "metadata": "note",
        }
        for partition, offset, end in ((0, 2, 3), (1, 0, 0))
    ]
    assert run("offsets", "list", *command_target.arguments, "--group", "crew", "--format", "json").rows == []
    assert run("offsets", "list", *command_target.arguments).out.splitlines()[0].split() == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "METADATA",
    ]


def test_records_are_dumped(run: Run, command_target: CommandTarget) -> None:
    rows = run("log", "dump", *command_target.arguments, "--topic", "lines", "--format", "json").rows
    assert [(row["topic"], row["partition"], row["offset"], row["type"], row["value"]) for row in rows] == [
        ("lines", 0, 0, "record", "one"),
        ("lines", 0, 1, "record", "two"),
        ("lines", 0, 2, "record", "three"),
    ]
    text = run("log", "dump", *command_target.arguments, "--topic", "lines").out.splitlines()
    assert [line.split(" ", 1)[1] for line in text] == [
        "lines-0@0 record 'one'",
        "lines-0@1 record 'two'",
        "lines-0@2 record 'three'",
    ]


def test_a_dump_can_be_filtered(run: Run, command_target: CommandTarget) -> None:
    narrow = [*command_target.arguments, "--format", "json", "--topic", "lines"]
    assert [row["value"] for row in run("log", "dump", *narrow, "--from", 1, "--to", 2).rows] == ["two"]
    assert [row["value"] for row in run("log", "dump", *narrow, "--from", 2).rows] == ["three"]
    assert run("log", "dump", *narrow, "--partition", 1).rows == []
    assert run("log", "dump", *narrow, "--from", 99).rows == []


def test_a_dump_of_a_topic_that_does_not_exist_is_an_error(run: Run, command_target: CommandTarget) -> None:
    result = run("log", "dump", *command_target.arguments, "--topic", "lines", "--topic", "nowhere")
    assert (result.status, result.out, result.err) == (1, "", "kcore: these topics do not exist: nowhere\n")


def test_a_dump_of_a_partition_that_does_not_exist_is_an_error(run: Run, command_target: CommandTarget) -> None:
    dump = ["log", "dump", *command_target.arguments]
    missing = "kcore: these partitions do not exist in"
    assert run(*dump, "--topic", "lines", "--partition", 99, "--partition", 1) == Ran(
        1, "", f"{missing} lines: 99; the highest partition is 1\n"
    )
    assert run(*dump, "--partition", 99) == Ran(1, "", f"{missing} any topic: 99; the highest partition is 2\n")
    rows = run(*dump, "--topic", "lines", "--topic", CONSUMER_OFFSETS, "--partition", 2, "--format", "json").rows
    assert {(row["topic"], row["partition"]) for row in rows} <= {(CONSUMER_OFFSETS, 2)}


@pytest.mark.parametrize("offsets", [("--from", "5", "--to", "2"), ("--from", "-1")])
def test_a_dump_refuses_offsets_that_are_no_range(
    offsets: tuple[str, ...], run: Run, command_target: CommandTarget
) -> None:
    assert run("log", "dump", *command_target.arguments, *offsets) == Ran(
        1,
        "",
        f"kcore: {' '.join(offsets)}: not a range of offsets; --from must be 0 or more, and --to not below --from\n",
    )


def test_commands_name_a_topic_that_the_client_may_not_describe(run: Run, tmp_path: Path) -> None:
    """As in Kafka, the error does not tell whether the topic exists."""
    settings = {"offsets.topic.num.partitions": "1"}
    with kcore.open(tmp_path / "data", config=settings) as node:
        node.topics.create("secret")
    with ServerProcess(tmp_path / "data", {**settings, "authorizer.class.name": STANDARD_AUTHORIZER}) as server:
        commands = [("log", "dump"), ("consume",)]
        if find_spec("pyarrow") is not None:
            commands.append(("export", "--out", str(tmp_path / "events")))
        for command in commands:
            for topic in ("secret", "none"):
                assert run(*command, "--bootstrap", server.bootstrap, "--topic", topic) == Ran(
                    1, "", f"kcore: TOPIC_AUTHORIZATION_FAILED: topic '{topic}': Not authorized for the topic.\n"
                )


def test_the_events_of_one_group_can_be_dumped(run: Run, command_target: CommandTarget) -> None:
    rows = run("log", "dump", *command_target.arguments, "--group", "simple", "--format", "json").rows
    offsets = [row for row in rows if row["type"] == "OffsetCommit"]
    assert {(row["key"]["partition"], row["value"]["offset"]) for row in offsets} == {(0, 2), (1, 0)}
    crew = run("log", "dump", *command_target.arguments, "--group", "crew", "--format", "json").rows
    assert {row["type"] for row in crew} == {"GroupMetadata"}
    assert crew[-1]["value"]["generation"] == 1


def test_the_whole_log_of_a_folder_is_dumped_with_its_metadata(run: Run, command_target: CommandTarget) -> None:
    rows = run("log", "dump", *command_target.arguments, "--format", "json").rows
    kinds = {row["type"] for row in rows}
    assert {"record", "OffsetCommit", "GroupMetadata"} <= kinds
    if command_target.arguments[0] != "--bootstrap":  # clients cannot read the metadata topic
        assert {"Topic", "Partition"} <= kinds
    positions = [(row["topic"], row["partition"], row["offset"]) for row in rows]
    assert positions == sorted(positions)


@pytest.mark.parametrize("verb", [("log", "dump"), ("groups", "list"), ("groups", "describe"), ("offsets", "list")])
def test_exactly_one_target_must_be_given(verb: tuple[str, str], run: Run) -> None:
    """The command refuses a call with neither a data folder nor `--bootstrap`, and a call with both.

    The second error says that the argument `workers` was read as a data folder. If the user meant a group or topic, the
    error names the option for it.
    """
    ran = run(*verb)
    assert (ran.status, ran.err) == (1, "kcore: name a data folder, or --bootstrap HOST:PORT of a running server\n")
    ran = run(*verb, "workers", "--bootstrap", "localhost:1")
    assert (ran.status, ran.err) == (
        1,
        "kcore: 'workers' is read as a data folder, and --bootstrap names a server: name only one of them. To name a "
        "group or a topic, use --group or --topic\n",
    )


@pytest.mark.parametrize("verb", [("log", "dump"), ("groups", "list"), ("offsets", "list")])
def test_an_unreachable_target_is_reported_in_one_line(verb: tuple[str, str], run: Run, tmp_path: Path) -> None:
    for arguments, expected in (
        ([tmp_path / "no"], "no kcore data folder"),
        (["--bootstrap", "127.0.0.1:1"], "cannot connect to 127.0.0.1:1"),
        (["--bootstrap", "nonsense"], "'nonsense' is not HOST:PORT"),
    ):
        ran = run(*verb, *arguments)
        assert ran.status == 1
        assert expected in ran.err
        assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "no").exists()


def test_a_folder_that_a_server_has_open_is_refused(run: Run, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", {"offsets.topic.num.partitions": "1"}) as server:
        for verb in (("log", "dump"), ("groups", "list")):
            ran = run(*verb, tmp_path / "data")
            assert ran.status == 1
            assert f"in use by process {server.pid}" in ran.err


def test_a_closed_pipe_is_no_failure(command_target: CommandTarget) -> None:
    """The reader of the output closes the pipe, as in `kcore log dump … | head -1`. The command ends with status 0."""
    command = [sys.executable, "-m", "kcore", "log", "dump", *command_target.arguments]
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (0, "")
