"""The storage of a data folder: writes each write set to the journal file or in an LMDB transaction."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any, NoReturn

import lmdb

from kcore.log.data_folder import COMPACT_NAME, DATA_NAME, LMDB_LOCK_NAME, DataFolder, open_private
from kcore.log.errors import DataFolderError, LogError
from kcore.log.journal import NO_IDENTITY, Journal, JournalMismatchError
from kcore.log.journal_file import JOURNAL_NAME, JournalDamagedError
from kcore.log.lmdb_environment import LmdbEnvironment, file_error, log_error
from kcore.log.lmdb_layout import LOG_DB, NODE_EPOCH_KEY, U64, FormatError
from kcore.log.lmdb_opening import needs_databases, open_format
from kcore.log.lmdb_pages import REMEDY
from kcore.log.lmdb_put import put_batches, put_metas, require_put
from kcore.log.lmdb_reader import LmdbReader
from kcore.log.lmdb_reclaim import reclaim_tasks
from kcore.log.lmdb_recovery import load_partitions
from kcore.log.storage import ReclaimTask
from kcore.log.write_set import StoredPartition, WriteSet
from kcore.process_logging import log_failure
from kcore_ext.util.lock import Lock

logger = logging.getLogger(__name__)

MoveBeside = Callable[[Callable[[], None]], bool]
"""Passes a function to another thread, which calls it once; returns False if there is no such thread."""

Loaded = tuple[list[StoredPartition], list[int], int]
"""State that a load returns: the partitions, the numbers of dropped partitions, and the next free number."""


class LmdbStorage(LmdbReader):
    """The committed state of a data folder.

    A write set that only appends a few batches is an entry of the journal file. If `sync` is True, this takes one
    flush. All other write sets take an LMDB transaction. If `sync` is True, the transaction flushes the pages, then
    writes the meta page through (two flushes). If it is False, entries and transactions go to the page cache only;
    `LmdbLogEngine` describes the consequences.

    Once an area of the journal is full, another thread may move it (`move_beside`) while commits go to the other area.
    `_transaction_lock` excludes the write transactions of the two threads from each other. A thread that needs both
    locks takes `_write_lock` first. `_move_unsettled` is set while an area is moved; the next transaction then first
    determines whether the file has the move. Entries are valid with and without the move, so commits to the journal
    need not wait for the result.

    `_unsettled` is set while an entry or a transaction is written, and cleared once memory and files are known to
    match. After a failure or an interrupt, `settle` opens LMDB's file again, compares the last transaction id and the
    journal's identity, and after an unsettled entry moves the journal. If `settle` is interrupted too, `_unsettled`
    stays set, and `settle` or the next writer repeats the steps. `_doubt` is set if file and memory contradict each
    other. It then has the reason for which every write is refused until the folder is opened again.
    """

    __slots__ = (
        "_allow_orphans",
        "_doubt",
        "_folder",
        "_identity_before",
        "_loaded",
        "_move_beside",
        "_move_unsettled",
        "_transaction_lock",
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
        self._write_lock = Lock()
        self._transaction_lock = Lock()
        self._move_unsettled = False
        self._move_beside: MoveBeside | None = None
        self._doubt: str | None = None
        self._unsettled = False
        # the write set of the unsettled entry or transaction, None if it has none
        self._write_set: WriteSet | None = None
        self._txn_id = 0  # the id of the write set's transaction, 0 until it is about to be committed
        self._unsettled_entry = False  # True if an entry of the journal is unsettled, not a transaction
        # the identity of the journal in use before the unsettled entry or transaction
        self._identity_before = NO_IDENTITY
        self._journal = Journal(self.path, sync)
        self._loaded: Loaded | None = None
        self.node_epoch = 0
        self._folder = DataFolder(self.path, create)
        try:
            self._environment.open(create=self._folder.new or needs_databases(self.path))
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

    def _open_state(self) -> None:
        """Checks the format, counts this opening, moves the journal and loads the partitions, in one transaction.

        A refused folder stays unchanged, because a commit would let LMDB reuse pages that `kcore log repair` may need.
        """
        environment, journal = self._environment, self._journal

        def work(txn: Any) -> Loaded:
            self.node_epoch = open_format(txn, environment, self.path, counts=not self._allow_orphans)
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

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, write_set: WriteSet) -> None:
        """Implements `Storage.write`: writes an entry of the journal, or a transaction if the write set must go to the
        log.

        If an entry cannot be written, the journal is moved to the log, so that the entry never becomes valid.
        """
        with self._write_lock:
            if self._unsettled or self._doubt is not None:
                self._require_settled()
            if self._environment.flushes:
                self._folder.require_data_file()
            entry = self._journal.entry_of(write_set)
            if entry is None:
                with self._transaction_lock:
                    self._write_transaction(write_set)
            else:
                self._begin_unsettled(write_set, is_entry=True)
                try:
                    self._journal.append(write_set, entry)
                    self._unsettled = False
                    self._write_set = None
                except BaseException as error:
                    # An interrupt may come before or after the flush. If this handler is interrupted too, the engine
                    # calls `settle` before it relies on `is_durable`.
                    with self._transaction_lock:
                        self._determine_result()
                    if isinstance(error, OSError):
                        raise file_error(error, "commit failed: writing the journal") from error
                    raise
        if self._journal.move_is_due:
            self._start_move()

    def _begin_unsettled(self, write_set: WriteSet | None, *, is_entry: bool = False) -> None:
        """Records that an entry or a transaction is being written; `write_set` is None if there is no write set."""
        journal = self._journal
        self._txn_id = 0
        self._write_set = write_set
        self._unsettled_entry = is_entry
        self._identity_before = journal.next_identity = journal.identity
        self._unsettled = True

    def _write_transaction(self, write_set: WriteSet) -> None:
        """Writes a write set to the log, after the journal's batches. If the map was full, extends it and repeats the
        transaction.

        The caller holds both locks.
        """
        self._settle_move()
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
                # An interrupt may come before or after the commit; the transaction may still be open.
                self._determine_result()
                raise

    def settle(self) -> None:
        """Implements `Storage.settle`."""
        if self._unsettled:
            with self._write_lock, self._transaction_lock:
                if self._unsettled:
                    self._determine_result()

    def _require_settled(self) -> None:
        """Determines the result of the last write if it is unknown. The caller holds the write lock.

        Raises:
            LogError: memory does not match the files, or they cannot be read or written; nothing may be written.
        """
        if self._unsettled:
            with self._transaction_lock:
                self._determine_result()
        if self._doubt is not None:
            raise LogError(self._doubt)

    def _determine_result(self) -> None:
        """Determines the result of the unsettled entry or transaction, and marks its write set accordingly.

        The method opens LMDB's file again: if a commit fails while it writes the meta page, the file may have the
        transaction or not. If the file has the transaction, its pages were flushed before that meta page was written.
        One more commit, through the other meta page, then makes the transaction certain, and the write set has
        succeeded. Otherwise the write set has failed, and the file never shows it.

        An entry has succeeded if its flush has returned without an error. In either case, the method moves the
        journal's batches from memory to the log. It neither reads nor flushes the journal file: after a failed flush,
        the page cache is no evidence for the content of the device. The new identity makes a failed entry invalid
        forever.

        If this method raises, the storage stays unsettled, and the next call repeats the method. The caller holds both
        locks.

        Raises:
            LogError: a file cannot be read or written, or it lacks a write set that was reported as durable.
        """
        self._settle_move()
        last_txn_id = self._environment.reopen()
        journal, write_set = self._journal, self._write_set
        if not journal.adopt(self._environment.stored_reference()):
            self._contradicted("data.mdb does not refer to the journal file in use")
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
                self._contradicted("a commit that succeeded is not in data.mdb")
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
        """Moves the acknowledged entries from memory to the log, so that all entries in the journal file become
        invalid.

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
                raise log_error(
                    error, "a write to the journal failed, and the journal cannot be moved to the log yet"
                ) from error
            except JournalMismatchError as error:
                self._contradicted(str(error))

    def _confirm_commit(self) -> None:
        """Commits once more, so that both meta pages include the transaction whose result was unknown."""
        try:
            with self._environment.env_for_write.begin(write=True) as txn:
                require_put(txn.put(NODE_EPOCH_KEY, U64.pack(self.node_epoch), db=self._environment.meta_db))
        except lmdb.Error as error:
            raise log_error(
                error, "cannot confirm the previous commit, so it is unknown whether that commit is stored"
            ) from error

    def _refuse_writes(self, reason: str) -> str:
        """Refuses every write from now on, because memory and file differ or may differ. Returns the error's text."""
        doubt = self._doubt = f"{reason}: the log refuses every write and must be opened again"
        logger.critical("log %s: %s; restart the server, or close the engine and open it again", self.path, doubt)
        return doubt

    def _aborted(self, error: LogError) -> None:
        """Marks an aborted transaction as settled, because the file has none of its changes; `error` is the cause."""
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
        """Runs `work(txn)` in a separate write transaction, and extends the map if it is full; raises LogError.

        `work` may move the journal. After the commit, and before any other write, the journal in memory is updated.
        """
        with self._write_lock:
            self._require_settled()
            with self._transaction_lock:
                return self._transact_locked(work, doing)

    def _transact_locked(self, work: Callable[[Any], Any], doing: str) -> Any:
        """Runs a transaction, as `_transact`, for a caller that holds both locks."""
        self._settle_move()
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

    # -- moving a full area of the journal beside commits --------------------------------------------------------

    def move_beside(self, start: MoveBeside | None) -> None:
        """Implements `Storage.move_beside`."""
        self._move_beside = start
        self._journal.may_fill_other = start is not None

    def _start_move(self) -> None:
        """Starts the move of the full area on another thread. If that fails, a later transaction moves the area."""
        self._journal.move_is_due = False
        start = self._move_beside
        try:
            if start is not None:
                start(self._move_full_area)
        except Exception as error:
            log_failure(
                logger,
                error,
                "log %s: cannot start to move the full area of the journal to the log; a later commit moves it",
                self.path,
            )

    def _move_full_area(self) -> None:
        """Moves the full area of the journal to the log, on any thread. Errors are logged; a later transaction then
        moves the area.

        While the result of a transaction is unknown, or every write is refused, it does nothing.
        """
        try:
            with self._transaction_lock:
                if self._unsettled and not self._unsettled_entry:
                    return
                self._settle_move()
                if self._journal.has_full_area and self._doubt is None:
                    self._transact_move()
        except LogError as error:
            logger.error(
                "log %s: the full area of the journal could not be moved to the log (%s); the next commit that finds "
                "the journal full tries again",
                self.path,
                error,
            )
        except Exception as error:
            log_failure(
                logger,
                error,
                "log %s: an unexpected error while moving the full area of the journal to the log; a later commit "
                "tries again",
                self.path,
            )

    def _transact_move(self) -> None:
        """Moves the full area in a transaction. The caller holds the transaction lock; raises LogError."""
        environment, journal = self._environment, self._journal
        while True:
            self._move_unsettled = True
            try:
                with environment.env_for_write.begin(write=True) as txn:
                    journal.move_full_area(txn, environment)
                journal.full_area_moved()
                self._move_unsettled = False
                return
            except lmdb.MapFullError:
                self._move_unsettled = False
                environment.grow()
            except lmdb.MapResizedError:
                self._move_unsettled = False
                environment.adopt_size()
            except lmdb.Error as error:
                self._settle_move()
                raise log_error(error, "moving the journal to the log") from error
            except JournalMismatchError as error:
                self._refuse_writes(str(error))
                self._move_unsettled = False
                raise

    def _settle_move(self) -> None:
        """Determines the result of an area's move if the result is unknown. The caller holds the transaction lock.

        Raises:
            LogError: the file cannot be read or written; the next call tries again.
        """
        if not self._move_unsettled:
            return
        self._environment.reopen()
        stored = self._environment.stored_reference()
        if self._journal.names_other_area(stored):
            self._confirm_commit()  # before memory changes: after that the area may be overwritten
        if not self._journal.adopt(stored):
            doubt = self._refuse_writes("data.mdb does not refer to the journal file in use")
            self._move_unsettled = False
            raise LogError(doubt)
        self._move_unsettled = False

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
                if not self._unsettled:
                    self._begin_unsettled(None, is_entry=self._journal.in_use)
                self._require_settled()
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
            # If the journal cannot be moved now, or must not be since memory is unreliable, the next opening moves it.
            with contextlib.suppress(Exception):
                self._end_journal()
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
