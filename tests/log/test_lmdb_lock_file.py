"""LMDB's lock file: a full disk on which it cannot be created, and a copy of a folder whose lock file was removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kcore.log import FailureReason, LmdbLogEngine, LogError
from kcore.log.lmdb_copy import copy_folder
from tests.log.batches import contents, fill, key

ROOT = Path(__file__).parents[2]

OPEN = """
import sys
from kcore.errors import DataFolderError
from kcore.log import LmdbLogEngine
try:
    LmdbLogEngine(sys.argv[1]).close()
except DataFolderError as error:
    print(error)
"""

RUN = """
import sys
from kcore.log import LmdbLogEngine
engine = LmdbLogEngine(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
engine.close()
"""


def fill_disk(where: Path) -> None:
    free = os.statvfs(where)
    with (where / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
    assert os.statvfs(where).f_bavail == 0


def test_a_full_disk_without_the_lock_file_refuses_the_folder(small_disk: Path) -> None:
    """The engine reports the full disk when LMDB's lock file cannot be created.

    The test opens the folder in a child process, because access to a mapped but unallocated file ends a process by
    SIGBUS.
    """
    folder = small_disk / "data"
    engine = LmdbLogEngine(folder)
    stored = fill(engine.open(key()), engine, 2)
    engine.close()
    (folder / "lock.mdb").unlink()
    fill_disk(small_disk)
    command = [sys.executable, "-c", OPEN, str(folder)]
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (
            0,
            f"{folder}: lock.mdb: No space left on device; free space on the disk\n",
        ), done.stderr
    (small_disk / "ballast").unlink()
    engine = LmdbLogEngine(folder)
    assert contents(engine.open(key())) == stored
    engine.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_in_use_whose_lock_file_was_removed_is_not_copied(folder: Path, replaced: bool) -> None:
    """The lock file of a folder is removed while a server has the folder open. A copy is refused, because the server
    would not notice the copying process and could overwrite pages that it reads.
    """
    engine = LmdbLogEngine(folder)
    stored = fill(engine.open(key()), engine, 3)
    engine.close()
    server = subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server:
        assert server.stdout.readline() == b"open\n"
        copy_folder(str(folder), str(folder.with_name("copy")))
        (folder / "lock.mdb").unlink()
        if replaced:
            (folder / "lock.mdb").touch()
        with pytest.raises(LogError, match=r"its lock\.mdb was removed or replaced.*restart") as error:
            copy_folder(str(folder), str(folder.with_name("second")))
        server.stdin.close()
        assert server.wait(60) == 0
    assert error.value.reason is FailureReason.MISUSE
    assert not folder.with_name("second").exists()
    copy_folder(str(folder), str(folder.with_name("second")))
    for copy in ("copy", "second"):
        engine = LmdbLogEngine(folder.with_name(copy))
        assert contents(engine.open(key())) == stored
        engine.close()
