"""Commits keep their promises after a failed write or flush of the journal file."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kcore.log import FailureReason, LmdbLogEngine, LogError, journal_file, lmdb_environment
from kcore.log.journal import Journal
from kcore.log.journal_file import JOURNAL_BYTES
from tests.log.batches import batch, contents, fill, key, stamped
from tests.log.test_failures import break_transaction

FAILURES = {
    "write": (errno.ENOSPC, FailureReason.DISK_FULL),
    "part of a write": (errno.EIO, FailureReason.IO_ERROR),
    "flush": (errno.EIO, FailureReason.IO_ERROR),
    "flush of a full disk": (errno.EDQUOT, FailureReason.DISK_FULL),
}


class FailingFile:
    """Makes the next write or flush of the journal fail. Counts the flushes, and records the
    positions of the writes.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.failure: str | None = None
        self.flushes = 0
        self.positions: list[int] = []
        self._write, self._sync = journal_file._write_all, journal_file._sync
        patch.setattr(journal_file, "_write_all", self.write)
        patch.setattr(journal_file, "_sync", self.sync)

    def write(self, fd: int, data: bytes, at: int) -> None:
        self.positions.append(at)
        if self.failure is not None and "write" in self.failure:
            if "part" in self.failure:
                self._write(fd, data[:-5], at)
            self._fail()
        self._write(fd, data, at)

    def sync(self, fd: int, how: Callable[[int], None]) -> None:
        self.flushes += 1
        if self.failure is not None:
            self._fail()
        self._sync(fd, how)

    def _fail(self) -> None:
        assert self.failure is not None
        code = FAILURES[self.failure][0]
        self.failure = None
        raise OSError(code, "injected")


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> FailingFile:
    return FailingFile(monkeypatch)


@pytest.fixture
def engine(folder: Path, file: FailingFile) -> Iterator[LmdbLogEngine]:
    """Opens an engine that uses a journal but no tail in memory, so that every read goes to the storage."""
    opened = LmdbLogEngine(folder, tail_size_bytes=0)
    yield opened
    opened.close()


def after_a_kill(folder: Path, tmp_path: Path) -> list[bytes]:
    """Copies the files as a killed process leaves them. Returns the batches of the copy, which must be undamaged."""
    copy = tmp_path / "killed"
    shutil.copytree(folder, copy)
    engine = LmdbLogEngine(copy)
    found = contents(engine.open(key()))
    assert engine.verify(deep=True) == []
    engine.close()
    shutil.rmtree(copy)
    return found


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("background", [False, True])
def test_a_failed_write_fails_its_round_and_no_other(
    failure: str, background: bool, engine: LmdbLogEngine, file: FailingFile, folder: Path, tmp_path: Path
) -> None:
    log = engine.open(key())
    stored = fill(log, engine, 1)
    for _ in range(3):
        for _ in range(3):
            stored += fill(log, engine, 1)
        log.append(batch(5), 0)
        file.failure = failure
        write_set = engine.seal() if background else None
        commit = engine.commit if write_set is None else functools.partial(engine.write, write_set)
        with pytest.raises(LogError, match=r"writing the journal: .* injected") as raised:
            commit()
        assert raised.value.reason is FAILURES[failure][1]
        if write_set is not None:
            assert not write_set.is_durable
            engine.fail(write_set, raised.value)
        assert (engine.uncertain, log.high_watermark, log.end_offset) == (False, len(stored), len(stored))
        assert contents(log) == stored
        assert after_a_kill(folder, tmp_path) == stored, "the files have the refused round"
    engine.close()
    again = LmdbLogEngine(folder)
    assert contents(again.open(key())) == stored
    again.close()


def test_a_failed_flush_is_not_repeated(engine: LmdbLogEngine, file: FailingFile) -> None:
    """The flush of a journal entry fails, and the round with it. The engine does not repeat the flush, and moves the
    earlier rounds to the log. The next round begins another journal at the start of the file.
    """
    log = engine.open(key())
    for _ in range(4):
        fill(log, engine, 1)
    identity = engine._storage._journal.identity  # type: ignore[attr-defined]
    file.flushes = 0
    log.append(batch(), 0)
    file.failure = "flush"
    with pytest.raises(LogError):
        engine.commit()
    assert file.flushes == 1
    assert engine._storage._journal.identity != identity  # type: ignore[attr-defined]
    fill(log, engine, 1)
    assert (file.flushes, file.positions[-1]) == (2, 0)


@pytest.mark.parametrize("lands", [False, True])
def test_while_the_journal_cannot_be_moved_the_log_is_uncertain(
    lands: bool, engine: LmdbLogEngine, file: FailingFile, folder: Path, tmp_path: Path
) -> None:
    """Neither the journal nor LMDB accepts a write. The log refuses all writes until LMDB accepts one. The refused
    round never appears.
    """
    log = engine.open(key())
    stored = [one for _ in range(4) for one in fill(log, engine, 1)]
    environment = engine._storage._environment  # type: ignore[attr-defined]
    real = type(environment).reopen
    failing = [True]

    def reopen(self: object) -> int:
        last_txn_id: int = real(self)
        if failing[0]:
            break_transaction(engine, lands, lmdb.DiskError("mdb_txn_commit"))
        return last_txn_id

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(environment), "reopen", reopen)
        log.append(batch(5), 0)
        file.failure = "flush"
        for attempt in range(3):
            with pytest.raises(LogError, match=r"cannot be moved to the log yet|whether that commit is stored"):
                engine.commit()
            assert engine.uncertain, attempt
            assert contents(log) == stored
            log.append(batch(7), 0)
        failing[0] = False
        with pytest.raises(LogError, match="interrupted"):
            engine.commit()
    assert (engine.uncertain, log.end_offset, contents(log)) == (False, 4, stored)
    assert after_a_kill(folder, tmp_path) == stored
    stored += fill(log, engine, 2)
    assert after_a_kill(folder, tmp_path) == stored


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("flushed", [False, True])
def test_an_exception_around_the_flush_gives_the_round_one_result(
    error: type[BaseException],
    flushed: bool,
    engine: LmdbLogEngine,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception interrupts the commit before or after the flush of its entry. Before the flush, the round has
    failed, and its entry never becomes valid although it is in the file. After the flush, the round is stored.
    """
    log = engine.open(key())
    stored = [one for _ in range(4) for one in fill(log, engine, 1)]
    one = engine._storage._journal  # type: ignore[attr-defined]
    real = type(one).append

    def interrupted(self: object, write_set: object, entry: bytes) -> None:
        if flushed:
            real(self, write_set, entry)
        else:
            journal_file._write_all(one._file._fd, entry, one._areas[-1].size_bytes)
        raise error

    data = batch(3)
    expected = stamped(data, log.append(data, 0), 0)
    monkeypatch.setattr(type(one), "append", interrupted)
    with pytest.raises(error):
        engine.commit()
    monkeypatch.undo()
    if flushed:
        stored.append(expected)
    assert contents(log) == stored
    assert after_a_kill(folder, tmp_path) == stored
    stored += fill(log, engine, 2)
    assert contents(log) == stored
    assert after_a_kill(folder, tmp_path) == stored


def test_a_failed_sync_leaves_the_journal(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With durability `os`, entries are not flushed until `sync`, and this flush fails. The engine moves the entries
    from its memory to the log.
    """
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    log = engine.open(key())
    stored = [one for _ in range(4) for one in fill(log, engine, 1)]
    identity = engine._storage._journal.identity  # type: ignore[attr-defined]
    file = FailingFile(monkeypatch)
    file.failure = "flush"
    with pytest.raises(LogError, match=r"flushing the log: .* injected"):
        engine.sync()
    assert engine._storage._journal.identity != identity  # type: ignore[attr-defined]
    stored += fill(log, engine, 2)
    assert contents(log) == stored
    assert after_a_kill(folder, tmp_path) == stored
    engine.sync()
    engine.close()


def test_an_identity_that_neither_journal_has_stops_all_writes(
    engine: LmdbLogEngine, file: FailingFile, caplog: pytest.LogCaptureFixture
) -> None:
    """LMDB's file refers to another journal than the open one, as if the file had been replaced. The log refuses every
    write, because it could overwrite the journal of the new file.
    """
    log = engine.open(key())
    stored = [one for _ in range(3) for one in fill(log, engine, 1)]
    engine._storage._journal.identity = bytes(16)  # type: ignore[attr-defined]
    file.failure = "flush"
    for _ in range(2):
        log.append(batch(), 0)
        with pytest.raises(LogError, match=r"data\.mdb does not refer to the journal file in use"):
            engine.commit()
        assert contents(log) == stored
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


def test_a_move_of_the_journal_names_the_full_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """LMDB reports an input/output error if a part of its write succeeded."""
    engine = LmdbLogEngine(folder)
    fill(engine.open(key()), engine, 1)

    def fail(*arguments: Any, **named: Any) -> None:
        raise lmdb.DiskError("mdb_txn_commit: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "move", fail)
        patch.setattr(lmdb_environment, "_no_room", lambda path, size_bytes: size_bytes == JOURNAL_BYTES)
        engine.close()
    assert caplog.messages == [
        f"log {folder}: the journal could not be moved to the log at the close (moving the journal: no space left on "
        "the device, or the limit of file sizes is reached (mdb_txn_commit: Input/output error)). No write is lost: "
        "the next opening moves it. Until then, the log consists of both `data.mdb` and `journal`: copy or move "
        "them together"
    ]


def test_a_close_on_a_full_disk_reports_that_the_journal_is_still_needed(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = LmdbLogEngine(small_disk / "data")
    log = engine.open(key())
    stored = fill(log, engine, 200, size_bytes=1000)
    ballast = small_disk / "ballast"
    with ballast.open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(4096))
    engine.close()
    (line,) = caplog.messages
    assert line.startswith(f"log {small_disk}/data: the journal could not be moved to the log at the close (")
    assert "o space left on " in line
    ballast.unlink()
    engine = LmdbLogEngine(small_disk / "data")
    assert contents(engine.open(key())) == stored
    engine.close()
    assert len(caplog.messages) == 1
