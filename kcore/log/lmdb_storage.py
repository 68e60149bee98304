"""The storage in LMDB: writes each write set in a transaction, and reads slices in read transactions."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
from collections.abc import Callable
from typing import Any

import lmdb

from kcore.log.batch_header import last_offset, offsets_and_timestamp
from kcore.log.data_folder import COMPACT_NAME, DATA_NAME, LMDB_LOCK_NAME, DataFolder, open_private
from kcore.log.errors import DataFolderError, LogError
from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.lmdb_environment import LmdbEnvironment, log_error
from kcore.log.lmdb_journal import Journal, JournalMismatchError, behind, entries_of
from kcore.log.lmdb_layout import (
    FORMAT_KEY,
    FORMAT_VERSION,
    JOURNAL_DB,
    LOG_DB,
    LOG_KEY,
    META_DB,
    NODE_EPOCH_KEY,
    SNAP_DB,
    SNAP_KEY,
    U32,
    U64,
    USER_PREFIX,
    FormatError,
    migrate,
)
from kcore.log.lmdb_put import put_batches, put_metas, require_put
from kcore.log.lmdb_reclaim import reclaim_tasks
from kcore.log.lmdb_recovery import load_partitions, stray_numbers
from kcore.log.storage import ReclaimTask, Storage
from kcore.log.write_set import StoredPartition, WriteSet
from kcore_ext.batch.run import gather

logger = logging.getLogger(__name__)

_pack_log_key = LOG_KEY.pack

Loaded = tuple[list[StoredPartition], list[int], int]
"""Partitions, dropped numbers, and the lowest number never given away."""


class LmdbStorage(Storage):
    """The committed state of a data folder.

    With `sync` a commit writes and flushes the pages, then writes the meta page through (two flushes). Without it, both
    go to the page cache only; `LmdbLogEngine` describes the consequences.

    `_unsettled` is set while a transaction runs, and cleared once memory and file are known to match. After a failure
    or an interrupt, `settle` opens the file again, reads the journal back and compares the last transaction id. If that
    is interrupted too, `_unsettled` stays set, and `settle` or the next writer repeats it. `_doubt` is set if file and
    memory contradict each other. It is then the reason for which every write is refused until the folder is opened
    again.
    """

    __slots__ = (
        "_allow_orphans",
        "_doubt",
        "_environment",
        "_folder",
        "_journal",
        "_loaded",
        "_txn_id",
        "_unsettled",
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
        self._write_set: WriteSet | None = None  # of the unsettled transaction, None if it has none
        self._txn_id = 0  # of the write set's transaction, 0 until it is about to be committed
        self._journal = Journal()
        self._loaded: Loaded | None = None
        self.node_epoch = 0
        self._folder = DataFolder(self.path, create)
        try:
            self._environment.open(create=self._creating())
            self._open_state()
            # The names of a new folder's files, and without `sync` this opening's node epoch too.
            self._environment.env_for_write.sync(True)
            self._folder.sync_folder(self.path)
        except FormatError as error:
            self._abandon()
            raise DataFolderError(self.path, str(error), DATA_NAME) from error
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
            with txn.cursor(environment.journal_db) as cursor:
                journal.restore(cursor.iternext())
            journal.move(txn, environment.journal_db, environment.log_db)
            return load_partitions(txn, environment, self.path, self._allow_orphans)

        self._loaded = self._transact(work, "opening the log", journal.moved)

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
        }
        try:
            migrate(txn, databases, U32.unpack(version)[0])
            self.node_epoch = U64.unpack(txn.get(NODE_EPOCH_KEY, b"", db=meta))[0] + 1
        except struct.error as error:
            raise FormatError(f"damaged: format version or node epoch of the wrong size: {error}") from error
        if not self._allow_orphans:
            txn.put(NODE_EPOCH_KEY, U64.pack(self.node_epoch), db=meta)

    def _read_journal(self) -> None:
        """Reads the file's journal into memory."""
        with self._environment.gate:
            txn = self._environment.begin_read(JOURNAL_DB, buffers=False)
            try:
                self._journal.restore(txn.cursor().iternext())
            finally:
                txn.abort()

    def _move_journal(self) -> None:
        """Moves the batches that a crash, or this process, left in the journal to the log."""
        environment, journal = self._environment, self._journal
        if not journal.empty:
            self._transact(
                lambda txn: journal.move(txn, environment.journal_db, environment.log_db),
                "moving the journal",
                journal.moved,
            )

    def _reopen(self) -> int:
        """Opens the environment again after a failure and reads the journal; returns the file's last transaction id."""
        last_txn_id = self._environment.reopen()
        try:
            self._read_journal()
        except MemoryError as error:
            raise LogError("not enough memory to read the journal back; the next write tries again") from error
        return last_txn_id

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
        self._environment.close()
        self._folder.release()

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, write_set: WriteSet) -> None:
        """Implements `Storage.write`. The loop repeats only after the map has grown."""
        with self._write_lock:
            if self._unsettled or self._doubt is not None:
                self._require_settled()
            entries = entries_of(write_set)
            while True:
                self._txn_id = 0
                self._write_set = write_set
                self._unsettled = True
                try:
                    txn = self._environment.env_for_write.begin(write=True)
                    try:
                        moved = self._put_round(txn, write_set, entries)
                        self._txn_id = txn.id()
                    except BaseException:
                        txn.abort()
                        raise
                    txn.commit()
                    self._after_write(write_set, entries, moved)
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
                    # An interrupt before or after the commit, with the transaction perhaps still open. If this is
                    # interrupted too, the engine calls `settle` before it relies on `is_durable`.
                    self._determine_result()
                    raise

    def settle(self) -> None:
        """See Storage."""
        if self._unsettled:
            with self._write_lock:
                if self._unsettled:
                    self._determine_result()

    def _require_settled(self) -> None:
        """Determines the result of the last transaction if it is unknown. The caller holds the write lock.

        Raises:
            LogError: memory does not match the file, or the file cannot be read; nothing may be written.
        """
        if self._unsettled:
            self._determine_result()
        if self._doubt is not None:
            raise LogError(self._doubt)

    def _determine_result(self) -> None:
        """Opens the file again, and marks the unsettled write set as durable if the file has its transaction.

        If a commit fails while it writes the meta page, the transaction may have happened or not. If the file has it,
        its pages were flushed before that meta page was written. One more commit, through the other meta page, then
        makes it certain, and the write set has succeeded. In any other case it has failed, and the file never shows it.

        If this raises, the storage stays unsettled, and the next call repeats it. The caller holds the write lock.

        Raises:
            LogError: the file cannot be read or written, or it lacks a write set that was reported as durable.
        """
        last_txn_id = self._reopen()
        write_set = self._write_set
        if write_set is not None:
            stored = 0 < self._txn_id <= last_txn_id
            if write_set.is_durable and not stored:
                doubt = self._refuse_writes("a commit that succeeded is not in the file")
                self._unsettled = False
                raise LogError(doubt)
            if stored and not write_set.is_durable:
                self._confirm_commit()
                write_set.is_durable = True
        self._unsettled = False
        self._write_set = None

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

    def _after_write(self, write_set: WriteSet, entries: bytes | None, moved: bool) -> None:
        """Updates the journal in memory after a write set was committed."""
        if moved:
            self._journal.moved()
        if entries:
            self._journal.written(write_set, len(entries))
        write_set.is_durable = True

    def _put_round(self, txn: Any, write_set: WriteSet, entries: bytes | None) -> bool:
        """Writes a write set, to the journal if it has entries for it; returns whether the journal was moved before."""
        environment, journal = self._environment, self._journal
        moved = False
        if entries is None or journal.full:
            moved = journal.move(txn, environment.journal_db, environment.log_db)
        if entries is None:
            put_batches(txn, environment, write_set)
        elif entries:
            journal.put(txn, environment.journal_db, entries, first=moved)
        if (
            write_set.drops
            or write_set.metas
            or write_set.next_number
            or any(part.meta is not None for part in write_set.partitions)
        ):
            put_metas(txn, environment, write_set)
        return moved

    def _transact(self, work: Callable[[Any], Any], doing: str, after_commit: Callable[[], None] = lambda: None) -> Any:
        """Runs `work(txn)` in a write transaction of its own, growing the map if needed; raises LogError.

        After the commit, and before any other write, it calls `after_commit`.
        """
        with self._write_lock:
            self._require_settled()
            while True:
                self._write_set = None  # without a write set, reading the file again settles the transaction
                self._unsettled = True
                try:
                    with self._environment.env_for_write.begin(write=True) as txn:
                        result = work(txn)
                    after_commit()
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

    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Implements `Storage.reclaim`."""
        environment, journal = self._environment, self._journal

        def work(txn: Any) -> int:
            journal.move(txn, environment.journal_db, environment.log_db)
            return reclaim_tasks(txn, environment, tasks, max_entries)

        done: int = self._transact(work, "freeing the space of deleted batches", journal.moved)
        return done

    # -- reading ------------------------------------------------------------------------------------------------

    def slice(self, number: int, offset: int, limit: int, max_bytes: int, max_batches: int) -> list[tuple[int, bytes]]:
        """Implements `Storage.slice`."""
        environment = self._environment
        waiting = self._journal.waiting()
        found: list[tuple[int, bytes]] = []
        try:
            with environment.gate:
                txn = environment.begin_read(LOG_DB, buffers=False)
                try:
                    cursor = txn.cursor()
                    if _seek(cursor, number, U32.pack(number), offset):
                        found = gather(cursor.iternext(), number, limit, max_bytes, max_batches)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, "reading batches") from error
        size_bytes = sum(len(batch) for _, batch in found) if number in waiting else 0
        for entry in behind(waiting, number, offset, limit, found):
            if found and (size_bytes >= max_bytes or len(found) >= max_batches):
                break
            found.append(entry)
            size_bytes += len(entry[1])
        return found

    def summaries(self, number: int, offset: int, limit: int, max_batches: int) -> list[BatchSummary]:
        """Implements `Storage.summaries`."""
        environment = self._environment
        waiting = self._journal.waiting()
        found: list[BatchSummary] = []
        prefix = U32.pack(number)
        unpack_key = LOG_KEY.unpack
        try:
            with environment.gate:
                txn = environment.begin_read(LOG_DB)
                try:
                    cursor = txn.cursor()
                    for key, value in cursor.iternext() if _seek(cursor, number, prefix, offset) else ():
                        owner, base = unpack_key(key)
                        if owner != number or base >= limit or len(found) >= max_batches:
                            break
                        found.append(BatchSummary(*offsets_and_timestamp(value), len(value)))
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, "reading batch headers") from error
        last = [(found[-1].base_offset, b"")] if found else []
        for _, batch in behind(waiting, number, offset, limit, last):
            if len(found) >= max_batches:
                break
            found.append(BatchSummary(*offsets_and_timestamp(batch), len(batch)))
        return found

    def _get(self, database: bytes, key: bytes, doing: str) -> bytes | None:
        environment = self._environment
        try:
            with environment.gate:
                txn = environment.begin_read(database)
                try:
                    value = txn.get(key)
                    return None if value is None else bytes(value)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, doing) from error

    def snapshot_chunk(self, number: int, offset: int, index: int) -> bytes | None:
        """Implements `Storage.snapshot_chunk`."""
        return self._get(SNAP_DB, SNAP_KEY.pack(number, offset, index), "reading a snapshot")

    def get_meta(self, name: str) -> bytes | None:
        """Implements `Storage.get_meta`."""
        return self._get(META_DB, USER_PREFIX + name.encode(), "reading metadata")

    def meta_names(self, prefix: str) -> list[str]:
        """Implements `Storage.meta_names`."""
        environment = self._environment
        start = USER_PREFIX + prefix.encode()
        names = []
        try:
            with environment.gate:
                txn = environment.begin_read(META_DB)
                try:
                    cursor = txn.cursor()
                    if cursor.set_range(start):
                        for key in cursor.iternext(values=False):
                            data = bytes(key)
                            if not data.startswith(start):
                                break
                            names.append(data[len(USER_PREFIX) :].decode())
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise log_error(error, "reading metadata") from error
        return sorted(names)

    def stray_entries(self, known: dict[int, PartitionKey]) -> list[Finding]:
        """Implements `Storage.stray_entries`."""
        environment = self._environment
        try:
            with environment.gate:
                txn = environment.begin_read(META_DB)
                try:
                    return stray_numbers(txn, environment, known)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            return [Finding(None, None, "storage", str(error))]

    # -- housekeeping --------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Implements `Storage.sync`. It uses a descriptor of its own, so that commits need not wait for the flush."""
        try:
            fd = os.open(os.path.join(self.path, DATA_NAME), os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            # After a failed flush the page cache is unreliable: read the state from the file again.
            with self._write_lock:
                if not self._unsettled:
                    self._write_set = None
                    self._unsettled = True
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
        self._folder.abandon_in_child()

    def close(self) -> None:
        """Implements `Storage.close`. Can be repeated."""
        try:
            # If the journal cannot be moved now, or must not be since memory is unreliable, the next opening moves it.
            with contextlib.suppress(Exception):
                self._move_journal()
        finally:
            try:
                with self._write_lock:
                    self._environment.close()
                self._folder.mark_closed()
            except lmdb.Error as error:
                raise log_error(error, "closing the log") from error
            finally:
                self._folder.release()


def _seek(cursor: Any, number: int, prefix: bytes, offset: int) -> bool:
    """Moves the cursor to the partition's batch that contains `offset`, or else to the first one after it."""
    if cursor.set_range(_pack_log_key(number, offset)):
        key = cursor.key()
        if bytes(key[:4]) == prefix and LOG_KEY.unpack(key)[1] == offset:
            return True
        if not cursor.prev():
            return bool(cursor.set_range(_pack_log_key(number, offset)))
    elif not cursor.last():
        return False
    if bytes(cursor.key()[:4]) == prefix and last_offset(cursor.value()) >= offset:
        return True
    return bool(cursor.next())
