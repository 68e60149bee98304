"""LMDB's environment: opening, growing during reads, opening again after a failure, and translating errors."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from typing import Any, Final

import lmdb

from kcore.log.data_folder import FILE_MODE, reserve_lock_file
from kcore.log.errors import FailureReason, LogError
from kcore.log.lmdb_layout import JOURNAL_KEY, LOG_DB, META_DB, OLD_JOURNAL_DB, SNAP_DB
from kcore.log.lmdb_rows import get_row
from kcore_ext.util.lock import Lock

DEFAULT_MAP_SIZE_BYTES: Final = 256 << 20
"""Size of the first map. It uses address space and limits the file, but takes no memory or disk space."""
MAX_MAP_SIZE_BYTES: Final = 1 << 46
"""Maximum size of a map. x86-64 and arm64 have enough address space for it."""
SPARE_READERS: Final = 4
ROUND_OVERHEAD_BYTES: Final = 256 << 10
"""Upper bound of the size of the tree pages that a commit rewrites, in addition to its batches."""
MAX_READERS: Final = 510

FULL_ERRNOS: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_CORRUPT: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.VersionMismatchError)


def log_error(error: lmdb.Error, doing: str, path: str | None = None, size_bytes: int = 0) -> LogError:
    """Translates LMDB's error to a LogError with a reason.

    `path` and `size_bytes` are the file and the size of the failed write. From them the function detects a lack of
    space, which LMDB reports as an input/output error if a part of the write succeeded.
    """
    reason = FailureReason.IO_ERROR
    cause = str(error)
    if isinstance(error, _CORRUPT):
        reason = FailureReason.CORRUPT
    elif isinstance(error, lmdb.TxnFullError):
        reason = FailureReason.TOO_LARGE
    elif isinstance(error, lmdb.MapFullError):
        reason = FailureReason.SIZE_LIMIT
    elif getattr(error, "code", 0) in FULL_ERRNOS:
        reason = FailureReason.DISK_FULL
    elif path is not None and _no_room(path, size_bytes):
        reason = FailureReason.DISK_FULL
        cause = f"no space left on the device, or the limit of file sizes is reached ({error})"
    return LogError(f"{doing}: {cause}", reason)


def file_error(error: OSError, doing: str) -> LogError:
    """Translates an error of a file to a LogError with a reason."""
    reason = FailureReason.DISK_FULL if error.errno in FULL_ERRNOS else FailureReason.IO_ERROR
    return LogError(f"{doing}: {error}", reason)


def _no_room(path: str, size_bytes: int) -> bool:
    """Returns True if a file cannot grow by `size_bytes`, because the file system is full or the file would exceed the
    process's limit of file sizes.
    """
    try:
        disk = os.statvfs(path)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        file_size = os.path.getsize(path)
    except OSError:
        return False
    needed = size_bytes + ROUND_OVERHEAD_BYTES
    return disk.f_bavail * disk.f_frsize < needed or (limit != resource.RLIM_INFINITY and file_size + needed > limit)


class LmdbEnvironment:
    """One environment and its three databases.

    A thread holds the lock `gate` during each of its read transactions, which are short. A thread that changes the map
    or replaces the environment holds `gate`, too. LMDB allows neither during a read transaction of the process: if the
    memory map disappears during a read, the process crashes.

    Write transactions do not hold `gate`, because the storage's write lock prevents growth during a write.
    """

    __slots__ = (
        "_closed",
        "_env",
        "_map_size_bytes",
        "_max_size_bytes",
        "_path",
        "_sync",
        "_usable",
        "gate",
        "log_db",
        "meta_db",
        "snap_db",
    )

    def __init__(self, path: str, sync: bool, map_size_bytes: int, max_size_bytes: int) -> None:
        self._path = path
        self._sync = sync
        self._max_size_bytes = max_size_bytes
        self._map_size_bytes = min(map_size_bytes, max_size_bytes)
        self.gate = Lock()
        self._env: lmdb.Environment | None = None
        self._closed = False
        self._usable = False  # False while `_env` is missing, or perhaps opened or closed only in part
        self.log_db: Any = None
        self.meta_db: Any = None
        self.snap_db: Any = None

    def open(self, create: bool) -> None:
        """Opens the environment. If `create` is True, creates missing databases. Raises lmdb.Error or OSError."""
        size = self._map_size_bytes
        data = os.path.join(self._path, "data.mdb")
        # LMDB would create a missing file: an empty log in place of one that is temporarily unreachable.
        file_size = os.path.getsize(data) if not create or os.path.exists(data) else 0
        while size < file_size:
            size *= 2
        self._map_size_bytes = size
        reserve_lock_file(self._path)
        # Assigned first: a handle lost to an exception would keep the file open, and LMDB refuses to open a file twice.
        env = self._env = lmdb.open(
            self._path,
            map_size=size,
            max_dbs=8,
            max_readers=MAX_READERS,
            max_spare_txns=SPARE_READERS,
            sync=self._sync,
            metasync=self._sync,
            mode=FILE_MODE,
        )
        try:
            env.reader_check()
            # Always a write transaction: handles opened in a read transaction end with it. A write transaction
            # without changes writes nothing.
            with env.begin(write=True) as txn:
                self._open_databases(env, txn, create)
        except BaseException:
            self._close()
            raise
        self._usable = True

    def _open_databases(self, env: lmdb.Environment, txn: Any, create: bool) -> None:
        self.log_db = env.open_db(LOG_DB, txn=txn, create=create)
        self.meta_db = env.open_db(META_DB, txn=txn, create=create)
        self.snap_db = env.open_db(SNAP_DB, txn=txn, create=create)

    def old_journal(self, txn: Any) -> Any:
        """Opens the journal of format version 3 in a write transaction; returns None if there is none."""
        try:
            return self.env_for_write.open_db(OLD_JOURNAL_DB, txn=txn, create=False)
        except lmdb.NotFoundError:
            return None

    @property
    def flushes(self) -> bool:
        """True if each transaction is flushed to the device (durability `fsync`)."""
        return self._sync

    @property
    def env(self) -> lmdb.Environment:
        """The open environment, opened again if a failure has closed it. The caller must hold the lock `gate`."""
        if not self._usable:
            if self._closed:
                raise LogError("the log is closed", FailureReason.MISUSE)
            try:
                self._close()
                self.open(create=False)
            except (lmdb.Error, OSError) as error:
                raise LogError(f"the log cannot be opened again after a failure: {error}") from error
        env = self._env
        assert env is not None, "a usable environment is open"
        return env

    @property
    def env_for_write(self) -> lmdb.Environment:
        """The open environment, as `env`, for a caller that holds the storage's write lock but not the lock `gate`."""
        env = self._env
        if env is None or not self._usable:
            with self.gate:
                env = self.env
        return env

    def grow(self) -> None:
        """Doubles the map after all readers have ended.

        Raises LogError (SIZE_LIMIT) if the map cannot grow or would exceed its limit.
        """
        if self._map_size_bytes >= self._max_size_bytes:
            raise LogError(f"the log has reached its limit of {self._max_size_bytes} bytes", FailureReason.SIZE_LIMIT)
        size = min(self._map_size_bytes * 2, self._max_size_bytes)
        with self.gate:
            try:
                self.env.set_mapsize(size)
            except (lmdb.Error, OSError, MemoryError) as error:
                # LMDB has already unmapped the old map: only a new environment is usable.
                self._close()
                raise LogError(
                    f"the log needs a memory map of {size} bytes, which is not available: {error}",
                    FailureReason.SIZE_LIMIT,
                ) from error
        self._map_size_bytes = size

    def adopt_size(self) -> None:
        """Adopts a map size that another process has recorded in the file (MDB_MAP_RESIZED)."""
        with self.gate:
            self.adopt_size_in_gate()

    def adopt_size_in_gate(self) -> None:
        """Adopts the map size, as `adopt_size`, for a caller that holds the lock `gate`."""
        self.env.set_mapsize(0)
        self._map_size_bytes = int(self.env.info()["map_size"])

    def reopen(self) -> int:
        """Closes the environment and opens it again, after LMDB failed to write a meta page.

        After such a failure, LMDB refuses calls, and its state is unreliable.

        Returns the id of the last transaction in the file. Raises LogError if opening fails; the next use tries again.
        """
        with self.gate:
            self._close()
            return int(self.env.info()["last_txnid"])

    def stored_reference(self) -> bytes:
        """Reads the reference to the journal in use from LMDB's file; returns b"" if no journal is in use."""
        try:
            with self.gate:
                txn = self.begin_read(META_DB)
                try:
                    return get_row(txn, self.meta_db, JOURNAL_KEY) or b""
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, "reading the reference to the journal") from error

    def begin_read(self, database: bytes, *, buffers: bool = True) -> Any:
        """Begins a read transaction, which returns values as buffers, or as copies if `buffers` is False.

        The caller holds the lock `gate`, and aborts the transaction before it releases the lock. The database is given
        by name, because its handle changes whenever the environment is opened again.
        """
        begin: Callable[..., Any] = self.env.begin
        try:
            return begin(db=self._handle(database), buffers=buffers)
        except lmdb.MapResizedError:
            self.adopt_size_in_gate()
            return begin(db=self._handle(database), buffers=buffers)

    def _handle(self, database: bytes) -> Any:
        return {
            LOG_DB: self.log_db,
            META_DB: self.meta_db,
            SNAP_DB: self.snap_db,
        }[database]

    def sizes(self) -> tuple[int, int]:
        """Returns the size of the file, and the size up to the last page ever used."""
        with self.gate:
            env = self.env
            used = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
            return os.path.getsize(os.path.join(self._path, "data.mdb")), used

    def _close(self) -> None:
        self._usable = False
        env = self._env
        if env is not None:
            env.close()  # before `_env` is cleared, as in `open`
            self._env = None

    def close(self) -> None:
        """Closes the environment permanently.

        If commits are not flushed (`sync` is False), first flushes all data to the device. Can be repeated.
        """
        with self.gate:
            again, self._closed = self._closed, True
            env = self._env
            try:
                # After an interrupted close LMDB's handle may be closed; it then allows only another close.
                if env is not None and not self._sync and not again:
                    env.sync(True)
            finally:
                self._close()
