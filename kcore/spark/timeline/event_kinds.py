"""The events that `history` yields, as rows of documented kinds. Types are Spark's; times are ms since the epoch.

Times are the timestamps of the records, which the coordinator sets when it writes them. `whole` is true if the log is
complete up to the row, by the rules of `kcore.spark.state.completeness`. If `whole` is false, earlier events may be
missing, so that a cause or a duration may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.spark.state.table_schemas import GROUP, INTERNAL_TOPIC, MEMBER, NUMBER, PARTITION, TOPIC, Columns

if TYPE_CHECKING:
    import pyarrow as pa

PARTS: Final = "array<struct<topic:string,partition:int>>"
WHOLE: Final = ("whole", "boolean", "whether the log is complete up to this row")

EVENT_KINDS: Final[dict[str, Columns]] = {
    "rebalances": (
        PARTITION,
        GROUP,
        ("group_type", "string", "classic, consumer, share or streams"),
        ("epoch", "int", "classic: the generation; others: the group epoch"),
        ("previous_epoch", "int", "the previous one in the log; null for the group's first"),
        ("skipped", "int", "epochs in between without a record: unfinished generations, or compacted"),
        ("start_offset", "bigint", "the offset of the first record of the change"),
        ("end_offset", "bigint", "the offset of the record that completed it; null if none did"),
        ("start_ms", "bigint", "the start of the change, as far as the log shows"),
        ("end_ms", "bigint", "when it was completed or superseded; null while it is open"),
        ("duration_ms", "bigint", "from start to end; null if unknown"),
        (
            "covers",
            "string",
            "the part that the duration covers: whole (change to completion), sync (classic: from the end of the join "
            "phase to the assignment), none",
        ),
        (
            "outcome",
            "string",
            "completed, superseded (by the next), emptied, deleted, open (at the log's end), replaced (no rebalance "
            "was needed)",
        ),
        ("cause", "string", "the main one of `causes`"),
        ("causes", "array<string>", "all causes, main cause first"),
        ("detail", "string", "the evidence for the causes, for people"),
        ("members", "int", "number of members afterwards"),
        ("joined", "array<string>", "members that joined; static ones by their instance id"),
        ("left", "array<string>", "members that left"),
        ("moved", "int", "partitions that one member lost and another gained; null if the assignment is opaque"),
        ("gained", "int", "partitions that members gained, summed over members"),
        ("lost", "int", "partitions that members lost, summed over members"),
        WHOLE,
    ),
    "moves": (
        PARTITION,
        GROUP,
        ("epoch", "int", "the epoch of the rebalance"),
        ("start_offset", "bigint", "the start offset of the rebalance"),
        MEMBER,
        ("group_instance_id", "string", "static members: the instance id, which survives restarts"),
        ("client_id", "string", "its client id"),
        ("gained", PARTS, "gained partitions; topics by name (classic), id (consumer, share) or TASKTYPE:SUBTOPOLOGY"),
        ("lost", PARTS, "lost partitions"),
    ),
    "commits": (
        PARTITION,
        GROUP,
        TOPIC,
        NUMBER,
        ("record_offset", "bigint", "the offset of the record"),
        ("timestamp_ms", "bigint", "the time of the commit"),
        ("committed_offset", "bigint", "the offset"),
        ("kind", "string", "plain, transactional, aborted (with its transaction) or pending (at the log's end)"),
        WHOLE,
    ),
    "transactions": (
        PARTITION,
        ("transactional_id", "string", "the id"),
        ("producer_id", "bigint", "the producer id"),
        ("producer_epoch", "int", "its epoch while the transaction was open"),
        ("start_offset", "bigint", "the offset of its first record"),
        ("end_offset", "bigint", "the offset of its last record; null while it is open"),
        ("start_ms", "bigint", "its start"),
        ("prepare_ms", "bigint", "the time of the decision; null without one"),
        ("end_ms", "bigint", "when its markers were written; null if they were not"),
        ("duration_ms", "bigint", "from start to end; for open ones, to the end of the log"),
        ("timeout_ms", "int", "its timeout"),
        ("state", "string", "the last state that the log shows, under Kafka's name"),
        ("outcome", "string", "committed, aborted, open (at the log's end) or unknown (its end is not in the log)"),
        (
            "cause",
            "string",
            "the cause of aborts: producer, timeout, fenced (by a new instance), producer or fenced (ambiguous); "
            "else null",
        ),
        ("partitions", "int", "number of partitions"),
        ("topics", "array<string>", "their topics, sorted"),
        WHOLE,
    ),
    "deliveries": (
        PARTITION,
        GROUP,
        ("topic_id", "string", "the topic's id"),
        NUMBER,
        ("record_offset", "bigint", "the offset of the record"),
        ("timestamp_ms", "bigint", "its time"),
        ("start_offset", "bigint", "the start offset afterwards, -1 if the reset policy decides"),
        ("complete", "int", "number of complete records from the start offset on, -1 if unknown"),
        ("delivered", "bigint", "number of deliveries that ended"),
        ("redelivered", "bigint", "number of them that were not the first delivery of their record"),
        ("acknowledged", "bigint", "number of records that were acknowledged"),
        ("archived", "bigint", "number of records that were rejected, or released too often"),
        ("waiting", "bigint", "number of records that were released and wait for another delivery"),
        WHOLE,
    ),
    "share_topics": (
        PARTITION,
        GROUP,
        ("topic_id", "string", "the id of a topic that a share group uses"),
        ("topic", "string", "its name"),
    ),
    "logs": (
        PARTITION,
        INTERNAL_TOPIC,
        ("first_offset", "bigint", "the first offset in the log, -1 for an empty log"),
        ("next_offset", "bigint", "the offset after the last one"),
        ("first_ms", "bigint", "the timestamp of the first record"),
        ("last_ms", "bigint", "the latest timestamp of any record"),
        ("whole_from_offset", "bigint", "the offset from which nothing is missing; null if unknown"),
        ("whole_from_ms", "bigint", "the timestamp of the first record there; null if there is none"),
        ("records", "bigint", "number of rows read"),
        ("faults", "bigint", "number of records that could not be decoded and were skipped"),
    ),
}
"""Kind of event -> its columns, in the order of the rows' values."""

TimelineEvent = tuple[str, tuple[Any, ...]]
"""The kind of an event, and the values of its columns."""


def kind_ddl(kind: str) -> str:
    """Returns a kind's schema in Spark's DDL."""
    return ", ".join(f"`{name}` {type_}" for name, type_, _ in EVENT_KINDS[kind])


TIMELINE_EVENTS_DDL: Final = "kind string, " + ", ".join(f"`{kind}` struct<{kind_ddl(kind)}>" for kind in EVENT_KINDS)
"""Schema of a frame with the events of all kinds. `kind` names the kind of a row. Only the struct of this name is not
null.
"""


def event_batches(derived: Iterator[TimelineEvent], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
    """Returns events as record batches of `TIMELINE_EVENTS_DDL`, each of one kind."""
    waiting: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in EVENT_KINDS}
    for kind, row in derived:
        rows = waiting[kind]
        rows.append(row)
        if len(rows) >= rows_per_batch:
            yield _batch(kind, rows)
            rows.clear()
    for kind, rows in waiting.items():
        if rows:
            yield _batch(kind, rows)


def kind_batch(kind: str, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Returns events of one kind, at least one, as a record batch with the columns of the kind."""
    import pyarrow as pa  # noqa: PLC0415

    from kcore.spark.decode.ddl import arrow_struct  # noqa: PLC0415

    own = arrow_struct(kind_ddl(kind))
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), own, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(own)))


def _batch(kind: str, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    from kcore.spark.decode.ddl import arrow_struct  # noqa: PLC0415

    own = kind_batch(kind, rows).to_struct_array()
    arrays: list[pa.Array] = [pa.array([kind] * len(rows), pa.string())]
    for name in EVENT_KINDS:
        if name == kind:
            arrays.append(own)
        else:
            arrays.append(pa.nulls(len(rows), arrow_struct(kind_ddl(name))))
    return pa.RecordBatch.from_arrays(arrays, names=["kind", *EVENT_KINDS])
