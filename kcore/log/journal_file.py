"""The journal file: entries of committed write sets, one write and one flush for each.

The file has a fixed size and is filled with zeros once. So a commit allocates no space and does not change the file's
size, and a flush writes only the entry. The file has two areas of the same size. A journal begins at the start of the
first area and overwrites an earlier journal. Its identity, 16 random bytes that are also in LMDB, distinguishes its
entries from the entries of earlier journals.

While a full area is moved to the log, entries go to the start of the other area. The entries of both areas are
numbered together. LMDB also stores the number of the first entry that was not moved; entries with lower numbers are
invalid. LMDB also stores the identity that the file had at its start before the journal began. A file with neither that
identity nor the journal's own identity lacks acknowledged entries: it belongs to another folder, or to an older or
newer copy of this folder.

An entry (big-endian):

    CRC-32C of everything after it (u32) | size of the batches (u32) | number, from 0 (u32) | flags (u32) | identity
    for each batch: partition number (u32) | base offset (u64) | size (u32) | the batch as Kafka writes it

An entry is valid if its CRC and its identity are right and its number follows the number of the previous entry. The
entry after the last entry of an area is the first entry of the other area. The first invalid entry ends the journal. In
a journal whose entries have the flag `FLUSHED`, each entry is written after the previous entry was flushed. There, a
valid entry after an invalid entry means that acknowledged data is damaged.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kcore.log.errors import FailureReason, LogError
from kcore_ext.batch.crc32c import crc32c

logger = logging.getLogger(__name__)

JOURNAL_NAME: Final = "journal"
AREA_BYTES: Final = (1 << 20) + (128 << 10)
"""The size of an area of the journal file, in bytes."""
AREAS: Final = (0, AREA_BYTES)
"""The positions of the two areas in the journal file."""
JOURNAL_BYTES: Final = len(AREAS) * AREA_BYTES
"""The size of the journal file, in bytes."""
FILL_BYTES: Final = 64 << 10
"""The size of the writes that fill a new file. Linux keeps the bytes of one write in one folio of its page cache, of up
to 2 MiB. A short write into a folio of 2 MiB takes 2 to 4 microseconds more than into a folio of 64 KiB. Smaller folios
make long writes slower."""
IDENTITY_BYTES: Final = 16
FLUSHED: Final = 1
"""Flag of an entry that was flushed before the next entry was written."""
ENTRY_HEAD: Final = struct.Struct(">IIII16s")
BATCH_HEAD: Final = struct.Struct(">IQI")
_NUMBER: Final = struct.Struct(">I")

_FULL_ERRNOS: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class JournalDamagedError(LogError):
    """The journal lacks acknowledged batches, or has damaged ones."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the journal is damaged: {what}", FailureReason.CORRUPT)


class ForeignJournalError(JournalDamagedError):
    """The journal file belongs to another folder, or to an older or newer copy of this folder."""

    def __init__(self) -> None:
        super().__init__(
            f"the file `{JOURNAL_NAME}` belongs to another folder, or to an older or newer copy of this folder: put "
            "back the file that belongs to this folder"
        )


class Reference(NamedTuple):
    """LMDB's reference to the journal in use.

    Attributes:
        identity: the identity of the journal.
        first_number: the number of the journal's first entry that was not moved to the log.
        before: the identity at the start of the file when the journal began; empty if the identity is not known.
    """

    identity: bytes
    first_number: int
    before: bytes = b""

    def encode(self) -> bytes:
        """Returns the reference as LMDB stores it."""
        return self.identity + _NUMBER.pack(self.first_number) + self.before

    @classmethod
    def decode(cls, stored: bytes) -> Reference:
        """Decodes a reference as LMDB stores it.

        A reference of format version 5 has no `before`; an older reference has only the identity.

        Raises:
            JournalDamagedError: `stored` has a size that no format version writes.
        """
        if len(stored) == IDENTITY_BYTES:
            return cls(stored, 0)
        before = stored[IDENTITY_BYTES + _NUMBER.size :]
        if len(stored) < IDENTITY_BYTES + _NUMBER.size or len(before) not in (0, IDENTITY_BYTES):
            raise JournalDamagedError(f"the stored identity of the journal has {len(stored)} bytes")
        return cls(stored[:IDENTITY_BYTES], _NUMBER.unpack_from(stored, IDENTITY_BYTES)[0], before)


class Entry(NamedTuple):
    """The position of a valid entry's batches in the file."""

    number: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The size of the batches with their partition numbers, offsets and sizes, without the head of the entry."""
        return self.end - self.start


def entry_at(data: bytes, at: int, identity: bytes | None = None) -> tuple[Entry, bytes, int] | None:
    """Returns the entry at a position, its identity and its flags; None if there is no valid entry with `identity`.

    With `identity` None, an entry of any journal is valid.
    """
    if at < 0 or len(data) - at < ENTRY_HEAD.size:
        return None
    crc, size, number, flags, found = ENTRY_HEAD.unpack_from(data, at)
    start = at + ENTRY_HEAD.size
    if size > len(data) - start or (found != identity if identity is not None else found == bytes(IDENTITY_BYTES)):
        return None
    if crc32c(memoryview(data)[at + 4 : start + size]) != crc:
        return None
    return Entry(number, start, start + size), found, flags


def read_entries(data: bytes, reference: Reference) -> tuple[list[Entry], int]:
    """Returns the entries of a journal, and the position at which the first invalid entry begins."""
    entries: list[Entry] = []
    end = 0
    for _ in AREAS:
        for start in AREAS:
            at = start
            while at < start + AREA_BYTES:
                found = entry_at(data, at, reference.identity)
                if found is None or found[0].number != reference.first_number + len(entries):
                    break
                entries.append(found[0])
                at = end = found[0].end
    return entries, end


def _is_foreign(data: bytes, reference: Reference) -> bool:
    """Returns True if the first bytes of a file show that `reference` refers to another journal file.

    Damage at the start of the file is no evidence, because a crash may have interrupted the first entry of the journal.
    Zeros at the start are evidence if the file already had an entry when the journal began, or if entries of the
    journal were moved to the log.
    """
    if not reference.before:
        return False
    first = entry_at(data, 0)
    if first is None:
        return not any(data[: ENTRY_HEAD.size]) and (any(reference.before) or reference.first_number > 0)
    return first[1] not in (reference.identity, reference.before)


def find_lost_entry(data: bytes, identity: bytes, next_number: int) -> tuple[int, int] | None:
    """Returns the number and the flags of a valid entry whose number is at least `next_number`, or None.

    The caller found no valid entry `next_number` at the end of the journal. If a later entry is valid, the file has
    lost the entries before it.
    """
    at = data.find(identity)
    while at >= 0:
        start = at - ENTRY_HEAD.size + IDENTITY_BYTES
        if start >= 0 and ENTRY_HEAD.unpack_from(data, start)[2] >= next_number:
            found = entry_at(data, start, identity)
            if found is not None:
                return found[0].number, found[2]
        at = data.find(identity, at + 1)
    return None


def iter_batches(data: bytes, start: int, end: int, name: str) -> Iterator[tuple[int, int, bytes]]:
    """Yields partition number, base offset and bytes of the batches of an entry.

    Args:
        data: the bytes that contain the entry.
        start: the position of the first batch.
        end: the position after the last batch.
        name: the name of the entry in an error.

    Raises:
        JournalDamagedError: the bytes end within a batch.
    """
    at = start
    while at < end:
        if end - at < BATCH_HEAD.size:
            raise JournalDamagedError(f"{name} ends within the header of a batch")
        number, base, size = BATCH_HEAD.unpack_from(data, at)
        at += BATCH_HEAD.size
        if size > end - at:
            raise JournalDamagedError(f"{name} ends within a batch of {size} bytes")
        yield number, base, data[at : at + size]
        at += size


def read_file(folder: str) -> bytes:
    """Returns the bytes of a folder's journal file; none if it is missing."""
    try:
        with open(os.path.join(folder, JOURNAL_NAME), "rb", buffering=0) as file:
            return file.read(JOURNAL_BYTES)
    except FileNotFoundError:
        return b""


def load_entries(data: bytes, stored: bytes, folder: str) -> list[Entry]:
    """Returns the entries of the journal to which LMDB refers.

    A power failure may lose an entry that was not flushed, and keep later entries. The result then ends before the lost
    entry.

    Args:
        data: the bytes of the file.
        stored: the value of LMDB's reference.
        folder: the folder of the file, for log lines.

    Raises:
        ForeignJournalError: the file does not belong to the reference.
        JournalDamagedError: the file is missing or truncated, or an acknowledged entry is damaged.
    """
    reference = Reference.decode(stored)
    size = AREA_BYTES if len(stored) == IDENTITY_BYTES else JOURNAL_BYTES
    if len(data) < size:
        if not data:
            raise JournalDamagedError(
                f"the file `{JOURNAL_NAME}` is missing or empty, and had the newest writes; restore the file if you can"
            )
        raise JournalDamagedError(f"the file `{JOURNAL_NAME}` has {len(data)} of {size} bytes")
    entries, end = read_entries(data, reference)
    if not entries and _is_foreign(data, reference):
        raise ForeignJournalError
    next_number = reference.first_number + len(entries)
    lost = find_lost_entry(data, reference.identity, next_number)
    if lost is not None:
        what = f"commit {next_number} at position {end}, although the later commit {lost[0]} is undamaged"
        if lost[1] & FLUSHED:
            raise JournalDamagedError(what)
        logger.warning(
            "log %s: the file `%s` lacks %s. Either kcore.durability is not fsync and the power failed before the "
            "write, or the file is damaged. The log keeps all commits before commit %d; commit %d and all later ones "
            "are lost. Clients may have to repeat their last writes. To check the rest of the log, run `kcore log "
            "verify`",
            folder,
            JOURNAL_NAME,
            what,
            next_number,
            next_number,
        )
    return entries


class JournalFile:
    """The open journal file of a folder.

    Args:
        folder: the data folder.
        sync: True to flush each write.
    """

    __slots__ = ("_fd", "_folder", "sync")

    def __init__(self, folder: str, sync: bool) -> None:
        self._folder = folder
        self._fd = -1
        self.sync = sync

    def __del__(self) -> None:
        self.close()

    @property
    def usable(self) -> bool:
        """True if the file has its full size and can be written."""
        return self._fd >= 0

    def prepare(self) -> None:
        """Opens the file for writing. The missing part of a new or a shorter file is filled with zeros.

        If writes are flushed, this method flushes the file, because an earlier process may have written to it without
        flushing.

        If the disk is full, the file stays closed, and every write set is written in an LMDB transaction.

        The caller flushes the folder afterwards, so that the name of a new file is durable.

        Raises:
            OSError: the file cannot be opened or written for another reason.
        """
        path = os.path.join(self._folder, JOURNAL_NAME)
        fd = self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size < JOURNAL_BYTES:
                zeros = memoryview(bytes(JOURNAL_BYTES))
                for at in range(size, JOURNAL_BYTES, FILL_BYTES):
                    _write_all(fd, zeros[at : at + FILL_BYTES], at)
            if size < JOURNAL_BYTES or self.sync:
                _sync(fd, os.fsync)
        except OSError as error:
            self.close()
            if error.errno not in _FULL_ERRNOS:
                raise OSError(error.errno, error.strerror, path) from error
            os.unlink(path)  # an incomplete file would occupy space without a use
            logger.warning(
                "log %s: no space for the journal of %d bytes (%s); until the folder is opened with more free space, "
                "each commit flushes twice instead of once",
                self._folder,
                JOURNAL_BYTES,
                error.strerror,
            )
        except BaseException:
            self.close()
            raise

    def write(self, data: bytes, at: int) -> None:
        """Writes an entry at a position, and flushes it if `sync` is True; raises OSError."""
        _write_all(self._fd, data, at)
        if self.sync:
            _sync(self._fd, _FLUSH)

    def read(self, size: int, at: int) -> bytes:
        """Reads at most `size` bytes from a position; raises OSError."""
        return os.pread(self._fd, min(size, JOURNAL_BYTES), at)

    def first_identity(self) -> bytes:
        """Returns the identity at the start of the file, zeros for a new file. The result is empty if writes are not
        flushed, because the identity may then not be on the device.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.sync:
            return b""
        head = os.pread(self._fd, ENTRY_HEAD.size, 0)
        return head[-IDENTITY_BYTES:] if len(head) == ENTRY_HEAD.size else b""

    def flush(self) -> None:
        """Flushes earlier writes, even if `sync` is False; raises OSError."""
        if self._fd >= 0:
            _sync(self._fd, _FLUSH)

    def close(self) -> None:
        """Closes the file. Can be repeated."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _write_all(fd: int, data: bytes | memoryview, at: int) -> None:
    written = os.pwrite(fd, data, at)
    while written < len(data):
        written += os.pwrite(fd, memoryview(data)[written:], at + written)


_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
"""The command that makes macOS flush the device's own cache, which fsync does not; None on other systems."""
_FLUSH: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
"""The function that flushes the data of a file whose size and blocks have not changed."""


def _sync(fd: int, synchronize: Callable[[int], None]) -> None:
    if _FULL_SYNC is not None:
        fcntl.fcntl(fd, _FULL_SYNC)
    else:
        synchronize(fd)
