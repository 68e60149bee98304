"""The storage in LMDB: rounds into write transactions, slices out of read transactions."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import lmdb

from kcore.log.batch_header import last_offset, offsets_and_timestamp
from kcore.log.data_folder import COMPACT_NAME, DATA_NAME, LMDB_LOCK_NAME, DataFolder, open_private
from kcore.log.errors import CorruptLogError, DataFolderError, LogError
from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.lmdb_environment import LmdbEnvironment, log_error
from kcore.log.lmdb_journal import Journal, JournalMismatchError, behind, entries_of
from kcore.log.lmdb_layout import (
    DROPPED_PREFIX,
    FORMAT_KEY,
    FORMAT_VERSION,
    JOURNAL_DB,
    LOG_DB,
    LOG_KEY,
    META_DB,
    NEXT_NUMBER_KEY,
    NODE_EPOCH_KEY,
    SNAP_DB,
    SNAP_KEY,
    U32,
    U64,
    USER_PREFIX,
    FormatError,
    migrate,
    partition_meta_key,
)
from kcore.log.lmdb_reclaim import reclaim_tasks
from kcore.log.lmdb_recovery import load_partitions, stray_numbers
from kcore.log.lmdb_rewrite import rewrite_batches
from kcore.log.storage import ReclaimTask, Storage
from kcore.log.write_set import StoredPartition, WriteSet
from kcore_ext.batch.run import gather

if TYPE_CHECKING:
    from kcore_ext.log.partition import SealedPartition

_pack_log_key = LOG_KEY.pack


class LmdbStorage(Storage):
    """The committed state of a data folder.

    With `sync` a commit is LMDB's own: pages written and flushed, then the meta page written through (two flushes).
    Without, both go to the page cache: see `LmdbLogEngine`.

    `_unsettled` is set while a transaction runs, and cleared once memory and file are known to agree on it. A failure
    or an interrupt that leaves it set makes the next writer open the file again and read the journal back first. If the
    file turns out to have a round that was reported as failed, or the reverse, memory cannot be trusted: `_doubt` then
    says why everything that writes is refused until the folder is opened again.
    """

    __slots__ = (
        "_allow_orphans",
        "_doubt",
        "_environment",
        "_folder",
        "_journal",
        "_round",
        "_txn_id",
        "_unsettled",
        "_write_lock",
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
        self._round: WriteSet | None = None  # of the transaction in question, None if it carries none
        self._txn_id = 0  # of the round's transaction, 0 until it is about to be committed
        self._journal = Journal()
        self.node_epoch = 0
        self._folder = DataFolder(self.path, create)
        try:
            self._environment.open(create=self._creating())
            self._open_format()
            self._read_journal()
            self._move_journal()
            # The names of a new folder's files, and without `sync` this opening's node epoch too.
            self._environment.env_for_write.sync(True)
            self._folder.sync_folder(self.path)
        except FormatError as error:
            self._abandon()
            raise DataFolderError(self.path, str(error), DATA_NAME) from error
        except (lmdb.Error, LogError) as error:
            self._abandon()
            raise DataFolderError(self.path, str(error), DATA_NAME) from error
        except BaseException:
            self._abandon()
            raise

    # -- opening ------------------------------------------------------------------------------------------------

    def _creating(self) -> bool:
        """Whether to create the databases: in a new file, or in an empty one whose creation a crash cut short."""
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

    def _open_format(self) -> None:
        """Check or write the format version, migrate, and count this opening, in one durable transaction."""

        def write(txn: Any) -> None:
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
            txn.put(NODE_EPOCH_KEY, U64.pack(self.node_epoch), db=meta)

        self._transact(write, "opening the log")

    def _read_journal(self) -> None:
        """Read the file's journal into memory."""
        with self._environment.gate:
            txn = self._environment.begin_read(JOURNAL_DB, buffers=False)
            try:
                self._journal.restore(txn.cursor().iternext())
            finally:
                txn.abort()

    def _move_journal(self) -> None:
        """Move what a crash, or this process, left in the journal to the log."""
        environment, journal = self._environment, self._journal
        if not journal.empty:
            self._transact(
                lambda txn: journal.move(txn, environment.journal_db, environment.log_db),
                "moving the journal",
                journal.moved,
            )

    def _reopen(self) -> int:
        """Open the environment again after a failure, read the journal, and return the file's last transaction id."""
        last_txn_id = self._environment.reopen()
        try:
            self._read_journal()
        except MemoryError as error:
            raise LogError("no memory to read the journal back: the next write tries again") from error
        return last_txn_id

    def load(self) -> tuple[list[StoredPartition], list[int], int]:
        """See Storage; raises DataFolderError for what is damaged."""
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
        """Opening failed: let the folder go as it is."""
        self._environment.close()
        self._folder.release()

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, write_set: WriteSet) -> None:
        """See Storage. The loop repeats only after the map has grown."""
        with self._write_lock:
            if self._unsettled or self._doubt is not None:
                self._require_settled()
            entries = entries_of(write_set)
            while True:
                self._txn_id = 0
                self._round = write_set
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
                    self._round = None
                    return
                except lmdb.MapFullError:
                    self._unsettled = False
                    self._environment.grow()
                except lmdb.MapResizedError:
                    self._unsettled = False
                    self._environment.adopt_size()
                except lmdb.Error as error:
                    self._settle(write_set, error)
                    return
                except LogError as error:
                    self._aborted(error)
                    raise
                except BaseException:
                    # An interrupt before or behind the commit: the file knows which. `_unsettled` stays, as the
                    # transaction may be open still.
                    if not write_set.is_durable and 0 < self._txn_id <= self._last_txn_id():
                        write_set.is_durable = True
                    self._read_journal()
                    raise

    def _require_settled(self) -> None:
        """Find out what became of the last transaction if that is not known; the caller holds the write lock.

        Raises:
            LogError: memory and file cannot be made to agree, or the file cannot be read; nothing may be written.
        """
        if self._doubt is None and self._unsettled:
            last_txn_id = self._reopen()
            write_set = self._round
            stored = 0 < self._txn_id <= last_txn_id
            if write_set is None or write_set.is_durable == stored:
                self._unsettled = False
                self._round = None
                return
            self._doubt = (
                f"a commit that {'failed is' if stored else 'succeeded is not'} in the file: "
                "nothing is written any more, the log must be opened again"
            )
        if self._doubt is not None:
            raise LogError(self._doubt)

    def _aborted(self, error: LogError) -> None:
        """After a transaction that was aborted because of `error`: nothing of it is in the file."""
        if isinstance(error, JournalMismatchError):
            self._doubt = f"{error}: nothing is written any more, the log must be opened again"
        self._unsettled = False
        self._round = None

    def _after_write(self, write_set: WriteSet, entries: bytes | None, moved: bool) -> None:
        """Update the journal in memory after a round's transaction was committed."""
        if moved:
            self._journal.moved()
        if entries:
            self._journal.written(write_set, len(entries))
        write_set.is_durable = True

    def _put_round(self, txn: Any, write_set: WriteSet, entries: bytes | None) -> bool:
        """Writes a round, to the journal if it has entries there; returns whether the journal was moved before."""
        environment, journal = self._environment, self._journal
        moved = False
        if entries is None or journal.full:
            moved = journal.move(txn, environment.journal_db, environment.log_db)
        if entries is None:
            self._put_batches(txn, write_set)
        elif entries:
            journal.put(txn, environment.journal_db, entries, first=moved)
        if (
            write_set.drops
            or write_set.metas
            or write_set.next_number
            or any(part.meta is not None for part in write_set.partitions)
        ):
            self._put_metas(txn, write_set)
        return moved

    def _put_batches(self, txn: Any, write_set: WriteSet) -> None:
        log_db = self._environment.log_db
        put = txn.put
        for sealed in write_set.partitions:
            batches = sealed.batches
            number = sealed.number
            # A refusal means that a batch is already there: this process and the file disagree.
            if len(batches) == 1:
                if not put(_pack_log_key(number, sealed.bases[0]), batches[0], overwrite=False, db=log_db):
                    raise CorruptLogError(sealed.key, sealed.bases[0], "a batch is already stored here")
            elif batches:
                pairs = [
                    (_pack_log_key(number, base), batch) for base, batch in zip(sealed.bases, batches, strict=True)
                ]
                with txn.cursor(log_db) as cursor:
                    consumed, added = cursor.putmulti(pairs, overwrite=False)
                if not consumed == added == len(pairs):
                    raise CorruptLogError(sealed.key, sealed.bases[0], f"{added} of {len(pairs)} batches were new here")
            if sealed.chunks:
                self._put_chunks(txn, sealed)
            if sealed.rewrites:
                rewrite_batches(txn, log_db, sealed)

    def _put_chunks(self, txn: Any, sealed: SealedPartition) -> None:
        for offset, index, data in sealed.chunks or ():
            # Chunks of an attempt that was given up may still be there: the newer win.
            self._require(txn.put(SNAP_KEY.pack(sealed.number, offset, index), data, db=self._environment.snap_db))

    def _put_metas(self, txn: Any, write_set: WriteSet) -> None:
        """Drops first: a partition dropped and created anew in one round has one metadata key."""
        meta_db = self._environment.meta_db
        for log in write_set.drops:
            txn.delete(partition_meta_key(log.key), db=meta_db)
            self._require(txn.put(DROPPED_PREFIX + U32.pack(log._number), b"", db=meta_db))
        for sealed in write_set.partitions:
            if sealed.meta is not None:
                self._require(txn.put(partition_meta_key(sealed.key), sealed.meta.encode(), db=meta_db))
        for name, value in write_set.metas.items():
            key = USER_PREFIX + name.encode()
            if value is None:
                txn.delete(key, db=meta_db)
            else:
                self._require(txn.put(key, value, db=meta_db))
        if write_set.next_number:
            self._require(txn.put(NEXT_NUMBER_KEY, U32.pack(write_set.next_number), db=meta_db))

    @staticmethod
    def _require(stored: bool) -> None:
        if not stored:
            raise LogError("LMDB refused an overwriting put")

    def _settle(self, write_set: WriteSet, error: lmdb.Error) -> None:
        """Open LMDB again after it failed, and find out what became of the round.

        A commit that fails while it writes the meta page leaves open whether the transaction happened. If the file has
        it, its pages were flushed before that meta page was begun; one more commit, through the other meta page, makes
        it certain. Then the round has succeeded after all. Everything else is a failure, and the file never shows the
        round.
        """
        last_txn_id = self._reopen()
        if not 0 < self._txn_id <= last_txn_id:
            self._unsettled = False
            self._round = None
            data = os.path.join(self.path, DATA_NAME)
            raise log_error(error, "commit failed", data, write_set.size_bytes()) from error
        try:
            with self._environment.env_for_write.begin(write=True) as txn:
                self._require(txn.put(NODE_EPOCH_KEY, U64.pack(self.node_epoch), db=self._environment.meta_db))
        except (lmdb.Error, LogError) as again:
            # Failing twice in a row: what the file will show is only known when it is opened again.
            self._doubt = f"a commit failed and could not be settled, the log must be opened again: {again}"
            raise LogError(self._doubt) from error
        write_set.is_durable = True
        self._unsettled = False
        self._round = None

    def _last_txn_id(self) -> int:
        return int(self._environment.env_for_write.info()["last_txnid"])

    def _transact(self, work: Callable[[Any], Any], doing: str, after_commit: Callable[[], None] = lambda: None) -> Any:
        """Run `work(txn)` in a write transaction of its own, growing the map as needed; raises LogError.

        After the commit, and before any other write, it calls `is_durable`.
        """
        with self._write_lock:
            self._require_settled()
            while True:
                self._round = None  # no round in question: reading the file again is enough to settle it
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
                    self._require_settled()
                    raise log_error(error, doing) from error
                except LogError as error:
                    self._aborted(error)
                    raise

    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """See Storage."""
        environment, journal = self._environment, self._journal

        def work(txn: Any) -> int:
            journal.move(txn, environment.journal_db, environment.log_db)
            return reclaim_tasks(txn, environment, tasks, max_entries)

        done: int = self._transact(work, "giving back space", journal.moved)
        return done

    # -- reading ------------------------------------------------------------------------------------------------

    def slice(self, number: int, offset: int, limit: int, max_bytes: int, max_batches: int) -> list[tuple[int, bytes]]:
        """See Storage."""
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
        """See Storage."""
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
        """See Storage."""
        return self._get(SNAP_DB, SNAP_KEY.pack(number, offset, index), "reading a snapshot")

    def get_meta(self, name: str) -> bytes | None:
        """See Storage."""
        return self._get(META_DB, USER_PREFIX + name.encode(), "reading metadata")

    def meta_names(self, prefix: str) -> list[str]:
        """See Storage."""
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
        """See Storage."""
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

    # -- the rest -----------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """See Storage. On a descriptor of its own: a flush takes its time, and commits need not wait for it."""
        try:
            fd = os.open(os.path.join(self.path, DATA_NAME), os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            # After a failed flush the page cache may hold anything: start from what the file says.
            with self._write_lock:
                if not self._unsettled:
                    self._round = None
                    self._unsettled = True
                self._require_settled()
            raise LogError(f"flushing the log: {error}") from error

    def sizes(self) -> tuple[int, int]:
        """See Storage."""
        return self._environment.sizes()

    def compact_and_close(self) -> None:
        """Write a copy without free pages, put it in the file's place atomically, and close; raises LogError.

        The folder stays locked throughout. A crash before the rename leaves the old file, after it the new one.
        """
        copy = os.path.join(self.path, COMPACT_NAME)
        try:
            with self._write_lock, open(copy, "wb", opener=open_private) as file:
                self._environment.env_for_write.copyfd(file.fileno(), compact=True)
                os.fsync(file.fileno())
            self._environment.close()
            os.replace(copy, os.path.join(self.path, DATA_NAME))
            # LMDB makes its lock file anew; the old one speaks of transactions of another file.
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
        """In a forked child: let go of the folder's lock; LMDB's own handles are the parent's and stay untouched."""
        self._folder.abandon_in_child()

    def close(self) -> None:
        """See Storage. Can be repeated."""
        try:
            # What cannot be moved now, or must not be since memory is in doubt, is moved when the folder is opened.
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
    """Put the cursor on the partition's batch that contains `offset`, or else on the first after it."""
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
