"""Logs of a live cluster: replaying the rows of Spark's Kafka source equals replaying the log without its markers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kcore.spark.events.arrow import to_batch
from kcore.spark.events.event import EventRow
from kcore.spark.events.segments import find_partitions, read_rows
from kcore.spark.events.sources import Part
from kcore.spark.frames.folders import rebuilt_of
from kcore.spark.frames.kafka_logs import sources_of
from kcore.spark.state.partition_state import PartitionState
from kcore.spark.state.rebuild import END, rebuild
from kcore.spark.state.tables import table_rows

KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
UNKNOWN = ("producers", "partitions")
"""Tables that are not compared, because the source has no batch headers and no control records."""


def committed(rows: list[EventRow]) -> list[EventRow]:
    """Returns the rows that a reader of committed records sees, or no rows if a transaction is open."""
    aborted: set[int] = set()
    opened: dict[int, set[int]] = {}
    for row in rows:
        if row.control and row.key is not None:
            ended = opened.pop(row.producer_id, set())
            aborted |= ended if row.key[2:4] == b"\x00\x00" else set()
        elif row.transactional:
            opened.setdefault(row.producer_id, set()).add(row.offset)
    if opened:
        return []
    return [row for row in rows if not row.control and not row.batch_only and row.offset not in aborted]


def kafka_batch(index: int, rows: list[EventRow]) -> pa.RecordBatch:
    """Returns a partition's rows as an Arrow batch, with the columns that a Spark task receives.

    The first row of the batch has offset -1 and only marks the beginning of the partition.
    """
    table = pa.Table.from_batches([to_batch(rows)]).select(KAFKA_COLUMNS)
    first = pa.Table.from_pylist([{"offset": -1}], table.schema)
    table = pa.concat_tables([first, table])
    return table.append_column("part", pa.array([index] * len(table), pa.int32())).combine_chunks().to_batches()[0]


def rows_of(state: PartitionState) -> list[str]:
    return sorted(repr(row) for row in table_rows(state) if row[0] not in UNKNOWN)


def test_rows_of_partitions_give_their_states(kafka_logs: Path) -> None:
    """A Spark task receives the rows of several partitions, one partition after the other, and rebuilds the state of
    each. It may also ignore a partition's rows.

    Spark's source hides transaction markers. The resulting gaps are no losses.
    """
    found = {part[:2]: list(read_rows(part)) for part in find_partitions(kafka_logs / "moment-4")}
    names = sorted(place for place, rows in found.items() if committed(rows))[:4]
    parts = [Part(*names[0]), Part("__consumer_offsets", 99), *(Part(*name) for name in names[1:])]
    empty = to_batch([EventRow(None, None, "", 0, -1, -1)]).append_column("part", pa.array([1], pa.int32()))
    batches = [kafka_batch(0, committed(found[names[0]])), empty]
    batches += [kafka_batch(index, committed(found[name])) for index, name in enumerate(names[1:], 2)]
    table = pa.concat_tables(
        [
            pa.Table.from_batches([batch]).select([*KAFKA_COLUMNS[:2], "offset", "timestamp", "part"])
            for batch in batches
        ]
    )
    seen = []
    for source, part in sources_of(table.to_batches(max_chunksize=97), parts):
        seen.append(part[:2])
        if part == parts[2]:
            continue  # its rows are skipped
        result = rebuilt_of(source, part, END, False, hides_control=True)
        assert not result.state.completeness.lost
        if part[:2] in found:
            assert rows_of(result.state) == rows_of(rebuild(*part[:2], found[part[:2]]).state)
        else:
            assert result.state.next_offset == -1
    assert seen == [part[:2] for part in parts]
