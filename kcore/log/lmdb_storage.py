"""The storage of a data folder: writes each write set to the journal file or in an LMDB transaction."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import lmdb

from kcore.log.data_folder import COMPACT_NAME, DATA_NAME, LMDB_LOCK_NAME, DataFolder, open_private
from kcore.log.errors import DataFolderError, LogError
from kcore.log.journal import NO_IDENTITY, Journal, JournalMismatchError
from kcore.log.journal_file import JOURNAL_NAME, JournalDamagedError
from kcore.log.lmdb_environment import LmdbEnvironment, file_error, log_error
from kcore.log.lmdb_layout import (
    FORMAT_KEY,
    FORMAT_VERSION,
    LOG_DB,
    META_DB,
    NODE_EPOCH_KEY,
    OLD_JOURNAL_DB,
    SHARED_VERSION,
    SNAP_DB,
    U32,
    U64,
    FormatError,
    migrate,
)
from kcore.log.lmdb_pages import REMEDY
from kcore.log.lmdb_put import put_batches, put_metas, require_put
from kcore.log.lmdb_reader import LmdbReader
from kcore.log.lmdb_reclaim import reclaim_tasks
from kcore.log.lmdb_recovery import load_partitions
from kcore.log.node_journals import fold
from kcore.log.storage import ReclaimTask
from kcore.log.write_set import StoredPartition, WriteSet

logger = logging.getLogger(__name__)

Loaded = tuple[list[StoredPartition], list[int], int]
"""Partitions, dropped numbers, and the lowest number never given away."""


class LmdbStorage(LmdbReader):
    """The committed state of a data folder.

    A write set that only appends a few batches is an entry of the journal file: with `sync` one flush. Others take an
    LMDB transaction, which with `sync` flushes the pages, then writes the meta page through (two flushes). Without
    `sync` all go to the page cache only; `LmdbLogEngine` describes the consequences.

    `_unsettled` is set while an entry or a transaction is written, and cleared once memory and files are known to
    match. After a failure or an interrupt, `settle` opens LMDB's file again, compares the last transaction id and the
    journal's identity, and after an unsettled entry moves the journal. If that is interrupted too, `_unsettled` stays
    set, and `settle` or the next writer repeats it. `_doubt` is set if file and memory contradict each other. It is
    then the reason for which every write is refused until the folder is opened again.
    """

    __slots__ = (
        "_allow_orphans",
        "_doubt",
        "_folder",
        "_identity_before",
        "_loaded",
        "_txn_id",
        "_unsettled",
        "_unsettled_entry",
        "_write_lock",
        "_write_set",
        "node_epoch",
        "path",
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        create: bool,
        sync: bool,
        map_size_bytes: int,
        max_size_bytes: int,
        *,
        allow_orphans: bool = False,
    ) -> None:
        self._allow_orphans = allow_orphans
        self.path = os.path.abspath(os.fspath(path))
        self._environment = LmdbEnvironment(self.path, sync, map_size_bytes, max_size_bytes)
        self._write_lock = threading.Lock()
        self._doubt: str | None = None
        self._unsettled = False
        self._write_set: WriteSet | None = None  # of the unsettled entry or transaction, None if it has none
        self._txn_id = 0  # of the write set's transaction, 0 until it is about to be committed
        self._unsettled_entry = False  # True if an entry of the journal is unsettled, not a transaction
        self._identity_before = NO_IDENTITY  # of the journal in use before the unsettled entry or transaction
        self._journal = Journal(self.path, sync)
        self._loaded: Loaded | None = None
        self.node_epoch = 0
        self._folder = DataFolder(self.path, create)
        try:
            self._environment.open(create=self._creating())
            self._open_state()
            self._journal.prepare()
            # The names of a new folder's files, and without `sync` this opening's node epoch too.
            self._environment.env_for_write.sync(True)
            self._folder.sync_folder(self.path)
        except FormatError as error:
            self._abandon()
            raise DataFolderError(self.path, str(error), DATA_NAME) from error
        except JournalDamagedError as error:
            self._abandon()
            raise DataFolderError(self.path, f"{error}{REMEDY}", JOURNAL_NAME) from error
        except (lmdb.Error, LogError) as error:
            self._abandon()
            raise DataFolderError(self.path, str(error), DATA_NAME) from error
        except OSError as error:
            self._abandon()
            name = os.path.basename(error.filename or DATA_NAME)
            raise DataFolderError(self.path, error.strerror or str(error), name) from error
        except BaseException:
            self._abandon()
            raise

    # -- opening ------------------------------------------------------------------------------------------------

    def _creating(self) -> bool:
        """Returns whether to create the databases: in a new file, or in an empty one left by a crash at creation."""
        if self._folder.new:
            return True
        env = lmdb.open(self.path, max_dbs=8, readonly=True, lock=False)
        try:
            with env.begin() as txn:
                names = {bytes(name) for name, _ in txn.cursor()}
            if not names:
                return True
            if not names >= {LOG_DB, META_DB, SNAP_DB}:
                raise DataFolderError(self.path, "an LMDB file, but not kcore's", DATA_NAME)
        finally:
            env.close()
        return False

    def _open_state(self) -> None:
        """Checks the format, counts this opening, moves the journal and loads the partitions, in one transaction.

        A folder that is refused stays as it is: every commit lets LMDB reuse pages that `kcore log repair` may need.
        """
        environment, journal = self._environment, self._journal

        def work(txn: Any) -> Loaded:
            self._open_format(txn)
            journal.recover(txn, environment)
            return load_partitions(txn, environment, self.path, self._allow_orphans)

        while True:
            try:
                with environment.env_for_write.begin(write=True) as txn:
                    self._loaded = work(txn)
                return
            except lmdb.MapFullError:
                environment.grow()
            except lmdb.MapResizedError:
                environment.adopt_size()
            except lmdb.Error as error:
                # The result may be unknown, but memory holds nothing yet: the next opening reads what the file has.
                raise log_error(error, "opening the log", os.path.join(self.path, DATA_NAME)) from error

    def _open_format(self, txn: Any) -> None:
        """Checks or writes the format version, migrates, and counts this opening unless it is only a verification."""
        meta = self._environment.meta_db
        version = txn.get(FORMAT_KEY, db=meta)
        if version is None:
            if txn.stat(meta)["entries"]:
                raise FormatError("no format version: not kcore's, or damaged")
            txn.put(FORMAT_KEY, U32.pack(FORMAT_VERSION), db=meta)
            txn.put(NODE_EPOCH_KEY, U64.pack(0), db=meta)
            self.node_epoch = 0
            return
        databases = {
            LOG_DB: self._environment.log_db,
            META_DB: meta,
            SNAP_DB: self._environment.snap_db,
            OLD_JOURNAL_DB: self._environment.old_journal(txn),
        }
        try:
            if U32.unpack(version)[0] == SHARED_VERSION:
                fold(txn, self._environment, self.path)
            else:
                migrate(txn, databases, U32.unpack(version)[0])
            self.node_epoch = U64.unpack(txn.get(NODE_EPOCH_KEY, b"", db=meta))[0] + 1
        except struct.error as error:
            raise FormatError(f"damaged: format version or node epoch of the wrong size: {error}") from error
        if not self._allow_orphans:
            txn.put(NODE_EPOCH_KEY, U64.pack(self.node_epoch), db=meta)

    def load(self) -> Loaded:
        """Implements `Storage.load`; raises DataFolderError if the folder is damaged."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:  # the first time after the opening, which has loaded them
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

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, write_set: WriteSet) -> None:
        """Implements `Storage.write`."""
        with self._write_lock:
            if self._unsettled or self._doubt is not None:
                self._require_settled()
            entry = self._journal.entry_of(write_set)
            if entry is not None:
                self._write_entry(write_set, entry)
            else:
                self._write_transaction(write_set)

    def _begin_unsettled(self, write_set: WriteSet | None, *, is_entry: bool = False) -> None:
        """Notes that an entry or a transaction is being written, of a write set or of none."""
        journal = self._journal
        self._txn_id = 0
        self._write_set = write_set
        self._unsettled_entry = is_entry
        self._identity_before = journal.next_identity = journal.identity
        self._unsettled = True

    def _write_entry(self, write_set: WriteSet, entry: bytes) -> None:
        """Writes a write set to the journal. If that fails, the journal is moved and its entry never becomes valid."""
        self._begin_unsettled(write_set, is_entry=True)
        try:
            self._journal.append(write_set, entry)
            self._unsettled = False
            self._write_set = None
        except OSError as error:
            self._determine_result()
            raise file_error(error, "commit failed: writing the journal") from error
        except BaseException:
            # An interrupt before or after the flush. If this is interrupted too, the engine calls `settle` before it
            # relies on `is_durable`.
            self._determine_result()
            raise

    def _write_transaction(self, write_set: WriteSet) -> None:
        """Writes a write set to the log, behind the journal's batches. Repeats only after the map has grown."""
        while True:
            self._begin_unsettled(write_set)
            try:
                txn = self._environment.env_for_write.begin(write=True)
                try:
                    self._put_round(txn, write_set)
                    self._txn_id = txn.id()
                except BaseException:
                    txn.abort()
                    raise
                txn.commit()
                self._journal.moved()
                write_set.is_durable = True
                self._unsettled = False
                self._write_set = None
                return
            except lmdb.MapFullError:
                self._unsettled = False
                self._environment.grow()
            except lmdb.MapResizedError:
                self._unsettled = False
                self._environment.adopt_size()
            except lmdb.Error as error:
                self._determine_result()
                if write_set.is_durable:
                    return
                data = os.path.join(self.path, DATA_NAME)
                raise log_error(error, "commit failed", data, write_set.size_bytes()) from error
            except LogError as error:
                self._aborted(error)
                raise
            except BaseException:
                # An interrupt before or after the commit, with the transaction perhaps still open.
                self._determine_result()
                raise

    def settle(self) -> None:
        """See Storage."""
        if self._unsettled:
            with self._write_lock:
                if self._unsettled:
                    self._determine_result()

    def _require_settled(self) -> None:
        """Determines the result of the last write if it is unknown. The caller holds the write lock.

        Raises:
            LogError: memory does not match the files, or they cannot be read or written; nothing may be written.
        """
        if self._unsettled:
            self._determine_result()
        if self._doubt is not None:
            raise LogError(self._doubt)

    def _determine_result(self) -> None:
        """Determines the result of the unsettled entry or transaction, and marks its write set accordingly.

        LMDB's file is opened again. If a commit fails while it writes the meta page, the transaction may have happened
        or not. If the file has it, its pages were flushed before that meta page was written. One more commit, through
        the other meta page, then makes it certain, and the write set has succeeded. In any other case it has failed,
        and the file never shows it.

        An entry has succeeded if its flush has returned without an error. In both cases the journal is moved from
        memory: its file is never read or flushed again, because after a failed flush the page cache is no evidence for
        the content of the device. The new identity makes an entry that has failed invalid for ever.

        If this raises, the storage stays unsettled, and the next call repeats it. The caller holds the write lock.

        Raises:
            LogError: a file cannot be read or written, or it lacks a write set that was reported as durable.
        """
        last_txn_id = self._environment.reopen()
        journal, write_set = self._journal, self._write_set
        if not journal.adopt(self._environment.stored_identity()):
            self._contradicted("the file does not name the journal in use")
        moved = journal.identity != self._identity_before
        if self._unsettled_entry:
            if not moved:
                if write_set is not None and write_set.is_durable:
                    journal.restore(write_set)
                self._leave_journal()
            else:
                self._confirm_commit()
        elif write_set is not None:
            stored = 0 < self._txn_id <= last_txn_id
            if write_set.is_durable and not stored:
                self._contradicted("a commit that succeeded is not in the file")
            if stored and not write_set.is_durable:
                self._confirm_commit()
                write_set.is_durable = True
        elif moved:
            self._confirm_commit()
        self._unsettled = False
        self._write_set = None

    def _contradicted(self, reason: str) -> NoReturn:
        """Refuses every write from now on, and raises the reason."""
        doubt = self._refuse_writes(reason)
        self._unsettled = False
        raise LogError(doubt)

    def _leave_journal(self) -> None:
        """Moves the acknowledged rounds to the log, so that the file's other entries become invalid.

        Raises:
            LogError: the transaction failed; its result is not known.
        """
        environment, journal = self._environment, self._journal
        while True:
            try:
                with environment.env_for_write.begin(write=True) as txn:
                    journal.move(txn, environment, begin=True, trusted=True)
                journal.moved()
                return
            except lmdb.MapFullError:
                environment.grow()
            except lmdb.MapResizedError:
                environment.adopt_size()
            except lmdb.Error as error:
                raise log_error(error, "a write to the journal failed, and the journal cannot be moved yet") from error
            except JournalMismatchError as error:
                self._contradicted(str(error))

    def _confirm_commit(self) -> None:
        """Commits once more, so that both meta pages follow the transaction whose result was unknown."""
        try:
            with self._environment.env_for_write.begin(write=True) as txn:
                require_put(txn.put(NODE_EPOCH_KEY, U64.pack(self.node_epoch), db=self._environment.meta_db))
        except lmdb.Error as error:
            raise log_error(error, "a commit failed, and its result is not known yet") from error

    def _refuse_writes(self, reason: str) -> str:
        """Refuses every write from now on, because memory and file disagree, or may; returns the error's text."""
        doubt = self._doubt = f"{reason}: the log refuses every write and must be opened again"
        logger.critical("log %s: %s; restart the server, or close the engine and open it again", self.path, doubt)
        return doubt

    def _aborted(self, error: LogError) -> None:
        """Settles a transaction that was aborted because of `error`: the file has none of its changes."""
        if isinstance(error, JournalMismatchError):
            self._refuse_writes(str(error))
        self._unsettled = False
        self._write_set = None

    def _put_round(self, txn: Any, write_set: WriteSet) -> None:
        """Moves the journal, if it has entries, and writes a write set to the log."""
        environment = self._environment
        self._journal.move(txn, environment, begin=True)
        put_batches(txn, environment, write_set)
        if (
            write_set.drops
            or write_set.metas
            or write_set.next_number
            or any(part.meta is not None for part in write_set.partitions)
        ):
            put_metas(txn, environment, write_set)

    def _transact(self, work: Callable[[Any], Any], doing: str) -> Any:
        """Runs `work(txn)` in a write transaction of its own, growing the map if needed; raises LogError.

        `work` may move the journal. After the commit, and before any other write, memory follows.
        """
        with self._write_lock:
            self._require_settled()
            while True:
                self._begin_unsettled(None)
                try:
                    with self._environment.env_for_write.begin(write=True) as txn:
                        result = work(txn)
                    self._journal.moved()
                    self._unsettled = False
                    return result
                except lmdb.MapFullError:
                    self._unsettled = False
                    self._environment.grow()
                except lmdb.MapResizedError:
                    self._unsettled = False
                    self._environment.adopt_size()
                except lmdb.Error as error:
                    self._determine_result()
                    raise log_error(error, doing) from error
                except LogError as error:
                    self._aborted(error)
                    raise

    def _end_journal(self) -> None:
        """Moves the journal to the log and ends its use, so that the data file alone has everything."""
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
        """Implements `Storage.sync`. It uses a descriptor of its own, so that commits need not wait for the flush."""
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
                if not self._unsettled:
                    self._begin_unsettled(None, is_entry=self._journal.in_use)
                self._require_settled()
            raise LogError(f"flushing the log: {error}") from error

    def sizes(self) -> tuple[int, int]:
        """Implements `Storage.sizes`."""
        return self._environment.sizes()

    def compact_and_close(self) -> None:
        """Writes a copy without free pages, replaces the file by it atomically, and closes; raises LogError.

        The folder stays locked. A crash before the rename leaves the old file, one after it the new file.
        """
        copy = os.path.join(self.path, COMPACT_NAME)
        try:
            with self._write_lock, open(copy, "wb", opener=open_private) as file:
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
            # If the journal cannot be moved now, or must not be since memory is unreliable, the next opening moves it.
            with contextlib.suppress(Exception):
                self._end_journal()
        finally:
            try:
                with self._write_lock:
                    self._journal.close()
                    self._environment.close()
                self._folder.mark_closed()
            except lmdb.Error as error:
                raise log_error(error, "closing the log") from error
            finally:
                self._folder.release()
