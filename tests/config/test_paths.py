"""Tests that commands and settings refuse paths that a script or a unit file has left empty or has not expanded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kcore
from kcore.cli import main
from kcore.config.node import Config
from kcore.errors import ConfigError

EMPTY = "is empty; name a folder"
TILDE = (
    "begins with ~, which kcore does not expand; write the whole path of the home folder, or ./ in front of a name "
    "that begins with ~"
)
SETTING = "kcore.data.dir"


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a data folder the working folder: an empty path must not name it."""
    kcore.open(tmp_path, config={"offsets.topic.num.partitions": 1}).close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["serve", "--data", ""], f"command line: {SETTING}='' {EMPTY}"),
        (["serve", "--data", "  "], f"command line: {SETTING}='  ' {EMPTY}"),
        (["serve", "--data", "~/data"], f"command line: {SETTING}='~/data' {TILDE}"),
        (["serve", "-c", f"{SETTING}="], f"-c: {SETTING}='' {EMPTY}"),
        (["serve", "-c", "log.dirs=~/data"], f"-c: {SETTING}='~/data' {TILDE}"),
        (["serve", "--http", ""], "--http is empty; valid: HOST:PORT"),
        (["serve", "--processes", "1", "--data", ""], f"command line: {SETTING}='' {EMPTY}"),
        (["groups", "list", ""], f"DIR {EMPTY}"),
        (["groups", "list", "~x"], f"DIR='~x' {TILDE}"),
        (["topics", "create", "", "--topic", "a"], f"DIR {EMPTY}"),
        (["log", "dump", ""], f"DIR {EMPTY}"),
        (["log", "verify", ""], f"DIR {EMPTY}"),
        (["log", "compact", ""], f"DIR {EMPTY}"),
        (["log", "repair", "", "--yes"], f"DIR {EMPTY}"),
        (["log", "repair", ".", "--copy-to", ""], f"--copy-to {EMPTY}"),
        (["log", "copy", "", "copy"], f"DIR {EMPTY}"),
        (["log", "copy", ".", ""], f"DEST {EMPTY}"),
        (["log", "copy", ".", "~/copy"], f"DEST='~/copy' {TILDE}"),
    ],
)
def test_a_command_refuses_a_path_that_is_probably_a_mistake(
    arguments: list[str], expected: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in working_folder.iterdir())
    assert main(arguments) == 1
    assert capsys.readouterr() == ("", f"kcore: {expected}\n")
    assert sorted(path.name for path in working_folder.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["export", "", "--out", "events"], f"SOURCE {EMPTY}"),
        (["export", ".", "--out", ""], f"--out {EMPTY}"),
        (["export", ".", "--out", "~/events"], f"--out='~/events' {TILDE}"),
        (["export", "verify", ""], f"FOLDER {EMPTY}"),
        (["spark", "rebuild", ".", "--out", ""], f"--out {EMPTY}"),
    ],
)
def test_exports_and_jobs_refuse_such_a_path(
    arguments: list[str], expected: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("pyspark")
    test_a_command_refuses_a_path_that_is_probably_a_mistake(arguments, expected, working_folder, capsys)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: kcore.open("~/data"), f"path='~/data' {TILDE}"),
        (lambda: kcore.open(Path("~/data")), f"path='~/data' {TILDE}"),
        (lambda: Config({SETTING: ""}), f"{SETTING}='' {EMPTY}"),
        (
            lambda: kcore.open("data", config={"kcore.durability": "memory"}),
            "kcore.durability=memory keeps all data in memory and would not use the data folder data: remove one of "
            "the two settings",
        ),
    ],
)
def test_the_python_api_refuses_such_a_path(call: Callable[[], object], expected: str, working_folder: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        call()
    assert str(refused.value) == expected


def test_a_name_that_begins_with_a_tilde_is_written_with_its_folder(working_folder: Path) -> None:
    kcore.open("./~data", config={"offsets.topic.num.partitions": 1}).close()
    assert (working_folder / "~data" / "data.mdb").is_file()
