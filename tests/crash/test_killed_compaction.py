"""`kcore log compact` is killed before each of its file operations: the folder keeps all records."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kcore.log import LmdbLogEngine, verify_folder
from tests.log.batches import contents, fill, key

pytestmark = pytest.mark.crash

KILLED_AT = """
import os, signal, sys
from kcore.log import compact

folder, last = sys.argv[1], int(sys.argv[2])
count = 0

def operation(event, arguments):
    global count
    if event in ("open", "os.rename", "os.remove", "os.truncate") and str(arguments[0]).startswith(folder):
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

sys.addaudithook(operation)
compact(folder)
"""


def compact_until(folder: Path, operation: int) -> bool:
    """Compacts a folder in a process that is killed before one of its file operations, counted from 0. Returns False if
    the process ends earlier.
    """
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT, str(folder), str(operation)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def test_a_killed_compaction_loses_no_record(tmp_path: Path) -> None:
    original, folder = tmp_path / "original", tmp_path / "data"
    engine = LmdbLogEngine(original)
    log = engine.open(key())
    fill(log, engine, 40, size_bytes=20_000)
    log.delete_before(log.end_offset // 2)
    engine.commit()
    stored = contents(log)
    engine.close()
    size_bytes = (original / "data.mdb").stat().st_size
    operations = 0
    was_killed = True
    while was_killed:
        shutil.copytree(original, folder)
        was_killed = compact_until(folder, operations)
        assert verify_folder(folder) == []
        again = LmdbLogEngine(folder)
        log = again.open(key())
        assert contents(log) == stored
        stored_after = stored + fill(log, again, 1)
        again.close()
        again = LmdbLogEngine(folder)
        assert contents(again.open(key())) == stored_after
        again.close()
        assert not (folder / "data.mdb.compact").exists()
        if not was_killed:
            assert (folder / "data.mdb").stat().st_size < size_bytes
        shutil.rmtree(folder)
        operations += 1
    assert operations > 5
