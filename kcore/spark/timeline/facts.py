"""What the walk over a partition says, as rows of documented kinds. Types are Spark's; times are ms since the epoch.

Times are those of the records: when the coordinator wrote them. `whole` says whether the log still held everything at
and before the row (see `kcore.spark.state.completeness`); where it is false, earlier events of the same thing may be
missing, so that a cause or a duration may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.spark.state.table_schemas import GROUP, MEMBER, PARTITION, Columns

if TYPE_CHECKING:
    import pyarrow as pa

PARTS: Final = "array<struct<topic:string,partition:int>>"
WHOLE: Final = ("whole", "boolean", "whether the log still held everything at and before this row")

FACTS: Final[dict[str, Columns]] = {
    "rebalances": (
        PARTITION,
        GROUP,
        ("group_type", "string", "classic, consumer, share or streams"),
        ("epoch", "int", "classic: the generation; others: the group epoch"),
        ("previous_epoch", "int", "the one before in the log; null for the group's first"),
        ("skipped", "int", "epochs in between without a record: generations that never came to rest, or compacted"),
        ("start_offset", "bigint", "of the first record of the change"),
        ("end_offset", "bigint", "of the record that brought rest; null if none did"),
        ("start_ms", "bigint", "when the change began, as far as the log says"),
        ("end_ms", "bigint", "when it came to rest, or was overtaken by the next; null while it is open"),
        ("duration_ms", "bigint", "from start to end; null if the log does not say"),
        (
            "covers",
            "string",
            "of what the duration is: whole (change to rest), sync (classic: from the end of the join "
            "phase to the assignment), none",
        ),
        (
            "outcome",
            "string",
            "completed, superseded (overtaken by the next), emptied, deleted, open (at the log's "
            "end), replaced (no rebalance was needed)",
        ),
        ("cause", "string", "the foremost of `causes`"),
        ("causes", "array<string>", "all of them; see causes.py"),
        ("detail", "string", "what they were found by, for people"),
        ("members", "int", "how many members there are behind it"),
        ("joined", "array<string>", "members that came; static ones by their instance id"),
        ("left", "array<string>", "members that went"),
        ("moved", "int", "partitions that one member lost and another gained; null if the assignment is opaque"),
        ("gained", "int", "partitions that members gained, summed over members"),
        ("lost", "int", "partitions that members lost, summed over members"),
        WHOLE,
    ),
    "moves": (
        PARTITION,
        GROUP,
        ("epoch", "int", "of the rebalance"),
        ("start_offset", "bigint", "of the rebalance"),
        MEMBER,
        ("group_instance_id", "string", "static members: the name that outlives restarts"),
        ("client_id", "string", "the client's name for itself"),
        ("gained", PARTS, "what it gained; topics by name (classic), id (consumer, share) or TASKTYPE:SUBTOPOLOGY"),
        ("lost", PARTS, "what it lost"),
    ),
    "commits": (
        PARTITION,
        GROUP,
        ("topic", "string", "the topic"),
        ("partition", "int", "its partition"),
        ("record_offset", "bigint", "where the record stands"),
        ("timestamp_ms", "bigint", "when it was written"),
        ("committed_offset", "bigint", "the offset"),
        ("kind", "string", "plain, transactional, aborted (with its transaction) or pending (at the log's end)"),
        WHOLE,
    ),
    "transactions": (
        PARTITION,
        ("transactional_id", "string", "the id"),
        ("producer_id", "bigint", "the producer id"),
        ("producer_epoch", "int", "its epoch while the transaction was open"),
        ("start_offset", "bigint", "of its first record"),
        ("end_offset", "bigint", "of its last record; null while it is open"),
        ("start_ms", "bigint", "when it began"),
        ("prepare_ms", "bigint", "when its end was decided; null if it was not"),
        ("end_ms", "bigint", "when its markers were written; null if they were not"),
        ("duration_ms", "bigint", "from start to end; of open ones to the end of the log"),
        ("timeout_ms", "int", "how long it may take"),
        ("state", "string", "the last state that the log shows, under Kafka's name"),
        ("outcome", "string", "committed, aborted, open (at the log's end) or unknown (its end is not in the log)"),
        (
            "cause",
            "string",
            "of aborts: producer, timeout, fenced (by a new instance), producer or fenced (the log "
            "cannot tell); else null",
        ),
        ("partitions", "int", "how many partitions took part"),
        ("topics", "array<string>", "their topics, sorted"),
        WHOLE,
    ),
    "logs": (
        PARTITION,
        ("topic", "string", "the internal topic"),
        ("first_offset", "bigint", "the first offset that was there, -1 for an empty log"),
        ("next_offset", "bigint", "behind the last one"),
        ("first_ms", "bigint", "of the first record"),
        ("last_ms", "bigint", "the latest time of any record"),
        ("whole_from_offset", "bigint", "from here on nothing is missing; null: no such offset is known"),
        ("whole_from_ms", "bigint", "the time of the first record there; null if there is none"),
        ("records", "bigint", "how many rows were read"),
        ("faults", "bigint", "how many could not be decoded and were passed over"),
    ),
}
"""Kind of a fact -> its columns, in the order in which rows hold them."""

Fact = tuple[str, tuple[Any, ...]]
"""(kind, row)."""


def fact_ddl(kind: str) -> str:
    """A kind's schema in Spark's DDL."""
    return ", ".join(f"`{name}` {type_}" for name, type_, _ in FACTS[kind])


FACT_DDL: Final = "fact string, " + ", ".join(f"`{kind}` struct<{fact_ddl(kind)}>" for kind in FACTS)
"""All kinds in one frame: `fact` says which of the structs a row has."""


def fact_batches(facts: Iterator[Fact], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
    """Facts as record batches of `FACT_DDL`, each of one kind."""
    waiting: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in FACTS}
    for kind, row in facts:
        rows = waiting[kind]
        rows.append(row)
        if len(rows) >= rows_per_batch:
            yield _batch(kind, rows)
            rows.clear()
    for kind, rows in waiting.items():
        if rows:
            yield _batch(kind, rows)


def _batch(kind: str, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    from kcore.spark.decode.ddl import arrow_struct  # noqa: PLC0415

    own = arrow_struct(fact_ddl(kind))
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), own, strict=True)]
    arrays: list[pa.Array] = [pa.array([kind] * len(rows), pa.string())]
    for name in FACTS:
        if name == kind:
            arrays.append(pa.StructArray.from_arrays(columns, fields=list(own)))
        else:
            arrays.append(pa.nulls(len(rows), arrow_struct(fact_ddl(name))))
    return pa.RecordBatch.from_arrays(arrays, names=["fact", *FACTS])
