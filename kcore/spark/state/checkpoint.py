"""Checkpoints of rebuilt partitions. A later rebuild continues from a checkpoint instead of the start of the log.

A checkpoint contains the records that make up the state, the producers, and the properties of the log that the tables
show. Most of its rows are committed offsets, with the columns of the table `offsets`.

A checkpoint covers the log up to one offset. If the log lost no records and still has every later offset, a rebuild
from the checkpoint gives the same state as a replay from the start. If a later offset is missing, compaction may have
removed a tombstone or a marker, and the checkpoint cannot be used.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kcore.broker.data.producer_snapshot import decode, encode
from kcore.errors import KcoreError
from kcore.json_text import parse_json
from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.events.arrow import BATCH_ROWS, LARGEST_MS
from kcore.spark.events.event import LogFault
from kcore.spark.state.batch_replay import BatchReplay
from kcore.spark.state.live_records import LiveRecords
from kcore.spark.state.offset_rows import committed_of, groups_without_state, load_committed, offset_batches
from kcore.spark.state.partition_state import PartitionState
from kcore.spark.state.rebuild import END, Resumed
from kcore.spark.state.table_schemas import CHECKPOINT_DDL

VERSION: Final = 3
"""The version of the format of checkpoints.

The value of the first row of each partition is a JSON object that contains this version.
"""

_SCHEMA: Final = pa.schema(list(arrow_struct(CHECKPOINT_DDL)))
COMMITTED: Final = "committed"
"""Name of the column with committed offsets. In the rows of a partition, the committed offsets come last."""
_OF_ROWS: Final = tuple(name for name in _SCHEMA.names if name not in ("topic", "partition", "number", COMMITTED))
"""Names of the columns that are fields of an `EventRow`."""
_RECORD: Final = pa.struct([_SCHEMA.field(name) for name in _OF_ROWS])

_COUNTERS: Final = (
    "first_offset",
    "next_offset",
    "last_timestamp_ms",
    "largest_timestamp_ms",
    "records",
    "unknown",
)


def checkpoint_batches(
    live: LiveRecords, cut: bool, offsets: Iterable[pa.RecordBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the checkpoint of a partition: properties of the log, its live records, and its committed offsets.

    Args:
        live: the live records of the partition.
        cut: True if the log continues after the state.
        offsets: the partition's rows of the table `offsets`, if the caller has them.
    """
    state = live.state
    head = {"offset": state.next_offset, "value": _properties(state, cut)}
    rows = [head, *({name: getattr(row, name) for name in _OF_ROWS} for row in live.other_rows())]
    number = 0
    for start in range(0, len(rows), BATCH_ROWS):
        records = pa.RecordBatch.from_struct_array(pa.array(rows[start : start + BATCH_ROWS], _RECORD))
        yield _batch(state, number, records.num_rows, records)
        number += records.num_rows
    if state.topic == CONSUMER_OFFSETS:
        for committed in committed_of(offset_batches(state) if offsets is None else offsets):
            yield _batch(state, number, len(committed), pa.RecordBatch.from_arrays([committed], [COMMITTED]))
            number += len(committed)


def _batch(state: PartitionState, number: int, size: int, given: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows with the columns of a checkpoint, numbered from `number` on; missing columns are null."""
    arrays = {
        "topic": pa.repeat(pa.scalar(state.topic), size),
        "partition": pa.repeat(pa.scalar(state.partition, pa.int32()), size),
        "number": pa.array(np.arange(number, number + size)),
        **dict(zip(given.schema.names, given.columns, strict=True)),
    }
    columns = [arrays[field.name] if field.name in arrays else pa.nulls(size, field.type) for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _properties(state: PartitionState, cut: bool) -> bytes:
    completeness = state.completeness
    faults = [fault for fault in state.faults if fault.offset < state.next_offset]
    document = {
        "version": VERSION,
        "topic_id": state.topic_id,
        **{name: getattr(state, name) for name in _COUNTERS},
        "complete": completeness.is_complete(state.last_stable_offset, cut),
        "lost": completeness.lost,
        "holes_to": completeness.holes_to,
        "log_first_offset": completeness.first_offset,
        # The next run reads a half-written end again.
        "fault_count": state.fault_count - (len(state.faults) - len(faults)),
        "deleted_groups": groups_without_state(state),
        "faults": [[fault.offset, fault.kind, fault.detail] for fault in faults],
        "producers": [base64.b64encode(chunk).decode() for chunk in encode(state.producers.states)],
    }
    return json.dumps(document).encode()


def resume(topic: str, partition: int, tables: Iterable[pa.Table], cleaned_to: int | None) -> Resumed:
    """Returns the state at a checkpoint.

    Args:
        topic: the name of an internal topic.
        partition: the number of the partition.
        tables: the checkpoint's rows, in any order.
        cleaned_to: the offset up to which compaction has run now, if known.

    Raises:
        KcoreError: the checkpoint is not complete, or its state is uncertain.
    """
    rows = pa.concat_tables(tables)
    if not _is_numbered(rows):  # Spark's writer may have divided the rows among files
        rows = rows.sort_by("number")
    if not len(rows) or not _is_numbered(rows):
        raise KcoreError(f"the checkpoint of {topic}-{partition} is not complete: rebuild without --since")
    try:
        stored = parse_json(rows.column("value")[0].as_py())
    except ValueError as error:
        text = f"the checkpoint of {topic}-{partition} is damaged ({error}): rebuild without --since"
        raise KcoreError(text) from error
    if stored["version"] != VERSION:
        raise KcoreError(
            f"the checkpoint of {topic}-{partition} has version {stored['version']}, not {VERSION}: rebuild without "
            "--since"
        )
    if not stored["complete"] and not stored["lost"]:
        raise KcoreError(
            f"{topic}-{partition} was compacted before the state of its checkpoint: rebuild without --since"
        )
    loading = BatchReplay(topic, partition, END, cleaned_to, with_records=True)
    records = rows.column(COMMITTED).null_count
    if records > 1:
        for batch in _with_timestamps(rows.slice(1, records - 1)).to_batches(BATCH_ROWS):
            loading.add(batch)
    state, live = loading.state, loading.live
    load_committed(state, rows.slice(records).column(COMMITTED).chunks, stored["deleted_groups"])
    assert live is not None, "the records were requested"
    _restore(state, stored)
    live.restore_open_transactions()
    return Resumed(state, live)


def _is_numbered(rows: pa.Table) -> bool:
    """Returns True if the rows have the numbers from 0 on, in order."""
    return np.array_equal(rows.column("number").to_numpy(), np.arange(len(rows)))


def _with_timestamps(records: pa.Table) -> pa.Table:
    """Returns records with the column `timestamp` of events.

    A time outside of the range of this column is null, as in events.
    """
    times = records.column("timestamp_ms")
    valid = pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, LARGEST_MS))
    micros = pc.multiply(pc.if_else(valid, times, None), 1000).cast(pa.timestamp("us", "UTC"))
    return records.append_column("timestamp", micros)


def _restore(state: PartitionState, stored: dict[str, Any]) -> None:
    """Restores the parts of a state that its records do not contain."""
    for name in _COUNTERS:
        setattr(state, name, stored[name])
    state.faults = [LogFault(state.topic, state.partition, *fault) for fault in stored["faults"]]
    state.fault_count = stored["fault_count"]
    state.topic_id = stored["topic_id"]
    state.producers.states = decode(map(base64.b64decode, stored["producers"]))
    completeness = state.completeness
    completeness.first_offset = stored["log_first_offset"]
    completeness.last_gap = -1 if stored["holes_to"] is None else stored["holes_to"]
    completeness.lost = stored["lost"]
