"""Data folders: opening, refusals and their errors, format versions, forks, and compaction."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kcore.inspect.damage import FolderRules
from kcore.log import (
    DataFolderError,
    FailureReason,
    LmdbLogEngine,
    LogClosedError,
    LogError,
    compact,
    open_engine,
    verify_folder,
)
from kcore.log import lmdb_layout as layout
from kcore.log.lmdb_copy import copy_folder
from kcore.log.repair import repair_folder
from tests.log.batches import batch, contents, fill, key
from tests.log.raw_rows import make_older, put_version

ROOT = Path(__file__).parents[2]


def make(folder: Path, batches: int = 5) -> list[bytes]:
    engine = LmdbLogEngine(folder)
    stored = fill(engine.open(key()), engine, batches)
    engine.close()
    return stored


def refusal(folder: Path, **kwargs: Any) -> tuple[str, str]:
    """Returns the attributes `what` and `where` of the error that opening the folder raises."""
    with pytest.raises(DataFolderError) as refused:
        LmdbLogEngine(folder, **kwargs).close()
    assert refused.value.path == folder
    return refused.value.what, refused.value.where


def put_raw(folder: Path, db: bytes, name: bytes, value: bytes | None) -> None:
    """Changes a value in the file without the engine."""
    with lmdb.open(str(folder), max_dbs=8) as env, env.begin(write=True, db=env.open_db(db)) as txn:
        txn.delete(name) if value is None else txn.put(name, value)


def test_absent_folders_are_created_and_empty_ones_are_used(tmp_path: Path) -> None:
    for folder in (tmp_path / "a" / "b", tmp_path):
        engine = LmdbLogEngine(folder)
        assert engine.path == str(folder)
        engine.close()
        shutil.rmtree(tmp_path / "a", ignore_errors=True)


def test_without_create_an_absent_folder_is_refused_and_not_created(folder: Path) -> None:
    assert refusal(folder, create=False) == ("the file is missing, so this is no kcore data folder", "data.mdb")
    assert not folder.exists()
    for tool in (compact, verify_folder):
        with pytest.raises(DataFolderError):
            tool(folder)
    assert not folder.exists()


def test_a_folder_with_other_files_is_refused_and_not_changed(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").write_text("x")
    assert refusal(folder) == ("not a kcore data folder, and not empty", "thesis.txt")
    assert os.listdir(folder) == ["thesis.txt"]


def test_an_lmdb_file_of_another_program_is_refused(folder: Path) -> None:
    folder.mkdir()
    with lmdb.open(str(folder)) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    assert refusal(folder) == ("an LMDB file, but not a file of kcore", "data.mdb")


def test_a_creation_that_a_crash_interrupted_is_begun_again(folder: Path) -> None:
    folder.mkdir()
    (folder / "data.mdb").write_bytes(b"")
    LmdbLogEngine(folder).close()
    shutil.rmtree(folder)
    folder.mkdir()
    lmdb.open(str(folder), max_dbs=8).close()
    engine = LmdbLogEngine(folder)
    assert engine.node_epoch == 0
    engine.close()


def test_paths_that_cannot_be_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert refusal(tmp_path / "file")[0] == "a file, not a folder; choose another path"
    assert refusal(tmp_path / "file" / "below")[0] == "Not a directory"
    assert refusal(Path("/proc/kcore-data"))[0] == "No such file or directory"


def test_an_unwritable_folder_is_refused(folder: Path) -> None:
    make(folder)
    if os.geteuid() == 0:
        # Permissions do not bind root; a read-only mount does.
        mounted = subprocess.run(["mount", "--bind", str(folder), str(folder)], capture_output=True, check=False)
        if mounted.returncode:
            pytest.skip("may not mount")
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
            what = "Read-only file system; kcore writes lock files even to read a data folder: use a folder on a "
            assert refusal(folder)[0].startswith(what)
            assert refusal(folder)[1] == "kcore.lock"
            with pytest.raises(LogError, match=f"{folder}/lock.mdb: {what}"):
                copy_folder(str(folder), f"{folder}-copy")
        finally:
            subprocess.run(["umount", str(folder)], check=True)
        return
    (folder / "kcore.lock").unlink()
    folder.chmod(0o500)
    try:
        what, where = refusal(folder)
        assert where == "kcore.lock"
        assert what.startswith(f"Permission denied; the user of this process (uid {os.geteuid()}) must be allowed to ")
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize(
    ("limit", "size", "expected"),
    [
        ("AS", "now + (64 << 20)", "Cannot allocate memory; LMDB maps the whole file: raise the limit of the address "),
        ("FSIZE", "1 << 12", "or raise the limit of file sizes (`ulimit -f`)"),
    ],
)
def test_a_folder_that_a_limit_of_the_process_excludes_is_refused_with_a_remedy(
    folder: Path, limit: str, size: str, expected: str
) -> None:
    make(folder)
    script = f"""
import resource, signal
from kcore.log import LmdbLogEngine
from kcore.log.errors import DataFolderError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_{limit}, ({size}, resource.RLIM_INFINITY))
try:
    LmdbLogEngine({str(folder)!r})
except DataFolderError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"{folder}: data.mdb: "), done.stderr
    assert expected in done.stdout
    assert done.stdout.count(str(folder)) == 1


@pytest.mark.parametrize("removed", [["kcore.lock"], ["kcore.lock", "lock.mdb"]])
@pytest.mark.parametrize("new", [True, False], ids=["new folder", "old folder"])
def test_a_folder_whose_lock_file_was_removed_is_still_locked(folder: Path, removed: list[str], new: bool) -> None:
    """The lock file of an open folder is removed. Neither another process nor this one can open the folder again until
    its owner closes it, and the owner can continue to write.
    """
    stored = [] if new else make(folder)
    engine = LmdbLogEngine(folder)
    for name in removed:
        (folder / name).unlink()
    refused = ("in use by another process, although its kcore.lock was removed", "data.mdb")
    for _ in range(2):
        assert refusal(folder) == refused
    script = f"from kcore.log import LmdbLogEngine; LmdbLogEngine({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert refused[0] in done.stderr
    log = engine.open(key())
    more = fill(log, engine, 3) if new else []
    assert contents(log) == stored + more
    engine.close()
    again = LmdbLogEngine(folder)
    assert contents(again.open(key())) == stored + more
    again.close()


@pytest.mark.parametrize("deleted", ["data file", "folder"])
@pytest.mark.parametrize("change", ["batch", "metadata"])  # an entry of the journal, and a transaction
def test_no_commit_succeeds_after_the_data_file_was_deleted(folder: Path, deleted: str, change: str) -> None:
    stored = make(folder)
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    stored += fill(log, engine, 2)
    if deleted == "folder":
        shutil.rmtree(folder)
    else:
        (folder / "data.mdb").unlink()
    for _ in range(2):
        if change == "batch":
            log.append(batch(log.end_offset), 0)
        else:
            engine.put_meta("name", b"value")
        with pytest.raises(LogError, match=f"`data.mdb` of the data folder {folder} was deleted") as refused:
            engine.commit()
        assert (refused.value.reason, engine.uncertain) == (FailureReason.DELETED, False)
        assert contents(log) == stored
    engine.close()
    again = LmdbLogEngine(folder)
    assert contents(again.open(key())) == []
    again.close()


def test_a_moved_folder_remains_usable(folder: Path, tmp_path: Path) -> None:
    stored = make(folder)
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    folder.rename(tmp_path / "moved")
    stored += fill(log, engine, 2)
    engine.close()
    again = LmdbLogEngine(tmp_path / "moved")
    assert contents(again.open(key())) == stored
    again.close()


def test_a_process_opens_a_folder_with_one_engine_at_a_time(folder: Path) -> None:
    engine = LmdbLogEngine(folder)
    assert refusal(folder) == ("in use by this process", "kcore.lock")
    for tool in (compact, verify_folder):
        with pytest.raises(DataFolderError, match="in use by this process"):
            tool(folder)
    fill(engine.open(key()), engine, 1)
    engine.close()
    LmdbLogEngine(folder).close()


def test_an_engine_collected_without_a_close_releases_its_folder(folder: Path) -> None:
    engine = LmdbLogEngine(folder)
    fill(engine.open(key()), engine, 3)
    del engine
    again = LmdbLogEngine(folder)
    log = again.get(key())
    assert log is not None
    assert log.high_watermark == 3
    again.close()


def test_only_the_owner_may_read_a_folder_and_its_files(folder: Path) -> None:
    before = os.umask(0)
    try:
        make(folder)
        compact(folder)
        LmdbLogEngine(folder).close()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert modes == {"kcore.lock": 0o600, "data.mdb": 0o600, "lock.mdb": 0o600, "journal": 0o600}


def test_durability_memory_is_for_logs_without_a_path(folder: Path) -> None:
    with pytest.raises(ValueError, match="durability"):
        LmdbLogEngine(folder, "memory")
    with pytest.raises(ValueError, match="needs a path"):
        open_engine(None)
    engine = open_engine(None, "memory")
    stored = fill(engine.open(key()), engine, 1)
    assert not folder.exists()
    assert engine.stats().tail_size_bytes > 0, "readers find the newest batches without the storage"
    assert contents(engine.open(key())) == stored


def test_a_newer_format_is_refused(folder: Path) -> None:
    make(folder)
    put_version(folder, 9)
    what = "format version 9 is newer than 8, the newest version that this kcore supports; use a newer kcore"
    assert refusal(folder) == (what, "data.mdb")
    copied = Path(f"{folder}-copy")
    with pytest.raises(DataFolderError) as refused:
        copy_folder(str(folder), str(copied))
    assert str(refused.value) == f"{folder}: data.mdb: {what}"
    assert not copied.exists()
    put_version(folder, 8)
    LmdbLogEngine(folder).close()


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7])
def test_a_folder_of_an_older_version_without_a_journal_remains_usable(
    version: int, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = make(folder)
    make_older(folder, version)
    for _ in range(2):
        engine = LmdbLogEngine(folder)
        assert (engine.open(key()).cleaned_to, contents(engine.open(key()))) == (0, stored)
        engine.close()
    assert caplog.messages == [
        f"log {folder}: migrated from format version {version} to 8; older versions of kcore refuse the folder from "
        "now on"
    ]


def test_an_older_format_is_migrated_step_by_step_and_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = make(folder)
    make_older(folder, 1)
    steps = []

    def step(version: int) -> layout.Migration:
        def run(txn: Any, databases: Any) -> None:
            steps.append(version)
            txn.put(b"user:migrated", str(version).encode(), db=databases[layout.META_DB])

        return run

    monkeypatch.setattr(layout, "MIGRATIONS", {1: step(1), 2: step(2), 3: step(3), 4: layout.MIGRATIONS[7]})
    monkeypatch.setattr(layout.migrate, "__defaults__", (5, None))
    monkeypatch.setattr(layout, "CHECKSUM_VERSION", 5)
    for _ in range(2):
        engine = LmdbLogEngine(folder)
        assert (engine.get_meta("migrated"), contents(engine.open(key()))) == (b"3", stored)
        engine.close()
    assert steps == [1, 2, 3]


def test_an_older_format_without_a_known_step_is_refused(folder: Path) -> None:
    make(folder)
    make_older(folder, 0)
    assert refusal(folder)[0] == "no migration from format version 0 to 8: the step from 0 is unknown"


def test_a_file_without_format_or_with_damaged_metadata_is_refused(folder: Path) -> None:
    make(folder)
    make_older(folder, 1)
    put_raw(folder, b"meta", b"format", None)
    assert refusal(folder)[0] == "the file has no format version: it is not a file of kcore, or it is damaged"
    put_raw(folder, b"meta", b"format", b"\x01")
    assert refusal(folder)[0].startswith("damaged: the format version or the node epoch")
    put_raw(folder, b"meta", b"format", struct.pack(">I", 1))
    put_raw(folder, b"meta", layout.partition_meta_key(key()), b"\x00\x01")
    what, where = refusal(folder)
    assert what.startswith("damaged: ")
    assert where == f"partition {key()}"


def test_a_forked_child_cannot_use_the_engine_and_does_not_keep_the_folder(folder: Path) -> None:
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    fill(log, engine, 2)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        messages = []
        for use in (lambda: log.append(batch(), 0), lambda: log.read(0, 10), engine.commit, lambda: engine.open(key())):
            try:
                use()
                messages.append("nothing")
            except LogClosedError:
                messages.append("closed")
        try:
            engine.commit()
        except LogClosedError as error:
            messages.append(str(error))
        engine.close()
        try:
            LmdbLogEngine(folder)
        except DataFolderError as error:
            messages.append(error.what)
        os.write(writing, "|".join(messages).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        messages = pipe.read().split("|")
    os.waitpid(child, 0)
    assert messages[:4] == ["closed"] * 4
    assert messages[4] == f"the log engine was opened by the parent of process {child}: open it after the fork"
    assert messages[5] == (
        f"in use by process {os.getpid()}; stop this process first, or, if it is a server, pass --bootstrap HOST:PORT "
        "(to a Spark job, --kafka HOST:PORT), or use a copy made by `kcore log copy`"
    )
    fill(log, engine, 1)
    assert len(contents(log)) == 3
    # A child that continues to run does not keep the folder locked when the parent has closed it.
    child = os.fork()
    if child == 0:
        os.read(os.pipe()[0], 1)
        os._exit(0)
    try:
        engine.close()
        LmdbLogEngine(folder).close()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_compaction_shrinks_the_file_and_keeps_all_records(folder: Path) -> None:
    engine = LmdbLogEngine(folder, "os")
    log = engine.open(key())
    for _ in range(30):
        log.append(batch(size_bytes=100_000), 0)
    engine.open(key(1)).append(batch(), 3)
    engine.commit()
    stored = fill(log, engine, 3, records=2)
    log.delete_before(31)
    engine.put_meta("a", b"b")
    engine.commit()
    engine.close()
    before, after = compact(folder)
    assert before > 3_000_000
    assert after < 200_000
    assert after == (folder / "data.mdb").stat().st_size
    assert sorted(os.listdir(folder)) == ["data.mdb", "journal", "kcore.lock"]
    engine = LmdbLogEngine(folder)
    log = engine.open(key())
    assert (log.log_start_offset, log.end_offset, contents(log)[-2:]) == (31, 36, stored[1:])
    assert (engine.get_meta("a"), engine.open(key(1)).leader_epoch) == (b"b", 3)
    fill(log, engine, 1)
    assert engine.verify(deep=True) == []
    engine.close()


def test_an_interrupted_compaction_leaves_no_files(folder: Path) -> None:
    stored = make(folder)
    (folder / "data.mdb.compact").write_bytes(b"half a copy")
    engine = LmdbLogEngine(folder)
    assert contents(engine.open(key())) == stored
    assert not (folder / "data.mdb.compact").exists()
    engine.close()


def test_importing_the_package_opens_nothing(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", "import kcore.log"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["kcore.lock", "data.mdb", "journal", "lock.mdb"])
def test_pipes_in_place_of_files_are_refused(tmp_path: Path, name: str) -> None:
    """Opening a pipe would wait for its other end forever, and `kcore log verify` and `copy` would hang."""
    folder = tmp_path / "data"
    make(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    expected = (
        "not a regular file but a pipe, a socket or a device; remove it, and restore the file from a copy",
        name,
    )
    assert refusal(folder) == expected
    assert refusal(folder, create=False) == expected
    for work in (verify_folder, compact, lambda path: copy_folder(str(path), str(tmp_path / "copy"))):
        with pytest.raises(DataFolderError) as refused:
            work(folder)
        assert (refused.value.what, refused.value.where) == expected
    assert not (tmp_path / "copy").exists()


def test_a_folder_in_place_of_the_lock_file_of_lmdb_is_refused(folder: Path, tmp_path: Path) -> None:
    """A directory with the name of LMDB's lock file is refused by each operation before it changes a file. A repair
    would otherwise fail after it has replaced the data file.
    """
    make(folder)
    (folder / "lock.mdb").unlink()
    (folder / "lock.mdb").mkdir()
    expected = ("a folder in place of LMDB's lock file; remove it, kcore creates the file", "lock.mdb")
    assert refusal(folder) == expected
    for work in (
        verify_folder,
        compact,
        lambda path: copy_folder(str(path), str(tmp_path / "copy")),
        lambda path: repair_folder(str(path), FolderRules),
    ):
        with pytest.raises(DataFolderError) as refused:
            work(folder)
        assert (refused.value.what, refused.value.where) == expected
    (folder / "lock.mdb").rmdir()
    LmdbLogEngine(folder).close()


def test_a_path_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """The engine refuses such a path before it creates the folder. Otherwise LMDB would raise UnicodeEncodeError after
    the engine has written files.
    """
    folder = tmp_path / os.fsdecode(b"d\xff")
    expected = ("the path is not valid UTF-8, which LMDB needs; choose another path", "")
    assert refusal(folder) == expected
    assert not folder.exists()
    make(tmp_path / "data")
    with pytest.raises(DataFolderError) as refused:
        copy_folder(str(tmp_path / "data"), str(folder))
    assert (refused.value.what, refused.value.where) == expected
