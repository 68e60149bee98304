"""Rows of the table `offsets`: made from the state of a partition, and loaded into a state again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from typing import Any, Final

import pyarrow as pa

from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.events.arrow import filled_array
from kcore.spark.state.partition_state import PartitionState
from kcore.spark.state.table_schemas import COMMITTED_COLUMNS, table_ddl
from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.spark.column_store import Input
from kcore_ext.spark.offset_columns import OffsetColumns, load_offsets

ROWS_PER_BATCH: Final = 10_000
OFFSETS: Final = "offsets"


@cache
def table_schema(name: str) -> pa.Schema:
    """Returns a table's columns as an Arrow schema."""
    return pa.schema(list(arrow_struct(table_ddl(name))))


def offset_batches(state: PartitionState) -> Iterator[pa.RecordBatch]:
    """Yields the committed and pending offsets of a partition of `__consumer_offsets`, group by group."""
    store, columns = state.groups.offsets, OffsetColumns(state.partition)
    for group_id in store.groups():
        for topic, partitions in store.topics(group_id).items():
            columns.add_all(group_id, topic, partitions)
        for topic, partition, producer_id, pending in store.pending_offsets(group_id):
            columns.add(group_id, topic, partition, pending, producer_id)
        if len(columns) >= ROWS_PER_BATCH:
            yield _batch(columns)
    if len(columns):
        yield _batch(columns)


def _batch(columns: OffsetColumns) -> pa.RecordBatch:
    schema = table_schema(OFFSETS)
    arrays = [filled_array(field.type, column) for field, column in zip(schema, columns.take(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def committed_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.StructArray]:
    """Yields the committed offsets in rows of the table `offsets`, as structs of `COMMITTED_COLUMNS`."""
    fields = [table_schema(OFFSETS).field(name) for name in COMMITTED_COLUMNS]
    for batch in batches:
        pending = batch.column("pending")
        rows = batch.filter(_negated(pending)) if pending.true_count else batch
        if rows.num_rows:
            yield pa.StructArray.from_arrays([rows.column(name) for name in COMMITTED_COLUMNS], fields=fields)


def _negated(flags: pa.Array) -> pa.Array:
    import pyarrow.compute as pc  # noqa: PLC0415  # most partitions have no pending offset

    return pc.invert(flags)


def groups_without_state(state: PartitionState) -> list[str]:
    """Returns the ids of groups that have offsets but were deleted by a later record."""
    return [group_id for group_id in state.groups.offsets.groups() if group_id not in state.groups.groups]


def load_committed(state: PartitionState, structs: Iterable[pa.StructArray], deleted: Collection[str]) -> None:
    """Adds committed offsets to the state of a partition, after all other records were replayed.

    If a group does not exist, the function creates a simple group, unless the group is in `deleted`.

    Args:
        state: the state of the partition.
        structs: the offsets, as `committed_of` yields them.
        deleted: the ids of deleted groups that still have offsets.
    """
    shard = state.groups

    def topics_of(group_id: str) -> dict[str, dict[int, OffsetAndMetadata]]:
        known = group_id if group_id in deleted else shard.get_or_create_group(group_id).group_id
        return shard.offsets.topics_of(known)

    for struct in structs:
        inputs = [_input(one) for one in struct.flatten()]
        shard.offsets.offset_count += load_offsets(len(struct), inputs, topics_of)


def _input(column: Any) -> Input:
    buffers = column.buffers()
    return Input(buffers[0], buffers[1] if len(buffers) == 3 else None, buffers[-1], column.offset)
