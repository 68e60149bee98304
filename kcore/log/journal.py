"""The journal: small write sets in a file of their own, until they are moved to the partitions' keys in LMDB.

An LMDB transaction needs two flushes: its pages must be on the device before the meta page that refers to them. It also
writes each changed page as a whole: 4 KiB for a batch of 150 bytes, and a partition's batches have pages of their own.
A write set that only appends a few batches is therefore one entry of the journal file: one write and one flush. Once
the journal is full, one transaction moves all its batches to the log, many batches to a page.

Invariants:

* A partition's batches in the journal come after all its batches in the log.
* LMDB has the identity of the journal in use; without one, no journal is in use. Each transaction that moves batches
  also stores the identity of the next journal. So the entries of the old one become invalid in the same moment in
  which their batches are in the log, and the file is overwritten only after LMDB has flushed them.
* A transaction that writes or deletes stored batches first moves the journal.
* The batches of the journal are in memory too, for readers.
* After an exception while an entry is written, the file is not written again before a transaction has moved the
  acknowledged batches from memory and stored a new identity. So the entry in question never becomes valid later, and a
  failed flush is not repeated.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.log.batch_header import last_offset
from kcore.log.errors import FailureReason, LogError
from kcore.log.journal_file import (
    ENTRY_HEAD,
    FLUSHED,
    IDENTITY_BYTES,
    JOURNAL_BYTES,
    JournalDamagedError,
    JournalFile,
    entry_at,
    iter_batches,
    load_entries,
    read_file,
)
from kcore.log.lmdb_layout import JOURNAL_KEY
from kcore_ext.log.partition import journal_entry, log_pairs, sort_batches

if TYPE_CHECKING:
    from kcore.log.lmdb_environment import LmdbEnvironment
    from kcore.log.write_set import WriteSet

logger = logging.getLogger(__name__)

MAX_ROUND_BYTES: Final = 256 << 10
"""Larger write sets go directly to the log: they fill their pages anyway."""
MAX_ROUNDS: Final = 256
MAX_SIZE_BYTES: Final = 1 << 20
"""Size at which the journal is moved, which takes a few milliseconds."""
NO_IDENTITY: Final = b""
"""The identity while no journal is in use."""


class JournalMismatchError(LogError):
    """The journal in memory, the journal file and the log contradict each other: a move could lose batches."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the journal in memory differs from what was written ({what})", FailureReason.CORRUPT)


Batches = dict[int, list[tuple[int, bytes]]]
"""Partition number -> base offsets and batches, ascending."""


class Journal:
    """The journal of one folder.

    Write sets are sorted by partition only when a reader needs batches after the log's, or when they are moved. The
    tail in memory serves most readers without the journal. All writers hold the storage's write lock.

    Args:
        folder: the data folder.
        sync: True to flush each entry.
        key: the key of LMDB's metadata that has the identity of the journal in use.

    Attributes:
        identity: the identity of the journal in use, or `NO_IDENTITY`.
        next_identity: the identity that the last `move` has put into its transaction.
    """

    __slots__ = (
        "_batch_bytes",
        "_file",
        "_flags",
        "_folder",
        "_fresh",
        "_key",
        "_lock",
        "_rounds",
        "_size_bytes",
        "_sorted",
        "identity",
        "next_identity",
    )

    def __init__(self, folder: str, sync: bool, key: bytes = JOURNAL_KEY) -> None:
        self._folder = folder
        self._key = key
        self._file = JournalFile(folder, sync)
        self._flags = FLUSHED if sync else 0
        self._lock = threading.Lock()
        self._fresh: list[WriteSet] = []
        self._sorted: Batches = {}
        self._rounds = 0
        self._size_bytes = 0  # the position in the file at which the next entry begins
        self._batch_bytes = 0  # of these, the batches with their heads
        self.identity = NO_IDENTITY
        self.next_identity = NO_IDENTITY

    def waiting(self) -> Batches:
        """Returns the journal's batches. A move replaces the dictionary instead of clearing it: readers may use it."""
        with self._lock:
            if self._fresh:
                sort_batches(self._fresh, self._sorted)
                # Last: if memory ran out above, the next call sorts these write sets again.
                self._fresh = []
            return self._sorted

    @property
    def in_use(self) -> bool:
        """True if LMDB refers to the journal file, which may have entries."""
        return bool(self.identity)

    # ---- opening

    def recover(self, txn: Any, environment: LmdbEnvironment) -> None:
        """Moves the entries that an earlier process has left to the log, and ends the use of their journal.

        Raises:
            JournalDamagedError: acknowledged batches are missing or damaged.
        """
        identity = txn.get(self._key, db=environment.meta_db)
        self.next_identity = NO_IDENTITY
        if identity is None:
            return
        move_file(txn, environment, self._folder, bytes(identity))
        txn.delete(self._key, db=environment.meta_db)

    def prepare(self) -> None:
        """Opens the file for writing, after `recover`; raises OSError."""
        self._file.prepare()

    # ---- writing an entry

    def entry_of(self, write_set: WriteSet) -> bytes | None:
        """Encodes a write set for the journal.

        Returns:
            The entry, or None if the write set must go to the log: no journal is in use, it is full, or the write set
            is too large or does more than append batches.
        """
        identity = self.identity
        if (
            not identity
            or self._rounds >= MAX_ROUNDS
            or self._size_bytes >= MAX_SIZE_BYTES
            or write_set.metas
            or write_set.drops
            or write_set.next_number
        ):
            return None
        entry = journal_entry(write_set.partitions, MAX_ROUND_BYTES, identity, self._rounds, self._flags)
        if entry is None or len(entry) > JOURNAL_BYTES - self._size_bytes:
            return None
        return entry

    def append(self, write_set: WriteSet, entry: bytes) -> None:
        """Writes an entry, and marks its write set as durable.

        Raises:
            OSError: the file cannot be written or flushed. After this or any other exception the caller must move the
                journal before the next entry.
        """
        self._file.write(entry, self._size_bytes)
        write_set.is_durable = True
        with self._lock:
            self._fresh.append(write_set)
            self._rounds += 1
            self._size_bytes += len(entry)
            self._batch_bytes += len(entry) - ENTRY_HEAD.size

    def restore(self, write_set: WriteSet) -> None:
        """Adds a durable write set again after an exception in `append`, so that the move that must follow has it.

        It may be in memory already: batches with the same base offset are added once.
        """
        with self._lock:
            self._fresh.append(write_set)

    # ---- in a write transaction; these methods change no batches in memory, since the transaction may be aborted

    def move(self, txn: Any, environment: LmdbEnvironment, *, begin: bool, trusted: bool = False) -> None:
        """Moves every batch to the log, and stores the identity of the next journal.

        Args:
            txn: the write transaction.
            environment: the environment with the databases.
            begin: True to begin the next journal if the file is usable; False to have none in use.
            trusted: True after a failed write: memory has all acknowledged batches, and the file is unreliable.

        Raises:
            JournalMismatchError: memory lacks batches of the file; the caller must abort the transaction.
        """
        begin = begin and self._file.usable
        self.next_identity = self.identity
        if self._rounds or self._fresh:
            if not trusted:
                self._require_end()
            pairs, size_bytes = log_pairs(self.waiting())
            if size_bytes != self._batch_bytes and not trusted:
                raise JournalMismatchError(f"{self._batch_bytes} bytes written, {size_bytes} in memory")
            stored = _put_pairs(txn, environment, pairs)
            if stored:
                raise JournalMismatchError(f"{stored} of {len(pairs)} batches are in the log already")
        elif begin == bool(self.identity) and not trusted:
            return
        if begin:
            identity = os.urandom(IDENTITY_BYTES)
            if not txn.put(self._key, identity, db=environment.meta_db):
                raise LogError("LMDB refused an overwriting put")
            self.next_identity = identity
        else:
            txn.delete(self._key, db=environment.meta_db)
            self.next_identity = NO_IDENTITY

    def _require_end(self) -> None:
        """Raises JournalMismatchError if the file has a sound entry behind the last one in memory."""
        size = ENTRY_HEAD.size
        try:
            head = self._file.read(size, self._size_bytes)
            if len(head) == size and head[-IDENTITY_BYTES:] == self.identity:
                size += ENTRY_HEAD.unpack(head)[1]
                found = entry_at(self._file.read(size, self._size_bytes), 0, self.identity)
                if found is not None and found[0].round >= self._rounds:
                    raise JournalMismatchError(
                        f"{self._rounds} rounds in memory, and round {found[0].round} behind them"
                    )
        except OSError as error:
            logger.error("log %s: the journal cannot be read (%s); its batches are in memory", self._folder, error)

    # ---- after a transaction

    def moved(self) -> None:
        """Begins the next journal in memory, after the transaction of `move` was committed. Can be repeated."""
        if self.next_identity == self.identity:
            return
        fresh: list[WriteSet] = []
        with self._lock:
            self._sorted = {}
            self._fresh = fresh
            self._rounds = self._size_bytes = self._batch_bytes = 0
            # Last: an interrupted call is repeated, as long as the identities differ.
            self.identity = self.next_identity

    def adopt(self, stored: bytes) -> bool:
        """Follows the identity in LMDB, after a transaction whose result was unknown.

        Returns:
            False if the identity belongs neither to this journal nor to the next one.
        """
        if stored == self.next_identity:
            self.moved()
        return stored == self.identity

    # ---- the file

    def flush(self) -> None:
        """Flushes all entries; raises OSError."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file. Can be repeated."""
        self._file.close()


def move_file(txn: Any, environment: LmdbEnvironment, folder: str, identity: bytes) -> int:
    """Moves the entries of a journal file to the log, for a process whose memory does not have them.

    Args:
        txn: the write transaction.
        environment: the environment with the databases.
        folder: the folder of the journal file.
        identity: the identity of the journal in use. The caller changes it in the same transaction.

    Returns:
        The number of entries.

    Raises:
        JournalDamagedError: acknowledged batches are missing or damaged.
    """
    data = read_file(folder)
    entries = load_entries(data, identity)
    batches: Batches = {}
    for entry in entries:
        for number, base, batch in iter_batches(data, entry.start, entry.end, f"round {entry.round}"):
            batches.setdefault(number, []).append((base, batch))
    stored = _put_pairs(txn, environment, log_pairs(batches)[0])
    if stored:
        raise JournalDamagedError(f"{stored} of its batches are in the log already")
    return len(entries)


def _put_pairs(txn: Any, environment: LmdbEnvironment, pairs: list[tuple[bytes, bytes]]) -> int:
    """Puts batches into the log; returns the number of those that the log has already, which must be 0."""
    with txn.cursor(environment.log_db) as cursor:
        _, added = cursor.putmulti(pairs, overwrite=False)
    return len(pairs) - int(added)


def behind(
    waiting: Batches, number: int, offset: int, limit: int, found: list[tuple[int, bytes]]
) -> Iterator[tuple[int, bytes]]:
    """Yields a partition's batches in the journal that continue a read of its log.

    Args:
        waiting: the journal's content before the log was read, so that batches moved during the read are not missed.
        number: the partition's number.
        offset: the first requested offset.
        limit: the offset at or above which batches are not returned.
        found: the batches that were read from the log.
    """
    batches = waiting.get(number)
    if batches is None:
        return
    last = found[-1][0] if found else -1
    for base, batch in batches:
        if base >= limit:
            return
        if base > last and last_offset(batch) >= offset:
            yield base, batch
