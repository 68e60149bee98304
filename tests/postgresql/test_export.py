"""The export of a cluster's logs from PostgreSQL, while its nodes run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcore.cli import main
from kcore.spark.events.sources import open_source
from kcore.spark.export.exporter import verify
from tests.cluster.world import Client
from tests.postgresql.world import PostgresWorld, world  # noqa: F401


def test_the_command_exports_and_continues(
    world: PostgresWorld,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Client(world)
    client.create("t", 3)
    for number in range(9):
        client.produce("t", number % 3, b"%d" % number)
    url, out = world.shared.url, str(tmp_path / "events")
    assert main(["export", "--cluster", url, "--topic", "t", "--out", out]) == 0
    assert capsys.readouterr().out == "9 rows in 3 files\n"
    client.produce("t", 0, b"later")
    assert main(["export", "--cluster", url, "--topic", "t", "--out", out]) == 0
    assert capsys.readouterr().out == "1 row in 1 file\n"
    assert verify(out) == []
    with open_source(out) as exported:
        rows = {part[:2]: [row.value for row in exported.rows(part)] for part in exported.parts()}
    assert rows == {("t", 0): [b"0", b"3", b"6", b"later"], ("t", 1): [b"1", b"4", b"7"], ("t", 2): [b"2", b"5", b"8"]}


def test_log_verify_names_a_damaged_batch(
    world: PostgresWorld,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Client(world)
    client.create("t", 1)
    client.produce("t", 0, b"first")
    client.produce("t", 0, b"second")
    url = world.shared.url
    assert main(["log", "verify", url]) == 0
    assert capsys.readouterr().out.startswith("no findings in ")
    world.shared.execute(
        "UPDATE kcore.batches SET batch = set_byte(batch, 65, 255 - get_byte(batch, 65)) "
        "WHERE base_offset = 1 AND position('second'::bytea IN batch) > 0"
    )
    assert main(["log", "verify", url]) == 1
    [header, row] = capsys.readouterr().out.splitlines()
    assert row.split()[:3] == ["t-0", "1", "crc"], header
