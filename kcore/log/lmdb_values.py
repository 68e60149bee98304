"""The values of the log's database, each with one or more consecutive batches of a partition.

A move of the journal stores small batches together, because each value costs a call of LMDB. All other writers store
one batch for each value. Compaction and retention treat batches and values as follows: compaction splits the values
that it changes, and retention deletes only whole values.
"""

from __future__ import annotations

from typing import Any

from kcore.log.batch_header import end_of_sound
from kcore.log.errors import FailureReason, LogError
from kcore.log.lmdb_layout import LOG_DB, LOG_KEY, U32, require_put
from kcore_ext.batch.run import spans
from kcore_ext.log.journal import MAX_VALUE_BYTES

_pack_log_key = LOG_KEY.pack


def key_at(cursor: Any) -> tuple[int, int]:
    """Returns the partition number and the base offset in the key at a cursor.

    Raises:
        LogError: the key is damaged: it has a wrong size.
    """
    key = bytes(cursor.key())
    if len(key) != LOG_KEY.size:
        raise LogError(wrong_key(LOG_DB, key), FailureReason.CORRUPT)
    number, base = LOG_KEY.unpack(key)
    return number, base


def wrong_key(database: bytes, key: bytes) -> str:
    """Returns the description of a key of a wrong size."""
    return f"database {database.decode()} has a key of {len(key)} bytes: {key.hex()}"


def seek(cursor: Any, number: int, offset: int) -> bool:
    """Moves a cursor to the value of a partition that contains an offset, or else to the first later value.

    Args:
        cursor: a cursor of the log's database.
        number: the partition's number.
        offset: the offset to find.

    Returns:
        False if there is no such value. If True, the value may belong to a partition with a higher number.

    Raises:
        LogError: a key has a wrong size.
    """
    start = _pack_log_key(number, offset)
    if cursor.set_range(start):
        if bytes(cursor.key()) == start:
            return True
        if not cursor.prev():
            return bool(cursor.set_range(start))
    elif not cursor.last():
        return False
    if bytes(cursor.key()[:4]) == start[:4] and _may_contain(key_at(cursor)[1], cursor.value(), offset):
        return True
    return bool(cursor.next())


def seek_containing(cursor: Any, number: int, offset: int) -> int | None:
    """Moves a cursor to the value that may contain an offset, as `seek` does. Returns the base offset in the value's
    key; None if there is no such value.

    Raises:
        LogError: a key has a wrong size.
    """
    if not seek(cursor, number, offset):
        return None
    owner, base = key_at(cursor)
    return base if owner == number and base <= offset else None


def find_batch(cursor: Any, number: int, base: int) -> bytes | None:
    """Returns the batch with a base offset, and moves the cursor to its value; None if there is no such batch."""
    first = seek_containing(cursor, number, base)
    if first is None:
        return None
    value = cursor.value()
    for found, start, stop in spans(first, value):
        if found == base:
            return bytes(value[start:stop])
    return None


def is_stored(cursor: Any, number: int, offset: int) -> bool:
    """Returns True if the partition has a value that begins below an offset and contains the offset.

    `contains` describes the exceptions. Moves the cursor.
    """
    found = cursor.prev() if cursor.set_range(_pack_log_key(number, offset)) else cursor.last()
    return bool(found) and contains(cursor, number, offset)


def contains(cursor: Any, number: int, offset: int) -> bool:
    """Returns True if the value at a cursor belongs to a partition, and its batches end after an offset.

    A damaged value contains no offset: reads report it, and new batches can be written nevertheless. A value that is
    too large for several batches is not examined.
    """
    key = cursor.key()
    if len(key) != LOG_KEY.size or key[:4] != U32.pack(number):
        return False
    value = cursor.value()
    if len(value) > MAX_VALUE_BYTES:
        return False
    base, batch = last_batch(LOG_KEY.unpack(key)[1], value)
    return end_of_sound(batch, base, check_crc=True) > offset


def last_batch(base: int, value: Any) -> tuple[int, Any]:
    """Returns the base offset and the bytes of the last batch of a value.

    Args:
        base: the base offset in the key of the value.
        value: bytes or a memoryview.
    """
    if not len(value):
        return base, value
    found, start, stop = spans(base, value)[-1]
    return found, value[start:stop]


def _may_contain(base: int, value: Any, offset: int) -> bool:
    """Returns True if the last batch of a value ends after an offset, or if it is damaged, so that its end is unknown.

    Args:
        base: the base offset in the key of the value, at most `offset`.
        value: a memoryview.
        offset: the offset to find.
    """
    last, batch = last_batch(base, value)
    end = end_of_sound(batch, last, check_crc=False)
    return end < 0 or end > offset


def split(cursor: Any) -> bool:
    """Replaces the value at a cursor with one value for each batch, in a write transaction.

    Returns:
        False if the value has one batch, and nothing was replaced. If True, the cursor is at one of the new values.

    Raises:
        LogError: LMDB refused a value.
    """
    number, first = key_at(cursor)
    found = spans(first, cursor.value())
    if len(found) == 1:
        return False
    value = bytes(cursor.value())
    for base, start, stop in found:
        require_put(cursor.put(_pack_log_key(number, base), value[start:stop]))
    return True
