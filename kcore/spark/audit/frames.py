"""The audit in Spark: audits partitions in parallel, each in one pass, then compares producers across partitions.

For a folder, each task reads its own partitions without a shuffle, because a log is stored in offset order. Frames
from other sources (Spark's Kafka source, for example) are sorted first. Both ways give the same findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from kcore.spark.audit.finding import OBSERVATION_DDL, AuditObservation, Evidence, Finding, findings_ddl
from kcore.spark.audit.logs import GRACE_MS, Logs
from kcore.spark.decode.record_types import TOPICS
from kcore.spark.events.event import EventRow, LogFault

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kcore.spark.events.sources import Part, Source
    from kcore.spark.frames.logs import EventLogs

RESULTS_DDL = f"finding struct<{findings_ddl()}>, observation struct<{OBSERVATION_DDL}>"
"""The schema of the rows that the audit of a partition returns. Each row is a `Finding` or an `AuditObservation`."""

ROWS_PER_BATCH = 5_000


def results_of_logs(logs: EventLogs, parts: Sequence[Part]) -> DataFrame:
    """Returns the findings within each partition, and the observations to compare across partitions (`RESULTS_DDL`).

    Args:
        logs: the logs that contain the partitions.
        parts: the partitions to audit.
    """

    hides_control = logs.hides_control

    def look(pairs: Iterable[tuple[Source, Part]]) -> Iterator[pa.RecordBatch]:
        results = (results_of_part(source, part, hides_control) for source, part in pairs)
        return _in_batches(chain.from_iterable(results), _result_batch)

    return logs.run(parts, look, RESULTS_DDL)


def results_of_partitions(
    events: DataFrame, cleaned_to: Mapping[tuple[str, int], int] | None = None, tasks: int | None = None
) -> DataFrame:
    """Returns the results of `results_of_logs`, for a frame of events.

    For each partition, one task reads the rows in offset order. The task keeps the live state in memory, but not the
    log.

    Args:
        events: the columns of the data source `kcore`, with `includeBatches` and, to report damage, `includeFaults`.
        cleaned_to: (topic, partition) -> the offset up to which compaction has run. It has no entries for partitions
            with an unknown offset.
        tasks: the number of tasks; None: `spark.sql.shuffle.partitions`.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    from kcore.spark.frames.transforms import DETAIL_COLUMNS, EVENT_COLUMNS  # noqa: PLC0415

    cleaned = dict(cleaned_to or {})
    columns = [*EVENT_COLUMNS, *(name for name in DETAIL_COLUMNS if name in events.columns)]
    values = f.col("topic").isin(*TOPICS)
    if "control" in columns:
        values |= f.col("control")
    # The audit ignores the values of users' records, which are most of the data to shuffle.
    frame = events.withColumn("value", f.when(values, f.col("value")))
    if "fault" not in frame.columns:
        frame = frame.withColumn("fault", f.lit(None).cast("string")).withColumn("fault_detail", f.col("fault"))
    partitions = ("topic", "partition")
    frame = frame.select(*columns, "fault", "fault_detail")
    frame = frame.repartition(*partitions) if tasks is None else frame.repartition(tasks, *partitions)
    order = (*partitions, "offset", f.col("fault").desc_nulls_last())

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return look_at(batches, cleaned)

    return frame.sortWithinPartitions(*order).mapInArrow(look, RESULTS_DDL)


def logs_of(
    results: DataFrame, parts: Sequence[Part] = (), *, now_ms: int | None = None, grace_ms: int = GRACE_MS
) -> Logs:
    """Returns the available logs (`Logs.of`) from the rows of `results_of_partitions`.

    Collects one row per partition to the driver.
    """
    rows = results.where("observation.kind = 'log'").select("observation.*").collect()
    return Logs.of((_observation(row.asDict()) for row in rows), parts, now_ms=now_ms, grace_ms=grace_ms)


def findings_across(results: DataFrame, logs: Logs, tasks: int | None = None) -> DataFrame:
    """Returns the findings across partitions. Each task holds one producer in memory at a time."""
    from kcore.spark.audit.across import SORTED  # noqa: PLC0415

    observations = results.where("observation is not null and observation.kind != 'log'").select("observation.*")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return compare_all(batches, logs)

    observations = (
        observations.repartition("producer_id") if tasks is None else observations.repartition(tasks, "producer_id")
    )
    return observations.sortWithinPartitions(*SORTED).mapInArrow(run, findings_ddl())


def audit_logs(results: DataFrame, logs: Logs, tasks: int | None = None) -> DataFrame:
    """Returns all findings, within and across partitions. Reads `results` twice: persist it first."""
    own = results.where("finding is not null").select("finding.*")
    return own.unionByName(findings_across(results, logs, tasks))


def frame_of(spark: SparkSession, findings: Iterable[Finding]) -> DataFrame:
    """Converts findings in the driver's memory to a frame with the columns of the findings table."""
    rows = [tuple({**finding._asdict(), "evidence": [*map(tuple, finding.evidence)]}.values()) for finding in findings]
    return spark.createDataFrame(rows, findings_ddl())


# ---- what runs on executors


def results_of_part(source: Source, part: Part, hides_control: bool = False) -> Iterator[Finding | AuditObservation]:
    """Audits one partition in the process that reads it; yields each `Finding` and `AuditObservation`.

    If the source hides transaction markers, any gap may be a marker, so no gap is reported.
    """
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

    cleaned_to = part.end if hides_control else part.cleaned_to
    return chain(of_part(part), examine(part.topic, part.partition, rows(), cleaned_to=cleaned_to))


def look_at(batches: Iterable[pa.RecordBatch], cleaned_to: Mapping[tuple[str, int], int]) -> Iterator[pa.RecordBatch]:
    """Audits rows that are sorted by partition and offset, one partition after another."""
    from kcore.spark.audit.partition import examine  # noqa: PLC0415

    def results() -> Iterator[Finding | AuditObservation]:
        rows = chain.from_iterable(map(rows_of, batches))
        for (topic, partition), own in groupby(rows, key=lambda row: (row.topic, row.partition)):
            yield from examine(topic, partition, own, cleaned_to=cleaned_to.get((topic, partition)))

    return _in_batches(results(), _result_batch)


def compare_all(batches: Iterable[pa.RecordBatch], logs: Logs) -> Iterator[pa.RecordBatch]:
    """Compares observations (`AuditObservation`) in the order of `across.SORTED`, one producer after another."""
    from kcore.spark.audit.across import compare  # noqa: PLC0415

    observations = (_observation(row) for batch in batches for row in batch.to_pylist())
    return _in_batches(compare(observations, logs), findings_batch)


def rows_of(batch: pa.RecordBatch) -> Iterator[EventRow | LogFault]:
    """Yields the rows of a batch, with a `LogFault` in place of each unreadable row."""
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


def _result_batch(rows: list[Finding | AuditObservation]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    from kcore.spark.decode.ddl import arrow_struct  # noqa: PLC0415

    results = arrow_struct(RESULTS_DDL)
    kinds = (Finding, AuditObservation)
    columns = [[_as_dict(row) if isinstance(row, kind) else None for row in rows] for kind in kinds]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, results, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in results])


def findings_batch(rows: list[Finding]) -> pa.RecordBatch:
    """Returns findings as a record batch of the findings table."""
    import pyarrow as pa  # noqa: PLC0415

    from kcore.spark.decode.ddl import arrow_struct  # noqa: PLC0415

    return pa.RecordBatch.from_struct_array(pa.array(list(map(_as_dict, rows)), arrow_struct(findings_ddl())))


def _as_dict(row: Finding | AuditObservation) -> dict[str, Any]:
    fields = row._asdict()
    if isinstance(row, Finding):
        fields["evidence"] = [evidence._asdict() for evidence in row.evidence]
    return fields


def _observation(fields: Mapping[str, Any]) -> AuditObservation:
    return AuditObservation(**{**fields, "partitions": tuple(fields["partitions"])})


def finding_of(fields: Mapping[str, Any]) -> Finding:
    """Returns a finding from a row of the findings table."""
    evidence = tuple(Evidence(*(item[name] for name in Evidence._fields)) for item in fields["evidence"])
    return Finding(**{**fields, "evidence": evidence})
