"""The job `timeline`: shows rebalances, commits and transactions over time, as tables and as an HTML page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcore.errors import KcoreError
from kcore.spark.frames.logs import EventLogs, LogSource, logs_at
from kcore.spark.frames.output import TIMELINE_DONE, Output
from kcore.spark.jobs.early_checks import check_places
from kcore.spark.jobs.session import (
    add_folder_argument,
    add_output_arguments,
    add_session_arguments,
    session,
    source_of,
)
from kcore.spark.timeline.frames import (
    GAP_MS,
    STORM_COUNT,
    STORM_WINDOW_MS,
    Bounds,
    events_of_kind,
    log_ends,
    log_times_of,
    nice_width,
    shared_topics,
    timeline_events_of,
    timeline_tables,
)
from kcore.spark.timeline.history import HistoryOptions
from kcore.spark.timeline.report import render
from kcore.spark.timeline.summary import MAX_BUCKETS, Summary, summarise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT = "timeline.html"


class TimelineOptions(NamedTuple):
    """The options of a timeline.

    `Bounds` and `HistoryOptions` document the attributes with equal names. `window_ms` is None if the width is derived
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


def timeline(
    spark: SparkSession,
    path: LogSource | EventLogs,
    out: str | Path | Output,
    options: TimelineOptions | None = None,
) -> Summary:
    """Writes the tables, and `timeline.html` if the output has a folder.

    It writes `timeline.json` last: if that file exists, the output is complete.

    Args:
        spark: a session.
        path: an export, a data folder, or raw segment files; or a cluster.
        out: a folder, whose earlier output is replaced, or an `Output`.
        options: the bounds of the tables, and the groups to include.

    Returns:
        The content of the report.

    Raises:
        KcoreError: there are no logs, or another job writes to the output.
    """
    from pyspark import StorageLevel  # noqa: PLC0415

    options = options or TimelineOptions()
    target = out if isinstance(out, Output) else Output(spark, out)
    logs = logs_at(spark, path)
    with target.run(logs.name, TIMELINE_DONE, "rebalances"):
        target.begin(TIMELINE_DONE)
        derived = timeline_events_of(logs, HistoryOptions(options.groups, options.session_timeout_ms))
        derived = derived.persist(StorageLevel.DISK_ONLY)

        def stored(name: str, table: DataFrame) -> DataFrame:
            return target.write(name, table.coalesce(1))

        try:
            bounds = _bounds(options, derived)
            topics = shared_topics(derived)
            rows = log_times_of(logs, topics, bounds.window_ms) if topics else None
            ends = None if rows is None else log_ends(rows, topics, bounds.window_ms)
            written = timeline_tables(derived, bounds, stored, ends)
        finally:
            derived.unpersist()
        summary = summarise(written, bounds)
        summary["source"] = logs.name
        summary["groups_asked"] = sorted(options.groups or ())
        target.note(REPORT, render(summary).encode())
        counts = {name: table.count() for name, table in written.items()}
        done = {"source": logs.name, "bounds": bounds._asdict(), "groups": summary["groups_asked"], "rows": counts}
        target.end(TIMELINE_DONE, json.dumps(done, indent=1).encode())
    return summary


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
    parser.add_argument(
        "--from-ms", type=int, metavar="MS", help="skip events that ended before this time, in ms since the epoch"
    )
    parser.add_argument("--to-ms", type=int, metavar="MS", help="skip events that began at this time or later")
    parser.add_argument(
        "--window-ms",
        type=int,
        metavar="MS",
        help="length of a window; default: derived from the time that the logs cover",
    )
    parser.add_argument("--group", action="append", metavar="ID", help="only this group (may be repeated)")
    parser.add_argument(
        "--gap-ms",
        type=int,
        default=defaults.gap_ms,
        metavar="MS",
        help="the minimum length of a gap in commits (default %(default)s)",
    )
    parser.add_argument(
        "--storm-count",
        type=int,
        default=defaults.storm_count,
        metavar="N",
        help="the number of rebalances of one group that make a storm (default %(default)s)",
    )
    parser.add_argument(
        "--storm-window-ms",
        type=int,
        default=defaults.storm_window_ms,
        metavar="MS",
        help="the time within which the rebalances of a storm begin (default %(default)s)",
    )
    parser.add_argument(
        "--session-timeout-ms",
        type=int,
        metavar="MS",
        help="the value of group.consumer.session.timeout.ms, which no log contains; the timeline then distinguishes "
        "members that left from members that timed out",
    )
    add_output_arguments(parser)
    add_session_arguments(parser)


def timeline_options(options: argparse.Namespace) -> TimelineOptions:
    """Converts the arguments to options. Raises KcoreError for invalid values."""
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
    check_places(options, TIMELINE_DONE)
    with session(options, "timeline") as spark:
        target = Output(spark, options.out, options.format, options.mode)
        summary = timeline(spark, source_of(options), target, chosen)
        report = None if target.files is None else f"{target.files.uri}/{REPORT}"
    totals = summary["totals"]
    for name in ("groups", "rebalances", "superseded", "storms", "commits", "gaps", "transactions", "aborted", "open"):
        print(f"{name:14} {totals[name]}")
    if totals["faults"]:
        print(f"records that could not be decoded: {totals['faults']}; see the column `faults` of the table `logs`")
    if totals["rebalances_not_whole"]:
        count = totals["rebalances_not_whole"]
        print(f"rebalances that may be incomplete, because the log was compacted: {count}; see the column `whole`")
    if report is not None:
        print(f"report: {report}")
    return 0
