"""Converts rows of the tables, and detects rows that another program has changed.

kcore writes no NULL and no value of a wrong size, and the schema forbids most of them. But an operator may have changed
a row or a column, and a restored backup may lack rows. Each error names the table, the row, and the partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.cluster.store import Lease, NodeDescription, PartitionLeader, RegisteredNode
from kcore.log.batch_header import last_offset
from kcore.log.errors import CorruptLogError, FailureReason, LogError
from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.write_set import PartitionMeta, StoredPartition
from kcore.protocol.batch_layout import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kcore.cluster.postgresql.sessions import Row

TOPIC_ID_BYTES: Final = 16
MAX_PARTITION: Final = 0x7FFFFFFF
_NAMES: Final = {int: "an integer", bytes: "bytes", str: "a text", bool: "a boolean", list: "an array"}


def _fault(columns: Sequence[tuple[str, Any, type]]) -> str | None:
    """Describes the first column whose value is NULL or has a wrong type. Returns None if there is no such column.

    `columns` has the name, the value and the required type of each column.
    """
    for name, value, kind in columns:
        if value is None:
            return f"column {name} is NULL"
        if type(value) is not kind:
            return f"column {name} is {type(value).__name__} and not {_NAMES[kind]}"
    return None


def _key_fault(topic_id: Any, partition: Any) -> str | None:
    fault = _fault((("topic_id", topic_id, bytes), ("partition", partition, int)))
    if fault is None and len(topic_id) != TOPIC_ID_BYTES:
        fault = f"column topic_id has {len(topic_id)} bytes instead of {TOPIC_ID_BYTES}"
    if fault is None and not 0 <= partition <= MAX_PARTITION:
        fault = f"column partition is {partition}"
    return fault


def _row_error(table: str, row: str, fault: str) -> LogError:
    return LogError(f"PostgreSQL, table kcore.{table}, {row}: {fault}", FailureReason.CORRUPT)


def read_partition(row: Row) -> StoredPartition:
    """Converts a row of `LOOK_UP` to a StoredPartition.

    Raises:
        CorruptLogError: the row of the partition, or the row of its last batch, was changed.
    """
    number, topic_id, partition, _, _, _, encoded, base, last, header, first_last, snapshots = row
    key = PartitionKey(topic_id, partition)
    meta = _meta(key, number, encoded)
    if base is not None:
        fault = _fault((("last_offset", last, int), ("batch", header, bytes)))
        if fault is None and len(header) == HEADER_BYTES and last != last_offset(header):
            fault = f"column last_offset is {last}, and the batch ends at {last_offset(header)}"
        if fault is not None:
            raise CorruptLogError(key, base, f"PostgreSQL, table kcore.batches, number {number}: {fault}")
    end = max(meta.log_start_offset, 0 if last is None else last + 1)
    snapshot_offset = None if meta.snapshot is None else meta.snapshot.offset
    garbage = first_last is not None and first_last < meta.log_start_offset
    return StoredPartition(key, meta, end, garbage or any(offset != snapshot_offset for offset in snapshots or ()))


def _meta(key: PartitionKey, number: int, encoded: Any) -> PartitionMeta:
    where = f"PostgreSQL, table kcore.partitions, number {number}"
    fault = _fault((("meta", encoded, bytes),))
    if fault is not None:
        raise CorruptLogError(key, None, f"{where}: {fault}")
    try:
        meta = PartitionMeta.decode(encoded)
    except ValueError as error:
        raise CorruptLogError(key, None, f"{where}: column meta: {error}") from error
    if meta.number != number:
        raise CorruptLogError(key, None, f"{where}: column meta has the number {meta.number}")
    return meta


def read_batches(key: object, rows: Sequence[Row]) -> list[tuple[int, bytes]]:
    """Converts the rows that the statement `SLICE` has returned to batches.

    Args:
        key: the partition, for errors.
        rows: pairs (base offset, batch).

    Raises:
        CorruptLogError: a value in a row has the wrong type, because the row was changed.
    """
    batches: list[tuple[int, bytes]] = []
    for base, batch in rows:
        if type(base) is not int or type(batch) is not bytes:
            fault = _fault((("base_offset", base, int), ("batch", batch, bytes)))
            offset = base if type(base) is int else None
            raise CorruptLogError(key, offset, f"PostgreSQL, table kcore.batches: {fault}")
        batches.append((base, batch))
    return batches


def read_summaries(key: object, rows: Sequence[Row]) -> list[BatchSummary]:
    """Converts the rows of `SUMMARIES` to `BatchSummary` objects. Raises CorruptLogError if a row was changed."""
    names = ("base_offset", "last_offset", "max_timestamp", "batch")
    summaries = []
    for row in rows:
        fault = _fault([(name, value, int) for name, value in zip(names, row, strict=True)])
        if fault is None and row[1] < row[0]:
            fault = f"column last_offset is {row[1]}"
        if fault is not None:
            raise CorruptLogError(
                key, row[0] if type(row[0]) is int else None, f"PostgreSQL, table kcore.batches: {fault}"
            )
        summaries.append(BatchSummary(*row))
    return summaries


def read_leader(row: Row) -> PartitionLeader:
    """Converts a row of `LEADERS` to a `PartitionLeader`.

    Raises:
        LogError: the row was changed.
    """
    number, topic_id, partition, leader, epoch = row
    fault = _fault((("number", number, int),)) or _key_fault(topic_id, partition)
    fault = fault or _fault((("leader", leader, int), ("leader_epoch", epoch, int)))
    if fault is not None:
        raise _row_error("partitions", f"number {number}", fault)
    return PartitionLeader(number, PartitionKey(topic_id, partition), leader, epoch)


def read_node(row: Row) -> RegisteredNode:
    """Converts a row of `NODES` to a `RegisteredNode`.

    Raises:
        LogError: the row of the node or of its lease was changed.
    """
    node_id, is_fenced, is_draining, description, *lease = row
    fault = _fault((("session", is_fenced, bool), ("draining", is_draining, bool), ("description", description, bytes)))
    if fault is None:
        try:
            described = NodeDescription.decode(description)
        except ValueError as error:
            fault = f"column description: {error}"
    if fault is not None:
        raise _row_error("nodes", f"node_id {node_id}", fault)
    return RegisteredNode(node_id, read_lease(lease), is_fenced, is_draining, described)


def read_lease(row: Sequence[Any]) -> Lease:
    """Converts a row (name, holder, epoch, remaining time) to a lease.

    Raises:
        LogError: the row was changed.
    """
    name, holder, epoch, left_ms = row
    fault = _fault((("holder", holder, int), ("epoch", epoch, int), ("expires_at", left_ms, int)))
    if fault is not None:
        raise _row_error("leases", f"name {name!r}", fault)
    return Lease(name, holder, epoch, left_ms)


def read_value(table: str, row: str, value: Any) -> bytes:
    """Checks that a value of a row is of type bytes, and returns it.

    Raises:
        LogError: the value is not bytes.
    """
    fault = _fault((("value", value, bytes),))
    if fault is not None:
        raise _row_error(table, row, fault)
    return bytes(value)


def read_name(row: Row) -> str:
    """Converts a row of the query `VALUE_NAMES` to a name.

    Raises:
        LogError: the row was changed.
    """
    (name,) = row
    fault = _fault((("name", name, bytes),))
    if fault is None:
        try:
            return str(name.decode())
        except UnicodeDecodeError:
            fault = "column name is not UTF-8"
    raise _row_error("named_values", f"name {name!r}", fault)


def read_next_number(value: Any) -> int:
    """Checks and returns the number that the next created partition will have.

    Raises:
        LogError: the row of the cluster is missing or was changed.
    """
    if type(value) is not int or value < 1:
        fault = "the row is missing, or column next_number is NULL" if value is None else f"next_number is {value!r}"
        raise _row_error("cluster", "its only row", fault)
    return value


def findings_of(rows: Sequence[Row], read: Callable[[Row], object]) -> Iterator[Finding]:
    """Yields a `Finding` for each row that `read` cannot convert.

    Args:
        rows: rows of a table.
        read: the function of this module that converts rows of this table.
    """
    for row in rows:
        try:
            read(row)
        except LogError as error:
            yield Finding(None, None, "storage", str(error))
