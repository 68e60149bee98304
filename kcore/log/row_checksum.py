"""Checksums of the rows in the databases `meta` and `cluster` of a data folder.

LMDB has no checksums. From format version 8 on, the value of a row ends with the CRC-32C (u32, big-endian) of the key
and of the value before the checksum. So a flipped bit in a key or a value is always detected.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from kcore_ext.batch.crc32c import crc32c

CHECKSUM: Final = struct.Struct(">I")
MAX_CORRECTED_BYTES: Final = 2048
"""Maximum size of a row that `correct_row` examines. Larger values are not in the same page as their keys."""
_SIZE: Final = CHECKSUM.size
_pack = CHECKSUM.pack
_unpack_from = CHECKSUM.unpack_from


def with_checksum(key: bytes, value: bytes) -> bytes:
    """Returns a value as LMDB stores it: with the checksum of the row at its end."""
    return value + _pack(crc32c(value, crc32c(key)))


def checked_value(key: bytes, stored: Any) -> bytes | None:
    """Returns a stored value without its checksum; None if the checksum is wrong.

    Args:
        key: the key of the row.
        stored: the value as LMDB stores it; bytes or a memoryview.
    """
    end = len(stored) - _SIZE
    if end < 0:
        return None
    value = bytes(stored[:end])
    return value if _unpack_from(stored, end)[0] == crc32c(value, crc32c(key)) else None


def has_checksum(key: bytes, stored: Any) -> bool:
    """Returns True if a stored value ends with the checksum of its row. The arguments are those of `checked_value`."""
    return checked_value(key, stored) is not None


def without_checksum(stored: bytes) -> bytes:
    """Returns a stored value without its last four bytes, whether or not they are the checksum of the row."""
    return stored[:-_SIZE]


def correct_row(key: bytes, stored: bytes) -> tuple[bytes, bytes] | None:
    """Corrects a row in which one bit was flipped.

    Any two rows of at most 655 bytes with correct checksums differ in at least six bits, and longer rows differ in at
    least four bits (Koopman, "32-Bit Cyclic Redundancy Codes for Internet Applications", 2002). So only one row differs
    from the damaged row in one bit.

    Args:
        key: the key of the row, which may be damaged.
        stored: the value as LMDB stores it. It has too many bytes if its stored size was damaged.

    Returns:
        The key, and the value without its checksum; None if the row cannot be corrected.
    """
    size = len(key)
    if size + len(stored) > MAX_CORRECTED_BYTES:
        return None
    for end in range(_SIZE, len(stored)):
        if (value := checked_value(key, stored[:end])) is not None:
            return key, value
    for row in _with_one_flipped_bit(key + stored):
        if (value := checked_value(row[:size], row[size:])) is not None:
            return row[:size], value
    return None


def _with_one_flipped_bit(row: bytes) -> Iterator[bytes]:
    for at, byte in enumerate(row):
        for bit in range(8):
            yield row[:at] + bytes([byte ^ 1 << bit]) + row[at + 1 :]
