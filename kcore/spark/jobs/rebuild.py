"""The job `rebuild`: writes coordinator state as tables, as of any moment."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kcore.errors import KcoreError
from kcore.printable import clean
from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import open_source
from kcore.spark.export.manifest import write_whole
from kcore.spark.frames.folders import folder_living, folder_tables
from kcore.spark.frames.transforms import LogProperties
from kcore.spark.jobs.session import add_folder_argument, add_session_arguments, parse_offsets, session
from kcore.spark.state.absent import absent_partitions
from kcore.spark.state.data_folder import WrittenFolder, check_empty, write_data_folder
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.state.rebuild_report import absent_rows, doubts_of, placed_ids
from kcore.spark.state.table_files import WrittenFile, put_tables, staging_folder, write_tables

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

DONE = "rebuild.json"
LEAST_PARTITIONS = {CONSUMER_OFFSETS: 1}
"""The minimum partition count of an internal topic in a data folder, even if the source has no partition of it."""


def log_properties(path: str | Path) -> LogProperties:
    """Returns the properties of a folder's logs beside their rows."""
    with open_source(path) as source:
        parts = source.parts()
    return LogProperties(
        {part[:2]: part.cleaned_to for part in parts if part.cleaned_to is not None},
        {part[:2]: part.active_offset for part in parts if part.active_offset is not None},
    )


def rebuild(
    spark: SparkSession,
    path: str | Path,
    out: str | Path,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
    partitions: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Writes the tables of a folder's state as Parquet, one folder per table.

    A run replaces the output of an earlier one. It writes `rebuild.json` last: if that file exists, all tables do.
    Missing partitions have rows in `partitions` and `faults`.

    Args:
        spark: a session.
        path: an export, a data folder, or raw segment files.
        out: the output folder; executors write there, so they must share it.
        offsets: (topic, partition) -> the offset before which to stop.
        timestamp_ms: stop before the first record with a later timestamp.
        partitions: internal topic -> partition count; inferred from the folder for other topics.

    Returns:
        The number of rows of each table.

    Raises:
        KcoreError: an offset names a missing partition, or a partition exists that its topic cannot have.
    """
    target = Path(out).absolute()
    (target / DONE).unlink(missing_ok=True)
    staging = staging_folder(target)
    try:
        frame = folder_tables(spark, path, staging, offsets=offsets, timestamp_ms=timestamp_ms)
        written = [WrittenFile(*row) for row in frame.collect()]
        absent = absent_partitions(_present(path), placed_ids(written, staging), partitions)
        written += write_tables(absent_rows(absent), staging)
        found = put_tables(written, staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    moment = {"timestamp_ms": timestamp_ms, "offsets": [[*place, at] for place, at in sorted((offsets or {}).items())]}
    done = {
        "source": str(path),
        "as_of": moment,
        "rows": found,
        "absent": [[one.topic, partition] for one in absent for partition in one.partitions],
    }
    write_whole(target / DONE, json.dumps(done, indent=1).encode())
    return found


def _present(path: str | Path) -> dict[str, set[int]]:
    """Returns internal topic -> its partitions in a folder."""
    found: dict[str, set[int]] = {}
    with open_source(path) as source:
        for part in source.parts():
            if part.topic in COORDINATOR_TOPICS:
                found.setdefault(part.topic, set()).add(part.partition)
    return found


def partition_counts(path: str | Path, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Returns the partition count of each internal topic, as given or else inferred from the folder."""
    found = {topic: max(numbers) + 1 for topic, numbers in _present(path).items()}
    return {**LEAST_PARTITIONS, **found, **(given or {})}


def rebuild_folder(
    spark: SparkSession,
    path: str | Path,
    folder: str | Path,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
    partitions: Mapping[str, int] | None = None,
) -> WrittenFolder:
    """Writes a data folder that `kcore serve` can start from, with the coordinator state as of a moment.

    Args:
        spark: a session.
        path: an export, a data folder, or raw segment files.
        folder: the new data folder, which must be empty or not exist.
        offsets: (topic, partition) -> the offset before which to stop.
        timestamp_ms: stop before the first record with a later timestamp.
        partitions: internal topic -> partition count, if the source does not contain all partitions.

    Raises:
        KcoreError: the folder is not empty, or a group is not in the partition that this partition count implies.
    """
    check_empty(Path(folder))
    living = folder_living(spark, path, offsets=offsets, timestamp_ms=timestamp_ms)
    living = living.selectExpr("*", "unix_millis(timestamp) as timestamp_ms")
    return write_data_folder(folder, partition_counts(path, partitions), map(event_of, living.toLocalIterator()))


def event_of(row: Row) -> EventRow:
    """Converts a row of a frame of events to an `EventRow`.

    Its time is in the column `timestamp_ms`, which does not depend on a time zone.
    """
    return EventRow(
        None if row["key"] is None else bytes(row["key"]),
        None if row["value"] is None else bytes(row["value"]),
        row["topic"],
        row["partition"],
        row["offset"],
        -1 if row["timestamp_ms"] is None else row["timestamp_ms"],
        row["timestampType"],
        tuple((one["key"], None if one["value"] is None else bytes(one["value"])) for one in row["headers"] or ()),
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
    parser.add_argument("--as-of-ms", type=int, metavar="MS", help="the state at that time, in ms since the epoch")
    parser.add_argument(
        "--as-of-offset",
        action="append",
        default=[],
        metavar="TOPIC-PARTITION:OFFSET",
        help="the state of one partition before that offset (may be repeated)",
    )
    parser.add_argument(
        "--data-folder",
        metavar="DIR",
        help="also write a data folder that `kcore serve` can start from; must be empty or not exist",
    )
    parser.add_argument(
        "--topic-partitions",
        action="append",
        default=[],
        metavar="TOPIC=N",
        help="the partition count of an internal topic, if the folder lacks some partitions (may be repeated)",
    )
    add_session_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the job in its own session; returns 1 if a partition is incomplete or a record was not applied."""
    offsets = parse_offsets(options.as_of_offset)
    given = parse_partitions(options.topic_partitions)
    written: WrittenFolder | None = None
    if options.data_folder is not None:
        check_empty(Path(options.data_folder))
    with session(options, "rebuild") as spark:
        counts = rebuild(
            spark, options.path, options.out, offsets=offsets, timestamp_ms=options.as_of_ms, partitions=given
        )
        if options.data_folder is not None:
            written = rebuild_folder(
                spark,
                options.path,
                options.data_folder,
                offsets=offsets,
                timestamp_ms=options.as_of_ms,
                partitions=given,
            )
        doubts = doubts_of(options.out)
    for name, count in counts.items():
        print(f"{name:14} {count}")
    for topic, count in sorted(written.records.items()) if written is not None else ():
        print(clean(f"{count} records of {topic} in {options.data_folder}"))
    for line in doubts.lines:
        print(clean(line))
    return 1 if doubts.are_grave else 0


def parse_partitions(texts: Sequence[str]) -> dict[str, int]:
    """Parses `TOPIC=N` entries to a mapping. KcoreError for anything else and for topics that are not internal."""
    found = {}
    for text in texts:
        topic, _, count = text.partition("=")
        if topic not in COORDINATOR_TOPICS or not count.isdigit() or not int(count):
            raise KcoreError(f"{text!r} is not TOPIC=N; the topics are {', '.join(COORDINATOR_TOPICS)}")
        found[topic] = int(count)
    return found
