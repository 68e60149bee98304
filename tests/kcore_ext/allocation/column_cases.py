"""Columns of the Spark readers while allocations fail: after a failure, the columns contain only complete rows."""

from __future__ import annotations

import struct
from typing import Any

from kcore.protocol.records import key_classes
from kcore.protocol.records.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from kcore_ext.batch import BatchBuilder
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata
from kcore_ext.spark.column_store import Input
from kcore_ext.spark.event_columns import EventColumns
from kcore_ext.spark.offset_columns import OffsetColumns, OffsetRecords
from kcore_ext.spark.record_columns import RecordColumns
from tests.kcore_ext.allocation.sweep import Attempt

ROWS = 150


def _bytes_of(finished: Any) -> Any:
    """Returns a copy of the buffers of a finished column, which can be compared."""
    length, nulls, buffers, children = finished
    return length, nulls, [None if one is None else bytes(one) for one in buffers], [_bytes_of(one) for one in children]


def _column(values: list[bytes]) -> Input:
    offsets, at = [0], 0
    for value in values:
        at += len(value)
        offsets.append(at)
    return Input(None, struct.pack(f"={len(offsets)}i", *offsets), b"".join(values), 0)


def event_columns() -> Attempt:
    """Appends events of a batch with headers and non-ASCII text, then takes the columns."""
    builder = BatchBuilder(1 << 20, base_timestamp_ms=5)
    for n in range(ROWS):
        assert builder.append(5, b"key", b"v" * 30, (("näme", b"x"),) if n % 3 else ())
    batch = builder.build()
    columns = EventColumns()
    taken: list[Any] = []

    def fill() -> None:
        columns.append(batch, 0, 0, 1 << 40, None)

    def action() -> None:
        fill()
        taken.append(columns.take())

    def check(succeeded: bool) -> None:
        rows = len(columns)
        lengths = {column[0] for column in columns.take()}
        assert lengths == {rows}
        fresh = EventColumns()
        fresh.append(batch, 0, 0, 1 << 40, None)
        expected = [_bytes_of(column) for column in fresh.take()]
        assert [[_bytes_of(column) for column in one] for one in taken] == [expected] * succeeded
        fill()
        assert [_bytes_of(column) for column in columns.take()] == expected

    return Attempt(action, check)


def offset_columns() -> Attempt:
    """Appends committed offsets as rows. An incomplete row must be removed."""
    columns = OffsetColumns(3)
    offsets = [OffsetAndMetadata(n, n, 1, "meta", 5, -1, bytes([1]) * 16) for n in range(ROWS)]

    def action() -> None:
        for n, offset in enumerate(offsets):
            columns.add("group", "topic", n, offset, -1 if n % 2 else 7)

    def check(succeeded: bool) -> None:
        rows = len(columns)
        assert rows == ROWS if succeeded else rows < ROWS
        for n in range(rows, ROWS):
            columns.add("group", "topic", n, offsets[n], -1 if n % 2 else 7)
        fresh = OffsetColumns(3)
        for n, offset in enumerate(offsets):
            fresh.add("group", "topic", n, offset, -1 if n % 2 else 7)
        assert [_bytes_of(column) for column in columns.take()] == [_bytes_of(column) for column in fresh.take()]

    return Attempt(action, check)


def offset_columns_of_a_topic() -> Attempt:
    """Appends all committed offsets of a topic as rows. The rows of a failed call must be removed."""
    columns = OffsetColumns(3)
    offsets = {n: OffsetAndMetadata(n, n, 1, "meta", 5, -1, bytes([1]) * 16) for n in range(ROWS)}

    def action() -> None:
        columns.add_all("group", "topic", offsets)

    def check(succeeded: bool) -> None:
        assert len(columns) == (ROWS if succeeded else 0)
        if not succeeded:
            columns.add_all("group", "topic", offsets)
        fresh = OffsetColumns(3)
        for n, offset in offsets.items():
            fresh.add("group", "topic", n, offset)
        assert [_bytes_of(column) for column in columns.take()] == [_bytes_of(column) for column in fresh.take()]

    return Attempt(action, check)


def offset_records() -> Attempt:
    """Appends the records of committed offsets. The records of a failed call must be removed."""
    records = OffsetRecords()
    offsets = {n: OffsetAndMetadata(n, n, 1, "meta", 5, 9 if n % 2 else -1, bytes([1]) * 16) for n in range(ROWS)}

    def action() -> None:
        records.add_all("group", "topic", offsets)

    def check(succeeded: bool) -> None:
        assert len(records) == (ROWS if succeeded else 0)
        if not succeeded:
            records.add_all("group", "topic", offsets)
        key, value, offset, timestamp = (_bytes_of(column) for column in records.take())
        assert key[2][2] == b"".join(CommitKey("group", "topic", n).encode_key() for n in offsets)
        assert value[2][2] == b"".join(one.encode_value(1 if n % 2 else 4) for n, one in offsets.items())
        assert offset[2][1] == struct.pack(f"={ROWS}q", *offsets)
        assert timestamp[2][1] == struct.pack("=q", 5) * ROWS

    return Attempt(action, check)


def record_columns() -> Attempt:
    """Decodes records into one column per field. After a failed call, the next batch begins with empty columns."""
    name = "transaction_log"
    classes = key_classes("__transaction_state")
    topics = {"__transaction_state": [(number, name, cls, cls.VALUE) for number, cls in classes.items()]}
    value = TransactionLogValue(
        producer_id=7,
        transaction_partitions=[PartitionsSchema(topic="topic", partition_ids=list(range(40))) for _ in range(3)],
    )
    keys = _column([TransactionLogKey(transactional_id=f"id-{n}").encode_key() for n in range(ROWS)])
    values = _column([b"\0\0" + value.encode(0) if n % 5 else b"\0\0cut" for n in range(ROWS)])
    names = _column([b"__transaction_state"] * ROWS)
    columns = RecordColumns(topics, frozenset([name]))

    def read(some: Any) -> Any:
        odd = some.read(ROWS, names, keys, values, None, None)
        return odd, [_bytes_of(one) for one in some.take_heads()], _bytes_of(some.take(name))

    taken: list[Any] = []

    def action() -> None:
        taken.append(read(columns))

    def check(succeeded: bool) -> None:
        expected = read(RecordColumns(topics, frozenset([name])))
        assert taken == [expected] * succeeded
        if columns.take(name) is not None:
            columns.take_heads()
        assert read(columns) == expected, "the next call returns rows of the failed one"

    return Attempt(action, check)
