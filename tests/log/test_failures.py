"""Commits keep their promises on a full disk, while LMDB's memory map grows, and after a failed transaction."""

from __future__ import annotations

import functools
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kcore import errors
from kcore.log import FailureReason, LmdbLogEngine, LogError, MemoryLogEngine, lmdb_storage
from kcore.log import engine as engine_module
from kcore.log.engine import StagedLogEngine
from kcore.log.faults import FaultInjectingEngine
from kcore.log.write_set import WriteSet
from tests.log.batches import batch, contents, fill, key, stamped
from tests.log.conftest import Store

ROOT = Path(__file__).parents[2]


def test_the_map_grows_without_disturbing_readers(folder: Path) -> None:
    engine = LmdbLogEngine(folder, "os", map_size_bytes=1 << 16, tail_size_bytes=0)
    log = engine.open(key())
    stored = fill(log, engine, 3, size_bytes=1000)
    iteration = log.batches()
    first = next(iteration)[1]
    stop = threading.Event()
    wrong: list[int] = []

    def read() -> None:
        while not stop.is_set():
            high = log.high_watermark
            if len(log.read(0, 1 << 30, 3)) != 3 or log.read(high - 1, 1) == []:
                wrong.append(high)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(60):
            stored += fill(log, engine, 2, size_bytes=100_000)
    finally:
        stop.set()
        reader.join()
    assert wrong == []
    assert [first, *(data for _, data in iteration)] == stored[:3]
    assert contents(log) == stored
    assert engine.stats().file_size_bytes > 100 * (1 << 16)
    engine.close()
    engine = LmdbLogEngine(folder, "os", map_size_bytes=1 << 16)
    assert contents(engine.open(key())) == stored
    engine.close()


def test_one_round_may_need_the_map_to_double_many_times(folder: Path) -> None:
    engine = LmdbLogEngine(folder, "os", map_size_bytes=1 << 16)
    log = engine.open(key())
    for _ in range(20):
        log.append(batch(size_bytes=1_000_000), 0)
    engine.commit()
    assert (log.high_watermark, len(contents(log))) == (20, 20)
    engine.close()


def test_a_commit_beyond_the_size_limit_fails_and_the_engine_continues(folder: Path) -> None:
    engine = LmdbLogEngine(folder, "os", map_size_bytes=1 << 16, max_size_bytes=1 << 20)
    log = engine.open(key())
    stored = fill(log, engine, 3, size_bytes=1000)
    for _ in range(3):
        log.append(batch(size_bytes=2_000_000), 0)
        engine.put_meta("a", b"b")
        with pytest.raises(LogError) as error:
            engine.commit()
        assert error.value.reason is FailureReason.SIZE_LIMIT
        assert (log.end_offset, log.high_watermark, engine.get_meta("a"), engine.dirty) == (3, 3, None, False)
    stored += fill(log, engine, 2, size_bytes=1000)
    assert contents(log) == stored
    engine.close()
    engine = LmdbLogEngine(folder)
    assert contents(engine.open(key())) == stored
    assert engine.verify(deep=True) == []
    engine.close()


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_full_disk_fails_commits_until_there_is_room_again(small_disk: Path, durability: str) -> None:
    engine = LmdbLogEngine(small_disk / "data", durability)
    log = engine.open(key())
    stored = fill(log, engine, 3, size_bytes=1000)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    for _ in range(5):
        log.append(batch(size_bytes=3 << 20), 0)
        with pytest.raises(LogError) as error:
            engine.commit()
        assert error.value.reason is FailureReason.DISK_FULL
        assert (log.end_offset, contents(log)) == (3, stored)
    ballast.unlink()
    stored += fill(log, engine, 1, size_bytes=2 << 20)
    engine.close()
    engine = LmdbLogEngine(small_disk / "data", durability)
    assert contents(engine.open(key())) == stored
    assert engine.verify(deep=True) == []
    engine.close()


LIMITED = """
import resource, sys
from kcore import errors
from kcore.log import FailureReason, LmdbLogEngine, LogError
from tests.log.batches import batch, contents, fill, key
engine = LmdbLogEngine(sys.argv[1])
log = engine.open(key())
stored = fill(log, engine, 3)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
for turn in range(3):
    log.append(batch(size_bytes=1_000_000), 0)
    try:
        engine.commit()
        raise SystemExit("committed beyond the limit")
    except LogError as error:
        assert error.reason is FailureReason.DISK_FULL, error
    assert contents(log) == stored
    stored += fill(log, engine, 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
stored += fill(log, engine, 1, size_bytes=1_000_000)
assert contents(log) == stored
assert engine.verify(deep=True) == []
engine.close()
"""


def test_a_file_size_limit_is_a_full_disk(folder: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY:
        pytest.skip("a file size limit is in force already")
    done = subprocess.run([sys.executable, "-c", LIMITED, str(folder)], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


NARROW = """
import resource, sys
from kcore import errors
from kcore.log import FailureReason, LmdbLogEngine, LogError
from tests.log.batches import batch, contents, fill, key
MIB = 1 << 20
engine = LmdbLogEngine(sys.argv[1], "os", map_size_bytes=128 * MIB, tail_size_bytes=0)
log = engine.open(key())
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 64 * MIB, resource.RLIM_INFINITY))
while log.high_watermark < 1000:
    for _ in range(4):
        log.append(batch(size_bytes=MIB), 0)
    try:
        engine.commit()
    except LogError as error:
        assert error.reason is FailureReason.SIZE_LIMIT, error
        break
assert 100 < log.end_offset == log.high_watermark < 140, log
assert len(log.read(0, 1)) == 1
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
end = log.end_offset
fill(log, engine, 30, size_bytes=MIB)
assert [base for base, _ in log.batches()] == list(range(end + 30))
engine.close()
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads its own size from /proc")
def test_a_map_that_cannot_grow_fails_the_commit_and_nothing_else(folder: Path) -> None:
    """The system refuses the memory for a larger LMDB map. LMDB has already unmapped the old map, so the engine opens
    LMDB again. Only the commit fails.
    """
    done = subprocess.run([sys.executable, "-c", NARROW, str(folder)], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


class BrokenTransaction:
    """A write transaction whose commit reports a failure, although the commit may have taken effect."""

    def __init__(self, txn: Any, lands: bool, error: BaseException) -> None:
        self._txn, self._lands, self._error = txn, lands, error

    def commit(self) -> None:
        if self._lands:
            self._txn.commit()
        else:
            self._txn.abort()
        raise self._error

    def __enter__(self) -> BrokenTransaction:
        return self

    def __exit__(self, *raised: object) -> None:
        self.commit()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)


class BrokenEnvironment:
    """An LMDB environment whose next write transaction is a BrokenTransaction."""

    def __init__(self, env: lmdb.Environment, lands: bool, error: BaseException) -> None:
        self._env, self._lands, self._error = env, lands, error

    def begin(self, *args: Any, **kwargs: Any) -> Any:
        txn = self._env.begin(*args, **kwargs)
        return BrokenTransaction(txn, self._lands, self._error) if kwargs.get("write") else txn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def break_transaction(engine: LmdbLogEngine, lands: bool, error: BaseException) -> None:
    """Makes the next write transaction fail. With `lands`, the failed transaction has taken effect."""
    environment = engine._storage._environment  # type: ignore[attr-defined]
    environment._env = BrokenEnvironment(environment._env, lands, error)


def break_commit(engine: LmdbLogEngine, lands: bool, error: BaseException) -> None:
    """Makes the next commit fail. Stores a named value first, so that this commit needs an LMDB transaction."""
    engine.put_meta("value", b"of a failing commit")
    break_transaction(engine, lands, error)


@pytest.mark.parametrize("error", [lmdb.PanicError("mdb_txn_commit"), lmdb.DiskError("mdb_txn_commit")])
def test_a_failed_commit_that_stored_nothing_is_a_failure_and_the_file_is_reopened(
    folder: Path, error: lmdb.Error
) -> None:
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    stored = fill(log, engine, 2)
    break_commit(engine, lands=False, error=error)
    log.append(batch(), 0)
    with pytest.raises(LogError) as raised:
        engine.commit()
    assert raised.value.reason is FailureReason.IO_ERROR
    assert (log.end_offset, contents(log)) == (2, stored)
    stored += fill(log, engine, 2)
    assert contents(log) == stored
    engine.close()


def test_readers_continue_while_failed_commits_reopen_the_file(folder: Path) -> None:
    engine = LmdbLogEngine(folder, "os", tail_size_bytes=0)
    log = engine.open(key())
    stored = fill(log, engine, 20)
    stop = threading.Event()
    wrong: list[object] = []
    reads = [0]

    def read() -> None:
        while not stop.is_set():
            try:
                if contents(log)[:20] != stored[:20]:
                    wrong.append("contents")
            except LogError as error:
                wrong.append(error)
            reads[0] += 1

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        turn = 0
        while turn < 30 or reads[0] < 50:
            break_commit(engine, lands=turn % 2 == 0, error=lmdb.PanicError("mdb_txn_commit"))
            log.append(batch(), 0)
            if turn % 2:
                with pytest.raises(LogError):
                    engine.commit()
            else:
                engine.commit()
            turn += 1
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert log.end_offset == 20 + (turn + 1) // 2
    assert engine.verify(deep=True) == []
    engine.close()


def test_a_commit_that_fails_after_it_was_stored_is_a_success(folder: Path) -> None:
    """A commit reports an error although its transaction is stored. The engine reads the file, finds the transaction,
    and reports success.
    """
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    fill(log, engine, 2)
    break_commit(engine, lands=True, error=lmdb.PanicError("mdb_txn_commit"))
    log.append(batch(3), 0)
    engine.commit()
    assert (log.high_watermark, log.end_offset) == (5, 5)
    fill(log, engine, 1)
    engine.close()
    engine = LmdbLogEngine(folder)
    assert engine.open(key()).end_offset == 6
    engine.close()


def test_an_uncertain_commit_is_resolved_when_the_file_can_be_written_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    stored = fill(log, engine, 2)
    environment = engine._storage._environment  # type: ignore[attr-defined]
    reopen = environment.reopen

    def reopen_and_break() -> int:
        last_txn_id: int = reopen()
        break_transaction(engine, lands=False, error=lmdb.DiskError("mdb_txn_commit"))
        return last_txn_id

    monkeypatch.setattr(type(environment), "reopen", lambda self: reopen_and_break())
    break_commit(engine, lands=True, error=lmdb.PanicError("mdb_txn_commit"))
    data = batch()
    stored.append(stamped(data, log.append(data, 0), 0))
    for _ in range(3):
        with pytest.raises(LogError, match="it is unknown whether that commit is stored"):
            engine.commit()
        assert engine.uncertain
        assert (log.high_watermark, contents(log)) == (2, stored[:2])
        log.append(batch(5), 0)
    monkeypatch.undo()
    with pytest.raises(LogError, match="interrupted"):
        engine.commit()
    assert not engine.uncertain
    assert (log.high_watermark, log.end_offset, contents(log)) == (3, 3, stored)
    stored += fill(log, engine, 2)
    engine.close()
    engine = LmdbLogEngine(folder)
    assert contents(engine.open(key())) == stored
    assert engine.verify(deep=True) == []
    engine.close()


@pytest.mark.parametrize("lands", [False, True])
def test_memory_and_file_agree_after_an_interrupted_commit(folder: Path, lands: bool) -> None:
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    fill(log, engine, 2)
    break_commit(engine, lands, KeyboardInterrupt())
    log.append(batch(3), 0)
    with pytest.raises(KeyboardInterrupt):
        engine.commit()
    assert (log.high_watermark, log.end_offset) == ((5, 5) if lands else (2, 2))
    fill(log, engine, 1)
    assert engine.verify(deep=True) == []
    engine.close()


def test_every_commit_fails_while_the_folder_cannot_be_opened_again(folder: Path) -> None:
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    stored = fill(log, engine, 2)
    break_commit(engine, lands=False, error=lmdb.DiskError("mdb_txn_commit"))
    hidden = folder.with_name("hidden")
    folder.rename(hidden)
    for _ in range(2):
        log.append(batch(), 0)
        with pytest.raises(LogError, match="cannot be opened again"):
            engine.commit()
        assert (engine.uncertain, log.high_watermark) == (True, 2)
    hidden.rename(folder)
    with pytest.raises(LogError, match="interrupted"):
        engine.commit()
    assert (engine.uncertain, log.end_offset) == (False, 2)
    stored += fill(log, engine, 1)
    assert contents(log) == stored
    engine.close()


def test_injected_failures_affect_exactly_the_chosen_commits() -> None:
    engine = FaultInjectingEngine(MemoryLogEngine())
    log = engine.open(key())
    engine.fail_commit(2, FailureReason.DISK_FULL)
    engine.fail_commit(3)
    ends = []
    for _ in range(4):
        log.append(batch(), 0)
        try:
            engine.commit()
            ends.append(log.end_offset)
        except LogError as error:
            ends.append(error.reason)
    assert ends == [1, FailureReason.DISK_FULL, FailureReason.INJECTED, 2]
    engine.fail_reclaim()
    with pytest.raises(LogError):
        engine.reclaim(1)
    assert engine.reclaim(1) is False


def test_an_interrupt_after_the_write_of_an_injected_engine_keeps_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FaultInjectingEngine(MemoryLogEngine())
    log = engine.open(key())
    stored = fill(log, engine, 2)
    log.append(batch(), 0)

    def interrupted(self: StagedLogEngine, write_set: WriteSet) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(StagedLogEngine, "finish", interrupted)
        with pytest.raises(MemoryError):
            engine.commit()
    found = contents(log)
    assert (found[:2], len(found)) == (stored, 3)
    fill(log, engine, 1)
    assert contents(log)[:3] == found


def test_a_callers_handler_for_the_packages_errors_catches_those_of_the_log(tmp_path: Path) -> None:
    engine = MemoryLogEngine()
    engine.close()
    with pytest.raises(errors.LogError):
        engine.commit()
    with pytest.raises(errors.DataFolderError) as refused:
        LmdbLogEngine(tmp_path / "absent", create=False)
    assert (
        str(refused.value) == f"{tmp_path / 'absent'}: data.mdb: the file is missing, so this is no kcore data folder"
    )


class NoMemory:
    """A replacement of a function that raises MemoryError from call number `nth` on, while `lacking` is True."""

    def __init__(self, function: Callable[..., Any], nth: int) -> None:
        self.function = function
        self.left = nth
        self.lacking = True

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.lacking and self.left <= 0:
            raise MemoryError
        return self.function(*arguments, **named)


@pytest.mark.parametrize("background", [False, True])
def test_a_stored_commit_is_shown_once_the_file_can_be_opened_again(folder: Path, background: bool) -> None:
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    stored = fill(log, engine, 2)
    break_commit(engine, lands=True, error=lmdb.DiskError("mdb_txn_commit"))
    hidden = folder.with_name("hidden")
    folder.rename(hidden)
    data = batch()
    stored.append(stamped(data, log.append(data, 0), 0))
    write_set = engine.seal() if background else None
    call = engine.commit if write_set is None else functools.partial(engine.write, write_set)
    with pytest.raises(LogError, match="cannot be opened again") as error:
        call()
    if write_set is not None:
        with pytest.raises(LogError, match="cannot be opened again"):
            engine.fail(write_set, error.value)
    assert engine.uncertain
    assert log.high_watermark == 2
    hidden.rename(folder)
    log.append(batch(5), 0)
    with pytest.raises(LogError, match="interrupted"):
        engine.commit()
    assert (log.high_watermark, contents(log)) == (3, stored)
    stored += fill(log, engine, 1)
    engine.close()
    engine = LmdbLogEngine(folder)
    assert contents(engine.open(key())) == stored
    assert engine.verify(deep=True) == []
    engine.close()


def test_a_file_that_lacks_a_durable_commit_stops_all_writes(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log knows that a commit succeeded, but the file does not have this commit. The log refuses every write.

    An operator may, for example, have replaced the file by an older copy.
    """
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    fill(log, engine, 2)
    storage = engine._storage
    write_set = WriteSet([], {}, [], 0)
    write_set.is_durable = True
    storage._write_set, storage._txn_id, storage._uncertain = write_set, 1 << 40, True  # type: ignore[attr-defined]
    for _ in range(2):
        log.append(batch(5), 0)
        with pytest.raises(LogError, match=r"a commit that succeeded is not in data\.mdb"):
            engine.commit()
        assert log.end_offset == 2
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert line.startswith(f"log {folder}: a commit that succeeded is not in data.mdb: the log refuses every write")
    engine.close()


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_second_exception_while_the_result_of_a_commit_is_determined_is_harmless(
    folder: Path, lands: bool, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    stored = fill(log, engine, 2)
    environment = engine._storage._environment  # type: ignore[attr-defined]
    reopen = environment.reopen

    def interrupted() -> int:
        reopen()
        raise error

    break_commit(engine, lands, error())
    monkeypatch.setattr(type(environment), "reopen", lambda self: interrupted())
    data = batch(3)
    base = log.append(data, 0)
    with pytest.raises(error):
        engine.commit()
    monkeypatch.undo()
    if lands:
        stored.append(stamped(data, base, 0))
    engine.recover()
    assert contents(log) == stored
    stored += fill(log, engine, 1)
    engine.close()
    engine = LmdbLogEngine(folder)
    assert contents(engine.open(key())) == stored
    engine.close()


@pytest.mark.parametrize("step", ["__init__", "_seal_dirty"])
@pytest.mark.parametrize("commit", ["commit", "seal"])
def test_an_exception_while_a_round_is_sealed_fails_it_as_a_whole(
    store: Store, step: str, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store.engine
    log = engine.open(key())
    stored = fill(log, engine, 3)
    owner = WriteSet if step == "__init__" else StagedLogEngine
    real = getattr(owner, step)

    def interrupted(*arguments: Any) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, step, interrupted)
    log.append(batch(4), 1)
    engine.put_meta("a", b"b")
    with pytest.raises(KeyboardInterrupt):
        getattr(engine, commit)()
    monkeypatch.undo()
    assert (log.end_offset, log.leader_epoch, engine.get_meta("a"), engine.dirty) == (3, 0, None, False)
    stored += fill(log, engine, 2)
    assert contents(log) == stored
    log = store.reopen().open(key())
    assert contents(log) == stored
    assert store.engine.verify(deep=True) == []


def test_a_closed_storage_is_not_opened_again_by_a_late_reader(folder: Path) -> None:
    engine = LmdbLogEngine(folder, tail_size_bytes=0)
    log = engine.open(key())
    stored = fill(log, engine, 2)
    storage = engine._storage
    engine.close()
    with pytest.raises(LogError, match="the log is closed"):
        storage.slice(0, 0, 2, 1 << 20, 10)
    engine.close()
    engine = LmdbLogEngine(folder)
    assert contents(engine.open(key())) == stored
    engine.close()


def test_an_opening_without_memory_releases_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LmdbLogEngine(folder)
    stored = fill(engine.open(key()), engine, 2)
    engine.close()
    for target, name in [(lmdb_storage, "load_partitions"), (engine_module, "StagedPartitionLog")]:
        monkeypatch.setattr(target, name, NoMemory(getattr(target, name), 1))
        with pytest.raises(MemoryError):
            LmdbLogEngine(folder)
        monkeypatch.undo()
    engine = LmdbLogEngine(folder)
    assert contents(engine.open(key())) == stored
    engine.close()
