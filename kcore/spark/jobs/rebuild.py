"""The job `rebuild`: the state of coordinators as tables, as of any moment."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kcore.spark.frames import LogFacts, rebuild_state, table_of
from kcore.spark.jobs.session import add_session_arguments, parse_offsets, session
from kcore.spark.manifest import write_whole
from kcore.spark.sources import open_source
from kcore.spark.table_schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE = "rebuild.json"


def facts_of(path: str | Path) -> LogFacts:
    """What a folder says of its logs beside their rows."""
    with open_source(path) as source:
        parts = source.parts()
    return LogFacts(
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
) -> dict[str, int]:
    """Writes the tables of a folder's state as Parquet, one folder a table.

    A run replaces what an earlier one wrote; `rebuild.json` is written last, so that where it lies all tables are.

    Args:
        spark: a session.
        path: an export, a data folder, or raw segment files.
        out: where the tables go.
        offsets: (topic, partition) -> the offset before which to stop.
        timestamp_ms: stop before the first record with a later timestamp.

    Returns:
        How many rows each table has.
    """
    from pyspark import StorageLevel  # noqa: PLC0415

    target = Path(out)
    (target / DONE).unlink(missing_ok=True)
    events = spark.read.format("kcore").option("includeBatches", "true").load(str(path))
    state = rebuild_state(events, offsets=offsets, timestamp_ms=timestamp_ms, facts=facts_of(path))
    state = state.persist(StorageLevel.DISK_ONLY)
    try:
        counts = {row["table"]: row["count"] for row in state.groupBy("table").count().collect()}
        for name in TABLES:
            table_of(state, name).coalesce(1).write.mode("overwrite").parquet(str(target / name))
    finally:
        state.unpersist()
    found = {name: int(counts.get(name, 0)) for name in TABLES}
    moment = {"timestamp_ms": timestamp_ms, "offsets": [[*place, at] for place, at in sorted((offsets or {}).items())]}
    write_whole(target / DONE, json.dumps({"source": str(path), "as_of": moment, "rows": found}, indent=1).encode())
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job's arguments."""
    parser.add_argument("path", metavar="FOLDER", help="an export, a data folder, or a broker's log folder")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the tables go")
    parser.add_argument("--as-of-ms", type=int, metavar="MS", help="the state at that time, in ms since the epoch")
    parser.add_argument(
        "--as-of-offset",
        action="append",
        default=[],
        metavar="TOPIC-PARTITION:OFFSET",
        help="the state of one partition before that offset (may be repeated)",
    )
    add_session_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the job in a session of its own; 1 if a partition's state could not be known whole."""
    offsets = parse_offsets(options.as_of_offset)
    with session(options, "rebuild") as spark:
        counts = rebuild(spark, options.path, options.out, offsets=offsets, timestamp_ms=options.as_of_ms)
        incomplete = spark.read.parquet(str(Path(options.out) / "partitions")).where("not complete").count()
    for name, count in counts.items():
        print(f"{name:14} {count}")
    if incomplete:
        print(f"{incomplete} partitions were compacted since then: see `complete` in the table `partitions`")
    return 1 if incomplete else 0
