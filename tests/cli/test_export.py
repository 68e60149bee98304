"""`kcore export` of a folder and of a running server, once or continuously, and `kcore export verify` of the result."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import kcore
from kcore.client import Connection
from kcore.protocol.error_codes import ErrorCode
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import open_source
from kcore.testing import ServerProcess
from tests.cli.conftest import SETTINGS, CommandTarget, Ran, populate
from tests.kit import commit, wait_until

Run = Callable[..., Ran]


def exported(folder: Path) -> dict[tuple[str, int], list[EventRow]]:
    """Returns the rows of an export or a data folder, without empty partitions."""
    with open_source(folder) as source:
        rows = {part[:2]: list(source.rows(part)) for part in source.parts()}
    return {partition: of for partition, of in rows.items() if of}


def test_a_running_server_and_its_folder_give_the_same(run: Run, tmp_path: Path) -> None:
    """Exports internal and other topics over TCP while the server runs, and from the folder afterwards."""
    with ServerProcess(tmp_path / "data", SETTINGS) as server:
        with Connection.to(server.bootstrap) as connection:
            populate(connection)
        target = ("--bootstrap", server.bootstrap)
        over_tcp = run("export", *target, "--out", tmp_path / "one")
        lines = run("export", *target, "--out", tmp_path / "lines", "--topic", "lines", "--format", "jsonl")
    assert (over_tcp.status, over_tcp.err) == (0, "")
    assert (lines.status, lines.out) == (0, "3 rows in 1 file\n")
    assert run("export", tmp_path / "data", "--out", tmp_path / "two", "--topic", "__consumer_offsets").status == 0
    one, whole = exported(tmp_path / "one"), exported(tmp_path / "data")
    assert {topic for topic, _ in one} == {"__consumer_offsets"}
    assert (
        one
        == exported(tmp_path / "two")
        == {partition: of for partition, of in whole.items() if partition[0] in {"__consumer_offsets"}}
    )
    assert over_tcp.out == f"{sum(map(len, one.values()))} rows in {len(one)} files\n"
    assert exported(tmp_path / "lines") == {("lines", 0): whole["lines", 0]}
    for folder in ("one", "two", "lines"):
        checked = run("export", "verify", tmp_path / folder)
        assert (checked.status, checked.out) == (0, "the export is complete\n")


def test_ranges_are_exported_and_existing_rows_are_not_exported_again(
    run: Run, command_target: CommandTarget, tmp_path: Path
) -> None:
    arguments = ("export", *command_target.arguments, "--out", tmp_path / "out", "--topic", "lines")
    assert run(*arguments, "--from", 1, "--to", 2).out == "1 row in 1 file\n"
    assert run(*arguments, "--from", 1).out == "1 row in 1 file\n"
    again = run(*arguments)
    late = "began at offset 1 when this export started: earlier records are missing"
    assert (again.status, again.out.splitlines()) == (0, ["0 rows in 0 files", f"lines-0 {late}", f"lines-1 {late}"])
    ((where, rows),) = exported(tmp_path / "out").items()
    assert where == ("lines", 0)
    assert [(row.offset, row.value) for row in rows] == [(1, b"two"), (2, b"three")]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), (
            "name one source (a data folder, --bootstrap HOST:PORT of a running server, or --cluster URL) and --out "
            "FOLDER"
        )),
        (("DATA",), (
            "name one source (a data folder, --bootstrap HOST:PORT of a running server, or --cluster URL) and --out "
            "FOLDER"
        )),
        (("DATA", "--follow", "--out", "OUT"), "--follow needs --bootstrap or --cluster: a closed data folder "),
        (("DATA", "--out", "OUT", "--from", "-1"), "--from -1: not a range of offsets"),
        (("DATA", "--out", "OUT", "--from", "5", "--to", "4"), "--from 5 --to 4: not a range of offsets"),
        (("DATA", "--topic", "none", "--topic", "lines", "--out", "OUT"), "topics that do not exist: none"),
        (("MISSING", "--out", "OUT"), "MISSING is not a folder"),
        (("DATA", "--format", "jsonl", "--out", "PARQUET"), "contains an export in the format parquet, not jsonl"),
        (("--bootstrap", "127.0.0.1:1", "--out", "OUT"), "cannot connect to 127.0.0.1:1: "),
        (("DATA", "--out", "DATA/data.mdb"), "DATA/data.mdb would be inside of the source DATA"),
        (("DATA", "--out", "OUT", "--interval", "-1"), "--interval -1.0: must be a number of seconds"),
        (("DATA", "--out", "OUT", "--interval", "nan"), "--interval nan: must be a number of seconds"),
        (("verify",), "name the folder of the export: kcore export verify FOLDER"),
        (("verify", "DATA"), "DATA: the manifest cannot be read: "),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused(run: Run, tmp_path: Path, arguments: tuple[str, ...], expected: str) -> None:
    with kcore.open(tmp_path / "DATA", config=SETTINGS) as engine:
        populate(engine)
    if "PARQUET" in arguments:
        assert run("export", tmp_path / "DATA", "--out", tmp_path / "PARQUET").status == 0
    ran = run("export", *(tmp_path / word if word.partition("/")[0].isupper() else word for word in arguments))
    assert ran.status == 1
    assert expected in ran.err.replace(f"{tmp_path}/", "")
    assert len(ran.err.splitlines()) == 1


def test_an_export_inside_its_source_is_refused(run: Run, tmp_path: Path) -> None:
    """With a manifest in a data folder, later commands would read the export instead of the log."""
    run("topics", "create", tmp_path / "data", "--topic", "t")
    for out in (tmp_path / "data", tmp_path / "data" / "events"):
        ran = run("export", tmp_path / "data", "--out", out)
        assert (ran.status, "would be inside of the source" in ran.err) == (1, True)
    assert not list((tmp_path / "data").glob("*.json"))
    (tmp_path / "file").touch()
    ran = run("export", tmp_path / "data", "--out", tmp_path / "file")
    assert (ran.status, ran.err) == (1, f"kcore: {tmp_path / 'file'} is a file: name a folder\n")


def test_a_source_without_internal_topics_is_reported(run: Run, command_target: CommandTarget, tmp_path: Path) -> None:
    run("export", *command_target.arguments, "--out", tmp_path / "lines", "--topic", "lines")
    ran = run("export", tmp_path / "lines", "--out", tmp_path / "none")
    assert (ran.status, ran.out) == (0, "0 rows in 0 files\n")
    assert ran.err == "kcore: the source has no internal topics: name topics with --topic\n"


def test_verify_reports_damage(run: Run, command_target: CommandTarget, tmp_path: Path) -> None:
    run("export", *command_target.arguments, "--out", tmp_path, "--topic", "lines")
    (path,) = tmp_path.glob("topic=lines/*/*")
    path.write_bytes(path.read_bytes()[:-4])
    size = path.stat().st_size
    checked = run("export", "verify", tmp_path)
    name = path.relative_to(tmp_path).as_posix()
    assert (checked.status, checked.out) == (1, f"{name}: has {size} bytes, not {size + 4}\n1 finding\n")


def test_damage_is_reported_and_the_rest_is_exported(run: Run, tmp_path: Path) -> None:
    """For a folder with a half-written batch, the command ends with status 1, prints a line for each loss, and exports
    all other batches.
    """
    from tests.spark.test_batches import batch_of

    folder = tmp_path / "logs" / "orders-0"
    folder.mkdir(parents=True)
    whole = batch_of([(0, b"k", b"v", (("h", b"1"),))] * 3)
    (folder / f"{0:020d}.log").write_bytes(whole + batch_of([(0, b"k", b"v", ())], 3)[:-1])
    ran = run("export", tmp_path / "logs", "--out", tmp_path / "out", "--topic", "orders")
    first, second = ran.out.splitlines()
    assert (ran.status, first) == (1, "3 rows in 1 file")
    assert second.startswith("orders-0@3: truncated: 00000000000000000000.log: the batch at position ")
    (rows,) = exported(tmp_path / "out").values()
    assert [(row.offset, row.headers) for row in rows] == [(n, (("h", b"1"),)) for n in range(3)]
    checked = run("export", "verify", tmp_path / "out")
    expected = second.replace("@3: truncated:", "@3: truncated at export:")
    assert (checked.status, checked.out) == (1, f"{expected}\n1 finding\n")


def commit_when_loaded(server: ServerProcess, group: str, offset: int) -> None:
    """Repeats a commit until the server accepts it. After a restart, a coordinator refuses commits while it loads its
    state.
    """
    with Connection.to(server.bootstrap) as connection:

        def accepted() -> bool:
            response = connection.send(commit(group, {("lines", 0): offset}), 9)
            return bool(response.topics[0].partitions[0].error_code == ErrorCode.NONE)

        wait_until(accepted, "the commit is accepted")


def test_a_server_is_followed_until_the_export_is_stopped(tmp_path: Path) -> None:
    """`kcore export --follow` runs while the server is killed and restarted, until a signal stops the export.

    The export has every row once, and only whole files are left.
    """
    command = [
        sys.executable,
        "-m",
        "kcore",
        "export",
        "--follow",
        "--interval",
        "0.02",
        "--out",
        str(tmp_path / "out"),
    ]
    seen = 0
    with ServerProcess(tmp_path / "data", SETTINGS) as server:
        with Connection.to(server.bootstrap) as connection:
            populate(connection)
        command += ["--bootstrap", server.bootstrap]
        follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert follower.stdout is not None
        assert follower.stderr is not None

        def until(rows: int) -> None:
            nonlocal seen
            while seen < rows:
                seen += int(follower.stdout.readline().split()[0])

        try:
            until(1)
            first = seen
            commit_when_loaded(server, "late", 1)
            until(first + 1)
            server.kill()
            assert follower.stderr.readline().endswith("; retrying\n")
            server.start()
            commit_when_loaded(server, "later", 2)
            until(first + 2)
        finally:
            follower.send_signal(signal.SIGINT)
            assert follower.wait(30) == 130
            follower.stdout.close()
            follower.stderr.close()
    found, whole = exported(tmp_path / "out"), exported(tmp_path / "data")
    assert found == {partition: rows for partition, rows in whole.items() if partition[0] == "__consumer_offsets"}
    assert sum(map(len, found.values())) == seen
