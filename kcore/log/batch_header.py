"""The fields of a record batch v2 header that the log reads, at their fixed positions.

The fields and their positions: 0 base offset (int64), 8 length of the remaining batch (int32), 12 leader epoch (int32),
16 magic (int8), 17 CRC-32C of all bytes from 21 on (uint32), 23 last offset delta (int32), 35 largest timestamp
(int64), 57 number of records (int32).
"""

from __future__ import annotations

import struct

from kcore_ext.batch.crc32c import crc32c

HEADER_SIZE = 61
"""Size of a batch header, and so the minimum size of a batch."""
LENGTH_OVERHEAD = 12
"""Number of bytes at the start of a batch that its length field does not count."""
MAGIC = 2

_CHECKED = struct.Struct(">8xiibIhi")
_LAST = struct.Struct(">q15xi")
_LAST_AND_TIMESTAMP = struct.Struct(">q15xi8xq14xi")
_EPOCH = struct.Struct(">i")
_SOUND = struct.Struct(">qi4xbI2xi")

unpack_checked = _CHECKED.unpack_from
"""Reads (batch_length, leader_epoch, magic, crc, attributes, last_offset_delta) at a position in a buffer."""


def last_offset(batch: bytes | memoryview) -> int:
    """Returns the offset of the batch's last record."""
    base, delta = _LAST.unpack_from(batch)
    return int(base) + int(delta)


def offsets_and_timestamp(batch: bytes | memoryview) -> tuple[int, int, int]:
    """Returns base offset, last offset and largest timestamp (milliseconds; -1 for a batch without records)."""
    base, delta, timestamp_ms, count = _LAST_AND_TIMESTAMP.unpack_from(batch)
    return base, base + delta, timestamp_ms if count else -1


def leader_epoch(batch: bytes | memoryview) -> int:
    """Returns the leader epoch in the batch."""
    return int(_EPOCH.unpack_from(batch, 12)[0])


def end_of_sound(batch: bytes | memoryview, base_offset: int, *, check_crc: bool) -> int:
    """Returns the offset after a stored batch that should begin at `base_offset`, or -1 if the batch is damaged.

    Makes the same checks as `damage`, but in less time, because a load calls this function for every batch.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        return -1
    base, length, magic, crc, delta = _SOUND.unpack_from(batch)
    if base != base_offset or length != size - LENGTH_OVERHEAD or magic != MAGIC or delta < 0:
        return -1
    if check_crc and crc32c(memoryview(batch)[21:]) != crc:
        return -1
    return int(base + delta + 1)


def damage(batch: bytes | memoryview, base_offset: int, check_crc: bool) -> tuple[str, str] | None:
    """Returns the damage of a stored batch that should begin at `base_offset`, as (kind, detail); None for a sound
    batch.

    Kinds: `header` (size, magic, base offset, offset delta), `crc`.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        return "header", f"{size} bytes are too few for a batch"
    length, _, magic, crc, _, delta = unpack_checked(batch)
    if magic != MAGIC:
        return "header", f"magic {magic} instead of 2"
    if length != size - LENGTH_OVERHEAD:
        return "header", f"the length field is {length}, but the batch has {size} bytes"
    stored_base = _LAST.unpack_from(batch)[0]
    if stored_base != base_offset:
        return "header", f"the header has base offset {stored_base}"
    if delta < 0:
        return "header", f"invalid last offset delta {delta}"
    if check_crc:
        computed = crc32c(memoryview(batch)[21:])
        if computed != crc:
            return "crc", f"the header has CRC {crc:#010x}, but the CRC of the data is {computed:#010x}"
    return None
