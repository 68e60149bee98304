"""`kcore topics` against a running server and against a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, run
from tests.kit import batch, produce
from tests.server.live import LiveServer


@pytest.fixture
def kcore() -> Iterator[Terminal]:
    with LiveServer() as live:
        yield Terminal(live)


def test_topics_are_created_listed_described_and_deleted(kcore: Terminal) -> None:
    made = kcore(
        "topics", "create", "--topic", "a", "--topic", "b", "--partitions", "2", "--config", "retention.ms=5000"
    )
    assert made == (0, "created a\ncreated b\n", "")
    with kcore.live.connect() as client:
        client.send(produce("a", batch([b"1", b"2"]), 1), 9)
    assert kcore("topics", "list", "--format", "json").objects == [
        {"topic": "__consumer_offsets", "partitions": 3, "internal": True},
        {"topic": "a", "partitions": 2, "internal": False},
        {"topic": "b", "partitions": 2, "internal": False},
    ]
    common = {"topic": "a", "leader": 1, "start_offset": 0, "settings": "retention.ms=5000"}
    assert kcore("topics", "describe", "--topic", "a", "--format", "json").objects == [
        {**common, "partition": 0, "end_offset": 0},
        {**common, "partition": 1, "end_offset": 2},
    ]
    assert kcore("topics", "delete", "--topic", "a") == (0, "deleted a\n", "")
    assert [row["topic"] for row in kcore("topics", "list", "--format", "json").objects] == ["__consumer_offsets", "b"]


def test_text_has_columns(kcore: Terminal) -> None:
    kcore("topics", "create", "--topic", "a")
    assert kcore("topics", "describe", "--topic", "a").lines == [
        "TOPIC  PARTITION  LEADER  START-OFFSET  END-OFFSET  SETTINGS",
        "a      0          1       0             0           -",
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("create", "--topic", "a/b"), "INVALID_TOPIC_EXCEPTION"),
        (("create", "--topic", "a", "--partitions", "0"), "kcore: partitions=0; valid: 1 to 2147483647"),
        (("create", "--topic", "a", "--config", "retention.ms=soon"), "INVALID_CONFIG"),
        (("create", "--topic", "a", "--config", "retention.ms"), "is not a setting; valid: --config name=value"),
        (("delete", "--topic", "nowhere"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("describe", "--topic", "nowhere"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_refusals_state_the_cause_and_exit_with_1(kcore: Terminal, arguments: tuple[str, ...], why: str) -> None:
    ran = kcore("topics", *arguments)
    assert (ran.status, ran.out) == (1, "")
    assert why in ran.err
    assert "Traceback" not in ran.err


def test_existing_and_missing_topics_are_accepted_with_the_if_options(kcore: Terminal) -> None:
    kcore("topics", "create", "--topic", "a")
    assert kcore("topics", "create", "--topic", "a").status == 1
    assert kcore("topics", "create", "--topic", "a", "--topic", "b", "--if-not-exists") == (0, "created b\n", "")
    assert kcore("topics", "delete", "--topic", "gone", "--if-exists") == (0, "", "")


def test_a_folder_works_like_a_server(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    assert run("topics", "list", folder).status == 1, "only create makes a folder"
    assert run("topics", "create", folder, "--topic", "a", "--partitions", "2").out == "created a\n"
    rows = run("topics", "describe", folder, "--topic", "a", "--format", "json").objects
    assert [(row["partition"], row["end_offset"]) for row in rows] == [(0, 0), (1, 0)]
    assert run("topics", "delete", folder, "--topic", "a").status == 0
