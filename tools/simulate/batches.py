"""A decoder of record batches for the checkers, independent of the engine's decoder."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

_HEAD = struct.Struct(">qiibIhiqqqhii")
HEAD_BYTES = _HEAD.size
TRANSACTIONAL = 0x10
CONTROL = 0x20
COMMIT_MARKER = 1


class LogRecord(NamedTuple):
    """A record in the log.

    Attributes:
        offset: the record's position in the partition.
        key: the key's bytes, or None.
        value: the value's bytes, or None.
        producer_id: the producer id of the batch; -1 if it has none.
        epoch: the producer epoch of the batch.
        transactional: True for records of transactions and for markers.
        control: True for markers.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    epoch: int
    transactional: bool
    control: bool

    @property
    def commits(self) -> bool:
        """True for the marker of a commit."""
        return self.control and self.key is not None and struct.unpack_from(">h", self.key, 2)[0] == COMMIT_MARKER


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _field(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    return data[at : at + size], at + size


def decode(data: bytes) -> Iterator[LogRecord]:
    """Yields the records of uncompressed batches of format 2. Ignores an incomplete last batch."""
    start = 0
    while start + HEAD_BYTES <= len(data):
        base, size, _, magic, _, flags, _, _, _, producer_id, epoch, _, count = _HEAD.unpack_from(data, start)
        end = start + 12 + size
        if end > len(data):
            return
        assert magic == 2, f"magic {magic}"
        assert not flags & 7, "the simulation's records are not compressed"
        at = start + HEAD_BYTES
        for _ in range(count):
            length, at = _varint(data, at)
            after = at + length
            at += 1
            _, at = _varint(data, at)
            delta, at = _varint(data, at)
            key, at = _field(data, at)
            value, at = _field(data, at)
            yield LogRecord(
                base + delta, key, value, producer_id, epoch, bool(flags & TRANSACTIONAL), bool(flags & CONTROL)
            )
            at = after
        start = end


def last_offset(data: bytes) -> int:
    """Returns the last offset of the last complete batch, or -1."""
    start, last = 0, -1
    while start + HEAD_BYTES <= len(data):
        head = _HEAD.unpack_from(data, start)
        if start + 12 + head[1] > len(data):
            break
        last = head[0] + head[6]
        start += 12 + head[1]
    return last


def visible_records(row: Any, offset: int, committed: bool) -> tuple[list[tuple[int, bytes | None]], int]:
    """Returns the records of a fetched partition that a consumer sees, and the next offset to fetch.

    With `committed`, records of the transactions that the response lists as aborted are left out.
    """
    data = bytes(row.records or b"")
    aborted = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
    open_ids: set[int] = set()
    records: list[tuple[int, bytes | None]] = []
    for record in decode(data):
        if committed:
            while aborted and aborted[0][0] <= record.offset:
                open_ids.add(aborted.pop(0)[1])
        if record.control:
            if not record.commits:
                open_ids.discard(record.producer_id)
            continue
        if record.offset >= offset and not (record.transactional and record.producer_id in open_ids):
            records.append((record.offset, record.value))
    return records, max(offset, last_offset(data) + 1)
