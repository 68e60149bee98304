"""Fixtures that run the `kcore` command in this process, on a folder and on a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kcore
from kcore.cli import main
from kcore.client import Connection
from kcore.testing import ServerProcess
from tests.kit import QUICK, Target, batch, commit, make_topic, produce, stable_alone

SETTINGS = {**QUICK, "offsets.topic.num.partitions": "3"}


class Ran(NamedTuple):
    """The result of one run of the command."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """The output as JSON, one object per line."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Returns a function that runs the command, such as `run("groups", "list", folder)`."""

    def run(*arguments: Any) -> Ran:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return run


def populate(target: Target) -> str:
    """Creates a topic with records, a group with committed offsets and a group with a member. Returns the id of the
    member.
    """
    make_topic(target, "lines", 2)
    target.send(produce("lines", batch([b"one", b"two", b"three"])), 9)
    target.send(commit("simple", {("lines", 0): 2, ("lines", 1): 0}, metadata="note"), 9)
    return stable_alone(target, "crew", session_ms=30_000)[0]


@contextmanager
def folder_to_repair(path: Path, settings: Mapping[str, str]) -> Iterator[Path]:
    """Creates a folder with the data of `populate`. At the end, checks that no repair has left a staging folder."""
    with kcore.open(path, config=settings) as engine:
        populate(engine)
    yield path
    assert not (path / "data.mdb.repair").exists()


class CommandTarget(NamedTuple):
    """The target of a command, as command-line arguments."""

    arguments: list[str]
    member: str


@pytest.fixture(scope="session", params=["folder", "server"])
def command_target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandTarget]:
    """Yields a closed folder, and a running server with the same state."""
    folder = tmp_path_factory.mktemp("cli") / "data"
    if request.param == "folder":
        with kcore.open(folder, config=SETTINGS) as engine:
            member = populate(engine)
        yield CommandTarget([str(folder)], member)
        return
    with ServerProcess(folder, SETTINGS) as server:
        with Connection.to(server.bootstrap, client_id="kcore") as connection:
            member = populate(connection)
        yield CommandTarget(["--bootstrap", server.bootstrap], member)


@pytest.fixture
def properties(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a properties file."""

    def write(text: str) -> Path:
        path = tmp_path / "server.properties"
        path.write_text(text)
        return path

    return write
