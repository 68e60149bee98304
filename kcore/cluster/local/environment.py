"""The LMDB environment that the processes of a cluster share."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

import lmdb

from kcore.cluster.local.locks import FileLock
from kcore.log.data_folder import DATA_NAME, LMDB_LOCK_NAME, open_private
from kcore.log.data_lock import is_locked
from kcore.log.errors import FailureReason, LogError
from kcore.log.lmdb_environment import (
    DEFAULT_MAP_SIZE_BYTES,
    MAX_MAP_SIZE_BYTES,
    LmdbEnvironment,
    file_error,
    log_error,
)
from kcore.log.lmdb_layout import CLUSTER_DB, SHARED_VERSION, FormatError
from kcore.log.lmdb_rows import read_version
from kcore.log.node_journals import CLUSTER_FOLDER
from kcore_ext.util.lock import Lock

T = TypeVar("T")

WRITER_LIMIT_S: Final = 5.0
"""Maximum time in seconds for which a transaction waits for the writer's lock."""


class SharedEnvironment(LmdbEnvironment):
    """An LMDB environment with the database of nodes and leaders. Its transactions wait only for a limited time.

    LMDB's own lock for writers has no time limit. This object takes a file lock with a time limit before LMDB's lock,
    so a stopped process delays other processes, but cannot block them.

    Args:
        path: the data folder.
        sync: True to flush each transaction.
    """

    __slots__ = ("_write_lock", "_writer", "cluster_db", "path")

    def __init__(self, path: str, sync: bool, map_size_bytes: int = DEFAULT_MAP_SIZE_BYTES) -> None:
        super().__init__(path, sync, map_size_bytes, MAX_MAP_SIZE_BYTES)
        self.path = path
        self.cluster_db: Any = None
        self._write_lock = Lock()
        self._writer = FileLock(os.path.join(path, CLUSTER_FOLDER, "writer"), WRITER_LIMIT_S)

    def open(self, create: bool) -> None:
        """Opens the environment like `LmdbEnvironment.open`, and checks the identity of LMDB's lock file and the format
        version.

        Raises:
            LogError: LMDB's lock file is not the file that the other processes have open, or the other processes use
                another format version.
        """
        if create:
            super().open(create)
            self._note_lock_file()
            return
        self._require_common_lock_file()
        super().open(create)
        try:
            self._require_common_lock_file()
            self._require_common_version()
        except BaseException:
            self._close()
            raise

    def _require_common_version(self) -> None:
        """Raises LogError if the processes that serve the folder use another format version than this code."""
        env = self._env
        assert env is not None, "the environment is open"
        try:
            with env.begin() as txn:
                version = read_version(txn, self.meta_db)
        except (FormatError, struct.error) as error:
            raise LogError(f"{self.path}: {error}", FailureReason.CORRUPT) from error
        if version != SHARED_VERSION:
            raise LogError(
                f"{self.path}: the processes that serve this folder use format version {version}, and this kcore uses "
                f"{SHARED_VERSION}: use the same version of kcore, or restart all processes together",
                FailureReason.MISUSE,
            )

    @property
    def _note(self) -> str:
        """The path of the file that stores the identity of LMDB's lock file."""
        return os.path.join(self.path, CLUSTER_FOLDER, "lmdb-lock")

    def _note_lock_file(self) -> None:
        with open(self._note, "w", encoding="ascii", opener=open_private) as file:
            file.write(self._lock_file_identity())

    def _require_common_lock_file(self) -> None:
        """Raises LogError if LMDB's lock file was removed or replaced while processes serve the folder.

        LMDB's lock file contains the number of the last transaction and the table of readers. Processes with different
        lock files would overwrite each other's transactions. If no process serves the folder, it may be a copy, so the
        check accepts any lock file.
        """
        try:
            with open(self._note, encoding="ascii") as file:
                noted = file.read()
        except FileNotFoundError:
            return  # an older version has prepared the folder
        if noted != self._lock_file_identity() and is_locked(os.path.join(self.path, DATA_NAME)):
            raise LogError(
                f"{self.path}: {LMDB_LOCK_NAME} was removed or replaced while processes serve the folder: restart "
                "all of them together",
                FailureReason.MISUSE,
            )

    def _lock_file_identity(self) -> str:
        """Returns the inode number of LMDB's lock file; "" if there is no such file.

        No other file has the same number while the lock file is open.
        """
        try:
            return str(os.stat(os.path.join(self.path, LMDB_LOCK_NAME)).st_ino)
        except FileNotFoundError:
            return ""

    def _open_databases(self, env: lmdb.Environment, txn: Any, create: bool) -> None:
        super()._open_databases(env, txn, create)
        self.cluster_db = env.open_db(CLUSTER_DB, txn=txn, create=create)

    def _handle(self, database: bytes) -> Any:
        return self.cluster_db if database == CLUSTER_DB else super()._handle(database)

    def read(self, work: Callable[[Any], T], doing: str) -> T:
        """Runs `work` in a read transaction on the database of nodes and leaders. `work` reads copies of the values.

        Raises:
            LogError: the file cannot be read.
        """
        try:
            with self.gate:
                txn = self.begin_read(CLUSTER_DB, buffers=False)
                try:
                    return work(txn)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, doing) from error

    def transact(self, work: Callable[[Any], T], doing: str) -> T:
        """Runs `work` in a write transaction. Repeats it if LMDB's map was too small and has grown.

        Raises:
            StoreUnavailableError: another process holds the writer's lock; nothing is stored.
            LogError: the transaction failed. If LMDB failed during the commit, the transaction may be stored
                nevertheless.
        """
        with self._write_lock:
            try:
                self._writer.acquire()
                return self._transact(work, doing)
            finally:
                self._writer.release()

    def _transact(self, work: Callable[[Any], T], doing: str) -> T:
        while True:
            try:
                with self.env_for_write.begin(write=True) as txn:
                    return work(txn)
            except lmdb.MapFullError:
                self.grow()
            except lmdb.MapResizedError:
                self.adopt_size()
            except lmdb.Error as error:
                self.reopen()
                raise log_error(error, doing, os.path.join(self.path, DATA_NAME)) from error

    def forget_dead_readers(self) -> None:
        """Lets LMDB reuse the pages of read transactions whose processes have died."""
        with self.gate:
            self.env.reader_check()

    def flush(self, doing: str) -> None:
        """Forces all transactions to the device. Raises LogError if that fails."""
        try:
            fd = os.open(os.path.join(self.path, DATA_NAME), os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise file_error(error, doing) from error

    def close(self) -> None:
        """Closes the environment permanently."""
        super().close()
        self._writer.close()


_OPEN: dict[str, tuple[SharedEnvironment, int]] = {}
_OPEN_LOCK = Lock()


def open_environment(path: str, sync: bool) -> SharedEnvironment:
    """Returns the environment of a folder. All stores of a process share it, because LMDB allows only one per process.

    Raises:
        LogError: no cluster serves the folder, or its file cannot be opened.
    """
    path = os.path.realpath(path)
    with _OPEN_LOCK:
        environment, users = _OPEN.get(path, (None, 0))
        if environment is None:
            environment = SharedEnvironment(path, sync)
            try:
                environment.open(create=False)
            except lmdb.NotFoundError:
                raise LogError(f"{path}: no data of a cluster; `kcore serve --processes` makes it") from None
            except lmdb.Error as error:
                raise log_error(error, f"opening {path}") from error
            except OSError as error:
                raise LogError(f"opening {path}: {error}") from error
        _OPEN[path] = environment, users + 1
        return environment


def close_environment(environment: SharedEnvironment) -> None:
    """Closes the environment, unless another store of this process still uses it."""
    with _OPEN_LOCK:
        users = _OPEN[environment.path][1] - 1
        if users:
            _OPEN[environment.path] = environment, users
            return
        del _OPEN[environment.path]
    environment.close()
