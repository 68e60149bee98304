"""Jobs, for `spark-submit` and for the command line. Only `main` makes a session.

spark-submit .../kcore/spark/jobs.py rebuild EXPORT --out STATE      (kcore is installed where Spark runs Python)
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kcore.errors import KcoreError
from kcore.spark.frames import LogFacts, rebuild_state, table_of
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


def add_rebuild_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rebuild`."""
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
    parser.add_argument("--master", help="Spark's master; by default what spark-submit says, else local[*]")


def parse_offsets(texts: Sequence[str]) -> dict[tuple[str, int], int]:
    """`TOPIC-PARTITION:OFFSET` as a mapping. KcoreError for anything else."""
    found = {}
    for text in texts:
        place, _, offset = text.rpartition(":")
        topic, _, partition = place.rpartition("-")
        if not topic or not partition.isdigit() or not offset.isdigit():
            raise KcoreError(f"{text!r} is no TOPIC-PARTITION:OFFSET")
        found[topic, int(partition)] = int(offset)
    return found


def run_rebuild(options: argparse.Namespace) -> int:
    """Runs `rebuild` in a session of its own."""
    if shutil.which("java") is None:
        raise KcoreError("Spark needs a Java runtime (17 or newer), and there is no `java` here")
    offsets = parse_offsets(options.as_of_offset)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName("kcore rebuild")
    if options.master is not None:
        builder = builder.master(options.master)
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        counts = rebuild(spark, options.path, options.out, offsets=offsets, timestamp_ms=options.as_of_ms)
        incomplete = spark.read.parquet(str(Path(options.out) / "partitions")).where("not complete").count()
    finally:
        spark.stop()
    for name, count in counts.items():
        print(f"{name:14} {count}")
    if incomplete:
        print(f"{incomplete} partitions were compacted since then: see `complete` in the table `partitions`")
    return 1 if incomplete else 0


def main(argv: Sequence[str] | None = None) -> int:
    """`spark-submit`'s entry."""
    parser = argparse.ArgumentParser(prog="kcore spark", description="Jobs over event logs.")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    add_rebuild_arguments(jobs.add_parser("rebuild", help="the state of coordinators as tables"))
    try:
        return run_rebuild(parser.parse_args(argv))
    except KcoreError as error:
        print(f"kcore: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
