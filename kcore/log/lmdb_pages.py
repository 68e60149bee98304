"""Checks LMDB's file as bytes, to find damage on which LMDB would crash.

LMDB trusts its file. A page number beyond the end of the file kills the process with SIGBUS. A page of another kind
than its parent expects kills it with SIGABRT. So this module checks the file before LMDB opens it: the two meta pages,
then every page of the trees (`kcore_ext.log.lmdb_check`). Only a deep check reads values that have separate pages:
damage on these pages does not crash LMDB, and checksums detect it later.

The checks support the layout of 64-bit builds (LMDB 0.9, data version 1). On other builds they do nothing.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, Final, NamedTuple

from kcore.log.errors import DataFolderError
from kcore_ext.log.lmdb_check import check_trees

MAGIC: Final = 0xBEEFC0DE
DATA_VERSION: Final = 1
P_BRANCH: Final = 0x01
P_LEAF: Final = 0x02
P_META: Final = 0x08
NO_PAGE: Final = (1 << 64) - 1
PAGE_HEADER_SIZE: Final = 16
MAX_LEAVES_AT_OPEN: Final = 1 << 18
"""Maximum number of leaf pages that kcore reads when it opens a file.

These pages have a total size of 1 GiB. Reading them takes about a second if the file is in the page cache.
"""
MAX_MS_AFTER_CLEAN_CLOSE: Final = 1_000
"""Time after which an opening stops reading leaf pages if the file was closed cleanly and has not changed since.

Such a file is damaged only if the disk has lost data. The check of a coordinator's log is usually complete within this
time. The limit is for large files on slow disks.
"""
REMEDY: Final = "; `kcore log repair` keeps what can be read"

PAGE: Final = struct.Struct("=QHHHH")
NODE: Final = struct.Struct("=HHHH")
DB: Final = struct.Struct("=IHHQQQQQ")
_META: Final = struct.Struct("=IIQQ")
_OFFSET: Final = struct.Struct("=H")
_KEY: Final = struct.Struct("=Q")
_TAIL: Final = struct.Struct("=QQ")
_META_SIZE: Final = _META.size + 2 * DB.size + _TAIL.size


class Meta(NamedTuple):
    """The content of a meta page.

    `free` and `main` are the records of LMDB's two unnamed databases: the free pages, and the named databases.
    """

    page_size: int
    free: bytes
    main: bytes
    last_page: int
    txn_id: int


def supported() -> bool:
    """Returns True if this module supports the layout of this build of LMDB."""
    return struct.calcsize("P") == 8


def read_meta(path: str, name: str, file: BinaryIO, page: int, page_size: int) -> Meta:
    """Reads one of the two meta pages; raises DataFolderError if it is damaged."""
    where = f"{name}, meta page {page}"
    file.seek(page * page_size)
    data = file.read(PAGE_HEADER_SIZE + _META_SIZE)
    if len(data) < PAGE_HEADER_SIZE + _META_SIZE:
        raise DataFolderError(path, f"the file ends after {page * page_size + len(data)} bytes", where)
    number, _, flags, _, _ = PAGE.unpack_from(data)
    magic, version, _, _ = _META.unpack_from(data, PAGE_HEADER_SIZE)
    if number != page or not flags & P_META or magic != MAGIC:
        raise DataFolderError(path, f"damaged: this is not an LMDB meta page{REMEDY}", where)
    if version != DATA_VERSION:
        raise DataFolderError(path, f"LMDB data version {version} is not supported, only {DATA_VERSION}", where)
    position = PAGE_HEADER_SIZE + _META.size
    free = data[position : position + DB.size]
    main = data[position + DB.size : position + 2 * DB.size]
    last_page, txn_id = _TAIL.unpack_from(data, position + 2 * DB.size)
    meta = Meta(DB.unpack(free)[0], free, main, last_page, txn_id)
    if not 512 <= meta.page_size <= 65536 or meta.page_size & (meta.page_size - 1):
        raise DataFolderError(path, f"damaged: invalid page size {meta.page_size}{REMEDY}", where)
    if last_page >= 1 << 48:
        raise DataFolderError(path, f"damaged: invalid last page number {last_page}{REMEDY}", where)
    for root in (DB.unpack(free)[7], DB.unpack(main)[7]):
        if root != NO_PAGE and not 1 < root <= last_page:
            raise DataFolderError(
                path,
                f"damaged: root page number {root} is not between 2 and the last page number {last_page}{REMEDY}",
                where,
            )
    return meta


def last_free_key(file: BinaryIO, meta: Meta) -> int | None:
    """Returns the number of the transaction that wrote the last entry of the list of free pages.

    Each transaction, except the first one in a file, frees pages and adds an entry with its number. So the number in a
    meta page is correct if it is equal to the result.

    Args:
        file: the data file.
        meta: the meta page that refers to the list.

    Returns:
        The number; None if the list has no entry, or if it is damaged.
    """
    fields = DB.unpack(meta.free)
    depth, page = fields[2], fields[7]
    for level in range(depth, 0, -1):
        if not 1 < page <= meta.last_page:
            return None
        file.seek(page * meta.page_size)
        data = file.read(meta.page_size)
        if len(data) < meta.page_size:
            return None
        number, _, flags, lower, upper = PAGE.unpack_from(data)
        if number != page or flags != (P_LEAF if level == 1 else P_BRANCH):
            return None
        if not PAGE_HEADER_SIZE + 2 <= lower <= upper <= meta.page_size:
            return None
        (at,) = _OFFSET.unpack_from(data, lower - _OFFSET.size)
        if not upper <= at <= meta.page_size - NODE.size - 8:
            return None
        low, high, top, _ = NODE.unpack_from(data, at)
        if level == 1:
            return int(_KEY.unpack_from(data, at + NODE.size)[0])
        page = low | high << 16 | top << 32
    return None


def true_txn_id(file: BinaryIO, meta: Meta) -> int:
    """Returns the number of the transaction that wrote a meta page, also if one bit of the page's number was flipped.

    Args:
        file: the data file.
        meta: the meta page.
    """
    written = last_free_key(file, meta)
    return meta.txn_id if written is None or (written ^ meta.txn_id).bit_count() != 1 else written


def _check_txn_ids(path: str, name: str, file: BinaryIO, newest: Meta, other: Meta) -> None:
    """Checks that the meta page with the highest transaction number belongs to the newest transaction.

    With a damaged number, LMDB would use the state before the last transaction.

    Raises:
        DataFolderError: a transaction number is damaged.
    """
    written = last_free_key(file, newest)
    if written is None and newest.txn_id <= 1:
        return
    if written == newest.txn_id and true_txn_id(file, other) <= newest.txn_id:
        return
    damaged = newest if written != newest.txn_id else other
    raise DataFolderError(
        path, f"damaged: the transaction number {damaged.txn_id} of a meta page is wrong{REMEDY}", name
    )


def check_file(path: str, name: str, max_leaves: int = MAX_LEAVES_AT_OPEN, deep: bool = False, max_ms: int = 0) -> int:
    """Checks that LMDB can use the file `name` in folder `path`, which no process may write during the check.

    Args:
        path: the folder.
        name: the file.
        max_leaves: the maximum number of leaf pages to read; branches and page numbers are always checked.
        deep: True to check also the values that are stored in separate pages.
        max_ms: the time in ms after which no more leaves are read; 0: no limit.

    Returns:
        The number of pages in use; negative if some leaves were not read.

    Raises:
        DataFolderError: the file is damaged.
    """
    if not supported():
        return 0
    with open(os.path.join(path, name), "rb", buffering=0) as file:
        first = read_meta(path, name, file, 0, 4096)
        second = read_meta(path, name, file, 1, first.page_size)
        newest = max(first, second, key=lambda meta: meta.txn_id)
        size = os.fstat(file.fileno()).st_size
        try:
            used = check_trees(
                file.fileno(),
                newest.page_size,
                newest.last_page,
                newest.free,
                newest.main,
                size,
                max_leaves,
                deep,
                max_ms,
            )
        except ValueError as damage:
            raise DataFolderError(path, f"damaged: {damage} (the file has {size} bytes){REMEDY}", name) from None
        _check_txn_ids(path, name, file, newest, second if newest is first else first)
        return used


def check_snapshot(path: str, name: str, txn_id: int) -> bool:
    """Checks the pages that a read transaction sees, while another process may write the file.

    Args:
        path: the folder.
        name: the file.
        txn_id: the transaction's id; the transaction stays open, so that its pages are not reused.

    Returns:
        False if the file's meta pages are newer than the transaction, so that the check must be repeated with a newer
        transaction.

    Raises:
        DataFolderError: the file is damaged.
    """
    if not supported():
        return True
    with open(os.path.join(path, name), "rb", buffering=0) as file:
        first = read_meta(path, name, file, 0, 4096)
        second = read_meta(path, name, file, 1, first.page_size)
        meta = first if first.txn_id == txn_id else second
        if meta.txn_id != txn_id:
            return False
        size = os.fstat(file.fileno()).st_size
        try:
            check_trees(file.fileno(), meta.page_size, meta.last_page, meta.free, meta.main, size, NO_PAGE, True)
        except ValueError as damage:
            raise DataFolderError(path, f"damaged: {damage} (the file has {size} bytes){REMEDY}", name) from None
        _check_txn_ids(path, name, file, meta, second if meta is first else first)
    return True


def check_pages(path: str, name: str) -> int:
    """Checks every page in use, without a limit; returns the number of pages. Raises DataFolderError."""
    return check_file(path, name, NO_PAGE, deep=True)
