"""The job `timeline`: shows rebalances, commits and transactions over time, as tables and as an HTML page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcore.errors import KcoreError
from kcore.spark.events.sources import open_source
from kcore.spark.export.manifest import write_whole
from kcore.spark.jobs.rebuild import log_properties
from kcore.spark.jobs.session import add_folder_argument, add_session_arguments, session
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.timeline.frames import (
    GAP_MS,
    STORM_COUNT,
    STORM_WINDOW_MS,
    Bounds,
    events_of_kind,
    log_ends,
    nice_width,
    shared_topics,
    timeline_events,
    timeline_tables,
)
from kcore.spark.timeline.history import HistoryOptions
from kcore.spark.timeline.report import render
from kcore.spark.timeline.summary import MAX_BUCKETS, Summary, summarise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DONE = "timeline.json"
REPORT = "timeline.html"


class TimelineOptions(NamedTuple):
    """The options of a timeline.

    Attributes without a comment are those of `Bounds` and `HistoryOptions`. `window_ms` is None if the width is derived
    from the covered time.
    """

    from_ms: int | None = None
    to_ms: int | None = None
    window_ms: int | None = None
    groups: frozenset[str] | None = None
    gap_ms: int = GAP_MS
    storm_count: int = STORM_COUNT
    storm_window_ms: int = STORM_WINDOW_MS
    session_timeout_ms: int | None = None


def timeline(spark: SparkSession, path: str | Path, out: str | Path, options: TimelineOptions | None = None) -> Summary:
    """Writes the tables as Parquet, one folder per table, and `timeline.html`.

    A run replaces the output of an earlier one. It writes `timeline.json` last: if that file exists, the output is
    complete.

    Args:
        spark: a session.
        path: an export, a data folder, or raw segment files.
        out: the output folder.
        options: the options.

    Returns:
        The content of the report.
    """
    from pyspark import StorageLevel  # noqa: PLC0415

    options = options or TimelineOptions()
    target = Path(out)
    (target / DONE).unlink(missing_ok=True)
    events = spark.read.format("kcore").option("includeBatches", "true").load(str(path))
    wanted = HistoryOptions(options.groups, options.session_timeout_ms)
    derived = timeline_events(events, wanted, log_properties(path), tasks=_coordinator_partitions(path))
    derived = derived.persist(StorageLevel.DISK_ONLY)

    def stored(name: str, table: DataFrame) -> DataFrame:
        place = str(target / name)
        table.coalesce(1).write.mode("overwrite").parquet(place)
        return spark.read.schema(table.schema).parquet(place)

    try:
        bounds = _bounds(options, derived)
        topics = shared_topics(derived)
        ends = log_ends(events, topics, bounds.window_ms) if topics else None
        written = timeline_tables(derived, bounds, stored, ends)
    finally:
        derived.unpersist()
    summary = summarise(written, bounds)
    summary["source"] = str(path)
    summary["groups_asked"] = sorted(options.groups or ())
    write_whole(target / REPORT, render(summary).encode())
    counts = {name: table.count() for name, table in written.items()}
    done = {"source": str(path), "bounds": bounds._asdict(), "groups": summary["groups_asked"], "rows": counts}
    write_whole(target / DONE, json.dumps(done, indent=1).encode())
    return summary


def _coordinator_partitions(path: str | Path) -> int:
    """Returns the number of partitions of internal topics in a folder, at least 1."""
    with open_source(path) as source:
        return max(1, sum(part.topic in COORDINATOR_TOPICS for part in source.parts()))


def _bounds(options: TimelineOptions, derived: DataFrame) -> Bounds:
    window_ms = options.window_ms
    if window_ms is None:
        row = (
            events_of_kind(derived, "logs").selectExpr("min(if(first_ms < 0, null, first_ms))", "max(last_ms)").first()
        )
        first_ms, last_ms = (0, 0) if row is None else (row[0] or 0, row[1] or 0)
        begin_ms = first_ms if options.from_ms is None else max(first_ms, options.from_ms)
        end_ms = last_ms if options.to_ms is None else min(last_ms, options.to_ms)
        window_ms = nice_width(max(1, end_ms - begin_ms), MAX_BUCKETS)
    return Bounds(
        window_ms, options.gap_ms, options.storm_count, options.storm_window_ms, options.from_ms, options.to_ms
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the job's arguments."""
    defaults = TimelineOptions()
    add_folder_argument(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="the output folder for tables and timeline.html")
    parser.add_argument("--from-ms", type=int, metavar="MS", help="skip what ended before, in ms since the epoch")
    parser.add_argument("--to-ms", type=int, metavar="MS", help="skip what began at this time or later, likewise")
    parser.add_argument(
        "--window-ms", type=int, metavar="MS", help="window width; default: derived from the covered time"
    )
    parser.add_argument("--group", action="append", metavar="ID", help="only this group (may be repeated)")
    parser.add_argument(
        "--gap-ms",
        type=int,
        default=defaults.gap_ms,
        metavar="MS",
        help="the minimum length of a gap in commits (%(default)s)",
    )
    parser.add_argument(
        "--storm-count",
        type=int,
        default=defaults.storm_count,
        metavar="N",
        help="the number of rebalances of one group that make a storm (%(default)s)",
    )
    parser.add_argument(
        "--storm-window-ms",
        type=int,
        default=defaults.storm_window_ms,
        metavar="MS",
        help="the time within which the rebalances of a storm begin (%(default)s)",
    )
    parser.add_argument(
        "--session-timeout-ms",
        type=int,
        metavar="MS",
        help="group.consumer.session.timeout.ms, which no log contains: separates members that left from timeouts",
    )
    add_session_arguments(parser)


def timeline_options(options: argparse.Namespace) -> TimelineOptions:
    """Converts the arguments to options. KcoreError for invalid values."""
    for name in ("window_ms", "gap_ms", "storm_count", "storm_window_ms", "session_timeout_ms"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise KcoreError(f"--{name.replace('_', '-')} {value}: expected at least 1")
    if options.from_ms is not None and options.to_ms is not None and options.from_ms >= options.to_ms:
        raise KcoreError(f"--from-ms {options.from_ms} is not before --to-ms {options.to_ms}")
    return TimelineOptions(
        options.from_ms,
        options.to_ms,
        options.window_ms,
        frozenset(options.group) if options.group else None,
        options.gap_ms,
        options.storm_count,
        options.storm_window_ms,
        options.session_timeout_ms,
    )


def run(options: argparse.Namespace) -> int:
    """Runs the job in its own session."""
    chosen = timeline_options(options)
    with session(options, "timeline") as spark:
        summary = timeline(spark, options.path, options.out, chosen)
    totals = summary["totals"]
    for name in ("groups", "rebalances", "superseded", "storms", "commits", "gaps", "transactions", "aborted", "open"):
        print(f"{name:14} {totals[name]}")
    if totals["faults"]:
        print(f"{totals['faults']} records could not be decoded: see `faults` in the table `logs`")
    if totals["rebalances_not_whole"]:
        print(f"{totals['rebalances_not_whole']} rebalances may be incomplete, as the log was compacted: see `whole`")
    print(f"report: {Path(options.out).resolve() / REPORT}")
    return 0
