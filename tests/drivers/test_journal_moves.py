"""Drivers move full areas of the journal on a thread, which ends with the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import kcore
from kcore.drivers import log_threads
from kcore.drivers.log_threads import JournalMover
from kcore.log import LmdbLogEngine, MemoryLogEngine, journal
from tests.kit import QUICK, commit, create
from tests.log.batches import contents, fill, key

THREAD = "kcore-journal"


@pytest.fixture(autouse=True)
def small_areas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_ENTRIES", 3)


@pytest.fixture
def moved_by(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list to which each thread that moves an area adds its name."""
    found: list[str] = []
    real = journal.Journal.move_full_area

    def move(self: journal.Journal, *arguments: object) -> None:
        found.append(threading.current_thread().name)
        real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(journal.Journal, "move_full_area", move)
    return found


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def test_areas_are_moved_on_a_thread_that_stop_ends(tmp_path: Path, moved_by: list[str]) -> None:
    engine = LmdbLogEngine(tmp_path / "data")
    mover = JournalMover(engine)
    log = engine.open(key())
    stored = fill(log, engine, 1)
    for _ in range(3):
        stored += fill(log, engine, 1)
    assert running() == []
    stored += fill(log, engine, 1)
    mover.stop()
    assert (moved_by, running()) == ([THREAD], [])
    for _ in range(8):
        stored += fill(log, engine, 1)
    mover.stop()
    assert moved_by == [THREAD], "without a thread commits move the journal"
    assert contents(log) == stored
    engine.close()


def test_if_no_thread_can_be_started_commits_move_the_journal(
    tmp_path: Path, moved_by: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(log_threads, "Writer", refuse)
    engine = LmdbLogEngine(tmp_path / "data")
    mover = JournalMover(engine)
    log = engine.open(key())
    stored = [one for _ in range(12) for one in fill(log, engine, 1)]
    assert (contents(log), moved_by) == (stored, [])
    assert [record.getMessage() for record in caplog.records] == [
        f"driver: cannot start the thread that moves journal entries to the log {tmp_path / 'data'}: can't start new "
        "thread; from now on, a commit that finds the journal full moves the entries itself, and takes longer; check "
        "the process's limit of threads (ulimit -u), and restart kcore"
    ]
    mover.stop()
    engine.close()


@pytest.mark.parametrize("make", [MemoryLogEngine, lambda: None])
def test_only_logs_with_fsync_have_the_thread(
    make: Callable[[], MemoryLogEngine | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make() or LmdbLogEngine(tmp_path / "data", "os")
    started: list[object] = []
    monkeypatch.setattr(type(log), "move_beside", lambda self, start: started.append(start))
    mover = JournalMover(log)
    assert started == []
    mover.stop()
    log.close()


@pytest.mark.parametrize("listens", [False, True])
def test_a_node_of_threads_ends_the_thread_when_it_is_closed(
    listens: bool, tmp_path: Path, moved_by: list[str]
) -> None:
    with kcore.open(tmp_path / "data", config=QUICK) as node:
        node.send(create("t"))
        listening = node.listen("127.0.0.1:0") if listens else None
        for offset in range(12):
            response = node.send(commit("g", {("t", 0): offset}), 9)
            assert response.topics[0].partitions[0].error_code == 0
        if listening is not None:
            listening.close()
    assert set(moved_by) == {THREAD}
    assert running() == []


async def test_a_node_of_a_loop_ends_the_thread_when_it_is_closed(tmp_path: Path, moved_by: list[str]) -> None:
    async with kcore.open_async(tmp_path / "data", config=QUICK) as node:
        await node.send(create("t"))
        for offset in range(12):
            response = await node.send(commit("g", {("t", 0): offset}), 9)
            assert response.topics[0].partitions[0].error_code == 0
    assert set(moved_by) == {THREAD}
    assert running() == []
