"""The export of the logs of a folder that several nodes serve, while they run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kcore.cli import main
from kcore.log.data_folder import DataFolder
from kcore.log.errors import FencedWriteError
from kcore.log.lmdb_layout import LOG_KEY, partition_meta_key, row_name
from kcore.log.node_journals import node_journal_key
from kcore.log.row_checksum import with_checksum
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


def test_log_verify_reports_every_damaged_row_of_the_shared_database(
    world: LocalWorld,  # noqa: F811
    url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Client(world)
    client.create("t", 3)
    for partition in range(3):
        client.produce("t", partition, b"value")
    store = world.open_store()
    first, *others = [leader.key for leader in store.leaders()[-3:]]
    environment = store._environment
    stored = store.reader().look_up(first)  # moves the batch from the journal to LMDB
    assert stored is not None
    batch_row = LOG_KEY.pack(stored.meta.number, 0)

    def damage(txn: Any) -> None:
        names = [(environment.meta_db, partition_meta_key(key)) for key in others]
        for database, name in [(environment.cluster_db, b"controller"), (environment.log_db, batch_row), *names]:
            row = bytes(txn.get(name, db=database))
            txn.put(name, row[:-1] + bytes([row[-1] ^ 1]), db=database)
        txn.put(b"unknown", with_checksum(b"unknown", b""), db=environment.meta_db)

    environment.transact(damage, "damaging rows of the test")
    assert main(["log", "verify", url, "--format", "json"]) == 1
    *findings, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["partition"], row["detail"]) for row in findings] == [
        (
            None,
            "the database of the cluster is damaged: row controller has a wrong checksum; restart all processes "
            "together: the start creates the database again",
        ),
        *((f"t-{key.partition}", f"partition {key}: the checksum of its metadata is wrong") for key in sorted(others)),
        (None, "metadata b'unknown': the key is unknown"),
    ]
    assert last["partition"] == f"t-{first.partition}"
    assert f"partition {first}, offset 0: damaged: the last batch: the header has CRC" in last["detail"]


def test_log_verify_checks_other_partitions_if_the_reference_to_a_journal_is_damaged(
    world: LocalWorld,  # noqa: F811
    url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Client(world)
    client.create("t", 3)
    for partition in range(3):
        client.produce("t", partition, b"value")
    store = world.open_store()
    leaders = {f"t-{row.key.partition}": row.leader for row in store.leaders()[-3:]}
    owner = leaders["t-0"]
    environment, name = store._environment, node_journal_key(owner)

    def damage(txn: Any) -> None:
        row = bytes(txn.get(name, db=environment.meta_db))
        txn.put(name, row[:-1] + bytes([row[-1] ^ 1]), db=environment.meta_db)

    environment.transact(damage, "damaging a row of the test")
    assert main(["log", "verify", url, "--format", "json"]) == 1
    row, *findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["partition"], row["detail"]) == (None, f"{row_name(name)}: the checksum of its metadata is wrong")
    found = {finding["partition"] for finding in findings}
    assert found & leaders.keys() == {partition for partition, leader in leaders.items() if leader == owner}
    for finding in findings:
        assert finding["detail"].startswith(f"{row_name(name)}: its checksum in data.mdb is wrong")


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
