"""LMDB's file read as bytes, to find damage that LMDB would crash on.

LMDB trusts its file: a page number beyond the end of the file makes the process die of SIGBUS, and nothing in LMDB 0.9
looks at the size when it opens. So the two meta pages are read here first; and if the file is shorter than they say,
every page that can be reached is looked for. (A file may be shorter and whole: pages that were taken and let go again
within one transaction are counted but never written.)

Only the layout of 64-bit builds is known here (LMDB 0.9, data version 1); elsewhere the checks are LMDB's own.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, NamedTuple

from kcore.log.errors import DataFolderError

MAGIC = 0xBEEFC0DE
DATA_VERSION = 1
P_BRANCH, P_LEAF, P_OVERFLOW, P_META, P_LEAF2 = 0x01, 0x02, 0x04, 0x08, 0x20
F_BIGDATA, F_SUBDATA, F_DUPDATA = 0x01, 0x02, 0x04
NO_PAGE = (1 << 64) - 1
PAGE_HEADER_SIZE = 16

_PAGE = struct.Struct("=QHHHH")
_META = struct.Struct("=IIQQ")
_DB = struct.Struct("=IHHQQQQQ")
_TAIL = struct.Struct("=QQ")
_NODE = struct.Struct("=HHHH")
_OVERFLOW = struct.Struct("=QHHI")
_META_SIZE = _META.size + 2 * _DB.size + _TAIL.size


class Meta(NamedTuple):
    """What one meta page says: the roots of the free list and of the main database, the last page, the transaction."""

    page_size: int
    free_root: int
    main_root: int
    last_page: int
    txn_id: int


def supported() -> bool:
    """Whether this build of LMDB uses the layout known here."""
    return struct.calcsize("P") == 8


def read_meta(path: str, name: str, file: BinaryIO, page: int, page_size: int) -> Meta:
    """One of the two meta pages; raises DataFolderError when it is not one."""
    where = f"{name}, meta page {page}"
    file.seek(page * page_size)
    data = file.read(PAGE_HEADER_SIZE + _META_SIZE)
    if len(data) < PAGE_HEADER_SIZE + _META_SIZE:
        raise DataFolderError(path, f"the file ends after {page * page_size + len(data)} bytes", where)
    number, _, flags, _, _ = _PAGE.unpack_from(data)
    magic, version, _, _ = _META.unpack_from(data, PAGE_HEADER_SIZE)
    if number != page or not flags & P_META or magic != MAGIC:
        raise DataFolderError(path, "damaged: this is not an LMDB meta page", where)
    if version != DATA_VERSION:
        raise DataFolderError(path, f"LMDB data version {version}, known is {DATA_VERSION}", where)
    position = PAGE_HEADER_SIZE + _META.size
    free = _DB.unpack_from(data, position)
    main = _DB.unpack_from(data, position + _DB.size)
    last_page, txn_id = _TAIL.unpack_from(data, position + 2 * _DB.size)
    meta = Meta(free[0], free[7], main[7], last_page, txn_id)
    if not 512 <= meta.page_size <= 65536 or meta.page_size & (meta.page_size - 1):
        raise DataFolderError(path, f"damaged: page size {meta.page_size}", where)
    for root in (meta.free_root, meta.main_root):
        if root != NO_PAGE and not 1 < root <= last_page:
            raise DataFolderError(path, f"damaged: root page {root} of {last_page}", where)
    return meta


def check_file(path: str, name: str) -> None:
    """Raise DataFolderError if the LMDB file `name` in folder `path` cannot be mapped without harm."""
    if not supported():
        return
    with open(os.path.join(path, name), "rb") as file:
        first = read_meta(path, name, file, 0, 4096)
        second = read_meta(path, name, file, 1, first.page_size)
        newest = max(first, second, key=lambda meta: meta.txn_id)
        size = os.fstat(file.fileno()).st_size
        if size < (newest.last_page + 1) * newest.page_size:
            try:
                _PageWalk(file, newest, size).run()
            except (DamageError, struct.error) as damage:
                raise DataFolderError(
                    path,
                    f"damaged: the file has {size} bytes, and {damage}",
                    f"{name}, page {size // newest.page_size}",
                ) from None


def check_pages(path: str, name: str) -> int:
    """Walk every page that can be reached from the newest meta page; returns how many there are.

    Raises DataFolderError at the first that is out of place. For a file that nobody writes meanwhile.
    """
    if not supported():
        return 0
    with open(os.path.join(path, name), "rb") as file:
        first = read_meta(path, name, file, 0, 4096)
        second = read_meta(path, name, file, 1, first.page_size)
        newest = max(first, second, key=lambda meta: meta.txn_id)
        walk = _PageWalk(file, newest, os.fstat(file.fileno()).st_size)
        try:
            walk.run()
        except (DamageError, struct.error) as damage:
            raise DataFolderError(path, f"damaged: {damage}", name) from None
        return walk.page_count


class DamageError(Exception):
    """A page that is not what its parent says it is."""


class _PageWalk:
    """Visits the pages of all trees, headers of overflow pages included."""

    def __init__(self, file: BinaryIO, meta: Meta, size: int) -> None:
        self._file = file
        self._meta = meta
        self._page_limit = min(size // meta.page_size, meta.last_page + 1)
        self._todo = [root for root in (meta.free_root, meta.main_root) if root != NO_PAGE]
        self._seen: set[int] = set(self._todo)
        self.page_count = 0

    def run(self) -> None:
        while self._todo:
            self._visit(self._todo.pop())

    def _require(self, page: int, count: int = 1) -> None:
        if not page > 1 or page + count > self._page_limit:
            raise DamageError(f"page {page + count - 1} is needed, which lies outside")
        self.page_count += count

    def _descend(self, page: int) -> None:
        if page in self._seen:
            raise DamageError(f"page {page} is referred to twice")
        self._seen.add(page)
        self._todo.append(page)

    def _visit(self, page: int) -> None:
        self._require(page)
        page_size = self._meta.page_size
        self._file.seek(page * page_size)
        data = self._file.read(page_size)
        number, _, flags, lower, upper = _PAGE.unpack_from(data)
        if number != page or not flags & (P_BRANCH | P_LEAF) or not PAGE_HEADER_SIZE <= lower <= upper <= page_size:
            raise DamageError(f"page {page} is not a tree page")
        if flags & P_LEAF2:
            return
        for position in range(PAGE_HEADER_SIZE, lower, 2):
            (node,) = struct.unpack_from("=H", data, position)
            low, high, node_flags, key_size = _NODE.unpack_from(data, node)
            if flags & P_BRANCH:
                # In a branch the three words before the key size are the child's page number.
                self._descend(low | high << 16 | node_flags << 32)
                continue
            value = node + _NODE.size + key_size
            if node_flags & F_BIGDATA:
                self._overflow(struct.unpack_from("=Q", data, value)[0], low | high << 16)
            elif node_flags & F_SUBDATA:
                root = _DB.unpack_from(data, value)[7]
                if root != NO_PAGE:
                    self._descend(root)
            elif value + (low | high << 16) > page_size:
                raise DamageError(f"page {page} has a value that leaves it")

    def _overflow(self, page: int, size: int) -> None:
        """A value on pages of its own."""
        count = -(-(PAGE_HEADER_SIZE + size) // self._meta.page_size)
        self._require(page, count)
        self._file.seek(page * self._meta.page_size)
        number, _, flags, pages = _OVERFLOW.unpack_from(self._file.read(PAGE_HEADER_SIZE))
        if number != page or not flags & P_OVERFLOW or pages < count:
            raise DamageError(f"page {page} is not the start of {count} overflow pages")
