"""The journal: small batches of many partitions side by side, until they are moved to their own places.

In the log a partition's batches lie together. A round that has a little for each of fifty partitions would change
fifty leaves of LMDB's tree and the branches above them; LMDB writes each of these pages anew, 4 KiB for a batch of 150
bytes. Here a round is one value behind the last one: one or two pages. Once there is enough of it, one transaction puts
all of it where it belongs, many batches a page.

What must hold:

* A partition's batches in the journal lie behind all of its batches in the log.
* Whatever changes or deletes stored batches has the journal moved first, in its own transaction.
* What is in the journal is in memory as well, for readers. A folder's journal is empty from its opening to its first
  round, and behind a clean close; after a crash the next opening moves it.
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
"""Larger rounds go to the log at once: their pages are full by themselves."""
MAX_ROUNDS: Final = 256
MAX_SIZE_BYTES: Final = 1 << 20
"""With so much in it the journal is moved, which takes a few milliseconds."""


class JournalMismatchError(LogError):
    """The journal in the file is not the one in memory: a write on top of it, or a move, could lose batches."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the journal's file and memory differ ({what})", FailureReason.CORRUPT)


Batches = dict[int, list[tuple[int, bytes]]]
"""Partition number -> base offsets and batches, ascending."""

_ENTRY: Final = struct.Struct(">IQI")  # partition number, base offset, bytes of the batch behind it


def entries_of(write_set: WriteSet) -> bytes | None:
    """A round as the journal keeps it: each batch behind its partition's number, its base offset and its size.

    Returns:
        None if the round is not for the journal: it changes stored batches, or is too large.
    """
    return None if write_set.drops else journal_entries(write_set.partitions, MAX_ROUND_BYTES)


class Journal:
    """What one folder's journal holds.

    Rounds are sorted by partition when somebody reads behind the log, or when they are moved: most readers are served
    by the tail in memory, and never come here.
    """

    __slots__ = ("_fresh", "_lock", "_rounds", "_size_bytes", "_sorted")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fresh: list[WriteSet] = []
        self._sorted: Batches = {}
        self._rounds = 0
        self._size_bytes = 0

    def waiting(self) -> Batches:
        """Return the journal's batches. A move replaces the dictionary instead of emptying it: readers may hold it."""
        with self._lock:
            if self._fresh:
                sort_batches(self._fresh, self._sorted)
                # Only now: if memory ran out above, the next call sorts these rounds again.
                self._fresh = []
            return self._sorted

    @property
    def empty(self) -> bool:
        """Whether there is nothing to move."""
        return not self._rounds

    @property
    def full(self) -> bool:
        """Whether it is time to move it."""
        return self._rounds >= MAX_ROUNDS or self._size_bytes >= MAX_SIZE_BYTES

    # ---- in a write transaction; nothing here changes what memory holds: the transaction may come to nothing

    def put(self, txn: Any, database: Any, entries: bytes, first: bool) -> None:
        """Writes a round's entries behind what is there.

        `first`: the same transaction has moved what was there.
        """
        key = U64.pack(0 if first else self._rounds)
        if not txn.put(key, entries, overwrite=False, append=True, db=database):
            raise JournalMismatchError(f"round {self._rounds} is stored already")

    def move(self, txn: Any, database: Any, log_db: Any) -> bool:
        """Move every batch to the log and empty the journal; return False if there is nothing to move.

        What is in the file but not in memory would be deleted with the journal, so both are compared first.

        Raises:
            JournalMismatchError: they differ; the transaction is to be aborted.
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
        """Raise JournalMismatchError unless the file has exactly the rounds that memory has: 0, 1, 2 and so on."""
        stored = txn.stat(database)["entries"]
        if stored == self._rounds:
            if not stored:
                return
            with txn.cursor(database) as cursor:
                first = bytes(cursor.key()) if cursor.first() else b""
                last = bytes(cursor.key()) if cursor.last() else b""
            # Keys are unique: with the right count between the right ends none is missing.
            if (first, last) == (U64.pack(0), U64.pack(stored - 1)):
                return
        raise JournalMismatchError(f"{stored} rounds in the file, {self._rounds} in memory")

    # ---- behind a transaction

    def moved(self) -> None:
        """Forget all rounds: a transaction has moved them to the log."""
        self._replace({}, 0, 0)

    def _replace(self, batches: Batches, rounds: int, size_bytes: int) -> None:
        fresh: list[WriteSet] = []
        with self._lock:
            self._sorted = batches
            self._fresh = fresh
            self._rounds = rounds
            self._size_bytes = size_bytes

    def written(self, write_set: WriteSet, size_bytes: int) -> None:
        """Add a round that was written as `size_bytes` of entries."""
        with self._lock:
            self._fresh.append(write_set)
            self._rounds += 1
            self._size_bytes += size_bytes

    def restore(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Replace what memory holds by what the file holds: after an opening, or a failed or doubtful transaction.

        If this fails, memory keeps what it had.

        Raises:
            LogError: the file's journal is damaged.
        """
        batches: Batches = {}
        rounds = size_bytes = 0
        for expected, (key, value) in enumerate(entries):
            if key != U64.pack(expected):
                raise LogError(f"the journal is damaged: {key.hex()} stands where round {expected} belongs")
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
    """A partition's batches in the journal that go on where a reading of its log ended.

    Args:
        waiting: what the journal held before the log was read: what was moved meanwhile is found in both, not in none.
        number: the partition.
        offset: what is read from.
        limit: batches that begin at or behind it are not wanted.
        found: what was found in the log.
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
