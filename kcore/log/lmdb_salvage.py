"""Reader of a damaged data folder: finds every key and value that can still be read, and checks every page.

LMDB writes a changed page to another position and reuses the old page later. So a file has three kinds of leaves:

* live: the trees of the newest meta page refer to them, and each is of the kind that its parent expects;
* lost: no tree refers to them and the list of free pages does not have them, so a damaged branch page must have
  referred to them;
* free: older copies of leaves. Record batches never change once they are written, so a copy has the same batches as the
  leaf. If the list of free pages is damaged, free and lost leaves cannot be distinguished.

A sound file is read only through its trees. In a damaged file every page is read.

The entries of the journal file to which LMDB refers count as live. In a damaged folder the sound entries of other
journals count as free: an earlier journal may have copies of batches that are on a damaged page.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final

from kcore.log.batch_header import damage
from kcore.log.data_folder import DATA_NAME
from kcore.log.errors import DataFolderError
from kcore.log.journal_file import (
    BATCH_HEAD,
    ENTRY_HEAD,
    JOURNAL_NAME,
    Entry,
    ForeignJournalError,
    JournalDamagedError,
    Reference,
    entry_at,
    load_entries,
    read_file,
)
from kcore.log.lmdb_layout import JOURNAL_KEY, LOG_DB, LOG_KEY, META_DB, OLD_JOURNAL_DB, SNAP_DB, SNAP_KEY, is_meta_key
from kcore.log.lmdb_pages import (
    DB,
    NO_PAGE,
    NODE,
    P_BRANCH,
    P_LEAF,
    PAGE,
    PAGE_HEADER_SIZE,
    Meta,
    check_pages,
    read_meta,
    true_txn_id,
)
from kcore.log.node_journals import journal_folders, node_folder, node_journal_key
from kcore.log.salvaged_content import MAX_OFFSET, Batches, KeyRanges, Misplaced, Node, Tier
from kcore.log.salvaged_rows import Versions, check_rows
from kcore.protocol.batch_layout import HEADER_BYTES, LAST_DELTA_AT, LENGTH_OVERHEAD, MAGIC, header_struct
from kcore_ext.batch.run import spans
from kcore_ext.log.journal import MAX_VALUE_BYTES

F_BIGDATA: Final = 0x01
F_SUBDATA: Final = 0x02
NODE_HEADER_SIZE: Final = 8
MAX_DEPTH: Final = 32
SCAN_BYTES: Final = 1 << 20
HEAD_BYTES: Final = LAST_DELTA_AT + 4
"""Number of bytes that identify a batch.

They are the base offset, length, epoch, magic, CRC, attributes and offset delta.
"""
JOURNAL_POSITION: Final = 1 << 62
"""Position that stands for the journal file's first byte; lower positions are in the data file."""

AFTER_ALL: Final = b"\xff" * (LOG_KEY.size + 1)
"""A key after all keys of batches."""

_ZEROS: Final = bytes(4096)
_U64_NATIVE: Final = struct.Struct("=Q")
_HEAD: Final = header_struct("base_offset", "length", "magic")


class Salvage:
    """The readable content of the data file and the journal of a folder that no process has open.

    Attributes:
        damage: the damage because of which every page was read; None for a file whose trees are sound.
        log: batches by partition number, including the batches of the journal.
        meta: versions of each key of the metadata, as (tier, value without its checksum), best tier first.
        damaged_rows: the stored values of metadata whose checksum is wrong, by key.
        has_corrected_rows: True if rows of the metadata were corrected.
        chunks: the position, size and tier of each snapshot chunk by (number, offset, index).
        problems: descriptions of damage that belongs to no partition.
        missing: the databases that the file should have and does not list.
        scanned: True if every page was read.
        doubts_all: True if batches of any partition may be missing.
        doubts_meta: True if keys of the metadata may be missing.
    """

    def __init__(self, path: str, *, scan: bool = False) -> None:
        self.path = os.path.join(path, DATA_NAME)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._fd).st_size
        self.damage: str | None = None
        self.problems: list[str] = []
        self.missing: set[bytes] = {LOG_DB, META_DB, SNAP_DB}
        self.log: dict[int, Batches] = {}
        self.meta: Versions = {}
        self.damaged_rows: dict[bytes, bytes] = {}
        self.has_corrected_rows = False
        self.chunks: dict[tuple[int, int, int], tuple[int, int, Tier]] = {}
        self._doubts = KeyRanges()
        self.doubts_all = self.doubts_meta = False
        self._misplaced: list[Misplaced] = []
        self._misplaced_rows: list[tuple[bytes, bytes]] = []
        self._free: set[int] | None = set()
        self._journal = b""
        try:
            self._read(path, scan)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def doubts(self, number: int, base: int) -> bool:
        """Returns True if a batch with this key may have been on a damaged page."""
        key = LOG_KEY.pack(number, base)
        return self._doubts.overlaps(key, key + b"\x00")

    def doubts_any(self, number: int, first: int, end: int) -> bool:
        """Returns True if a batch with a base offset from `first` up to `end` may have been on a damaged page."""
        return first < end and self._doubts.overlaps(LOG_KEY.pack(number, first), LOG_KEY.pack(number, end))

    def read(self, position: int, size: int) -> bytes:
        """Reads bytes of a file. Returns fewer bytes at the end of the file, or before bytes that the device cannot
        read.
        """
        if position >= JOURNAL_POSITION:
            return self._journal[position - JOURNAL_POSITION : position - JOURNAL_POSITION + size]
        data = b""
        while len(data) < size:
            try:
                more = os.pread(self._fd, size - len(data), position + len(data))
            except OSError:
                break
            if not more:
                break
            data += more
        return data

    def _read(self, path: str, scan: bool) -> None:
        try:
            check_pages(path, DATA_NAME)
        except DataFolderError as error:
            self.damage = f"{error.where}: {error.what.partition(';')[0]}"
            self.problems.append(self.damage)
        except OSError as error:  # the device cannot read a page
            self.damage = f"{DATA_NAME}: {error.strerror}"
            self.problems.append(self.damage)
        meta = self._newest_meta(path)
        self._page_size = 4096 if meta is None else meta.page_size
        self._pages = self._size // self._page_size
        self._seen = bytearray(self._pages + 1)
        if meta is not None:
            self._read_free_list(meta)
            for name, record in self._named_databases(meta):
                self.missing.discard(name)
                self._read_database(name, record)
        for name in sorted(self.missing & {LOG_DB, META_DB}):
            self.problems.append(f"database {name.decode()} is missing")
        self.doubts_meta = self.doubts_meta or META_DB in self.missing
        if LOG_DB in self.missing:
            self._doubt_all()
        if self.damage is not None and (meta is None or not self._doubts):
            self._doubt_all()
        self.scanned = scan or self.damage is not None
        if self.scanned:
            self._scan()
        self._check_rows()
        self._read_journal(path)
        if self.scanned:
            self._scan_journal()

    def _check_rows(self) -> None:
        """Checks the rows of the metadata, which `meta` has with their checksums until then."""
        checked = check_rows(self.meta, self._misplaced_rows)
        self.meta, self.damaged_rows, self.has_corrected_rows = checked.rows, checked.damaged, checked.is_corrected
        self.problems += checked.problems
        self.doubts_meta = self.doubts_meta or checked.doubts_journal

    def _newest_meta(self, path: str) -> Meta | None:
        metas: list[Meta] = []
        with open(self.path, "rb") as file:
            for page in (0, 1):
                try:
                    meta = read_meta(path, DATA_NAME, file, page, metas[0].page_size if metas else 4096)
                    metas.append(meta._replace(txn_id=true_txn_id(file, meta)))
                except (DataFolderError, OSError):
                    continue
        return max(metas, key=lambda meta: meta.txn_id, default=None)

    # ---- through the trees

    def _read_free_list(self, meta: Meta) -> None:
        free: set[int] = set()
        before = len(self.problems)
        for _, nodes in self._leaves(meta.free, "the list of free pages", integer_keys=True):
            for node in nodes:
                data = self.read(node.position, node.size)
                free.update(number for (number,) in _U64_NATIVE.iter_unpack(data[8 : len(data) & ~7]))
        if len(self.problems) > before:
            self._free = None  # without the complete list of free pages, any page may be free
        else:
            self._free = free

    def _named_databases(self, meta: Meta) -> Iterator[tuple[bytes, bytes]]:
        for _, nodes in self._leaves(meta.main, "the main database", doubtful=True):
            for node in nodes:
                if node.flags & F_SUBDATA and node.size == DB.size:
                    yield node.key, self.read(node.position, node.size)

    def _read_database(self, name: bytes, record: bytes) -> None:
        what = f"database {name.decode('ascii', 'replace')}"
        before = len(self.problems)
        misplaced_before = len(self._misplaced)
        for _, nodes in self._leaves(record, what, doubtful=name == LOG_DB):
            for node in nodes:
                self._take(name, node, Tier.LIVE)
        if name == OLD_JOURNAL_DB and len(self.problems) > before:
            self._doubt_all()  # its batches may be of any partition
        if name == META_DB and len(self.problems) > before:
            self.doubts_meta = True
        for one in self._misplaced[misplaced_before:]:
            if name == LOG_DB:
                self._take_misplaced(one)
            elif name == META_DB:
                self._misplaced_rows.append((one.node.key, self.read(one.node.position, one.node.size)))

    def _doubt_all(self) -> None:
        self.doubts_all = True
        self._doubts.add(b"", AFTER_ALL)

    def _leaves(
        self, record: bytes, what: str, *, integer_keys: bool = False, doubtful: bool = False
    ) -> Iterator[tuple[int, list[Node]]]:
        """Yields the sound leaves of a tree. Damaged pages are added to `problems` and skipped.

        If `doubtful` is True, the ranges of keys on damaged pages are added to `_doubts`, since batches may be missing
        there.
        """
        fields = DB.unpack(record)
        depth, root = fields[2], fields[7]
        if root == NO_PAGE:
            return
        if not 0 < depth < MAX_DEPTH:
            self.problems.append(f"{what} has a depth of {depth}")
            return
        todo: list[tuple[int, int, bytes | None, bytes | None]] = [(root, depth, None, None)]
        while todo:
            page, level, low, high = todo.pop()
            data = self.read(page * self._page_size, self._page_size) if 1 < page < self._pages else b""
            flags = P_LEAF if level == 1 else P_BRANCH
            if len(data) < self._page_size or PAGE.unpack_from(data)[0] != page or PAGE.unpack_from(data)[2] != flags:
                self.problems.append(f"page {page} of {what} is damaged")
                if doubtful:
                    self._doubts.add(low or b"", high or AFTER_ALL)
                continue
            if self._seen[page]:
                self.problems.append(f"page {page} of {what} is referred to twice")
                continue
            self._seen[page] = 1
            if level == 1:
                nodes = list(self._nodes(data, page))
                kept = nodes if integer_keys else self._ordered(nodes, low, high, page)
                if doubtful and not self._has_every_node(data, kept):
                    self._doubts.add(low or b"", high or AFTER_ALL)
                yield page, kept
                continue
            children = self._children(data)
            if doubtful and len(children) < PAGE.unpack_from(data)[3] // 2 - PAGE_HEADER_SIZE // 2:
                self._doubts.add(low or b"", high or AFTER_ALL)
            for place, (key, child) in enumerate(children):
                above = children[place + 1][0] if place + 1 < len(children) else high
                todo.append((child, level - 1, key if place else low, above))

    def _has_every_node(self, data: bytes, nodes: list[Node]) -> bool:
        """Returns True if the readable nodes of a leaf are all of its nodes: they fill the end of the page without
        gaps.
        """
        lower, upper = PAGE.unpack_from(data)[3:5]
        size_bytes = sum(
            NODE_HEADER_SIZE + len(node.key) + (8 if node.flags & F_BIGDATA else node.size) + 1 & ~1 for node in nodes
        )
        return len(nodes) == (lower - PAGE_HEADER_SIZE) // 2 and size_bytes == int(self._page_size - upper)

    def _children(self, data: bytes) -> list[tuple[bytes, int]]:
        found = []
        for at in self._offsets(data):
            low, high, top, size = NODE.unpack_from(data, at)
            found.append((data[at + NODE_HEADER_SIZE : at + NODE_HEADER_SIZE + size], low | high << 16 | top << 32))
        return found

    def _offsets(self, data: bytes) -> list[int]:
        lower, upper = PAGE.unpack_from(data)[3:5]
        if not PAGE_HEADER_SIZE <= lower <= upper <= self._page_size or lower & 1:
            return []
        offsets = struct.unpack_from(f"={(lower - PAGE_HEADER_SIZE) // 2}H", data, PAGE_HEADER_SIZE)
        return [at for at in offsets if upper <= at <= self._page_size - NODE_HEADER_SIZE]

    def _nodes(self, data: bytes, page: int) -> Iterator[Node]:
        """Yields the nodes that lie within a leaf and whose values lie within the file."""
        for at in self._offsets(data):
            low, high, flags, key_size = NODE.unpack_from(data, at)
            size = low | high << 16
            value = at + NODE_HEADER_SIZE + key_size
            if flags & F_BIGDATA:
                if value + 8 > self._page_size:
                    continue
                first = _U64_NATIVE.unpack_from(data, value)[0]
                position = first * self._page_size + PAGE_HEADER_SIZE
                if first < 2 or position + size > self._size:
                    continue
            else:
                position = page * self._page_size + value
                if value + size > self._page_size:
                    continue
            yield Node(data[at + NODE_HEADER_SIZE : value], flags, position, size)

    def _ordered(self, nodes: list[Node], low: bytes | None, high: bytes | None, page: int) -> list[Node]:
        """Returns the nodes whose keys are in order and within the page's bounds.

        Reports the other nodes as problems. If at most half of the keys are out of order, these keys may be damaged, so
        the method adds their nodes to `_misplaced`. In other cases the page may have been written to a wrong place.
        """
        ordered: list[Node] = []
        misplaced: list[Misplaced] = []
        for place, node in enumerate(nodes):
            below = ordered[-1].key if ordered else None
            above = nodes[place + 1].key if place + 1 < len(nodes) else None
            fits = (low is None or node.key >= low) and (high is None or node.key < high)
            if below is not None and node.key <= below:
                fits = False
            if (
                fits
                and above is not None
                and node.key >= above
                and (above >= (low or b"") if below is None else above > below)
            ):
                fits = False  # without this key, the next key is in order
            if fits:
                ordered.append(node)
            else:
                self.problems.append(f"page {page}: the key {node.key.hex()} is out of order")
                misplaced.append(Misplaced(node, below or low, above or high))
        if len(misplaced) <= len(ordered):
            self._misplaced += misplaced
        return ordered

    # ---- without the trees

    def _scan(self) -> None:
        """Reads every page to which no tree refers."""
        pages_at_once = max(1, SCAN_BYTES // self._page_size)
        for first in range(2, self._pages, pages_at_once):
            count = min(pages_at_once, self._pages - first)
            run = self.read(first * self._page_size, count * self._page_size)
            if len(run) == count * self._page_size:
                self._scan_pages(first, run)
                continue
            for page in range(first, first + count):  # the device cannot read all of them
                self._scan_pages(page, self.read(page * self._page_size, self._page_size))

    def _scan_pages(self, first: int, run: bytes) -> None:
        for at in range(0, len(run) - self._page_size + 1, self._page_size):
            page = first + at // self._page_size
            if self._seen[page] or PAGE.unpack_from(run, at)[2] != P_LEAF:
                continue
            tier = Tier.UNKNOWN if self._free is None else Tier.FREE if page in self._free else Tier.LOST
            for node in self._nodes(run[at : at + self._page_size], page):
                self._take(None, node, tier)

    def _take(self, database: bytes | None, node: Node, tier: Tier) -> None:
        """Adds a node to the content of its database.

        If `database` is None, no tree refers to the page, and the key shows the database.
        """
        key = node.key
        if len(key) == LOG_KEY.size and database in (LOG_DB, None):
            number, first = LOG_KEY.unpack(key)
            for base, position, size in self._batches_of(first, node.position, node.size):
                # Without a tree, the pages of a large value may have a later value of another partition.
                if database is not None or self._is_batch(base, position, size):
                    self.log.setdefault(number, Batches()).add(base, position, size, tier)
            if tier.is_current and node.size <= MAX_VALUE_BYTES:  # larger values can be of another partition
                self._take_moved(number, first, node)
        elif len(key) == SNAP_KEY.size and database in (SNAP_DB, None):
            self.chunks.setdefault(SNAP_KEY.unpack(key), (node.position, node.size, tier))
        elif len(key) == 8 and database in (OLD_JOURNAL_DB, None):
            self._take_entry(
                f"entry {int.from_bytes(key)}", node.position, node.size, tier, reports_damage=database is not None
            )
        elif database == META_DB or (database is None and is_meta_key(key)):
            self.meta.setdefault(key, []).append((tier, self.read(node.position, node.size)))
        elif database in (LOG_DB, SNAP_DB, OLD_JOURNAL_DB):
            self.problems.append(f"a key of the wrong size in {database.decode()}: {key.hex()}")

    def _batches_of(self, base: int, position: int, size: int) -> list[tuple[int, int, int]]:
        """Returns (base offset, position, size) for each batch of a value of the log."""
        if size > MAX_VALUE_BYTES or self._is_batch(base, position, size):
            return [(base, position, size)]
        data = self.read(position, size)
        data += bytes(size - len(data))  # the bytes that the device cannot read
        return [(found, position + start, stop - start) for found, start, stop in spans(base, data)]

    def _take_moved(self, number: int, first: int, node: Node) -> None:
        """Adds the batches of a value again, at the base offsets in the batches' headers, if the headers contradict the
        base offset in the key.

        Adds no batch if any batch of the value is damaged.
        """
        data = self.read(node.position, node.size)
        stored = int.from_bytes(data[:8], signed=True)
        if len(data) < HEADER_BYTES or stored == first or not 0 <= stored < MAX_OFFSET:
            return
        found = spans(stored, data)
        if all(damage(data[start:stop], base, check_crc=True) is None for base, start, stop in found):
            for base, start, stop in found:
                self.log.setdefault(number, Batches()).add(base, node.position + start, stop - start, Tier.MOVED)

    def _take_misplaced(self, misplaced: Misplaced) -> None:
        """Adds the batches of a node with a damaged key to the partitions of the keys around it."""
        node, below, above = misplaced
        data = self.read(node.position, 8)
        stored = int.from_bytes(data, signed=True)
        if len(data) < 8 or not 0 <= stored < MAX_OFFSET:
            return
        numbers = {LOG_KEY.unpack(key)[0] for key in (below, above, node.key) if key and len(key) == LOG_KEY.size}
        for number in sorted(numbers):
            key = LOG_KEY.pack(number, stored)
            if (below is None or key >= below) and (above is None or key < above):
                self._take_moved(number, -1, node)

    def _is_batch(self, base: int, position: int, size: int) -> bool:
        head = self.read(position, HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            return False
        found, length, magic = _HEAD.unpack_from(head)
        return bool(found == base and length == size - LENGTH_OVERHEAD and magic == MAGIC)

    def _take_entry(self, name: str, position: int, entry_size: int, tier: Tier, *, reports_damage: bool) -> None:
        """Adds the batches of an entry of the journal.

        Each batch is preceded by its partition number, base offset and size.
        """
        data = self.read(position, entry_size)
        at = 0
        while at + BATCH_HEAD.size <= len(data):
            number, base, size = BATCH_HEAD.unpack_from(data, at)
            at += BATCH_HEAD.size
            if at + size > len(data) or not self._is_batch(base, position + at, size):
                break
            self.log.setdefault(number, Batches()).add(base, position + at, size, tier)
            at += size
        if reports_damage and at != len(data):
            self.problems.append(f"{name} of the journal is damaged")

    # ---- the journal file

    def _read_journal(self, path: str) -> None:
        """Reads the journal files to which LMDB refers: the file of a single process, and the files of several
        processes.
        """
        self._read_file(path, JOURNAL_KEY)
        for node_id in journal_folders(path):
            self._read_file(node_folder(path, node_id), node_journal_key(node_id))

    def _read_file(self, folder: str, key: bytes) -> None:
        """Reads a journal file, and adds its entries if LMDB refers to the file.

        From a damaged file, adds all valid entries that were not moved to the log.
        """
        begin = len(self._journal)
        references = [value for tier, value in self.meta.get(key, []) if tier.is_current]
        try:
            data = read_file(folder)
        except OSError as error:
            self.problems.append(f"{JOURNAL_NAME}: {error.strerror}")
            if references:
                self._doubt_all()  # its batches may be of any partition
            return
        if not references:
            if self.doubts_meta:
                self._doubt_all()  # the reference may be lost, and the newest batches may be in this file
            self._journal += data
            return
        try:
            entries = load_entries(data, references[0], folder)
        except ForeignJournalError as error:  # its batches may be another folder's, of partitions with equal numbers
            self.problems.append(str(error))
            self._doubt_all()
            return
        except JournalDamagedError as error:
            self.problems.append(str(error))
            self._doubt_all()
            entries = _waiting_entries(data, references[0])
        self._journal += data
        for entry in entries:
            place = JOURNAL_POSITION + begin + entry.start
            self._take_entry(f"entry {entry.number}", place, entry.size, Tier.LIVE, reports_damage=True)

    def _scan_journal(self) -> None:
        """Adds the batches of all valid entries in the journal files, with the tier FREE.

        FREE is the least reliable tier: some entries were moved to the log long ago.
        """
        for entry, _ in _sound_entries(self._journal):
            self._take_entry(
                f"entry {entry.number}", JOURNAL_POSITION + entry.start, entry.size, Tier.FREE, reports_damage=False
            )


def _waiting_entries(data: bytes, stored: bytes) -> list[Entry]:
    """Returns the valid entries of a damaged journal that were not moved to the log.

    Args:
        data: the bytes of the journal file.
        stored: LMDB's reference to the file. If it is damaged, the result is empty.
    """
    try:
        reference = Reference.decode(stored)
    except JournalDamagedError:
        return []
    sound = [found for found, identity in _sound_entries(data) if identity == reference.identity]
    return sorted(entry for entry in sound if entry.number >= reference.first_number)


def _sound_entries(data: bytes) -> Iterator[tuple[Entry, bytes]]:
    """Yields every valid entry of any journal in the bytes of files, with its identity."""
    at = 0
    while at <= len(data) - ENTRY_HEAD.size:
        found = entry_at(data, at)
        if found is not None:
            yield found[0], found[1]
            at = found[0].end
        elif data.startswith(_ZEROS, at):
            at += len(_ZEROS) - ENTRY_HEAD.size  # an entry may begin with zeros, but its identity is not zero
        else:
            at += 1
