"""LMDB's lock file in a folder that several processes serve, after an operator removed or replaced the file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kcore.cluster.local.locks import FileLock
from kcore.log import LogError
from kcore.log.data_folder import DataFolder
from kcore.log.errors import StoreUnavailableError
from tests.processes.shared import LocalShared

REFUSED = "lock.mdb was removed or replaced while processes serve the folder: restart all of them together"


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_process_that_starts_later_does_not_open_another_lock_file(how: str, tmp_path: Path) -> None:
    """The lock file is removed or replaced while a process has it open. A process that starts later refuses to open the
    folder.

    With two lock files, the transactions of both processes could overwrite each other.
    """
    shared = LocalShared(tmp_path)
    shared.lock = DataFolder(shared.path, create=False)  # as the supervisor has it
    shared.open().close()
    lock = shared.path / "lock.mdb"
    kept = tmp_path / "kept"
    lock.rename(kept)
    if how == "replaced":
        shutil.copy(kept, lock)
    with pytest.raises(LogError, match=REFUSED):
        shared.open()
    assert lock.exists() is (how == "replaced")
    kept.replace(lock)
    shared.open().close()
    shared.close()


def test_a_copy_that_no_process_serves_has_its_own_lock_file(tmp_path: Path) -> None:
    shared = LocalShared(tmp_path)
    shared.open().close()
    lock = shared.path / "lock.mdb"
    noted = lock.stat().st_ino
    shutil.copy(lock, tmp_path / "lock.mdb")
    (tmp_path / "lock.mdb").replace(lock)
    shared.open().close()
    assert lock.stat().st_ino != noted


def test_a_removed_lock_is_not_held_beside_the_one_that_replaced_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = FileLock(str(path), 0.0), FileLock(str(path), 0.0)
    first.acquire()
    first.release()
    path.unlink()
    second.acquire()
    with pytest.raises(StoreUnavailableError):
        first.acquire()
    second.release()
    first.acquire()
    with pytest.raises(StoreUnavailableError):
        second.acquire()
    first.close()
    second.close()
