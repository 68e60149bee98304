"""Checkpoints of rebuilt partitions: a later rebuild continues from one instead of from the start of the log.

A checkpoint has the records that make up the state, the producers, and what the tables tell about the log. It is
exact to an offset. A log that still has every offset behind it gives the same state as a replay from the start, unless
the log lost records. If an offset is missing, compaction may have removed a tombstone or a marker, and the
checkpoint cannot be used.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from kcore.broker.data.producer_snapshot import decode, encode
from kcore.errors import KcoreError
from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.events.arrow import BATCH_ROWS
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.state.live_records import LiveRecords
from kcore.spark.state.partition_state import PartitionState
from kcore.spark.state.rebuild import Resumed
from kcore.spark.state.table_schemas import CHECKPOINT_DDL

VERSION: Final = 1
"""The version of the format, in the first row of a partition, whose value is a JSON object."""

_COUNTERS: Final = ("first_offset", "next_offset", "last_timestamp_ms", "records", "unknown")


def checkpoint_batches(live: LiveRecords, cut: bool) -> Iterator[pa.RecordBatch]:
    """Yields the checkpoint of a partition: a row with properties of the log, then its live records.

    Args:
        live: the live records of the partition.
        cut: True if the log continues behind the state.
    """
    state = live.state
    place = {"topic": state.topic, "partition": state.partition}
    rows: list[dict[str, Any]] = [{**place, "number": 0, "offset": state.next_offset, "value": _properties(state, cut)}]
    schema = pa.schema(list(arrow_struct(CHECKPOINT_DDL)))
    for number, row in enumerate(live.checkpoint_rows(), 1):
        rows.append(
            {
                **place,
                "number": number,
                "key": row.key,
                "value": row.value,
                "offset": row.offset,
                "timestamp_ms": row.timestamp_ms,
                "producer_id": row.producer_id,
                "producer_epoch": row.producer_epoch,
                "last_sequence": row.last_sequence,
                "transactional": row.transactional,
            }
        )
        if len(rows) >= BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(rows, schema)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)


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
    rows = pa.concat_tables(tables).sort_by("number").to_pylist()
    if [row["number"] for row in rows] != list(range(len(rows))) or not rows:
        raise KcoreError(f"the checkpoint of {topic}-{partition} is not complete: rebuild without --since")
    known = json.loads(rows[0]["value"])
    if known["version"] != VERSION:
        raise KcoreError(f"the checkpoint of {topic}-{partition} has version {known['version']}, not {VERSION}")
    if not known["complete"] and not known["lost"]:
        raise KcoreError(
            f"{topic}-{partition} was compacted before the state of its checkpoint: rebuild without --since"
        )
    state = PartitionState(topic, partition, cleaned_to)
    live = LiveRecords(state)
    for row in rows[1:]:
        event = EventRow(
            row["key"],
            row["value"],
            topic,
            partition,
            row["offset"],
            row["timestamp_ms"],
            producer_id=row["producer_id"],
            producer_epoch=row["producer_epoch"],
            last_sequence=row["last_sequence"],
            transactional=row["transactional"],
        )
        state.replay(event)
        live.saw(event)
    _restore(state, known)
    live.resumed()
    return Resumed(state, live)


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
