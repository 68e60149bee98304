"""The fields of a record batch v2 header that the log reads; `kcore.protocol.batch_layout` has their positions."""

from __future__ import annotations

from kcore.protocol.batch_layout import CHECKED_FROM, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, header_struct
from kcore_ext.batch.crc32c import crc32c

_CHECKED = header_struct("length", "leader_epoch", "magic", "crc", "attributes", "last_delta")
_BASE = header_struct("base_offset")
_LAST = header_struct("base_offset", "last_delta")
_LAST_AND_TIMESTAMP = header_struct("base_offset", "last_delta", "max_timestamp", "count")
_EPOCH = header_struct("leader_epoch")
_SOUND = header_struct("base_offset", "length", "magic", "crc", "last_delta")

unpack_checked = _CHECKED.unpack_from
"""Reads (batch_length, leader_epoch, magic, crc, attributes, last_offset_delta) at a position in a buffer."""


def base_offset(batch: bytes | memoryview) -> int:
    """Returns the offset of the batch's first record; compaction may have removed the record."""
    return int(_BASE.unpack_from(batch)[0])


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
    return int(_EPOCH.unpack_from(batch)[0])


def end_of_sound(batch: bytes | memoryview, base_offset: int, *, check_crc: bool) -> int:
    """Returns the offset after a stored batch that should begin at `base_offset`, or -1 if the batch is damaged.

    Makes the same checks as `damage`, but in less time, because a load calls this function for every batch.
    """
    size = len(batch)
    if size < HEADER_BYTES:
        return -1
    base, length, magic, crc, delta = _SOUND.unpack_from(batch)
    if base != base_offset or length != size - LENGTH_OVERHEAD or magic != MAGIC or delta < 0:
        return -1
    if check_crc and crc32c(memoryview(batch)[CHECKED_FROM:]) != crc:
        return -1
    return int(base + delta + 1)


def damage(batch: bytes | memoryview, base_offset: int, check_crc: bool) -> tuple[str, str] | None:
    """Returns the damage of a stored batch that should begin at `base_offset`, as (kind, detail); None for a sound
    batch.

    Kinds: `header` (size, magic, base offset, offset delta), `crc`.
    """
    size = len(batch)
    if size < HEADER_BYTES:
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
        computed = crc32c(memoryview(batch)[CHECKED_FROM:])
        if computed != crc:
            return "crc", f"the header has CRC {crc:#010x}, but the CRC of the data is {computed:#010x}"
    return None
