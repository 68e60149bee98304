"""The journal: small batches of many partitions side by side, until they are moved to the partitions' own keys.

The log stores a partition's batches together. A write set with small batches for fifty partitions would change fifty
leaves of LMDB's tree and the branches above them. LMDB writes each changed page as a whole: 4 KiB for a batch of 150
bytes. In the journal a write set is one value after the last one: one or two pages. Once the journal is full, one
transaction moves all its batches to the log, many batches per page.

Invariants:

* A partition's batches in the journal come after all its batches in the log.
* A transaction that changes or deletes stored batches first moves the journal.
* The batches of the journal are in memory too, for readers. The journal is empty from the opening of a folder to the
  first commit, and after a clean close; after a crash the next opening moves it.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.log.batch_header import last_offset
from kcore.log.errors import FailureReason, LogError
from kcore.log.lmdb_layout import U64
from kcore_ext.log.partition import journal_entries, log_pairs, sort_batches

if TYPE_CHECKING:
    from kcore.log.write_set import WriteSet

MAX_ROUND_BYTES: Final = 64 << 10
"""Larger write sets go directly to the log: they fill their pages anyway."""
MAX_ROUNDS: Final = 256
MAX_SIZE_BYTES: Final = 1 << 20
"""Size at which the journal is moved, which takes a few milliseconds."""


class JournalMismatchError(LogError):
    """The journal in the file differs from the one in memory: a write to it, or a move, could lose batches."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the journal in the file differs from the one in memory ({what})", FailureReason.CORRUPT)


Batches = dict[int, list[tuple[int, bytes]]]
"""Partition number -> base offsets and batches, ascending."""

_ENTRY: Final = struct.Struct(">IQI")  # partition number, base offset, size of the batch that follows


def entries_of(write_set: WriteSet) -> bytes | None:
    """Encodes a write set for the journal: for each batch partition number, base offset, size and the batch.

    Returns:
        The entries, or None if the write set must go to the log: it changes stored batches, or is too large.
    """
    return None if write_set.drops else journal_entries(write_set.partitions, MAX_ROUND_BYTES)


class Journal:
    """The content of one folder's journal.

    Write sets are sorted by partition only when a reader needs batches after the log's, or when they are moved. The
    tail in memory serves most readers without the journal.
    """

    __slots__ = ("_fresh", "_lock", "_rounds", "_size_bytes", "_sorted")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fresh: list[WriteSet] = []
        self._sorted: Batches = {}
        self._rounds = 0
        self._size_bytes = 0

    def waiting(self) -> Batches:
        """Returns the journal's batches. A move replaces the dictionary instead of clearing it: readers may use it."""
        with self._lock:
            if self._fresh:
                sort_batches(self._fresh, self._sorted)
                # Last: if memory ran out above, the next call sorts these write sets again.
                self._fresh = []
            return self._sorted

    @property
    def empty(self) -> bool:
        """True if there is nothing to move."""
        return not self._rounds

    @property
    def full(self) -> bool:
        """True if the journal must be moved before the next write set."""
        return self._rounds >= MAX_ROUNDS or self._size_bytes >= MAX_SIZE_BYTES

    # ---- in a write transaction; these methods change nothing in memory, since the transaction may be aborted

    def put(self, txn: Any, database: Any, entries: bytes, first: bool) -> None:
        """Appends the entries of a write set.

        `first`: True if the same transaction has moved all earlier entries.
        """
        key = U64.pack(0 if first else self._rounds)
        if not txn.put(key, entries, overwrite=False, append=True, db=database):
            raise JournalMismatchError(f"round {self._rounds} is already stored")

    def move(self, txn: Any, database: Any, log_db: Any) -> bool:
        """Moves every batch to the log and clears the journal; returns False if there is nothing to move.

        File and memory are compared first, because entries that are only in the file would be deleted.

        Raises:
            JournalMismatchError: they differ; the caller must abort the transaction.
        """
        self._compare(txn, database)
        if self.empty:
            return False
        pairs, size_bytes = log_pairs(self.waiting())
        if size_bytes != self._size_bytes:
            raise JournalMismatchError(f"{self._size_bytes} bytes written, {size_bytes} in memory")
        with txn.cursor(log_db) as cursor:
            consumed, _ = cursor.putmulti(pairs)
        if consumed != len(pairs):
            raise LogError(f"{consumed} of {len(pairs)} batches could be moved out of the journal")
        txn.drop(database, delete=False)
        return True

    def _compare(self, txn: Any, database: Any) -> None:
        """Raises JournalMismatchError unless the file has as many entries as memory, with keys 0, 1, 2 and so on."""
        stored = txn.stat(database)["entries"]
        if stored == self._rounds:
            if not stored:
                return
            with txn.cursor(database) as cursor:
                first = bytes(cursor.key()) if cursor.first() else b""
                last = bytes(cursor.key()) if cursor.last() else b""
            # Keys are unique: with the right first key, last key and count none is missing.
            if (first, last) == (U64.pack(0), U64.pack(stored - 1)):
                return
        raise JournalMismatchError(f"{stored} rounds in the file, {self._rounds} in memory")

    # ---- after a transaction

    def moved(self) -> None:
        """Clears the journal in memory, after a transaction has moved it to the log."""
        self._replace({}, 0, 0)

    def _replace(self, batches: Batches, rounds: int, size_bytes: int) -> None:
        fresh: list[WriteSet] = []
        with self._lock:
            self._sorted = batches
            self._fresh = fresh
            self._rounds = rounds
            self._size_bytes = size_bytes

    def written(self, write_set: WriteSet, size_bytes: int) -> None:
        """Adds a write set whose entries of `size_bytes` were written."""
        with self._lock:
            self._fresh.append(write_set)
            self._rounds += 1
            self._size_bytes += size_bytes

    def restore(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Replaces the journal in memory by the file's, after an opening, or a failed or unsettled transaction.

        If this fails, memory is unchanged.

        Raises:
            LogError: the file's journal is damaged.
        """
        batches: Batches = {}
        rounds = size_bytes = 0
        for expected, (key, value) in enumerate(entries):
            if key != U64.pack(expected):
                raise LogError(f"the journal is damaged: expected round {expected}, found the key {key.hex()}")
            for number, base, batch in _entries(value, expected):
                batches.setdefault(number, []).append((base, batch))
            rounds += 1
            size_bytes += len(value)
        self._replace(batches, rounds, size_bytes)


def _entries(value: bytes, round_number: int) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at < len(value):
        if len(value) - at < _ENTRY.size:
            raise LogError(f"the journal is damaged: round {round_number} ends within an entry")
        number, base, size = _ENTRY.unpack_from(value, at)
        at += _ENTRY.size
        if size > len(value) - at:
            raise LogError(f"the journal is damaged: round {round_number} ends within a batch of {size} bytes")
        yield number, base, value[at : at + size]
        at += size


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
