"""Hot copy of a data folder: LMDB copies one committed state, while a server may keep writing."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import sys
from typing import Any, Final

import lmdb

from kcore.log.data_folder import (
    DATA_NAME,
    LMDB_LOCK_NAME,
    NO_DATA_FILE,
    DataFolder,
    open_private,
    os_reason,
    refuse_unusable,
    reserve_lock_file,
)
from kcore.log.data_lock import is_locked
from kcore.log.errors import DataFolderError, FailureReason, LogError
from kcore.log.journal_file import JOURNAL_BYTES, JOURNAL_NAME, JournalDamagedError, load_entries, read_file
from kcore.log.lmdb_environment import MAX_READERS, log_error
from kcore.log.lmdb_layout import (
    FORMAT_VERSION,
    JOURNAL_KEY,
    LOG_DB,
    META_DB,
    SHARED_VERSIONS,
    SNAP_DB,
    FormatError,
)
from kcore.log.lmdb_pages import REMEDY, check_snapshot
from kcore.log.lmdb_rows import DamagedRowError, get_row_of_any_version, read_version
from kcore.log.node_journals import CLUSTER_FOLDER
from kcore.log.shared_copy import begin_shared, write_journals

ATTEMPTS: Final = 20
PARTIAL_NAME: Final = "data.mdb.partial"
ROOM_TO_GROW_BYTES: Final = 1 << 30
_FLOCK: Final = struct.Struct("hhqqi4x")  # Linux's struct flock on 64-bit machines: type, whence, start, length, pid


def copy_folder(path: str, destination: str) -> int:
    """Copies the committed state of a folder, even if a server has it open; returns the size of its data file in bytes.

    The copy has every commit that was acknowledged before the call. Of the commits that are acknowledged during the
    call, the copy has all commits up to some point. The copy includes the journals of all processes that serve the
    folder. The copied data file has no free pages, so it may be smaller.

    Args:
        path: the folder.
        destination: the new folder; it may exist if it is empty.

    Raises:
        DataFolderError: `path` is damaged or no kcore folder, or `destination` is not empty.
        LogError: `destination` is inside `path`, there is not enough space, or a file cannot be read or written.
    """
    source = os.path.abspath(path)
    target = os.path.abspath(destination)
    data = os.path.join(source, DATA_NAME)
    try:
        refuse_unusable(source)
        refuse_unusable(target)
        if not os.path.exists(data) or not os.path.getsize(data):
            raise DataFolderError(source, NO_DATA_FILE, DATA_NAME)
        _require_outside(source, target)
        made = _make(target)
        try:
            return _copy_into(source, target)
        except BaseException:
            _remove_partial(target, made)
            raise
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        raise LogError(f"copying {source} to {target}: {where}{os_reason(error)}") from error


def _require_outside(source: str, target: str) -> None:
    """Raises LogError if the copy would be inside the folder.

    Such a copy would be lost together with the folder, and backups of the folder would include it.
    """
    ancestor = os.path.realpath(target)
    while (parent := os.path.dirname(ancestor)) != ancestor:
        if os.path.exists(parent) and os.path.samefile(parent, source):
            raise LogError(f"{target} is inside {source}: choose a folder outside of it", FailureReason.MISUSE)
        ancestor = parent


def _make(target: str) -> bool:
    """Creates the new folder, or uses an existing empty one. Returns True if it was created."""
    try:
        os.mkdir(target, 0o700)
    except FileNotFoundError:
        raise DataFolderError(target, "its parent folder does not exist; create it first") from None
    except FileExistsError:
        if not os.path.isdir(target) or os.listdir(target):
            raise DataFolderError(target, "the copy needs a new or an empty folder") from None
        return False
    return True


def _remove_partial(target: str, made: bool) -> None:
    for name in (PARTIAL_NAME, JOURNAL_NAME):
        partial = os.path.join(target, name)
        if os.path.exists(partial):
            os.unlink(partial)
    shutil.rmtree(os.path.join(target, CLUSTER_FOLDER), ignore_errors=True)
    if made:
        os.rmdir(target)


def _copy_into(source: str, target: str) -> int:
    partial = os.path.join(target, PARTIAL_NAME)
    for attempt in range(ATTEMPTS):
        try:
            _copy_once(source, target, partial)
            break
        except lmdb.MapResizedError:  # the server has grown the file beyond the map of this process
            if attempt + 1 == ATTEMPTS:
                raise LogError(f"{source} grows too fast to be copied; try again when the server writes less") from None
        except lmdb.Error as error:
            size = os.path.getsize(os.path.join(source, DATA_NAME))
            raise log_error(error, f"copying {source}", partial if os.path.exists(partial) else None, size) from error
    os.rename(partial, os.path.join(target, DATA_NAME))
    DataFolder.sync_folder(target)
    DataFolder.sync_folder(os.path.dirname(target))
    return os.path.getsize(os.path.join(target, DATA_NAME))


def _copy_once(source: str, target: str, partial: str) -> None:
    # This process is a reader in LMDB's lock file, so the server keeps the pages of the copied state.
    size = os.path.getsize(os.path.join(source, DATA_NAME)) * 2 + ROOM_TO_GROW_BYTES
    _require_common_lock_file(source)
    reserve_lock_file(source)
    with lmdb.open(source, readonly=True, max_dbs=8, map_size=size, max_readers=MAX_READERS, create=False) as env:
        _check(env, source)
        _require_room(env, target)
        txn, journal, node_journals = _begin(env, source)
        with txn, open(partial, "wb", opener=open_private) as file:
            env.copyfd(file.fileno(), compact=True, txn=txn)
            os.fsync(file.fileno())
        if journal is not None:
            with open(os.path.join(target, JOURNAL_NAME), "wb", opener=open_private) as file:
                file.write(journal)
                file.flush()
                os.fsync(file.fileno())
        write_journals(target, node_journals)


def _begin(env: lmdb.Environment, source: str) -> tuple[lmdb.Transaction, bytes | None, dict[int, bytes]]:
    """Begins a read transaction, and reads the journals of the same state.

    Returns:
        Three values: the transaction, the journal of the only process (None if it is not in use), and the journals of
        several processes by node id.

    The function reads the reference to the journal before and after the journal file. If both references are equal,
    the server has not moved batches from the journal to the log meanwhile. If the server wrote entries during the read,
    the bytes may lack an entry although they contain a later entry. The function then reads the file again.

    Raises:
        DataFolderError: the journal, its reference or the format version is damaged, or a newer kcore wrote the folder.
        LogError: the server moves its journal faster than it can be read.
    """
    meta = env.open_db(META_DB, create=False)
    try:
        with env.begin() as txn:
            version = read_version(txn, meta) or FORMAT_VERSION
        if version in SHARED_VERSIONS:
            return _begin_shared(env, meta, source)
        return _begin_single(env, meta, source)
    except (FormatError, struct.error) as error:
        raise DataFolderError(source, str(error), DATA_NAME) from error
    except DamagedRowError as error:
        raise DataFolderError(source, f"damaged: its checksum is wrong{REMEDY}", error.row) from error


def _begin_single(
    env: lmdb.Environment, meta: Any, source: str
) -> tuple[lmdb.Transaction, bytes | None, dict[int, bytes]]:
    """Begins a read transaction like `_begin`, for a folder of a single process."""
    damage: JournalDamagedError | None = None
    for _ in range(ATTEMPTS):
        txn = env.begin()
        try:
            stored = get_row_of_any_version(txn, meta, JOURNAL_KEY)
            if stored is None:
                return txn, None, {}
            data = read_file(source)
            with env.begin() as later:
                unchanged = get_row_of_any_version(later, meta, JOURNAL_KEY) == stored
            damage = None
            if unchanged:
                load_entries(data, stored, source)
                return txn, data, {}
        except JournalDamagedError as error:
            damage = error
        except BaseException:
            txn.abort()
            raise
        txn.abort()
    if damage is not None:
        raise DataFolderError(source, str(damage), JOURNAL_NAME) from damage
    raise LogError(
        f"{source}: the server writes faster than the copy can read its journal; copy again when the server writes less"
    )


def _begin_shared(
    env: lmdb.Environment, meta: Any, source: str
) -> tuple[lmdb.Transaction, bytes | None, dict[int, bytes]]:
    """Begins a read transaction like `_begin`, for a folder that several processes serve."""
    txn, node_journals = begin_shared(env, meta, source)
    return txn, None, node_journals


def _require_common_lock_file(source: str) -> None:
    """Raises LogError if a server has the folder open, but does not use the LMDB lock file in the folder.

    Without a common lock file, the server does not know that this process reads, and reuses the pages that are being
    copied. The copy would then find pages of a newer state and report a damaged file.
    """
    if sys.platform == "linux" and not _lmdb_lock_is_held(source) and is_locked(os.path.join(source, DATA_NAME)):
        raise LogError(
            f"{source}: a server has this folder open, but its {LMDB_LOCK_NAME} was removed or replaced, so the "
            "folder cannot be copied while the server runs: restart the server first; if the server is just "
            "starting, try again",
            FailureReason.MISUSE,
        )


def _lmdb_lock_is_held(source: str) -> bool:
    """Returns True if another process has LMDB open with the lock file in the folder. Takes no lock."""
    try:
        fd = os.open(os.path.join(source, LMDB_LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    finally:
        os.close(fd)
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def _check(env: lmdb.Environment, source: str) -> None:
    """Checks every page of one committed state before the copy, because LMDB aborts the process at a damaged page."""
    for _ in range(ATTEMPTS):
        with env.begin() as txn:
            if check_snapshot(source, DATA_NAME, txn.id()):
                names = {bytes(name) for name, _ in txn.cursor()}
                if not names >= {LOG_DB, META_DB, SNAP_DB}:
                    raise DataFolderError(source, "an LMDB file, but not a file of kcore", DATA_NAME)
                return
    raise LogError(
        f"{source}: the server commits faster than its file can be checked; try again when the server writes less"
    )


def _require_room(env: lmdb.Environment, target: str) -> None:
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"] + JOURNAL_BYTES
    disk = os.statvfs(target)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        raise LogError(
            f"{target} has {free} bytes free, and the copy needs up to {needed} bytes", FailureReason.DISK_FULL
        )
