"""Record batches v2 in plain Python: the twin of `kcore_ext.batch`, for executors that have no build of it.

The layout is in the docstring of `kcore_ext.batch`. Only reading is here, and only what a reader of logs needs.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from typing import Any

from kcore.spark.event import CREATE_TIME, LOG_APPEND_TIME, EventRow

MAGIC = 2
HEADER_BYTES = 61
CODECS = 0x07
LOG_APPEND = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
MAX_SEQUENCE = 2**31 - 1

_HEADER = struct.Struct(">qiibIhiqqqhii")


class MalformedError(ValueError):
    """The records of a batch are damaged, or compressed in a way that cannot be undone here."""


def crc_is_right(batch: Any) -> bool:
    """Whether the CRC-32C of a whole batch is right. True where there is no CRC-32C to compute it with."""
    try:
        from crc32c import crc32c  # noqa: PLC0415
    except ImportError:
        return True
    return bool(crc32c(bytes(batch[21:])) == int.from_bytes(batch[17:21], "big"))


def rows(topic: str, partition: int, batch: Any) -> Iterator[EventRow]:
    """The rows of one whole batch.

    Raises:
        MalformedError: its records are damaged; those before the damage were given.
    """
    fields = _HEADER.unpack_from(batch, 0)
    base, attributes, last_delta = fields[0], fields[5], fields[6]
    base_ms, max_ms, producer_id, epoch, first, count = fields[7:13]
    kind = LOG_APPEND_TIME if attributes & LOG_APPEND else CREATE_TIME
    facts = bool(attributes & TRANSACTIONAL), bool(attributes & CONTROL)
    last_sequence = -1 if first < 0 else (first + last_delta) & MAX_SEQUENCE  # they wrap from 2147483647 to 0
    if not count:
        where = (None, None, topic, partition, base + last_delta, max_ms, kind, ())
        yield EventRow(*where, producer_id, epoch, last_sequence, *facts, True)
        return
    data = _decompressed(attributes & CODECS, bytes(batch[HEADER_BYTES:]))
    position = 0
    for _ in range(count):
        size, position = _varint(data, position)
        end = position + size
        if size < 7 or end > len(data):
            raise MalformedError(f"a record at {position} has {size} bytes, {len(data) - position} are left")
        delta_ms, position = _varint(data, position + 1)
        delta, position = _varint(data, position)
        key, position = _field(data, position, end)
        value, position = _field(data, position, end)
        headers, position = _headers(data, position, end)
        if position != end:
            raise MalformedError(f"a record ends at {position}, not at {end}")
        timestamp_ms = max_ms if kind == LOG_APPEND_TIME else base_ms + delta_ms
        what = (key, value, topic, partition, base + delta, timestamp_ms, kind, headers)
        yield EventRow(*what, producer_id, epoch, last_sequence, *facts, False)


def _headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _varint(data, position)
    found = []
    for _ in range(count):
        name, position = _field(data, position, end)
        value, position = _field(data, position, end)
        if name is None:
            raise MalformedError("a header without a name")
        try:
            found.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise MalformedError(f"a header's name is no text: {error}") from error
    return tuple(found), position


def _field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size < -1 or size > end - position:
        raise MalformedError(f"a field of {size} bytes at {position}, {end - position} are left")
    return (None, position) if size < 0 else (data[position : position + size], position + size)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise MalformedError(f"a number at {position} is cut short or too long")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def _decompressed(codec: int, data: bytes) -> bytes:
    if not codec:
        return data
    try:
        if codec == 1:
            return gzip.decompress(data)
        from kcore.protocol.compression import decompress  # noqa: PLC0415  # needs no extension, but cramjam

        return decompress(codec, memoryview(data), 64 << 20)
    except Exception as error:  # whatever a codec raises: the bytes are no block of it
        raise MalformedError(f"codec {codec}: {error}") from error
