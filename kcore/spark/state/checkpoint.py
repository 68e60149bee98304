"""Checkpoints of rebuilt partitions: a later rebuild continues from one instead of from the start of the log.

A checkpoint has the records that make up the state, the producers, and what the tables tell about the log. It is
exact to an offset. A log that still has every offset after it gives the same state as a replay from the start, unless
the log lost records. If an offset is missing, compaction may have removed a tombstone or a marker, and the
checkpoint cannot be used.
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
from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.events.arrow import BATCH_ROWS, LARGEST_MS
from kcore.spark.events.event import LogFault
from kcore.spark.state.batch_replay import BatchReplay
from kcore.spark.state.live_records import COMMITTED, LiveRecords
from kcore.spark.state.partition_state import PartitionState
from kcore.spark.state.rebuild import END, Resumed
from kcore.spark.state.table_schemas import CHECKPOINT_DDL

VERSION: Final = 1
"""The version of the format, in the first row of a partition, whose value is a JSON object."""

_SCHEMA: Final = pa.schema(list(arrow_struct(CHECKPOINT_DDL)))
_RECORDS: Final = pa.schema([field for field in _SCHEMA if field.name not in ("topic", "partition")])
_OF_ROWS: Final = tuple(name for name in _RECORDS.names if name != "number")
"""The columns that are fields of an `EventRow`."""

_COUNTERS: Final = ("first_offset", "next_offset", "last_timestamp_ms", "records", "unknown")


def checkpoint_batches(live: LiveRecords, cut: bool) -> Iterator[pa.RecordBatch]:
    """Yields the checkpoint of a partition: a row with properties of the log, then its live records.

    Args:
        live: the live records of the partition.
        cut: True if the log continues after the state.
    """
    state = live.state
    head = {"number": 0, "offset": state.next_offset, "value": _properties(state, cut)}
    rows = [{name: getattr(row, name) for name in _OF_ROWS} for row in live.other_rows()]
    records = pa.concat_tables(
        [
            pa.Table.from_pylist(rows, _RECORDS),
            pa.Table.from_batches(live.committed(), COMMITTED),
        ],
        promote_options="default",
    ).sort_by("offset")
    numbers = pa.array(range(1, len(records) + 1), pa.int64())
    numbered = records.set_column(records.schema.get_field_index("number"), "number", numbers)
    for table in (pa.Table.from_pylist([head], _RECORDS), numbered):
        place = {"topic": pa.scalar(state.topic), "partition": pa.scalar(state.partition, pa.int32())}
        columns = [
            pa.chunked_array([pa.repeat(place[field.name], len(table))])
            if field.name in place
            else table.column(field.name)
            for field in _SCHEMA
        ]
        yield from pa.Table.from_arrays(columns, schema=_SCHEMA).to_batches(BATCH_ROWS)


def _properties(state: PartitionState, cut: bool) -> bytes:
    completeness = state.completeness
    faults = [fault for fault in state.faults if fault.offset < state.next_offset]
    document = {
        "version": VERSION,
        **{name: getattr(state, name) for name in _COUNTERS},
        "complete": completeness.is_complete(state.last_stable_offset, cut),
        "lost": completeness.lost,
        "holes_to": completeness.holes_to,
        "log_first_offset": completeness.first_offset,
        # A half-written end is read again.
        "fault_count": state.fault_count - (len(state.faults) - len(faults)),
        "faults": [[fault.offset, fault.kind, fault.detail] for fault in faults],
        "producers": [base64.b64encode(chunk).decode() for chunk in encode(state.producers.states)],
    }
    return json.dumps(document).encode()


def resume(topic: str, partition: int, tables: Iterable[pa.Table], cleaned_to: int | None) -> Resumed:
    """Returns the state at a checkpoint.

    Args:
        topic: the internal topic.
        partition: its partition.
        tables: the checkpoint's rows, in any order.
        cleaned_to: the offset up to which compaction has run now, if known.

    Raises:
        KcoreError: the checkpoint is not complete, or of a state that is not certain.
    """
    rows = pa.concat_tables(tables).combine_chunks()
    if not _is_numbered(rows):  # Spark's writer may have divided the rows among files
        rows = rows.sort_by("number").combine_chunks()
    if not len(rows) or not _is_numbered(rows):
        raise KcoreError(f"the checkpoint of {topic}-{partition} is not complete: rebuild without --since")
    try:
        known = parse_json(rows.column("value")[0].as_py())
    except ValueError as error:
        text = f"the checkpoint of {topic}-{partition} is damaged ({error}): rebuild without --since"
        raise KcoreError(text) from error
    if known["version"] != VERSION:
        raise KcoreError(
            f"the checkpoint of {topic}-{partition} has version {known['version']}, not {VERSION}: rebuild without "
            "--since"
        )
    if not known["complete"] and not known["lost"]:
        raise KcoreError(
            f"{topic}-{partition} was compacted before the state of its checkpoint: rebuild without --since"
        )
    loading = BatchReplay(topic, partition, END, cleaned_to, with_records=True)
    for batch in _with_timestamps(rows.slice(1)).to_batches(BATCH_ROWS):
        loading.add(batch)
    state, live = loading.state, loading.live
    assert live is not None, "the records were requested"
    _restore(state, known)
    live.resumed()
    return Resumed(state, live)


def _is_numbered(rows: pa.Table) -> bool:
    return bool(rows.column("number").equals(pa.chunked_array([pa.array(np.arange(len(rows)))])))


def _with_timestamps(records: pa.Table) -> pa.Table:
    """Returns records with the column `timestamp` of events. A time that it cannot hold is null, as in events."""
    times = records.column("timestamp_ms")
    held = pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, LARGEST_MS))
    micros = pc.multiply(pc.if_else(held, times, None), 1000).cast(pa.timestamp("us", "UTC"))
    return records.append_column("timestamp", micros)


def _restore(state: PartitionState, known: dict[str, Any]) -> None:
    """Restores what the records do not contain."""
    for name in _COUNTERS:
        setattr(state, name, known[name])
    state.faults = [LogFault(state.topic, state.partition, *fault) for fault in known["faults"]]
    state.fault_count = known["fault_count"]
    state.producers.states = decode(map(base64.b64decode, known["producers"]))
    completeness = state.completeness
    completeness.first_offset = known["log_first_offset"]
    completeness.last_gap = -1 if known["holes_to"] is None else known["holes_to"]
    completeness.lost = known["lost"]
