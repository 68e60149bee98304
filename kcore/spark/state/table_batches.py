"""Converts the state of a partition to Arrow record batches of its tables.

The rows are the same as those of `table_rows`, but this module creates no dict for each committed offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.state.checkpoint import checkpoint_batches
from kcore.spark.state.offset_rows import OFFSETS, ROWS_PER_BATCH, offset_batches
from kcore.spark.state.partition_state import PartitionState
from kcore.spark.state.rebuild import Rebuilt
from kcore.spark.state.table_schemas import CHECKPOINT, TABLES, table_ddl
from kcore.spark.state.tables import table_rows

TableBatch = tuple[str, pa.RecordBatch]
"""The name of a table, and some of its rows."""


def all_tables(results: Iterable[Rebuilt]) -> Iterator[TableBatch]:
    """Yields the rows of all tables, one partition after another.

    Leaves out a partition if its log is empty and was read without a fault (`LogFault`).
    """
    for state, cut, _ in results:
        if state.first_offset >= 0 or cut or state.fault_count:
            yield from state_tables(state, cut)
        del state  # frees the state before the next one is built


def tables_and_checkpoints(results: Iterable[Rebuilt]) -> Iterator[TableBatch]:
    """Yields, one partition after another, the rows of all tables and then the rows of the partition's checkpoint."""
    for result in results:
        offsets = []
        for table, batch in all_tables([result]):
            if table == OFFSETS:
                offsets.append(batch)
            yield table, batch
        if result.live is not None and result.state.next_offset >= 0:
            yield from ((CHECKPOINT, batch) for batch in checkpoint_batches(result.live, result.cut, offsets))
        del result  # frees the state before the next one is built


def state_tables(state: PartitionState, cut: bool = False) -> Iterator[TableBatch]:
    """Yields every row of a partition's state, as `table_rows` does, in batches."""
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for table, row in table_rows(state, cut, offsets=False):
        of_table = rows[table]
        of_table.append(row)
        if len(of_table) >= ROWS_PER_BATCH:
            yield table, rows_batch(table, rows.pop(table))
    for table, of_table in rows.items():
        yield table, rows_batch(table, of_table)
    if state.topic == CONSUMER_OFFSETS:
        for batch in offset_batches(state):
            yield OFFSETS, batch


def rows_batch(table: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Returns rows of a table as a record batch; missing columns are null."""
    return pa.RecordBatch.from_struct_array(pa.array(rows, arrow_struct(table_ddl(table))))


def in_one_frame(batches: Iterable[TableBatch], *more: str) -> Iterator[pa.RecordBatch]:
    """Yields rows of all tables in the columns of `transforms.STATE_DDL`: table name, and one struct per table.

    Args:
        batches: the rows of each table.
        more: names of further tables in the frame: the table of checkpoints, or none.
    """
    kinds = {name: arrow_struct(table_ddl(name)) for name in (*TABLES, *more)}
    for table, batch in batches:
        size = batch.num_rows
        own = batch.to_struct_array()
        arrays = [own if name == table else pa.nulls(size, kind) for name, kind in kinds.items()]
        yield pa.RecordBatch.from_arrays([pa.repeat(pa.scalar(table), size), *arrays], names=["table", *kinds])
