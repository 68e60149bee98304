"""The export of the logs of a folder that several nodes serve, while they run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kcore.cli import main
from kcore.log.data_folder import DataFolder
from kcore.log.errors import FencedWriteError
from kcore.log.storage import Leadership
from kcore.log.write_set import WriteSet
from kcore.spark.events.sources import open_source
from kcore.spark.export.exporter import verify
from tests.cluster.world import Client
from tests.log.batches import key
from tests.processes.world import LocalWorld, world  # noqa: F401


@pytest.fixture
def url(world: LocalWorld) -> str:  # noqa: F811
    """Returns the `local://` URL of the data folder. Locks the folder first, as a supervisor does."""
    world.shared.lock = DataFolder(world.shared.path)
    return f"local://{world.shared.path}"


def test_the_command_exports_and_continues(
    world: LocalWorld,  # noqa: F811
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Client(world)
    client.create("t", 3)
    for number in range(9):
        client.produce("t", number % 3, b"%d" % number)
    out = str(tmp_path / "events")
    assert main(["export", "--cluster", url, "--topic", "t", "--out", out]) == 0
    assert capsys.readouterr().out == "9 rows in 3 files\n"
    client.produce("t", 0, b"later")
    assert main(["export", "--cluster", url, "--topic", "t", "--out", out]) == 0
    assert capsys.readouterr().out == "1 row in 1 file\n"
    assert verify(out) == []
    with open_source(out) as exported:
        rows = {part[:2]: [row.value for row in exported.rows(part)] for part in exported.parts()}
    assert rows == {("t", 0): [b"0", b"3", b"6", b"later"], ("t", 1): [b"1", b"4", b"7"], ("t", 2): [b"2", b"5", b"8"]}


def test_the_command_shows_the_nodes(
    world: LocalWorld,  # noqa: F811
    url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["cluster", "status", url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "3"]


def test_a_reader_writes_nothing(world: LocalWorld) -> None:  # noqa: F811
    reader = world.open_store().reader()
    for call in (
        lambda: reader.write(WriteSet([], {}, [], 0)),
        lambda: reader.adopt([Leadership(key(), 0)]),
        lambda: reader.reclaim([], 1),
    ):
        with pytest.raises(FencedWriteError) as refused:
            call()
        assert refused.value.node
    reader.close()


def test_log_verify_and_dump_read_the_store_while_nodes_run(
    world: LocalWorld,  # noqa: F811
    url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Client(world)
    client.create("t", 2)
    for number in range(4):
        client.produce("t", number % 2, b"%d" % number)
    client.commit("g", 7)
    assert main(["log", "verify", url]) == 0
    assert capsys.readouterr().out.startswith("no findings in ")
    assert main(["log", "dump", url, "--topic", "t", "--from", "1", "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [(0, 1, "2"), (1, 1, "3")]
    assert main(["log", "dump", url, "--group", "g"]) == 0
    assert "offset=7" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        ["log", "copy", "postgresql://db/kcore", "copy"],
        ["log", "repair", "postgresql://db/kcore"],
        ["log", "compact", "postgresql://db/kcore"],
        ["groups", "list", "postgresql://db/kcore"],
    ],
)
def test_other_commands_refuse_a_url(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 1
    error = capsys.readouterr().err
    assert "this command needs a data folder, and postgresql://db/kcore is the store of a cluster" in error
