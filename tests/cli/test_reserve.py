"""Tests of the reserve of disk space, with which an operator frees the space of a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.log import reserve, verify_folder
from kcore.log.errors import DataFolderError, FailureReason, LogError
from kcore.log.lmdb_storage import LmdbStorage
from kcore.log.reserve import make_reserve, with_reserve
from kcore.testing import ServerProcess
from tests.cli.conftest import Ran

Run = Callable[..., Ran]
FEW = {"offsets.topic.num.partitions": "1"}
FULL = "opening the log: no space left"
REFUSED = (
    "kcore: {folder}: data.mdb: " + FULL + "; free space on the disk, or raise the limit of file sizes (`ulimit -f`)"
)
ADVICE = (
    ". If only kcore's data fills the disk: `kcore topics delete {folder} --topic NAME` uses the space of the file "
    "`reserve`, and `kcore log compact {folder}` then shrinks the data file"
)


@pytest.fixture
def full_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder with a topic. As long as the folder has its reserve, each opening fails on the full disk."""
    folder = tmp_path / "data"
    with kcore.open(folder, config=FEW) as node:
        node.topics.create("big", 1)
    assert make_reserve(str(folder), 1 << 16)
    open_state = LmdbStorage._open_state

    def fail(storage: LmdbStorage) -> None:
        if (folder / "reserve").exists():
            raise LogError(FULL, FailureReason.DISK_FULL)
        open_state(storage)

    monkeypatch.setattr(LmdbStorage, "_open_state", fail)
    return folder


def test_commands_on_a_folder_use_the_reserve_of_a_full_disk(full_folder: Path, run: Run) -> None:
    assert run("topics", "delete", full_folder, "--topic", "big")[:2] == (0, "deleted big\n")
    assert not (full_folder / "reserve").exists()
    assert make_reserve(str(full_folder), 1 << 16)
    assert run("log", "compact", full_folder).status == 0
    assert not (full_folder / "reserve").exists()
    assert verify_folder(full_folder) == []


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_server_keeps_the_reserve_and_says_how_to_use_it(
    processes: tuple[str, ...], full_folder: Path, run: Run
) -> None:
    ran = run("serve", "--data", full_folder, "--listen", "127.0.0.1:39003", *processes)
    assert ran == Ran(1, "", f"{REFUSED}{ADVICE}\n".format(folder=full_folder))
    assert (full_folder / "reserve").exists()


def test_commands_keep_the_reserve_after_other_errors(tmp_path: Path) -> None:
    (tmp_path / "reserve").touch()
    for error in (
        DataFolderError(tmp_path, "in use by process 1"),
        LogError("a bad sector", FailureReason.IO_ERROR),
    ):

        def use(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)):
            with_reserve(tmp_path, use)
    assert (tmp_path / "reserve").exists()


def test_without_a_reserve_the_error_stays(full_folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (full_folder / "reserve").unlink()

    def fail(storage: LmdbStorage) -> None:
        raise LogError(FULL, FailureReason.DISK_FULL)

    monkeypatch.setattr(LmdbStorage, "_open_state", fail)
    error = f"{REFUSED.format(folder=full_folder)}\n"
    assert run("topics", "delete", full_folder, "--topic", "big") == Ran(1, "", error)
    assert run("serve", "--data", full_folder, "--listen", "127.0.0.1:39003") == Ran(1, "", error)


def test_a_server_creates_the_reserve(tmp_path: Path) -> None:
    """The size is that of `kcore.reserve.bytes`. The file is allocated, so that it takes this space on the disk."""
    folder = tmp_path / "data"
    for size_bytes in (100_000, 50_000):
        with ServerProcess(folder, FEW | {"kcore.reserve.bytes": str(size_bytes)}):
            status = (folder / "reserve").stat()
        assert (status.st_size, status.st_mode & 0o777) == (size_bytes, 0o600)
        assert status.st_blocks * 512 >= size_bytes
    with kcore.open(folder) as node:
        assert node.engine.config.kcore_reserve_bytes == 16_777_216
    assert (folder / "reserve").exists()
    with ServerProcess(folder, FEW | {"kcore.reserve.bytes": "0"}):
        assert not (folder / "reserve").exists()


def test_a_nearly_full_disk_gets_no_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result([*disk[:4], 1, *disk[5:]]))
    assert not make_reserve(str(tmp_path), 1 << 16)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_an_incomplete_reserve_is_removed(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(reserve, "_allocate", fail)
    if isinstance(error, OSError):
        assert not make_reserve(str(tmp_path), 1 << 16)
        assert [record.getMessage() for record in caplog.records] == [
            f"log {tmp_path}: cannot create the file `reserve`, which reserves disk space (No space left on device); "
            "the server works without this file, but on a full disk, free some space before you delete topics"
        ]
    else:
        with pytest.raises(KeyboardInterrupt):
            make_reserve(str(tmp_path), 1 << 16)
    assert list(tmp_path.iterdir()) == []
