"""Writes of a data folder: each write set goes to the journal file or into an LMDB transaction."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, NoReturn

import lmdb

from kcore.log.data_folder import DATA_NAME, DataFolder
from kcore.log.errors import LogError
from kcore.log.journal import NO_IDENTITY, Journal, JournalMismatchError
from kcore.log.journal_file import JOURNAL_BYTES
from kcore.log.lmdb_environment import LmdbEnvironment, file_error, log_error
from kcore.log.lmdb_layout import NODE_EPOCH_KEY, U64
from kcore.log.lmdb_put import put_batches, put_metas
from kcore.log.lmdb_reader import LmdbReader
from kcore.log.lmdb_rows import put_row
from kcore.log.write_set import WriteSet
from kcore.process_logging import log_failure, next_step
from kcore_ext.util.lock import Lock

logger = logging.getLogger(__name__)

MoveBeside = Callable[[Callable[[], None]], bool]
"""The type of a function that passes a callable to another thread, which calls it once.

The function returns False if there is no such thread.
"""


class LmdbWriter(LmdbReader):
    """The write operations of `LmdbStorage`, and the resolution of uncertain writes.

    A write set that only appends a few batches is an entry of the journal file. If the storage flushes, this takes one
    flush. All other write sets take an LMDB transaction. If the storage flushes, the transaction flushes the pages,
    then writes the meta page through (two flushes). Otherwise entries and transactions go to the page cache only;
    `LmdbLogEngine` describes the consequences.

    Once an area of the journal is full, another thread may move it (`move_beside`) while commits go to the other area.
    `_transaction_lock` excludes the write transactions of the two threads from each other. A thread that needs both
    locks takes `_write_lock` first. `_uncertain_move` is set while an area is moved; the next transaction then first
    determines if LMDB's file contains the move. Entries are valid with and without the move, so commits to the journal
    need not wait for the result.

    `_uncertain` is set while an entry or a transaction is written, and cleared once memory and files are known to
    match. After a failure or an interrupt, `resolve_write` opens LMDB's file again, compares the last transaction id
    and the journal's identity, and after an uncertain entry moves the journal. If `resolve_write` is interrupted too,
    `_uncertain` stays set, and `resolve_write` or the next writer repeats the steps. `_doubt` is set if file and memory
    contradict each other. It is the reason why every write is refused until the folder is opened again.

    Args:
        path: the folder.
        environment: the LMDB environment of the folder, which the subclass opens.
        journal: the journal of the folder.
    """

    __slots__ = (
        "_doubt",
        "_folder",
        "_identity_before",
        "_move_beside",
        "_transaction_lock",
        "_txn_id",
        "_uncertain",
        "_uncertain_entry",
        "_uncertain_move",
        "_write_lock",
        "_write_set",
        "node_epoch",
        "path",
    )

    _folder: DataFolder
    """The locked folder, which the subclass sets."""

    def __init__(self, path: str, environment: LmdbEnvironment, journal: Journal) -> None:
        self.path = path
        self._environment = environment
        self._journal = journal
        self._write_lock = Lock()
        self._transaction_lock = Lock()
        self._uncertain_move = False
        self._move_beside: MoveBeside | None = None
        self._doubt: str | None = None
        self._uncertain = False
        # the write set of the uncertain entry or transaction, None if it has none
        self._write_set: WriteSet | None = None
        self._txn_id = 0  # the id of the write set's transaction, 0 until it is about to be committed
        self._uncertain_entry = False  # True if an entry of the journal is uncertain, not a transaction
        # the identity of the journal in use before the uncertain entry or transaction
        self._identity_before = NO_IDENTITY
        self.node_epoch = 0

    def write(self, write_set: WriteSet) -> None:
        """Implements `Storage.write`: writes an entry of the journal, or a transaction if the write set must go to the
        log.

        If an entry cannot be written, the journal is moved to the log, so that the entry never becomes valid.
        """
        with self._write_lock:
            if self._uncertain or self._doubt is not None:
                self._require_resolved()
            if self._environment.flushes:
                self._folder.require_data_file()
            entry = self._journal.entry_of(write_set)
            if entry is None:
                with self._transaction_lock:
                    self._write_transaction(write_set)
            else:
                self._begin_uncertain_write(write_set, is_entry=True)
                try:
                    self._journal.append(write_set, entry)
                    self._uncertain = False
                    self._write_set = None
                except BaseException as error:
                    # An interrupt may come before or after the flush. If this handler is interrupted too, the engine
                    # calls `resolve_write` before it relies on `is_durable`.
                    with self._transaction_lock:
                        self._resolve()
                    if isinstance(error, OSError):
                        raise file_error(error, "commit failed: writing the journal") from error
                    raise
        if self._journal.move_is_due:
            self._start_move()

    def _begin_uncertain_write(self, write_set: WriteSet | None, *, is_entry: bool = False) -> None:
        """Records that an entry or a transaction is being written; `write_set` is None if there is no write set."""
        journal = self._journal
        self._txn_id = 0
        self._write_set = write_set
        self._uncertain_entry = is_entry
        self._identity_before = journal.next_identity = journal.identity
        self._uncertain = True

    def _write_transaction(self, write_set: WriteSet) -> None:
        """Writes a write set to the log, after the journal's batches. If the map was full, extends it and repeats the
        transaction.

        The caller holds both locks.
        """
        self._resolve_move()
        while True:
            self._begin_uncertain_write(write_set)
            try:
                txn = self._environment.env_for_write.begin(write=True, buffers=True)  # large values are not copied
                try:
                    self._put_write_set(txn, write_set)
                    self._txn_id = txn.id()
                except BaseException:
                    txn.abort()
                    raise
                txn.commit()
                self._journal.moved()
                write_set.is_durable = True
                self._uncertain = False
                self._write_set = None
                return
            except lmdb.MapFullError:
                self._uncertain = False
                self._environment.grow()
            except lmdb.MapResizedError:
                self._uncertain = False
                self._environment.adopt_size()
            except lmdb.Error as error:
                self._resolve()
                if write_set.is_durable:
                    return
                data = os.path.join(self.path, DATA_NAME)
                raise log_error(error, "commit failed", data, write_set.size_bytes()) from error
            except LogError as error:
                self._aborted(error)
                raise
            except BaseException:
                # An interrupt may come before or after the commit; the transaction may still be open.
                self._resolve()
                raise

    def resolve_write(self) -> None:
        """Implements `Storage.resolve_write`."""
        if self._uncertain:
            with self._write_lock, self._transaction_lock:
                if self._uncertain:
                    self._resolve()

    def _require_resolved(self) -> None:
        """Determines the result of the last write if it is unknown. The caller holds the write lock.

        Raises:
            LogError: memory does not match the files, or they cannot be read or written; nothing may be written.
        """
        if self._uncertain:
            with self._transaction_lock:
                self._resolve()
        if self._doubt is not None:
            raise LogError(self._doubt)

    def _resolve(self) -> None:
        """Determines the result of the uncertain entry or transaction, and marks its write set accordingly.

        The method opens LMDB's file again: if a commit fails while it writes the meta page, the file may have the
        transaction or not. If the file has the transaction, its pages were flushed before that meta page was written.
        One more commit, through the other meta page, then makes the transaction certain, and the write set has
        succeeded. Otherwise the write set has failed, and can never become visible.

        An entry has succeeded if its flush has returned without an error. In either case, the method moves the
        journal's batches from memory to the log. It neither reads nor flushes the journal file: after a failed flush,
        the page cache is no evidence for the content of the device. The new identity makes a failed entry invalid
        forever.

        If this method raises, the write stays uncertain, and the next call repeats the method. The caller holds both
        locks.

        Raises:
            LogError: a file cannot be read or written, or it lacks a write set that was reported as durable.
        """
        self._resolve_move()
        last_txn_id = self._environment.reopen()
        journal, write_set = self._journal, self._write_set
        if not journal.adopt(self._environment.stored_reference()):
            self._contradicted("data.mdb does not refer to the journal file in use")
        moved = journal.identity != self._identity_before
        if self._uncertain_entry:
            if not moved:
                if write_set is not None and write_set.is_durable:
                    journal.restore()
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
        self._uncertain = False
        self._write_set = None

    def _contradicted(self, reason: str) -> NoReturn:
        """Refuses every write from now on, and raises LogError with the reason."""
        doubt = self._refuse_writes(reason)
        self._uncertain = False
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
                put_row(txn, self._environment.meta_db, NODE_EPOCH_KEY, U64.pack(self.node_epoch))
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
        """Marks an aborted transaction as resolved, because the file has none of its changes; `error` is the cause."""
        if isinstance(error, JournalMismatchError):
            self._refuse_writes(str(error))
        self._uncertain = False
        self._write_set = None

    def _put_write_set(self, txn: Any, write_set: WriteSet) -> None:
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
            self._require_resolved()
            with self._transaction_lock:
                return self._transact_locked(work, doing)

    def _transact_locked(self, work: Callable[[Any], Any], doing: str) -> Any:
        """Runs a transaction, as `_transact`, for a caller that holds both locks."""
        self._resolve_move()
        while True:
            self._begin_uncertain_write(None)
            try:
                with self._environment.env_for_write.begin(write=True) as txn:
                    result = work(txn)
                self._journal.moved()
                self._uncertain = False
                return result
            except lmdb.MapFullError:
                self._uncertain = False
                self._environment.grow()
            except lmdb.MapResizedError:
                self._uncertain = False
                self._environment.adopt_size()
            except lmdb.Error as error:
                self._resolve()
                raise self._transaction_error(error, doing) from error
            except LogError as error:
                self._aborted(error)
                raise

    def _transaction_error(self, error: lmdb.Error, doing: str) -> LogError:
        """Translates an LMDB error of a transaction. The transaction may have moved the journal, so a full disk may be
        the cause.
        """
        return log_error(error, doing, os.path.join(self.path, DATA_NAME), JOURNAL_BYTES)

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
                "log %s: cannot start to move the full area of the journal to the log; a later commit moves it%s",
                self.path,
                next_step(error),
            )

    def _move_full_area(self) -> None:
        """Moves the full area of the journal to the log, on any thread. Errors are logged; a later transaction then
        moves the area.

        While the result of a transaction is unknown, or every write is refused, it does nothing.
        """
        try:
            with self._transaction_lock:
                if self._uncertain and not self._uncertain_entry:
                    return
                self._resolve_move()
                if self._journal.has_full_area and self._doubt is None:
                    self._transact_move()
        except LogError as error:
            logger.error(
                "log %s: the full area of the journal could not be moved to the log (%s); the next commit that finds "
                "the journal full tries again; if this repeats, check the disk",
                self.path,
                error,
            )
        except Exception as error:
            log_failure(
                logger,
                error,
                "log %s: an unexpected error while moving the full area of the journal to the log; a later commit "
                "tries again%s",
                self.path,
                next_step(error),
            )

    def _transact_move(self) -> None:
        """Moves the full area in a transaction. The caller holds the transaction lock; raises LogError."""
        environment, journal = self._environment, self._journal
        while True:
            self._uncertain_move = True
            try:
                with environment.env_for_write.begin(write=True) as txn:
                    journal.move_full_area(txn, environment)
                journal.full_area_moved()
                self._uncertain_move = False
                return
            except lmdb.MapFullError:
                self._uncertain_move = False
                environment.grow()
            except lmdb.MapResizedError:
                self._uncertain_move = False
                environment.adopt_size()
            except lmdb.Error as error:
                self._resolve_move()
                raise self._transaction_error(error, "moving the journal to the log") from error
            except JournalMismatchError as error:
                self._refuse_writes(str(error))
                self._uncertain_move = False
                raise

    def _resolve_move(self) -> None:
        """Determines the result of an area's move if the result is unknown. The caller holds the transaction lock.

        Raises:
            LogError: the file cannot be read or written; the next call tries again.
        """
        if not self._uncertain_move:
            return
        self._environment.reopen()
        stored = self._environment.stored_reference()
        if self._journal.names_other_area(stored):
            self._confirm_commit()  # before memory changes: after that the area may be overwritten
        if not self._journal.adopt(stored):
            doubt = self._refuse_writes("data.mdb does not refer to the journal file in use")
            self._uncertain_move = False
            raise LogError(doubt)
        self._uncertain_move = False
