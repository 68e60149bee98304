"""The journal: a file for small write sets, until they are moved to the partitions' keys in LMDB.

An LMDB transaction needs two flushes: its pages must be on the device before the meta page that refers to them. It also
writes each changed page as a whole: 4 KiB for a batch of 150 bytes, and a partition's batches have pages of their own.
A write set that only appends a few batches is therefore one entry of the journal file: one write and one flush. Entries
have numbers from 0. The file has two areas, which are used in turn. Once an area is full, one transaction moves its
batches to the log, where many batches share a page. During the move, new entries go to the other area.

Invariants:

* A partition's batches in the journal come after all its batches in the log. Its batches in a full area come before its
  batches in the other area.
* LMDB has a reference to the journal in use; without a reference, no journal is in use. A transaction that moves all
  batches also stores the identity of the next journal. A transaction that moves a full area stores the first number of
  the other area. So the transaction that puts batches into the log also makes their entries invalid, and an area is
  overwritten only after LMDB has flushed these batches.
* Any other transaction that writes or deletes batches in LMDB first moves the batches of the journal there.
* Memory also has the batches of the journal, for readers.
* If an exception interrupts the write of an entry, a transaction first moves the acknowledged batches from memory and
  stores a new identity. Only then the file is written again. So the interrupted entry never becomes valid, and a failed
  flush is not repeated.
* No two entries of a journal have the same number: if an area is used again, its entries have higher numbers than all
  earlier entries.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.log.batch_header import last_offset
from kcore.log.errors import FailureReason, LogError
from kcore.log.journal_file import (
    AREA_BYTES,
    AREAS,
    ENTRY_HEAD,
    FLUSHED,
    IDENTITY_BYTES,
    JournalDamagedError,
    JournalFile,
    Reference,
    entry_at,
    load_entries,
    read_file,
)
from kcore.log.lmdb_layout import JOURNAL_KEY
from kcore.log.lmdb_rows import get_row, put_row
from kcore.log.lmdb_values import is_stored
from kcore_ext.log.journal import journal_entry, log_pairs, sort_batches
from kcore_ext.util.lock import Lock

if TYPE_CHECKING:
    from kcore.log.lmdb_environment import LmdbEnvironment
    from kcore.log.write_set import WriteSet

logger = logging.getLogger(__name__)

MAX_ENTRY_BYTES: Final = 256 << 10
"""Maximum size of an entry. Larger write sets go directly to the log, because they fill LMDB's pages."""
MAX_ENTRIES: Final = 256
"""Number of entries at which an area is full and is moved to the log."""
MAX_SIZE_BYTES: Final = 1 << 20
"""Size of the entries at which an area is full. Moving an area of this size takes a few milliseconds."""
LAST_NUMBER: Final = 1 << 31
"""Highest number of an entry. After this number, a new journal begins, because entry numbers have 32 bits."""
NO_IDENTITY: Final = b""
"""Value of an identity while no journal is in use."""


class JournalMismatchError(LogError):
    """The journal in memory, the journal file and the log contradict each other: a move could lose batches."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the journal in memory differs from what was written ({what})", FailureReason.CORRUPT)


Batches = dict[int, list[tuple[int, bytes]]]
"""Partition number -> pairs of a base offset and a batch, by ascending offset."""


class Area:
    """The entries of one area of the journal file, in memory. Each new use of an area has a new `Area` object.

    Attributes:
        position: the position of the area in the file.
        first_number: the number of the area's first entry.
        entries: the entries.
        size_bytes: the size of the entries; the next entry begins after them.
    """

    __slots__ = ("_batches", "_sorted_entries", "entries", "first_number", "position", "size_bytes")

    def __init__(self, position: int, first_number: int) -> None:
        self.position = position
        self.first_number = first_number
        self.entries: list[bytes] = []
        self.size_bytes = 0
        self._batches: Batches = {}
        self._sorted_entries = 0  # the number of entries whose batches are in `_batches`

    @property
    def next_number(self) -> int:
        """The number that the next entry of the journal will have, in this or the other area."""
        return self.first_number + len(self.entries)

    @property
    def batch_bytes(self) -> int:
        """The size of the batches with their partition numbers, offsets and sizes, without the heads of the entries."""
        return self.size_bytes - len(self.entries) * ENTRY_HEAD.size

    def batches(self) -> Batches:
        """Returns the batches of all entries. The caller holds the journal's lock."""
        count = len(self.entries)
        if self._sorted_entries < count:
            sort_batches(self.entries[self._sorted_entries :], self._batches)
            # Last: if memory ran out above, the next call sorts these entries again.
            self._sorted_entries = count
        return self._batches


class Journal:
    """The journal of one folder.

    The batches of the entries are sorted by partition only when a reader needs batches of the journal, or when they are
    moved to the log. The newest batches of each partition are also in memory, and serve most readers without the
    journal. Memory has the entries as bytes, because Python's garbage collector does not visit bytes. The collections
    of kept write sets would take 3 % of the time of a busy server.

    In `LmdbStorage`, the writer of an entry holds the write lock, and a write transaction holds the transaction lock. A
    transaction that moves the whole journal holds both.

    Args:
        folder: the data folder.
        sync: True to flush each entry.
        key: the key of LMDB's metadata that has the reference to the journal in use.

    Attributes:
        identity: the identity of the journal in use, or `NO_IDENTITY`.
        next_identity: the identity that the last `move` has put into its transaction.
        may_fill_other: True to write entries into the other area while a full area waits to be moved. If it is False, a
            write set that finds the area full is written in a transaction, which also moves the journal.
        move_is_due: True from the time at which an area becomes full until its move is started.
    """

    __slots__ = (
        "_areas",
        "_before",
        "_file",
        "_flags",
        "_folder",
        "_key",
        "_last_entry",
        "_lock",
        "_next_before",
        "identity",
        "may_fill_other",
        "move_is_due",
        "next_identity",
    )

    def __init__(self, folder: str, sync: bool, key: bytes = JOURNAL_KEY) -> None:
        self._folder = folder
        self._key = key
        self._file = JournalFile(folder, sync)
        self._flags = FLUSHED if sync else 0
        self._lock = Lock()
        # The area that is written, and before it the full one, if there is one. Only assigned as a whole: an exception
        # leaves the tuple before or after a change.
        self._areas: tuple[Area, ...] = (Area(AREAS[0], 0),)
        self.identity = NO_IDENTITY
        self.next_identity = NO_IDENTITY
        self._before = self._next_before = b""  # `Reference.before` of the two identities
        self._last_entry = b""  # the entry of the last call of `append`
        self.may_fill_other = False
        self.move_is_due = False

    def waiting(self) -> list[Batches]:
        """Returns the journal's batches by area, oldest first.

        Readers may keep the result, because a move creates new lists and does not change the returned lists.
        """
        with self._lock:
            return [area.batches() for area in self._areas]

    @property
    def in_use(self) -> bool:
        """True if LMDB refers to the journal file, which may have entries."""
        return bool(self.identity)

    @property
    def has_full_area(self) -> bool:
        """True if a full area waits to be moved, while new entries go to the other area."""
        return len(self._areas) > 1

    @property
    def reference(self) -> Reference:
        """The reference that LMDB must have now, if a journal is in use and every transaction has a known result."""
        return Reference(self.identity, self._areas[0].first_number, self._before)

    # ---- opening

    def recover(self, txn: Any, environment: LmdbEnvironment) -> None:
        """Moves entries of an earlier process from the journal to the log, and ends the use of their journal.

        Raises:
            JournalDamagedError: acknowledged batches are missing or damaged.
            DamagedRowError: the reference to the journal is damaged.
        """
        stored = get_row(txn, environment.meta_db, self._key)
        self.next_identity = NO_IDENTITY
        if stored is None:
            return
        move_file(txn, environment, self._folder, stored)
        txn.delete(self._key, db=environment.meta_db)

    def prepare(self) -> None:
        """Opens the file for writing, after `recover`; raises OSError."""
        self._file.prepare()

    # ---- writing an entry

    def entry_of(self, write_set: WriteSet) -> bytes | None:
        """Encodes a write set for the journal, and begins the other area if the present area has no room for the entry.

        Returns:
            The entry. None if the write set must go to the log: no journal is in use, the journal is full, the write
            set is too large, or it does more than append batches.
        """
        identity = self.identity
        if not identity or write_set.metas or write_set.drops or write_set.next_number:
            return None
        area = self._areas[-1]
        entries, size_bytes = len(area.entries), area.size_bytes
        full = entries >= MAX_ENTRIES or size_bytes >= MAX_SIZE_BYTES
        if full and not self._may_begin_other():
            return None
        number = area.first_number + entries
        entry = journal_entry(write_set.partitions, MAX_ENTRY_BYTES, identity, number, self._flags)
        if entry is None:
            return None
        if full or size_bytes + len(entry) > AREA_BYTES:
            if not self._may_begin_other():
                return None
            other = Area(AREAS[0] + AREAS[1] - area.position, area.next_number)
            with self._lock:
                self._areas = (area, other)
            self.move_is_due = True
        return entry

    def _may_begin_other(self) -> bool:
        areas = self._areas
        return self.may_fill_other and len(areas) == 1 and areas[0].next_number < LAST_NUMBER

    def append(self, write_set: WriteSet, entry: bytes) -> None:
        """Writes an entry, and marks its write set as durable.

        Raises:
            OSError: the file cannot be written or flushed. After this or any other exception the caller must move the
                journal before the next entry.
        """
        area = self._areas[-1]
        size_bytes = area.size_bytes
        self._last_entry = entry
        self._file.write(entry, area.position + size_bytes)
        write_set.is_durable = True
        with self._lock:
            area.entries.append(entry)
            area.size_bytes = size_bytes + len(entry)

    def restore(self) -> None:
        """Adds the last entry again after an exception in `append`, so that the next move includes the entry.

        Memory may already have the entry. This is harmless: a batch with a known base offset is not added again.
        """
        with self._lock:
            self._areas[-1].entries.append(self._last_entry)

    # ---- in a write transaction; these methods change no batches in memory, since the transaction may be aborted

    def move(self, txn: Any, environment: LmdbEnvironment, *, begin: bool, trusted: bool = False) -> None:
        """Moves every batch to the log, and stores the identity of the next journal.

        Args:
            txn: the write transaction.
            environment: the environment with the databases.
            begin: True to begin the next journal if the file is usable; False to use no journal afterwards.
            trusted: True to use only the batches in memory. After a failed write the file is unreliable, and memory has
                all acknowledged batches.

        Raises:
            JournalMismatchError: memory lacks batches of the file; the caller must abort the transaction.
        """
        begin = begin and self._file.usable
        self.next_identity = self.identity
        areas = [area for area in self._areas if area.entries]
        for area in areas:
            self._move_batches(txn, environment, area, trusted)
        if not areas and begin == bool(self.identity) and not trusted:
            return
        if begin:
            identity = os.urandom(IDENTITY_BYTES)
            self._next_before = b"" if trusted else self._first_identity()
            self._store(txn, environment, Reference(identity, 0, self._next_before))
            self.next_identity = identity
        else:
            txn.delete(self._key, db=environment.meta_db)
            self.next_identity = NO_IDENTITY

    def move_full_area(self, txn: Any, environment: LmdbEnvironment) -> None:
        """Moves the batches of the full area to the log, and stores the first number of the other area.

        Raises:
            JournalMismatchError: memory lacks batches of the file; the caller must abort the transaction.
        """
        full, other = self._areas
        self._move_batches(txn, environment, full, trusted=False)
        self._store(txn, environment, Reference(self.identity, other.first_number, self._before))

    def _move_batches(self, txn: Any, environment: LmdbEnvironment, area: Area, trusted: bool) -> None:
        if not trusted:
            self._require_end(area)
        pairs, firsts, size_bytes = log_pairs(area.entries)
        if size_bytes != area.batch_bytes and not trusted:
            raise JournalMismatchError(f"{area.batch_bytes} bytes written, {size_bytes} in memory")
        wrong = _put_pairs(txn, environment, pairs, firsts)
        if wrong is not None:
            raise JournalMismatchError(wrong)

    def _store(self, txn: Any, environment: LmdbEnvironment, reference: Reference) -> None:
        put_row(txn, environment.meta_db, self._key, reference.encode())

    def _first_identity(self) -> bytes:
        """Returns the identity at the start of the file; empty if the identity is not known."""
        try:
            return self._file.first_identity()
        except OSError as error:
            logger.error(
                "log %s: the journal file cannot be read (%s); new journal entries can still be written; check "
                "the disk",
                self._folder,
                error,
            )
            return b""

    def _require_end(self, area: Area) -> None:
        """Raises JournalMismatchError if the area has a sound entry after the last entry in memory."""
        at = area.position + area.size_bytes
        size = ENTRY_HEAD.size
        try:
            head = self._file.read(size, at)
            if len(head) == size and head[-IDENTITY_BYTES:] == self.identity:
                size += ENTRY_HEAD.unpack(head)[1]
                found = entry_at(self._file.read(size, at), 0, self.identity)
                if found is not None and found[0].number >= area.next_number and at < area.position + AREA_BYTES:
                    raise JournalMismatchError(
                        f"{len(area.entries)} commits in memory, and the file has commit {found[0].number} after them"
                    )
        except OSError as error:
            logger.error(
                "log %s: the journal file cannot be read (%s); kcore has the journal's batches in memory and "
                "moves them to the log; check the disk",
                self._folder,
                error,
            )

    # ---- after a transaction

    def moved(self) -> None:
        """Begins the next journal in memory, after the transaction of `move` was committed. Can be repeated."""
        if self.next_identity == self.identity:
            return
        area = Area(AREAS[0], 0)
        with self._lock:
            self._areas = (area,)
            self._before = self._next_before
            # Assigned last: as long as the identities differ, an interrupted call is repeated.
            self.identity = self.next_identity

    def full_area_moved(self) -> None:
        """Removes the full area from memory, after a committed transaction has moved its batches to the log.

        Can be repeated.
        """
        with self._lock:
            self._areas = self._areas[-1:]

    def names_other_area(self, stored: bytes) -> bool:
        """Returns True if memory still has a full area that was already moved to the log.

        Args:
            stored: the reference in LMDB, which shows the move.
        """
        if not self.has_full_area:
            return False
        return stored == Reference(self.identity, self._areas[-1].first_number, self._before).encode()

    def adopt(self, stored: bytes) -> bool:
        """Makes memory match the reference in LMDB, after a transaction whose result was unknown.

        Args:
            stored: the reference in LMDB. It shows if the transaction has moved batches of the journal.

        Returns:
            False if memory does not match: the reference belongs neither to this journal nor to the next journal.
        """
        try:
            found = Reference.decode(stored) if stored else Reference(NO_IDENTITY, 0)
        except JournalDamagedError:
            return False
        if found.identity != self.identity and found.identity == self.next_identity:
            self.moved()
        elif self.names_other_area(stored):
            self.full_area_moved()
        return found == self.reference

    # ---- the file

    def flush(self) -> None:
        """Flushes all entries; raises OSError."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file. Can be repeated."""
        self._file.close()


def move_file(txn: Any, environment: LmdbEnvironment, folder: str, stored: bytes) -> int:
    """Moves the entries of a journal file to the log, if this process does not have them in memory.

    Args:
        txn: the write transaction.
        environment: the environment with the databases.
        folder: the folder of the journal file.
        stored: LMDB's reference to the journal. The caller replaces or deletes it in the same transaction.

    Returns:
        The number of entries.

    Raises:
        JournalDamagedError: acknowledged batches are missing or damaged.
    """
    data = read_file(folder)
    entries = load_entries(data, stored, folder)
    try:
        pairs, firsts, _ = log_pairs([data[entry.start - ENTRY_HEAD.size : entry.end] for entry in entries])
    except ValueError as error:
        raise JournalDamagedError(str(error)) from error
    wrong = _put_pairs(txn, environment, pairs, firsts)
    if wrong is not None:
        raise JournalDamagedError(wrong)
    return len(entries)


def _put_pairs(
    txn: Any, environment: LmdbEnvironment, pairs: list[tuple[bytes, bytes]], firsts: list[tuple[int, int]]
) -> str | None:
    """Puts batches into the log.

    Args:
        txn: the write transaction.
        environment: the environment with the databases.
        pairs: the keys and values.
        firsts: the number and the first base offset of each partition in the values.

    Returns:
        A description of the batches that the log has already; None if it has none of them.
    """
    with txn.cursor(environment.log_db) as cursor:
        for number, base in firsts:
            if is_stored(cursor, number, base):
                return f"offset {base} of partition number {number} is in the log already"
        _, added = cursor.putmulti(pairs, overwrite=False)
    return None if added == len(pairs) else f"{len(pairs) - added} of {len(pairs)} values are in the log already"


def behind(
    waiting: list[Batches], number: int, offset: int, limit: int, found: list[tuple[int, bytes]]
) -> Iterator[tuple[int, bytes]]:
    """Yields the batches of a partition in the journal that follow the batches read from the partition's log.

    Args:
        waiting: the journal's batches by area. The caller gets them before it reads the log. In the other order, a
            batch that moves to the log in between would be missed.
        number: the partition's number.
        offset: the first requested offset.
        limit: the offset at or above which batches are not returned.
        found: the batches that were read from the log.
    """
    last = found[-1][0] if found else -1
    for batches in waiting:
        for base, batch in batches.get(number, ()):
            if base >= limit:
                return
            if base > last and last_offset(batch) >= offset:
                yield base, batch
