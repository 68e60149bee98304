"""Ownership of a data folder: its lock, its files, and the check of its data file before LMDB opens it."""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import os
import shutil
import stat
from typing import Final

from kcore.log.data_lock import DataFileLock
from kcore.log.errors import DataFolderError, FailureReason, LogError
from kcore.log.journal_file import JOURNAL_NAME, entry_at, read_file
from kcore.log.lmdb_pages import MAX_MS_AFTER_CLEAN_CLOSE, check_file

logger = logging.getLogger(__name__)

LOCK_NAME: Final = "kcore.lock"
DATA_NAME: Final = "data.mdb"
NO_DATA_FILE: Final = "the file is missing, so this is no kcore data folder"
LMDB_LOCK_NAME: Final = "lock.mdb"
COMPACT_NAME: Final = "data.mdb.compact"
REPAIR_NAME: Final = "data.mdb.repair"
RESERVE_NAME: Final = "reserve"
FOLDER_MODE: Final = 0o700
LMDB_LOCK_BYTES: Final = 64 << 10
"""Space that is allocated for LMDB's lock file: more than the table of readers in this file needs."""
FILE_MODE: Final = 0o600
"""Mode of the files: only their owner may read them, because they contain all records and the users' SCRAM keys."""
OWN_NAMES: Final = frozenset(
    (LOCK_NAME, DATA_NAME, JOURNAL_NAME, LMDB_LOCK_NAME, COMPACT_NAME, REPAIR_NAME, RESERVE_NAME)
)
TOLERATED_NAMES: Final = frozenset(("lost+found",))
"""Names that exist in a new file system. A folder that contains only these names counts as empty."""


class DataFolder:
    """A data folder that this process locks exclusively, from construction to `release`.

    The lock is flock(2) on `kcore.lock`. The kernel releases it when the process ends in any way, so a lock file that a
    killed process left behind locks nothing. While the folder is open, `kcore.lock` contains the owner's process id,
    for people to read. A clean close replaces the id by the size and the modification time of the data file. When
    the folder is opened again, the constructor checks the leaves of LMDB's trees. The check has a time limit if the
    data file still has this size and time. Otherwise it has no limit, because the data file may be damaged or replaced.
    This object also locks the data file, in case `kcore.lock` is removed (see `DataFileLock`).

    If `create` is True, the constructor creates a missing folder and its missing parents. If `create` is False, it
    refuses a folder without a log. If `check` is False, it does not check the data file; a repair uses this.
    """

    __slots__ = ("_closed_cleanly", "_data_lock", "_lock_fd", "new", "path")

    def __init__(self, path: str | os.PathLike[str], create: bool = True, check: bool = True) -> None:
        self._lock_fd = -1
        self._data_lock: DataFileLock | None = None
        self._closed_cleanly = False
        self.path = os.path.abspath(os.fspath(path))
        try:
            self._take(create, check)
        except OSError as error:
            self.release()
            raise DataFolderError(self.path, os_reason(error), self._where(error)) from error
        except BaseException:
            self.release()
            raise

    def __del__(self) -> None:
        # An interrupt may come after the constructor, before its caller has the object to release it.
        if self._data_lock is not None:
            self._data_lock.abandon()
        self._close_lock()

    def _take(self, create: bool, check: bool) -> None:
        """Locks and checks the folder. After an exception, the caller must release the folder."""
        refuse_unusable(self.path)
        if not create and not self._has_data():
            raise DataFolderError(self.path, NO_DATA_FILE, DATA_NAME)
        created = self._make()
        self._refuse_foreign()
        self._lock()
        self.new = not self._has_data()
        if self.new:
            self._refuse_orphaned_journal()
            if created:
                self.sync_folder(os.path.dirname(self.path))
        elif check:
            check_file(self.path, DATA_NAME, max_ms=MAX_MS_AFTER_CLEAN_CLOSE if self._closed_cleanly else 0)
        self._remove_leftovers()

    def _where(self, error: OSError) -> str:
        name = error.filename
        return os.path.basename(name) if isinstance(name, str) and name != self.path else ""

    def _make(self) -> bool:
        """Creates the folder and its missing parents. Returns True if the folder was missing."""
        if os.path.isdir(self.path):
            return False
        if os.path.exists(self.path):
            raise DataFolderError(self.path, "a file, not a folder; choose another path")
        os.makedirs(self.path, mode=FOLDER_MODE)
        return True

    def _refuse_foreign(self) -> None:
        """Refuses a folder that has foreign files and no data file, before kcore writes into it."""
        names = set(os.listdir(self.path))
        foreign = sorted(names - OWN_NAMES - TOLERATED_NAMES)
        if foreign and DATA_NAME not in names:
            raise DataFolderError(self.path, "not a kcore data folder, and not empty", foreign[0])

    def _refuse_orphaned_journal(self) -> None:
        """Refuses a folder that lost its data file, because a new log would overwrite the last records in the journal.

        If a crash interrupted the creation of the folder, the folder is not refused. Its journal has no entry yet,
        because kcore writes the first entry after the data file.
        """
        if entry_at(read_file(self.path), 0) is not None:
            what = (
                f"missing or empty, but `{JOURNAL_NAME}` has records; restore this file, or remove both files to "
                "start with an empty log"
            )
            raise DataFolderError(self.path, what, DATA_NAME)

    def _lock(self) -> None:
        path = os.path.join(self.path, LOCK_NAME)
        self._lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        if not self._try_lock():
            holder = self._holder()
            if holder == str(os.getpid()):
                # An engine that was not closed keeps the folder locked until the garbage collector collects it.
                gc.collect()
            if not self._try_lock():
                self._close_lock()
                here = holder == str(os.getpid())
                whose = (
                    "this process"
                    if here
                    else f"process {holder}; stop this process first, or, if it is a server, pass --bootstrap "
                    "HOST:PORT (to a Spark job, --kafka HOST:PORT), or use a copy made by `kcore log copy`"
                )
                raise DataFolderError(self.path, f"in use by {whose}", LOCK_NAME)
        self._closed_cleanly = os.pread(self._lock_fd, 100, 0) == self._closing_line()
        if (holder := self._holder()).isdigit():
            logger.info(
                "log %s: process %s ended without closing the folder, as after SIGKILL or a crash of the machine; "
                "kcore checks the data file, and continues with the committed writes",
                *(self.path, holder),
            )
        try:
            self._data_lock = DataFileLock(os.path.join(self.path, DATA_NAME))
        except BlockingIOError:
            self._close_lock()
            why = f"in use by another process, although its {LOCK_NAME} was removed"
            raise DataFolderError(self.path, why, DATA_NAME) from None
        os.ftruncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, f"{os.getpid()}\n".encode("ascii"), 0)

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(self) -> str:
        """Returns the process id in the lock file."""
        return os.pread(self._lock_fd, 64, 0).decode("ascii", "replace").strip() or "unknown"

    def _closing_line(self) -> bytes:
        """Returns the line that a clean close would now write into the lock file."""
        try:
            status = os.stat(os.path.join(self.path, DATA_NAME))
        except FileNotFoundError:
            return b"no data file"
        return f"closed {status.st_size} {status.st_mtime_ns}\n".encode("ascii")

    def mark_closed(self) -> None:
        """Records that the data file was closed cleanly or checked. Afterwards the owner must not change that file."""
        if self._lock_fd >= 0:
            line = self._closing_line()
            os.ftruncate(self._lock_fd, 0)
            os.pwrite(self._lock_fd, line, 0)

    def remove_holder(self) -> None:
        """Removes this process's id from the lock file. The next opening then reports no crash of this process, but
        checks the data file.
        """
        if self._lock_fd >= 0:
            os.ftruncate(self._lock_fd, 0)

    def _has_data(self) -> bool:
        """Returns True if the data file exists and is not empty.

        A crash during the creation of the folder leaves an empty file.
        """
        try:
            return os.path.getsize(os.path.join(self.path, DATA_NAME)) > 0
        except FileNotFoundError:
            return False

    def _remove_leftovers(self) -> None:
        """Removes the new files of a compaction or a repair that a crash interrupted."""
        for name in (COMPACT_NAME, REPAIR_NAME):
            leftover = os.path.join(self.path, name)
            if os.path.isdir(leftover):
                shutil.rmtree(leftover)
            elif os.path.exists(leftover):
                os.unlink(leftover)

    def require_data_file(self) -> None:
        """Raises an error if the data file was deleted. The kernel accepts writes to such a file, but they are lost.

        Raises:
            LogError: the file was deleted, by this machine or by another machine with the same file system (ESTALE).
        """
        if self._data_lock is None or self._data_lock.descriptor < 0:
            return
        try:
            is_deleted = not os.fstat(self._data_lock.descriptor).st_nlink
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            is_deleted = True
        if is_deleted:
            raise LogError(
                f"`{DATA_NAME}` of the data folder {self.path} was deleted while this process uses it",
                FailureReason.DELETED,
            )

    def lock_descriptors(self) -> tuple[int, ...]:
        """Returns the descriptors of the locks.

        A child process that inherits these descriptors keeps the folder locked.
        """
        data_lock = () if self._data_lock is None else (self._data_lock.descriptor,)
        return (self._lock_fd, *data_lock)

    @staticmethod
    def sync_folder(path: str) -> None:
        """Flushes the file names in a folder: a new file survives a power failure only if its name is on the device."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _close_lock(self) -> None:
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)

    def release(self) -> None:
        """Unlocks the folder.

        Closing the lock's descriptor alone would not unlock the folder while a forked child has a copy of the
        descriptor.
        """
        if self._data_lock is not None:
            self._data_lock.release()
        if self._lock_fd >= 0:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        self._close_lock()

    def abandon_in_child(self) -> None:
        """Closes the inherited lock descriptors in a forked child, so that the child does not keep the folder locked
        after the parent's end.

        The folder stays locked while the parent has its descriptors open, because parent and child share one flock.
        """
        if self._data_lock is not None:
            self._data_lock.abandon()
        self._close_lock()


def os_reason(error: OSError) -> str:
    """Returns the message of an OSError, and adds a remedy."""
    return (error.strerror or str(error)) + remedy(error.errno)


def remedy(number: int | None) -> str:
    """Returns the remedy for the error number of a folder that cannot be opened; empty if kcore knows no remedy."""
    if number == errno.EROFS:
        return (
            "; kcore writes lock files even to read a data folder: use a folder on a writable disk, such as a copy "
            "made by `cp -r` while no process has the folder open"
        )
    if number in (errno.EACCES, errno.EPERM):
        return (
            f"; the user of this process (uid {os.geteuid()}) must be allowed to read and write the folder and its "
            "files, because even readers write lock files"
        )
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "; free space on the disk"
    if number == errno.EFBIG:
        return "; raise the limit of file sizes (`ulimit -f`)"
    if number == errno.ENOMEM:
        return (
            "; LMDB maps the whole file: raise the limit of the address space (`ulimit -v`), or lower kcore.map.size "
            "if it is larger than the file"
        )
    return ""


def refuse_unusable(folder: str) -> None:
    """Refuses a folder that cannot be opened, before kcore opens or writes a file in it.

    Opening a pipe in place of a file would wait forever. LMDB accepts paths in UTF-8 only.

    Raises:
        DataFolderError: a file is a pipe, a socket or a device, LMDB's lock file is a folder, or the path is not UTF-8.
        OSError: the folder cannot be read.
    """
    try:
        folder.encode()
    except UnicodeEncodeError:
        raise DataFolderError(folder, "the path is not valid UTF-8, which LMDB needs; choose another path") from None
    for name in (LOCK_NAME, DATA_NAME, JOURNAL_NAME, LMDB_LOCK_NAME):
        try:
            mode = os.stat(os.path.join(folder, name)).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if name == LMDB_LOCK_NAME and stat.S_ISDIR(mode):  # before a repair, which would fail after its last step
            what = "a folder in place of LMDB's lock file; remove it, kcore creates the file"
            raise DataFolderError(folder, what, name)
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # folders are refused when they are opened
            what = "not a regular file but a pipe, a socket or a device; remove it, and restore the file from a copy"
            raise DataFolderError(folder, what, name)


def reserve_lock_file(folder: str) -> None:
    """Allocates the space of LMDB's lock file, if the system supports that. This process must not have opened the
    folder with LMDB.

    LMDB writes to the mapped file without allocating its space. On a full disk, this write would kill the process with
    SIGBUS.

    Raises:
        OSError: the disk is full, or the file cannot be created.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    path = os.path.join(folder, LMDB_LOCK_NAME)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    size = os.fstat(fd).st_size
    try:
        # An existing file keeps its size: LMDB takes the number of readers from it.
        os.posix_fallocate(fd, 0, size or LMDB_LOCK_BYTES)
    except OSError as error:
        os.ftruncate(fd, size)
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # not every file system can allocate
            raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(fd)


def open_private(path: str, flags: int) -> int:
    """Opens a file. If this call creates the file, only the file's owner can access it.

    Pass this function to Python's `open` as the argument `opener`.
    """
    return os.open(path, flags, FILE_MODE)


def volume_bytes(path: str) -> tuple[int, int]:
    """Returns the total and the free bytes of a folder's volume; -1 each if there is no folder."""
    try:
        volume = os.statvfs(path)
    except OSError:
        return -1, -1
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
