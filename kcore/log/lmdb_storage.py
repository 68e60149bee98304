"""The storage of a data folder: opens and locks the folder, reclaims space, and closes the folder."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

import lmdb

from kcore.log.data_folder import (
    COMPACT_NAME,
    DATA_NAME,
    LMDB_LOCK_NAME,
    DataFolder,
    open_private,
    os_reason,
    remedy,
)
from kcore.log.errors import DataFolderError, FailureReason, LogError
from kcore.log.journal import Journal
from kcore.log.journal_file import JOURNAL_NAME, JournalDamagedError
from kcore.log.lmdb_environment import LmdbEnvironment, log_error
from kcore.log.lmdb_layout import FORMAT_VERSION, LOG_DB, FormatError
from kcore.log.lmdb_opening import needs_databases, open_format, stored_version
from kcore.log.lmdb_pages import REMEDY
from kcore.log.lmdb_reclaim import reclaim_tasks
from kcore.log.lmdb_recovery import load_partitions
from kcore.log.lmdb_writer import LmdbWriter
from kcore.log.storage import ReclaimTask
from kcore.log.write_set import StoredPartition

logger = logging.getLogger(__name__)

Loaded = tuple[list[StoredPartition], list[int], int]
"""The type of a load's result: the partitions, the numbers of dropped partitions, and the next free number."""


class LmdbStorage(LmdbWriter):
    """The committed state of a data folder.

    This class opens the folder, reclaims space, and closes the folder. `LmdbWriter` writes, and `LmdbReader` reads.
    """

    __slots__ = ("_allow_orphans", "_loaded")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool,
        sync: bool,
        map_size_bytes: int,
        max_size_bytes: int,
        allow_orphans: bool = False,
    ) -> None:
        self._allow_orphans = allow_orphans
        self._loaded: Loaded | None = None
        path = os.path.abspath(os.fspath(path))
        environment = LmdbEnvironment(path, sync, map_size_bytes, max_size_bytes)
        super().__init__(path, environment, Journal(path, sync))
        self._folder = DataFolder(path, create)  # last: an exception before the next line would leave the folder locked
        try:
            self._open()
        except BaseException as error:
            self._abandon()
            refusal = _refusal(self.path, error)
            if refusal is None:
                raise
            raise refusal from error

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._environment.open(create=self._folder.new or needs_databases(self.path))
        self._open_state()
        self._journal.prepare()
        # The names of a new folder's files, and without `sync` this opening's node epoch too.
        self._environment.env_for_write.sync(True)
        self._folder.sync_folder(self.path)

    def _open_state(self) -> None:
        """Checks the format, counts this opening, moves the journal and loads the partitions, in one transaction.

        A refused folder stays unchanged, because a commit would let LMDB reuse pages that `kcore log repair` may need.
        """
        environment, journal = self._environment, self._journal
        version = FORMAT_VERSION

        def work(txn: Any) -> Loaded:
            nonlocal version
            version = stored_version(txn, environment)
            self.node_epoch = open_format(txn, environment, self.path, counts=not self._allow_orphans)
            journal.recover(txn, environment)
            return load_partitions(txn, environment, self.path, self._allow_orphans)

        while True:
            try:
                with environment.env_for_write.begin(write=True) as txn:
                    self._loaded = work(txn)
                break
            except lmdb.MapFullError:
                environment.grow()
            except lmdb.MapResizedError:
                environment.adopt_size()
            except lmdb.Error as error:
                # The result may be unknown, but memory holds nothing yet: the next opening reads what the file has.
                raise log_error(error, "opening the log", os.path.join(self.path, DATA_NAME)) from error
        if version < FORMAT_VERSION:
            logger.warning(
                "log %s: migrated from format version %d to %d; older versions of kcore refuse the folder from now on",
                self.path,
                version,
                FORMAT_VERSION,
            )

    def load(self) -> Loaded:
        """Implements `Storage.load`; raises DataFolderError if the folder is damaged."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:  # the first call uses the partitions that the opening has loaded
            return loaded
        try:
            with self._environment.gate:
                txn = self._environment.begin_read(LOG_DB)
                try:
                    return load_partitions(txn, self._environment, self.path, self._allow_orphans)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            self._abandon()
            raise DataFolderError(self.path, str(error), DATA_NAME) from error
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Releases the unchanged folder, after opening has failed."""
        self._journal.close()
        self._environment.close()
        self._folder.release()

    # -- the journal ---------------------------------------------------------------------------------------------

    def _end_journal(self) -> None:
        """Moves the journal to the log and ends its use, so that the data file alone has all committed data."""
        environment, journal = self._environment, self._journal
        if journal.in_use:
            self._transact(lambda txn: journal.move(txn, environment, begin=False), "moving the journal")

    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Implements `Storage.reclaim`."""
        environment, journal = self._environment, self._journal

        def work(txn: Any) -> int:
            journal.move(txn, environment, begin=journal.in_use)
            return reclaim_tasks(txn, environment, tasks, max_entries)

        done: int = self._transact(work, "freeing the space of deleted batches")
        return done

    # -- housekeeping --------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Implements `Storage.sync`.

        It flushes through a separate descriptor, so that commits need not wait for the flush.
        """
        try:
            fd = os.open(os.path.join(self.path, DATA_NAME), os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            self._journal.flush()
        except OSError as error:
            # After a failed flush the page cache is unreliable: read LMDB's state again, and leave the journal.
            with self._write_lock:
                if not self._uncertain:
                    self._begin_uncertain_write(None, is_entry=self._journal.in_use)
                self._require_resolved()
            raise LogError(f"flushing the log: {error}") from error

    def sizes(self) -> tuple[int, int]:
        """Implements `Storage.sizes`."""
        return self._environment.sizes()

    def compact_and_close(self) -> None:
        """Writes a copy without free pages, replaces the file by the copy atomically, and closes the storage; raises
        LogError.

        The folder stays locked. A crash before the rename leaves the old file, a crash after the rename leaves the new
        file.
        """
        copy = os.path.join(self.path, COMPACT_NAME)
        try:
            with self._write_lock, self._transaction_lock, open(copy, "wb", opener=open_private) as file:
                self._environment.env_for_write.copyfd(file.fileno(), compact=True)
                os.fsync(file.fileno())
            self._journal.close()
            self._environment.close()
            os.replace(copy, os.path.join(self.path, DATA_NAME))
            # LMDB creates its lock file again; the old one has transactions of another file.
            os.unlink(os.path.join(self.path, LMDB_LOCK_NAME))
            self._folder.sync_folder(self.path)
        except lmdb.Error as error:
            raise log_error(error, "compacting the log") from error
        except OSError as error:
            raise LogError(f"compacting the log: {error}") from error
        finally:
            self._environment.close()
            self._folder.release()
            if os.path.exists(copy):
                os.unlink(copy)

    def abandon_in_child(self) -> None:
        """Closes the folder's lock in a forked child; LMDB's handles belong to the parent and stay untouched."""
        self._journal.close()
        self._folder.abandon_in_child()

    def close(self) -> None:
        """Implements `Storage.close`. Can be repeated."""
        try:
            self._end_journal()
        except Exception as error:
            # It could not be moved now, or must not be since memory is unreliable: the next opening moves it.
            with contextlib.suppress(Exception):  # no memory for the line
                logger.warning(
                    "log %s: the journal could not be moved to the log at the close (%s). No write is lost: the next "
                    "opening moves it. Until then, the log consists of both `data.mdb` and `journal`: copy or move "
                    "them together",
                    self.path,
                    error,
                )
        finally:
            try:
                with self._write_lock, self._transaction_lock:
                    self._journal.close()
                    self._environment.close()
                self._folder.mark_closed()
            except lmdb.Error as error:
                raise log_error(error, "closing the log") from error
            finally:
                self._folder.release()


def _refusal(path: str, error: BaseException) -> DataFolderError | None:
    """Returns the error for the operator if a folder could not be opened; None for an error of another kind."""
    name, reason = DATA_NAME, str(error)
    if isinstance(error, FormatError):
        pass
    elif isinstance(error, JournalDamagedError):
        name, reason = JOURNAL_NAME, f"{error}{REMEDY}"
    elif isinstance(error, lmdb.Error):
        reason = reason.removeprefix(f"{path}: ") + remedy(getattr(error, "code", None))
    elif isinstance(error, LogError):
        if error.reason is FailureReason.DISK_FULL:
            reason += "; free space on the disk, or raise the limit of file sizes (`ulimit -f`)"
    elif isinstance(error, OSError):
        name, reason = os.path.basename(error.filename or DATA_NAME), os_reason(error)
    else:
        return None
    return DataFolderError(path, reason, name)
