"""`kcore log copy`: a copy of a folder while a server writes to it, and a copy without a server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.client import Connection
from kcore.testing import ServerProcess
from tests.cli.conftest import Ran, populate
from tests.kit import QUICK, batch, commit, committed, make_topic, produce, read_all, wait_until

Run = Callable[..., Any]
SETTINGS = {**QUICK, "offsets.topic.num.partitions": "3"}
WRITERS = 4
ACKNOWLEDGED_BEFORE = 60


class Writer(threading.Thread):
    """A client that writes numbers to its own partition, and commits each as an offset of its group."""

    def __init__(self, bootstrap: str, partition: int, stop: threading.Event) -> None:
        super().__init__()
        self.partition = partition
        self.acknowledged = 0
        self.error: BaseException | None = None
        self._server = bootstrap
        self._stop_requested = stop

    def run(self) -> None:
        try:
            with Connection.to(self._server, client_id="writer") as connection:
                while not self._stop_requested.is_set():
                    number = self.acknowledged
                    produced = connection.send(produce("numbers", batch([b"%d" % number]), self.partition), 9)
                    assert produced.responses[0].partition_responses[0].error_code == 0
                    offsets = {("numbers", self.partition): number + 1}
                    done = connection.send(commit(f"group-{self.partition}", offsets), 9)
                    assert done.topics[0].partitions[0].error_code == 0
                    self.acknowledged = number + 1
        except BaseException as error:  # the test checks it
            self.error = error


def test_a_copy_under_load_holds_a_prefix_with_everything_acknowledged_before(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    stop = threading.Event()
    with ServerProcess(folder, SETTINGS) as server:
        with Connection.to(server.bootstrap, client_id="kcore") as connection:
            make_topic(connection, "numbers", WRITERS)
        writers = [Writer(server.bootstrap, partition, stop) for partition in range(WRITERS)]
        for writer in writers:
            writer.start()
        bounds = []
        try:
            for attempt in range(3):
                least = (attempt + 1) * ACKNOWLEDGED_BEFORE
                wait_until(
                    lambda least=least: all(one.error or one.acknowledged >= least for one in writers), "the writing"
                )
                before = [writer.acknowledged for writer in writers]
                ran = run("log", "copy", folder, tmp_path / f"copy-{attempt}", "--format", "json")
                assert ran.status == 0, ran.err
                assert ran.rows[0]["partitions"] == 3 + WRITERS + 1
                bounds.append((before, [writer.acknowledged for writer in writers]))
        finally:
            stop.set()
            for writer in writers:
                writer.join(60)
        assert [writer.error for writer in writers] == [None] * WRITERS
        with Connection.to(server.bootstrap, client_id="kcore") as connection:
            for writer in writers:
                values = read_all(connection, "numbers", writer.partition)
                assert values == [(n, b"%d" % n) for n in range(writer.acknowledged)], "the server lost nothing"
    for attempt, (before, after) in enumerate(bounds):
        with kcore.open(tmp_path / f"copy-{attempt}", config=SETTINGS, create=False) as engine:
            for partition in range(WRITERS):
                values = read_all(engine, "numbers", partition)
                assert values == [(n, b"%d" % n) for n in range(len(values))]
                # One write of each writer may be in flight when the counts are read.
                assert before[partition] <= len(values) <= after[partition] + 1
                offset = committed(engine, f"group-{partition}")[("numbers", partition)]
                assert before[partition] <= offset <= len(values), "the commit came after the record"


def test_a_killed_server_leaves_a_folder_that_can_be_copied(run: Run, tmp_path: Path) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    with ServerProcess(folder, SETTINGS) as server:
        with Connection.to(server.bootstrap, client_id="kcore") as connection:
            populate(connection)
        server.kill()
    before = (folder / "data.mdb").read_bytes()
    ran = run("log", "copy", folder, copy)
    assert (ran.status, ran.out.split()[:3]) == (0, ["COPY", "BYTES", "PARTITIONS"])
    assert (folder / "data.mdb").read_bytes() == before
    for data_folder in (folder, copy):
        with kcore.open(data_folder, config=SETTINGS, create=False) as engine:
            assert read_all(engine, "lines") == [(0, b"one"), (1, b"two"), (2, b"three")]
            assert committed(engine, "simple") == {("lines", 0): 2, ("lines", 1): 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with kcore.open(path, config=SETTINGS) as engine:
        populate(engine)
    return path


def test_only_an_empty_destination_is_accepted(run: Run, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    assert run("log", "copy", folder, copy).status == 0
    before = sorted(os.listdir(copy))
    ran = run("log", "copy", folder, copy)
    assert (ran.status, ran.err) == (1, f"kcore: {copy}: the copy needs a new or an empty folder\n")
    assert sorted(os.listdir(copy)) == before


def test_a_destination_without_its_parent_folder_is_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    destination = tmp_path / "none" / "copy"
    error = f"kcore: {destination}: its parent folder does not exist; create it first\n"
    assert run("log", "copy", folder, destination) == Ran(1, "", error)


@pytest.mark.parametrize("destination", ["data/copy", "data/more/copy", "link/copy", "data"])
def test_a_destination_inside_the_folder_is_refused(run: Run, folder: Path, tmp_path: Path, destination: str) -> None:
    """If the copy were inside, a later copy or removal of the folder would include it."""
    (tmp_path / "link").symlink_to(folder)
    before = sorted(os.listdir(folder))
    ran = run("log", "copy", folder, tmp_path / destination)
    assert ran.status == 1
    expected = (
        "the copy needs a new or an empty folder" if destination == "data" else f"is inside {folder}: choose a folder"
    )
    assert expected in ran.err
    assert sorted(os.listdir(folder)) == before


def test_a_damaged_page_is_an_error_and_leaves_no_copy(run: Run, folder: Path, tmp_path: Path) -> None:
    data = bytearray((folder / "data.mdb").read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 16] = bytes(16)
    (folder / "data.mdb").write_bytes(data)
    ran = run("log", "copy", folder, tmp_path / "copy")
    assert ran.status == 1
    assert ran.err.startswith(f"kcore: {folder}: data.mdb: damaged: page ")
    assert not (tmp_path / "copy").exists()


def test_without_disk_space_there_is_no_copy(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Disk:
        f_bavail = 1
        f_frsize = 4096

    monkeypatch.setattr("kcore.log.lmdb_copy.os.statvfs", lambda place: Disk())
    ran = run("log", "copy", folder, tmp_path / "copy")
    assert (ran.status, "has 4096 bytes free, and the copy needs up to " in ran.err) == (1, True)
    assert not (tmp_path / "copy").exists()


def test_a_missing_folder_is_refused(run: Run, tmp_path: Path) -> None:
    ran = run("log", "copy", tmp_path / "nothing", tmp_path / "copy")
    assert (ran.status, "no kcore data folder" in ran.err) == (1, True)
