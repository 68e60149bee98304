"""Access to the rows of metadata, whose values have checksums in LMDB (`kcore.log.row_checksum`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kcore.log.errors import DataFolderError, FailureReason, LogError
from kcore.log.lmdb_layout import (
    FORMAT_COPY_KEY,
    FORMAT_KEY,
    FORMAT_VERSION,
    SHARED_VERSIONS,
    U32,
    FormatError,
    is_meta_key,
    refuse_newer,
    require_put,
    row_name,
    version_has_checksums,
)
from kcore.log.lmdb_pages import REMEDY
from kcore.log.row_checksum import checked_value, has_checksum, with_checksum


class DamagedRowError(LogError):
    """The error for a row whose checksum is wrong.

    Attributes:
        row: the name of the row.
    """

    def __init__(self, row: str) -> None:
        super().__init__(
            f"{row}: its checksum in data.mdb is wrong; stop kcore, and run `kcore log repair`", FailureReason.CORRUPT
        )
        self.row = row


def value_of(key: bytes, stored: Any) -> bytes:
    """Returns the value of a row of metadata without its checksum.

    Args:
        key: the key of the row.
        stored: the value as LMDB stores it; bytes or a memoryview.

    Raises:
        DamagedRowError: the checksum is wrong.
    """
    value = checked_value(key, stored)
    if value is None:
        raise DamagedRowError(row_name(key))
    return value


def get_row(txn: Any, database: Any, key: bytes) -> bytes | None:
    """Returns the value of a row; None if there is no such row. Raises DamagedRowError if its checksum is wrong."""
    stored = txn.get(key, db=database)
    return None if stored is None else value_of(key, stored)


def get_row_of_any_version(txn: Any, meta: Any, key: bytes) -> bytes | None:
    """Returns the value of a row of metadata in a folder that may have an older format version; None if there is none.

    Raises:
        DamagedRowError: the checksum of the row is wrong.
        FormatError: the format version is damaged or newer.
        struct.error: the format version has the wrong size.
    """
    stored = txn.get(key, db=meta)
    if stored is None:
        return None
    return value_of(key, stored) if version_has_checksums(read_version(txn, meta) or FORMAT_VERSION) else bytes(stored)


def put_row(txn: Any, database: Any, key: bytes, value: bytes) -> None:
    """Writes a row with its checksum. Raises LogError if LMDB refuses to replace a value."""
    require_put(txn.put(key, with_checksum(key, value), db=database))


def read_version(txn: Any, meta: Any) -> int | None:
    """Returns the format version of a folder; None if the row is missing.

    Args:
        txn: a transaction.
        meta: the database of metadata.

    Raises:
        FormatError: the version is newer than this code supports, or the version and its copy differ.
        struct.error: the version has the wrong size.
    """
    stored = txn.get(FORMAT_KEY, db=meta)
    if stored is None:
        return None
    version = int(U32.unpack(stored)[0])
    copy = txn.get(FORMAT_COPY_KEY, db=meta)
    if copy is None:
        if version not in SHARED_VERSIONS:
            refuse_newer(version)
        if version_has_checksums(version):
            raise FormatError(f"damaged: the copy of the format version is missing{REMEDY}")
        return version
    if checked_value(FORMAT_COPY_KEY, copy) != stored:
        raise FormatError(f"damaged: the format version {version} differs from its copy{REMEDY}")
    if version not in SHARED_VERSIONS:
        refuse_newer(version)
    return version


def damaged_rows(txn: Any, meta: Any) -> Iterator[tuple[bytes, str]]:
    """Finds the rows of metadata that are damaged, or that no version of kcore writes.

    Args:
        txn: a transaction.
        meta: the database of metadata.

    Yields:
        The key of such a row, and a description of the damage, in order of the keys.
    """
    for name, stored in txn.cursor(meta).iternext():
        key = bytes(name)
        if not is_meta_key(key):
            yield key, "the key is unknown"
        elif key != FORMAT_KEY and not has_checksum(key, stored):
            yield key, "the checksum of its metadata is wrong"


def require_sound_rows(txn: Any, meta: Any, path: str) -> None:
    """Checks all rows of metadata.

    Args:
        txn: a transaction.
        meta: the database of metadata.
        path: the folder, for the error.

    Raises:
        DataFolderError: a row is damaged.
    """
    found = next(damaged_rows(txn, meta), None)
    if found is not None:
        raise DataFolderError(path, f"damaged: {found[1]}{REMEDY}", row_name(found[0]))
