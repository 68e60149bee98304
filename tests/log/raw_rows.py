"""Rows of metadata in data folders, read and written without the code under test."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import lmdb
from crc32c import crc32c

FORMAT = b"format"
FORMAT_COPY = b"format_copy"


def with_checksum(key: bytes, value: bytes) -> bytes:
    """Returns a value as a folder of version 8 stores it."""
    return value + struct.pack(">I", crc32c(key + value))


def rows(folder: Path) -> dict[bytes, bytes]:
    """Returns all rows as they are stored."""
    with lmdb.open(str(folder), max_dbs=8, readonly=True) as env, env.begin(db=env.open_db(b"meta")) as txn:
        return {bytes(key): bytes(value) for key, value in txn.cursor()}


def put_stored(folder: Path, key: bytes, stored: bytes | None) -> None:
    """Replaces a stored value; None deletes the row."""
    with lmdb.open(str(folder), max_dbs=8) as env, env.begin(write=True, db=env.open_db(b"meta")) as txn:
        assert txn.delete(key) if stored is None else txn.put(key, stored)


def put_row(folder: Path, key: bytes, value: bytes | None) -> None:
    """Replaces a row; None deletes it. The row has a checksum if the rows of the folder have checksums."""
    checked = FORMAT_COPY in rows(folder) and key != FORMAT and value is not None
    put_stored(folder, key, with_checksum(key, value) if checked and value is not None else value)


def put_version(folder: Path, version: int) -> None:
    """Changes the format version of a folder, and its copy."""
    put_stored(folder, FORMAT, struct.pack(">I", version))
    put_row(folder, FORMAT_COPY, struct.pack(">I", version))


def make_older(folder: Path, version: int) -> None:
    """Changes the rows of a folder of version 8 to those of an older version: they have no checksums."""
    assert version % 500 < 8
    with lmdb.open(str(folder), max_dbs=8) as env, env.begin(write=True, db=env.open_db(b"meta")) as txn:
        remove_checksums(txn)
        txn.put(FORMAT, struct.pack(">I", version))


def remove_checksums(txn: Any) -> None:
    """Removes the checksums of all rows, in a write transaction on the database of metadata."""
    txn.delete(FORMAT_COPY)
    for key, stored in [(bytes(key), bytes(value)) for key, value in txn.cursor()]:
        if key != FORMAT:
            assert with_checksum(key, stored[:-4]) == stored
            txn.put(key, stored[:-4])
