"""The audit in Spark: partitions side by side, each seen once, then producers across partitions.

Of a folder each task reads its partitions itself; nothing is shuffled, for a log lies in the order of its offsets. What
comes as a frame (of Spark's own Kafka source, say) is sorted first. Both say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from kcore.spark.audit.finding import FACT_DDL, Evidence, Fact, Finding, findings_ddl
from kcore.spark.audit.logs import GRACE_MS, Logs
from kcore.spark.decode.record_types import TOPICS
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.events.sources import open_source
from kcore.spark.frames.folders import shares

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kcore.spark.events.sources import Part, Source

SAID_DDL = f"finding struct<{findings_ddl()}>, fact struct<{FACT_DDL}>"
"""What looking at a partition gives: a finding or a fact a row."""

ROWS_PER_BATCH = 5_000


def said_of_folder(spark: SparkSession, path: str | Path, parts: Sequence[Part]) -> DataFrame:
    """The findings of every partition of a folder by itself, and the facts that others must agree with (`SAID_DDL`).

    Args:
        spark: a session.
        path: an export, a data folder, or a broker's log folder, where executors find it too.
        parts: which of its partitions.
    """
    with open_source(path) as source:
        tasks = shares(parts, 4 * spark.sparkContext.defaultParallelism if source.parallel else 1)
    folder = str(path)

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open_source(folder) as source:
            for batch in batches:
                for task in batch.column("id").to_pylist():
                    said = (said_of_part(source, part) for part in tasks[task])
                    yield from _in_batches(chain.from_iterable(said), _said_batch)

    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(look, SAID_DDL)


def said_of_partitions(
    events: DataFrame, cleaned_to: Mapping[tuple[str, int], int] | None = None, tasks: int | None = None
) -> DataFrame:
    """The same of a frame of events.

    Each partition is seen by one task in the order of its offsets. The task holds the live state, not the log.

    Args:
        events: the columns of the data source `kcore`, with `includeBatches` and, for damage, `includeFaults`.
        cleaned_to: where compaction has come to, as far as that is known.
        tasks: among how many tasks partitions are divided; None: `spark.sql.shuffle.partitions`.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    from kcore.spark.frames.transforms import EVENT_COLUMNS, FACT_COLUMNS  # noqa: PLC0415

    known = dict(cleaned_to or {})
    columns = [*EVENT_COLUMNS, *(name for name in FACT_COLUMNS if name in events.columns)]
    values = f.col("topic").isin(*TOPICS)
    if "control" in columns:
        values |= f.col("control")
    # What users' records say is of no matter, and most of what there is to move.
    frame = events.withColumn("value", f.when(values, f.col("value")))
    if "fault" not in frame.columns:
        frame = frame.withColumn("fault", f.lit(None).cast("string")).withColumn("fault_detail", f.col("fault"))
    places = ("topic", "partition")
    frame = frame.select(*columns, "fault", "fault_detail")
    frame = frame.repartition(*places) if tasks is None else frame.repartition(tasks, *places)
    order = (*places, "offset", f.col("fault").desc_nulls_last())

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return look_at(batches, known)

    return frame.sortWithinPartitions(*order).mapInArrow(look, SAID_DDL)


def logs_of(
    said: DataFrame, parts: Sequence[Part] = (), *, now_ms: int | None = None, grace_ms: int = GRACE_MS
) -> Logs:
    """What logs there are, out of `said_of_partitions`; see `Logs.of`. One row a partition comes to the driver."""
    rows = said.where("fact.fact = 'log'").select("fact.*").collect()
    return Logs.of((_fact(row.asDict()) for row in rows), parts, now_ms=now_ms, grace_ms=grace_ms)


def findings_across(said: DataFrame, logs: Logs, tasks: int | None = None) -> DataFrame:
    """The findings between partitions: one task a set of producers, and no more than one producer in its memory."""
    from kcore.spark.audit.across import SORTED  # noqa: PLC0415

    facts = said.where("fact is not null and fact.fact != 'log'").select("fact.*")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return compare_all(batches, logs)

    facts = facts.repartition("producer_id") if tasks is None else facts.repartition(tasks, "producer_id")
    return facts.sortWithinPartitions(*SORTED).mapInArrow(run, findings_ddl())


def audit_logs(said: DataFrame, logs: Logs, tasks: int | None = None) -> DataFrame:
    """All findings: those of partitions, and those between them. `said` is read twice: persist it before."""
    own = said.where("finding is not null").select("finding.*")
    return own.unionByName(findings_across(said, logs, tasks))


def frame_of(spark: SparkSession, findings: Iterable[Finding]) -> DataFrame:
    """Findings of the driver's own, as rows of the table."""
    rows = [tuple({**one._asdict(), "evidence": [*map(tuple, one.evidence)]}.values()) for one in findings]
    return spark.createDataFrame(rows, findings_ddl())


# ---- what runs on executors


def said_of_part(source: Source, part: Part) -> Iterator[Finding | Fact]:
    """What is said of one partition, where it is read."""
    from kcore.spark.audit.log_order import of_part  # noqa: PLC0415
    from kcore.spark.audit.partition import examine  # noqa: PLC0415

    def rows() -> Iterator[EventRow | LogFault]:
        faults: list[LogFault] = []
        for row in source.rows(part, on_fault=faults.append):
            if faults:
                yield from faults
                faults.clear()
            yield row
        yield from faults

    return chain(of_part(part), examine(part.topic, part.partition, rows(), cleaned_to=part.cleaned_to))


def look_at(batches: Iterable[pa.RecordBatch], cleaned_to: Mapping[tuple[str, int], int]) -> Iterator[pa.RecordBatch]:
    """Looks at sorted rows, partition after partition."""
    from kcore.spark.audit.partition import examine  # noqa: PLC0415

    def said() -> Iterator[Finding | Fact]:
        rows = chain.from_iterable(map(rows_of, batches))
        for (topic, partition), own in groupby(rows, key=lambda row: (row.topic, row.partition)):
            yield from examine(topic, partition, own, cleaned_to=cleaned_to.get((topic, partition)))

    return _in_batches(said(), _said_batch)


def compare_all(batches: Iterable[pa.RecordBatch], logs: Logs) -> Iterator[pa.RecordBatch]:
    """Compares sorted facts, producer after producer."""
    from kcore.spark.audit.across import compare  # noqa: PLC0415

    facts = (_fact(row) for batch in batches for row in batch.to_pylist())
    return _in_batches(compare(facts, logs), _finding_batch)


def rows_of(batch: pa.RecordBatch) -> Iterator[EventRow | LogFault]:
    """The rows of a batch; what could not be read in its place."""
    from kcore.spark.events.arrow import from_batch  # noqa: PLC0415

    faults = zip(batch.column("fault").to_pylist(), batch.column("fault_detail").to_pylist(), strict=True)
    for row, (kind, detail) in zip(from_batch(batch), faults, strict=True):
        yield row if kind is None else LogFault(row.topic, row.partition, row.offset, kind, detail)


def _in_batches(rows: Iterable[Any], make: Callable[[list[Any]], pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[Any] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) >= ROWS_PER_BATCH:
            yield make(waiting)
            waiting = []
    if waiting:
        yield make(waiting)


def _said_batch(rows: list[Finding | Fact]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    from kcore.spark.decode.ddl import arrow_struct  # noqa: PLC0415

    said = arrow_struct(SAID_DDL)
    columns = [[_as_dict(row) if isinstance(row, kind) else None for row in rows] for kind in (Finding, Fact)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, said, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in said])


def _finding_batch(rows: list[Finding]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    from kcore.spark.decode.ddl import arrow_struct  # noqa: PLC0415

    return pa.RecordBatch.from_struct_array(pa.array(list(map(_as_dict, rows)), arrow_struct(findings_ddl())))


def _as_dict(row: Finding | Fact) -> dict[str, Any]:
    fields = row._asdict()
    if isinstance(row, Finding):
        fields["evidence"] = [one._asdict() for one in row.evidence]
    return fields


def _fact(fields: Mapping[str, Any]) -> Fact:
    return Fact(**{**fields, "places": tuple(fields["places"])})


def finding_of(fields: Mapping[str, Any]) -> Finding:
    """A finding out of a row of the table."""
    evidence = tuple(Evidence(*(one[name] for name in Evidence._fields)) for one in fields["evidence"])
    return Finding(**{**fields, "evidence": evidence})
