"""Event rows as Arrow: the columns of Spark's Kafka source, followed by fields of the batch header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kcore.spark.events.event import CREATE_TIME, EventRow, Headers, LogFault

EVENT_DDL: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>, producer_id bigint, producer_epoch int, last_sequence int, "
    "transactional boolean, control boolean, batch_only boolean"
)
"""The columns in Spark's DDL: the eight columns of Spark's Kafka source, then fields of the batch header."""

EVENT_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("last_sequence", pa.int32()),
        ("transactional", pa.bool_()),
        ("control", pa.bool_()),
        ("batch_only", pa.bool_()),
    ]
)

FAULT_COLUMNS: Final = ("fault", "fault_detail")
FAULT_DDL: Final = ", ".join(f"{name} string" for name in FAULT_COLUMNS)
"""The additional columns of events with faults, in Spark's DDL. They are null except in rows that stand for a fault."""

BATCH_ROWS: Final = 10_000
"""Maximum number of rows in a record batch."""
LARGEST_MS: Final = (2**63 - 1) // 1000
"""Maximum timestamp in ms that fits into 64 bits as microseconds. Later timestamps of records become null."""

NO_HEADERS: Final[list[dict[str, Any]]] = []

_TIMESTAMP: Final = EVENT_SCHEMA.get_field_index("timestamp")
_HEADERS: Final = EVENT_SCHEMA.get_field_index("headers")


def to_batches(rows: Iterable[EventRow], batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Yields rows as record batches of `EVENT_SCHEMA`, at most `batch_rows` each."""
    rows = iter(rows)
    while chunk := list(islice(rows, batch_rows)):
        yield to_batch(chunk)


def to_batch(rows: list[EventRow]) -> pa.RecordBatch:
    """Returns rows, at least one, as one record batch."""
    columns: list[Any] = list(zip(*rows, strict=True))
    columns[_TIMESTAMP] = [ms * 1000 if 0 <= ms <= LARGEST_MS else None for ms in columns[_TIMESTAMP]]
    columns[_HEADERS] = [[{"key": k, "value": v} for k, v in of] if of else NO_HEADERS for of in columns[_HEADERS]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, EVENT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENT_SCHEMA)


def beside_faults(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch of events, extended by the columns of `FAULT_DDL` with null values."""
    none = pa.nulls(batch.num_rows, pa.string())
    return pa.RecordBatch.from_arrays([*batch.columns, none, none], names=[*batch.schema.names, *FAULT_COLUMNS])


def fault_batch(faults: list[LogFault]) -> pa.RecordBatch:
    """Converts unreadable parts of logs, at least one, to rows with topic, partition, offset and a description."""
    rows = [EventRow(None, None, fault.topic, fault.partition, fault.offset, -1) for fault in faults]
    batch = to_batch(rows)
    kinds, details = ([fault.kind for fault in faults], [fault.detail for fault in faults])
    texts = [pa.array(column, pa.string()) for column in (kinds, details)]
    return pa.RecordBatch.from_arrays([*batch.columns, *texts], names=[*batch.schema.names, *FAULT_COLUMNS])


DEFAULTS: Final[Mapping[str, Any]] = {
    "timestampType": CREATE_TIME,
    "producer_id": -1,
    "producer_epoch": -1,
    "last_sequence": -1,
    "transactional": False,
    "control": False,
    "batch_only": False,
}
"""Column -> its value if the input lacks the column. Spark's own Kafka source has none of the batch header fields."""


def from_batch(batch: pa.RecordBatch) -> Iterator[EventRow]:
    """Yields the rows of a record batch that has at least the columns key, value, topic, partition and offset."""
    names = set(batch.schema.names)
    size = batch.num_rows

    def column(name: str) -> Iterable[Any]:
        if name in names:
            return batch.column(name).to_pylist()  # type: ignore[no-any-return]
        return [DEFAULTS[name]] * size

    if "timestamp" in names:
        micros = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        times: Iterable[int] = [-1 if value is None else value // 1000 for value in micros.to_pylist()]
    else:
        times = [-1] * size
    front = (column(name) for name in ("key", "value", "topic", "partition", "offset"))
    batch_fields = ("producer_id", "producer_epoch", "last_sequence", "transactional", "control", "batch_only")
    headers = _headers(batch.column("headers")) if "headers" in names else [()] * size
    columns = (*front, times, column("timestampType"), headers, *map(column, batch_fields))
    return map(EventRow._make, zip(*columns, strict=True))


def _headers(column: pa.Array) -> list[Headers]:
    """Returns the headers of rows; Spark's Kafka source has null for no headers."""
    if not len(column.flatten()):
        return [()] * len(column)
    return [tuple((header["key"], header["value"]) for header in of) if of else () for of in column.to_pylist()]


def in_range(batch: pa.RecordBatch, start: int, stop: int | None) -> pa.RecordBatch:
    """Returns the rows of a batch of events with offsets from `start` to before `stop`."""
    offsets = batch.column("offset")
    mask = pc.greater_equal(offsets, start)
    return batch.filter(mask if stop is None else pc.and_(mask, pc.less(offsets, stop)))


def filled_array(kind: pa.DataType, finished: Any) -> pa.Array:
    """Builds an array from buffers filled by the extension (`kcore_ext.spark.record_columns.Finished`)."""
    length, nulls, buffers, below = finished
    if pa.types.is_struct(kind):
        kinds = [field.type for field in kind]
    else:
        kinds = [kind.value_type] if pa.types.is_list(kind) else []
    return pa.Array.from_buffers(
        kind,
        length,
        [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers],
        nulls,
        children=[filled_array(of, array) for of, array in zip(kinds, below, strict=True)],
    )


def filled_batch(topic: str, partition: int, size: int, columns: list[Any]) -> pa.RecordBatch:
    """Builds a batch of one partition's events from columns filled by the extension
    (`kcore_ext.spark.event_columns`).
    """
    given = {"topic": topic, "partition": partition}
    filled = iter(columns)
    arrays = [
        pa.repeat(pa.scalar(given[field.name], field.type), size)
        if field.name in given
        else filled_array(field.type, next(filled))
        for field in EVENT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENT_SCHEMA)
