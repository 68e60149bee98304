"""The job `rebuild`: writes coordinator state as tables, as of any moment."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.errors import KcoreError
from kcore.printable import clean, counted
from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.spark.events.event import EventRow
from kcore.spark.frames.checkpoints import checkpoints_at, forget_checkpoints, write_checkpoints
from kcore.spark.frames.folders import folder_checkpoints, folder_live_records, folder_tables
from kcore.spark.frames.logs import EventLogs, LogSource, logs_at
from kcore.spark.frames.output import REBUILD_DONE, Output
from kcore.spark.frames.transforms import table_of
from kcore.spark.jobs.early_checks import check_places, check_rebuild
from kcore.spark.jobs.session import (
    add_folder_argument,
    add_output_arguments,
    add_session_arguments,
    parse_offsets,
    session,
    source_of,
)
from kcore.spark.state.absent import Absent, absent_partitions
from kcore.spark.state.data_folder import WrittenFolder, check_empty, write_data_folder
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.state.rebuild_report import (
    Uncertainties,
    absent_rows,
    before_all,
    beyond_end,
    placed_ids,
    uncertainties_of,
)
from kcore.spark.state.table_files import WrittenFile, complete_tables, put_tables, staging_folder, write_tables
from kcore.spark.state.table_schemas import CHECKPOINT, TABLES, table_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

LEAST_PARTITIONS = {CONSUMER_OFFSETS: 1}
"""Internal topic -> its partition count in a new data folder, if the source has no partition of the topic."""


class Moment(NamedTuple):
    """The moment of a state: offsets by (topic, partition), and a time in ms since the epoch or None."""

    offsets: Mapping[tuple[str, int], int] = {}
    timestamp_ms: int | None = None


END = Moment()
"""The end of the logs."""


def rebuild(
    spark: SparkSession,
    path: LogSource | EventLogs,
    out: str | Path | Output,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
    partitions: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Writes the coordinator state that logs contain, as tables.

    It writes `rebuild.json` last: if that file exists, all tables exist. Missing partitions have rows in `partitions`
    and `faults`.

    Args:
        spark: a session.
        path: an export, a data folder, or raw segment files; or a cluster.
        out: a folder, whose earlier output is replaced, or an `Output`.
        offsets: (topic, partition) -> the offset before which to stop.
        timestamp_ms: stop before the first record with a later timestamp.
        partitions: internal topic -> partition count; inferred from the logs for other topics.

    Returns:
        The number of rows of each table.

    Raises:
        KcoreError: an offset names a missing partition, or a partition exists beyond the partition count of its topic.
    """
    moment = Moment(offsets or {}, timestamp_ms)
    return rebuild_with_uncertainties(spark, path, out, moment, partitions=partitions)[0]


def rebuild_with_uncertainties(
    spark: SparkSession,
    path: LogSource | EventLogs,
    out: str | Path | Output,
    moment: Moment = END,
    *,
    partitions: Mapping[str, int] | None = None,
    checkpoint: bool = False,
    since: str | Path | None = None,
) -> tuple[dict[str, int], Uncertainties]:
    """Writes the tables, and returns the number of their rows and the uncertainties of the state.

    `rebuild` documents the other arguments.

    Args:
        spark: a session.
        path: the place of the logs.
        out: the place of the tables.
        moment: the moment of the state.
        partitions: internal topic -> partition count.
        checkpoint: True to write checkpoints, from which a later run can continue.
        since: the output of an earlier run with checkpoints, to continue from; None: replays the logs from their start.

    Raises:
        KcoreError: the checkpoints do not fit the logs, or another job writes to the output.
    """
    target = out if isinstance(out, Output) else Output(spark, out)
    if checkpoint:
        target.check_checkpoints()
    logs = logs_at(spark, path)
    previous = None if since is None else checkpoints_at(spark, logs, since)
    if previous is not None and target.files is not None and previous.uri == target.files.uri:
        raise KcoreError(f"{since} is also the output, which would replace the checkpoints: name another folder")
    options: dict[str, Any] = {**moment._asdict(), "checkpoint": checkpoint, "previous": previous}
    late, unknown = beyond_end(logs.parts(), moment.offsets)
    with target.run(logs.name, REBUILD_DONE, "partitions"):
        if target.folder is not None:
            counts, absent, uncertainties = _written_by_tasks(spark, logs, target, options, partitions, unknown)
        else:
            frame = folder_checkpoints(spark, logs, **options)
            counts, absent, uncertainties = _written_by_spark(
                spark, logs, target, frame, partitions, unknown, checkpoint=checkpoint
            )
        done = {
            "source": logs.name,
            "as_of": {
                "timestamp_ms": moment.timestamp_ms,
                "offsets": [[*place, at] for place, at in sorted(moment.offsets.items())],
            },
            "rows": counts,
            "absent": [[topic.topic, partition] for topic in absent for partition in topic.partitions],
        }
        target.end(REBUILD_DONE, json.dumps(done, indent=1).encode())
    return counts, uncertainties._replace(lines=[*late, *before_all(moment.timestamp_ms, counts), *uncertainties.lines])


def _begin(target: Output) -> None:
    """Marks the earlier output and its checkpoints as incomplete, just before the job changes them."""
    target.begin(REBUILD_DONE)
    forget_checkpoints(target)


Written = tuple[dict[str, int], "list[Absent]", Uncertainties]
"""The result of a rebuild: the number of rows by table, the missing partitions, and the uncertainties."""


def _written_by_tasks(
    spark: SparkSession,
    logs: EventLogs,
    target: Output,
    options: Mapping[str, Any],
    partitions: Mapping[str, int] | None,
    unknown: Mapping[tuple[str, int], int],
) -> Written:
    """Writes Parquet to a local folder without passing the rows through Spark.

    `options` contains arguments of `folder_tables`. `unknown` maps each partition whose log end is unknown to the
    offset before which to stop.
    """
    folder = target.folder
    assert folder is not None, "the caller checks it"
    staging = staging_folder(folder)
    try:
        frame = folder_tables(spark, logs, staging, **options)
        written = [WrittenFile(*row) for row in frame.collect()]
        absent = absent_partitions(_present(logs), placed_ids(written, staging), partitions)
        written += write_tables(absent_rows(absent), staging)
        counts = complete_tables(written, staging)
        _begin(target)
        put_tables(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return counts, absent, uncertainties_of(folder, unknown)


def _written_by_spark(
    spark: SparkSession,
    logs: EventLogs,
    target: Output,
    state: DataFrame,
    partitions: Mapping[str, int] | None,
    unknown: Mapping[tuple[str, int], int],
    *,
    checkpoint: bool,
) -> Written:
    """Writes the tables with Spark's writers. Executors keep the state on their disks until all tables are written.

    Args:
        spark: the session.
        logs: the logs to replay.
        target: the output that receives the tables.
        state: the rows of all tables.
        partitions: topic -> number of partitions; None for the partitions of the source.
        unknown: each partition whose log end is unknown -> the offset before which to stop.
        checkpoint: True to write checkpoints, too.
    """
    from pyspark import StorageLevel  # noqa: PLC0415

    from kcore.spark.frames.uncertainties import placed_ids_of, uncertainties_of_frames, with_absent  # noqa: PLC0415

    state = state.persist(StorageLevel.DISK_ONLY)
    try:
        counts = {**dict.fromkeys(TABLES, 0), **{row[0]: row[1] for row in state.groupBy("table").count().collect()}}
        absent = absent_partitions(_present(logs), placed_ids_of(state, counts), partitions)
        # Most logs leave many tables empty, and a scan of the state costs more than writing an empty table.
        frames = {
            name: table_of(state, name) if counts[name] else spark.createDataFrame([], table_ddl(name))
            for name in TABLES
        }
        for name in ("partitions", "faults"):
            counts[name] += sum(len(topic.partitions) for topic in absent)
        _begin(target)
        written = target.write_all({name: with_absent(spark, frames[name], name, absent) for name in TABLES})
        count, uncertainties = uncertainties_of_frames(
            written["partitions"], written["faults"] if counts["faults"] else None, unknown
        )
        if count != counts["partitions"]:
            raise KcoreError(
                f"the driver does not find the rows that executors wrote to {target.table('partitions')}: "
                "name a folder that all of them share"
            )
        if checkpoint:
            write_checkpoints(target, table_of(state, CHECKPOINT))
        counts.pop(CHECKPOINT, None)
        return counts, absent, uncertainties
    finally:
        state.unpersist()


def _present(logs: EventLogs) -> dict[str, set[int]]:
    """Returns the existing partitions of each internal topic."""
    numbers: dict[str, set[int]] = {}
    for part in logs.parts():
        if part.topic in COORDINATOR_TOPICS:
            numbers.setdefault(part.topic, set()).add(part.partition)
    return numbers


def partition_counts(logs: EventLogs, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Returns the partition count of each internal topic: the count in `given`, or else inferred from the logs."""
    inferred = {topic: max(numbers) + 1 for topic, numbers in _present(logs).items()}
    return {**LEAST_PARTITIONS, **inferred, **(given or {})}


def rebuild_folder(
    spark: SparkSession,
    path: LogSource | EventLogs,
    folder: str | Path,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
    partitions: Mapping[str, int] | None = None,
) -> WrittenFolder:
    """Writes a data folder that `kcore serve` can start from, with the coordinator state as of a moment.

    Args:
        spark: a session.
        path: an export, a data folder, or raw segment files; or a cluster.
        folder: the new data folder on this machine, which must be empty or not exist.
        offsets: (topic, partition) -> the offset before which to stop.
        timestamp_ms: stop before the first record with a later timestamp.
        partitions: internal topic -> partition count, if the source does not contain all partitions.

    Raises:
        KcoreError: the folder is not empty, or a group is not in the partition that follows from the
            partition count and the hash of the group id.
    """
    check_empty(Path(folder))
    logs = logs_at(spark, path)
    live = folder_live_records(spark, logs, offsets=offsets, timestamp_ms=timestamp_ms)
    live = live.selectExpr("*", "unix_millis(timestamp) as timestamp_ms")
    return write_data_folder(folder, partition_counts(logs, partitions), map(event_of, live.toLocalIterator()))


def event_of(row: Row) -> EventRow:
    """Converts a row of a frame of events to an `EventRow`.

    The function takes the time from the column `timestamp_ms`, which does not depend on a time zone.
    """
    return EventRow(
        None if row["key"] is None else bytes(row["key"]),
        None if row["value"] is None else bytes(row["value"]),
        row["topic"],
        row["partition"],
        row["offset"],
        -1 if row["timestamp_ms"] is None else row["timestamp_ms"],
        row["timestampType"],
        tuple(
            (header["key"], None if header["value"] is None else bytes(header["value"]))
            for header in row["headers"] or ()
        ),
        row["producer_id"],
        row["producer_epoch"],
        row["last_sequence"],
        row["transactional"],
        row["control"],
        row["batch_only"],
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the job's arguments."""
    add_folder_argument(parser)
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the output folder for the tables")
    parser.add_argument(
        "--as-of-ms", type=int, metavar="MS", help="rebuild the state at this time, in ms since the epoch"
    )
    parser.add_argument(
        "--as-of-offset",
        action="append",
        default=[],
        metavar="TOPIC-PARTITION:OFFSET",
        help="rebuild the state of this partition before this offset (may be repeated)",
    )
    parser.add_argument(
        "--data-folder",
        metavar="DIR",
        help="also write a data folder from which `kcore serve` can start; the folder must be empty or new",
    )
    parser.add_argument(
        "--topic-partitions",
        action="append",
        default=[],
        metavar="TOPIC=N",
        help="the partition count of an internal topic, if the folder lacks some partitions (may be repeated)",
    )
    parser.add_argument(
        "--checkpoint", action="store_true", help="also write checkpoints, from which --since can continue"
    )
    parser.add_argument(
        "--since", metavar="PREVIOUS", help="continue from the output of an earlier run with --checkpoint"
    )
    add_output_arguments(parser)
    add_session_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the job in its own session; returns 1 if a partition is incomplete or a record was not applied."""
    offsets = parse_offsets(options.as_of_offset)
    topic_counts = parse_partitions(options.topic_partitions)
    written: WrittenFolder | None = None
    if options.data_folder is not None:
        check_empty(Path(options.data_folder))
    check_places(options, REBUILD_DONE)
    check_rebuild(options)
    with session(options, "rebuild") as spark:
        logs = logs_at(spark, source_of(options))
        target = Output(spark, options.out, options.format, options.mode)
        counts, uncertainties = rebuild_with_uncertainties(
            spark,
            logs,
            target,
            Moment(offsets, options.as_of_ms),
            partitions=topic_counts,
            checkpoint=options.checkpoint,
            since=options.since,
        )
        if options.data_folder is not None:
            written = rebuild_folder(
                spark,
                logs,
                options.data_folder,
                offsets=offsets,
                timestamp_ms=options.as_of_ms,
                partitions=topic_counts,
            )
    for name, count in counts.items():
        print(f"{name:14} {count}")
    for topic, count in sorted(written.records.items()) if written is not None else ():
        print(clean(f"{counted(count, 'records')} of {topic} in {options.data_folder}"))
    for line in uncertainties.lines:
        print(clean(line))
    return 1 if uncertainties.are_grave else 0


def parse_partitions(texts: Sequence[str]) -> dict[str, int]:
    """Parses `TOPIC=N` entries to a mapping. Raises KcoreError for other texts and for topics that are not internal."""
    counts = {}
    for text in texts:
        topic, _, count = text.partition("=")
        if topic not in COORDINATOR_TOPICS or not count.isdecimal() or not int(count):
            raise KcoreError(
                f"{text!r} is not TOPIC=N with one of the topics {', '.join(COORDINATOR_TOPICS)} and a count of 1 or "
                "more"
            )
        counts[topic] = int(count)
    return counts
