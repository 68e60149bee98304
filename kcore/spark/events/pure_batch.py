"""Reads record batches v2 in pure Python: the equivalent of `kcore_ext.batch` for executors without a build.

The docstring of `kcore_ext.batch` describes the layout. Errors for damaged records use the texts of
`kcore_ext.batch.records`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from kcore.protocol.batch_layout import (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    CODEC_BITS,
    CONTROL_BIT,
    COUNT_AT,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from kcore.spark.events.event import CREATE_TIME, LOG_APPEND_TIME, EventRow, Headers

HIGHEST_CODEC: Final = 4
MAX_SEQUENCE: Final = 2**31 - 1
SMALLEST_RECORD: Final = 7  # seven fields of one byte each
MAX_DECOMPRESSED_BYTES: Final = 64 << 20

_CASTAGNOLI: Final = 0x82F63B78


class MalformedError(ValueError):
    """The error for records that are damaged or cannot be decompressed.

    Args:
        position: the number of bytes from the start of the batch, or of its decompressed records.
        reason: a text that describes the damage.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"corrupt record batch at byte {position}: {reason}")


def crc_is_right(batch: Any) -> bool:
    """Returns True if the CRC-32C of a whole batch is correct."""
    return _crc32c(bytes(batch[CHECKED_FROM:])) == int.from_bytes(batch[CRC_AT:CHECKED_FROM], "big")


def _crc32c(data: bytes) -> int:
    try:
        from crc32c import crc32c  # noqa: PLC0415
    except ImportError:
        return slow_crc32c(data)
    return int(crc32c(data))


def slow_crc32c(data: bytes) -> int:
    """Computes CRC-32C byte by byte, at about ten megabytes per second.

    It is used if the package crc32c is not installed.
    """
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    entries = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (_CASTAGNOLI if entry & 1 else 0)  # noqa: PLW2901
        entries.append(entry)
    return tuple(entries)


def rows(topic: str, partition: int, batch: Any) -> Iterator[EventRow]:
    """Yields the rows of one whole batch.

    Raises:
        MalformedError: the records of the batch are damaged; the rows before the damage were yielded.
    """
    fields = HEADER.unpack_from(batch, 0)
    base, attributes, last_delta = fields[0], fields[5], fields[6]
    base_ms, max_ms, producer_id, epoch, first, count = fields[7:13]
    kind = LOG_APPEND_TIME if attributes & LOG_APPEND_TIME_BIT else CREATE_TIME
    flags = bool(attributes & TRANSACTIONAL_BIT), bool(attributes & CONTROL_BIT)
    # sequence numbers wrap from 2147483647 to 0
    last_sequence = -1 if first < 0 else (first + last_delta) & MAX_SEQUENCE
    if not count:
        common = (None, None, topic, partition, base + last_delta, max_ms, kind, ())
        yield EventRow(*common, producer_id, epoch, last_sequence, *flags, True)
        return
    data, start = _records(batch, attributes & CODEC_BITS)
    if count < 0 or count > len(data) // SMALLEST_RECORD:
        raise MalformedError(COUNT_AT, f"{count} records do not fit in {len(data)} bytes")
    at = 0
    for _ in range(count):
        try:
            delta_ms, delta, key, value, headers, at = _record(data, at)
        except _BrokenError as error:
            raise MalformedError(start + at, str(error)) from None
        timestamp_ms = max_ms if kind == LOG_APPEND_TIME else _int64(base_ms + delta_ms)
        what = (key, value, topic, partition, _int64(base + delta), timestamp_ms, kind, headers)
        yield EventRow(*what, producer_id, epoch, last_sequence, *flags, False)
    if at != len(data):
        raise MalformedError(start + at, "bytes after the last record")


def _records(batch: Any, codec: int) -> tuple[bytes, int]:
    """Returns the decompressed records, and the position of their first byte in error messages.

    For uncompressed records, error messages count bytes from the start of the batch. For compressed records, they count
    from the start of the decompressed bytes, so this position is 0.
    """
    packed = bytes(batch[HEADER_BYTES:])
    if not codec:
        return packed, HEADER_BYTES
    if codec > HIGHEST_CODEC:
        raise MalformedError(ATTRIBUTES_AT, f"compression codec {codec} is unknown: only 0 to 4 exist")
    from kcore.protocol.compression import CompressionError, decompress  # noqa: PLC0415  # needs cramjam

    try:
        return decompress(codec, packed, MAX_DECOMPRESSED_BYTES), 0
    except CompressionError as error:
        raise MalformedError(HEADER_BYTES, f"codec {codec}: {error}") from error


class _BrokenError(ValueError):
    """The error for a damaged record; the message describes the fault."""


def _record(data: bytes, at: int) -> tuple[int, int, bytes | None, bytes | None, Headers, int]:
    """Reads the record at `at`: timestamp delta, offset delta, key, value, headers, and the end of the record."""
    size, at = _varint(data, at, len(data), "the length of a record is cut short or too long")
    if size < 0 or size > len(data) - at:
        raise _BrokenError("a record is longer than what is left of the batch")
    end = at + size
    if size == 0:
        raise _BrokenError("a record without attributes")
    delta_ms, at = _unsigned(data, at + 1, end, 10, "a timestamp delta is cut short or too long")
    delta_ms = _int64((delta_ms & 0xFFFFFFFFFFFFFFFF) >> 1 ^ -(delta_ms & 1))
    delta, at = _varint(data, at, end, "an offset delta is cut short or too long")
    key, at = _field(data, at, end, "a key does not fit in its record")
    value, at = _field(data, at, end, "a value does not fit in its record")
    wrong = "a header count is negative or does not fit in its record"
    count, at = _varint(data, at, end, wrong)
    if count < 0 or count > end - at:
        raise _BrokenError(wrong)
    headers: Headers = ()
    if count:
        headers, at = _headers(data, at, end, count)
    if at != end:
        raise _BrokenError("a record has bytes after its headers")
    return delta_ms, delta, key, value, headers, end


def _headers(data: bytes, at: int, end: int, count: int) -> tuple[Headers, int]:
    headers = []
    wrong = "the key of a header is null or does not fit in its record"
    for _ in range(count):
        name, at = _field(data, at, end, wrong)
        if name is None:
            raise _BrokenError(wrong)
        value, at = _field(data, at, end, "the value of a header does not fit in its record")
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), at


def _field(data: bytes, at: int, end: int, wrong: str) -> tuple[bytes | None, int]:
    """Reads a length and as many bytes. The length -1 stands for null."""
    size, at = _varint(data, at, end, wrong)
    if size < -1 or size > end - at:
        raise _BrokenError(wrong)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _varint(data: bytes, at: int, end: int, wrong: str) -> tuple[int, int]:
    """Reads a 32-bit zig-zag varint of at most five bytes. Bits above the 32nd are dropped, as in Kafka."""
    if at < end and data[at] < 0x80:
        raw, at = data[at], at + 1
    else:
        raw, at = _unsigned(data, at, end, 5, wrong)
        raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), at


def _unsigned(data: bytes, at: int, end: int, longest: int, wrong: str) -> tuple[int, int]:
    raw = 0
    for index in range(min(longest, end - at)):
        byte = data[at + index]
        raw |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return raw, at + index + 1
    raise _BrokenError(wrong)


def _int64(number: int) -> int:
    """Wraps a number to 64 bits, as Kafka does."""
    return (number + (1 << 63) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)
