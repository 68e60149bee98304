"""The job `audit`: checks the history of logs for violated invariants."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcore.errors import ConfigError, KcoreError
from kcore.printable import clean
from kcore.spark.audit.finding import Evidence, Finding, finding
from kcore.spark.audit.frames import audit_logs, finding_of, frame_of, logs_of, results_of_logs
from kcore.spark.audit.kinds import SEVERITIES, WARNING, rank
from kcore.spark.audit.logs import GRACE_MS
from kcore.spark.audit.report import lines, summary
from kcore.spark.decode.record_types import TOPICS
from kcore.spark.events.sources import Part
from kcore.spark.frames.logs import EventLogs, LogSource, logs_at
from kcore.spark.frames.output import Output
from kcore.spark.jobs.early_checks import check_places
from kcore.spark.jobs.session import (
    add_folder_argument,
    add_output_arguments,
    add_session_arguments,
    session,
    source_of,
)
from kcore.spark.state.absent import absent_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE = "audit.json"
TABLE = "findings"
SHOWN = 50


class Audited(NamedTuple):
    """The result of an audit.

    Attributes:
        counts: (severity, kind) -> number of findings.
        worst: the first findings, worst first.
    """

    counts: dict[tuple[str, str], int]
    worst: list[Finding]

    def at_least(self, severity: str) -> int:
        """Returns the number of findings of a severity or worse."""
        return sum(
            number for (kind_severity, _), number in self.counts.items() if rank(kind_severity) <= rank(severity)
        )


def audit(
    spark: SparkSession,
    path: LogSource | EventLogs,
    out: str | Path | Output,
    *,
    topics: Sequence[str] = (),
    now_ms: int | None = None,
    grace_ms: int = GRACE_MS,
    shown: int = SHOWN,
) -> Audited:
    """Writes the findings on logs as a table, worst first.

    It writes `audit.json` last: if that file exists, the table is complete.

    Args:
        spark: a session.
        path: an export, a data folder, or raw segment files; or a cluster.
        out: the place of the table `findings`: a folder, whose earlier output is replaced, or an `Output`.
        topics: the topics to audit; empty: all.
        now_ms: the time at which to check open transactions for timeouts; None: the timestamp of the newest record.
        grace_ms: the tolerance beyond a transaction's timeout.
        shown: the maximum number of findings to return.

    Raises:
        KcoreError: there are no logs, or another job writes to the output.
    """
    from pyspark import StorageLevel  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    target = out if isinstance(out, Output) else Output(spark, out)
    logs = logs_at(spark, path)
    parts = [part for part in logs.parts() if not topics or part.topic in topics]
    if not parts:
        raise KcoreError(f"{logs.name} contains no logs" + (f" of {', '.join(topics)}" if topics else ""))
    with target.run(logs.name, DONE, TABLE):
        target.begin(DONE)
        results = results_of_logs(logs, parts).persist(StorageLevel.DISK_ONLY)
        # More tasks than logs would have little to do, and each costs a round trip to a Python worker.
        tasks = min(len(parts), 4 * spark.sparkContext.defaultParallelism)
        try:
            findings = audit_logs(results, logs_of(results, parts, now_ms=now_ms, grace_ms=grace_ms), tasks)
            findings = findings.unionByName(frame_of(spark, _absent(parts)))
            worst = f.array_position(f.array(*map(f.lit, SEVERITIES)), f.col("severity"))
            order = (worst, "kind", "topic", "partition", "offset")
            table = target.write(TABLE, findings.repartition(1).sortWithinPartitions(*order))
        finally:
            results.unpersist()
        counts = {(row[0], row[1]): int(row[2]) for row in table.groupBy("severity", "kind").count().collect()}
        first = table.orderBy(*order).limit(shown).collect()
        done = {
            "source": logs.name,
            "logs": [f"{part.topic}-{part.partition}" for part in parts],
            "findings": {kind: number for (_, kind), number in sorted(counts.items())},
        }
        target.end(DONE, json.dumps(done, indent=1).encode())
    return Audited(counts, [finding_of(row.asDict(recursive=True)) for row in first])


def _absent(parts: Iterable[Part]) -> Iterator[Finding]:
    """Yields findings on missing partitions of internal topics, inferred from the partition numbers."""
    present: dict[str, set[int]] = {}
    for part in parts:
        if part.topic in TOPICS:
            present.setdefault(part.topic, set()).add(part.partition)
    for topic in absent_partitions(present):
        for partition in topic.partitions:
            here = Evidence(topic.topic, partition, -1, -1)
            yield finding("partition-missing", [here], f"{topic.topic}-{partition}: {topic.sentence}.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the job's arguments."""
    add_folder_argument(parser)
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the output folder for the table of findings")
    parser.add_argument("--topic", action="append", default=[], help="only that topic (may be repeated)")
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        default=WARNING,
        help=f"exit with status 1 if a finding has this severity or a worse one (default {WARNING})",
    )
    parser.add_argument(
        "--limit", type=int, default=SHOWN, metavar="N", help=f"print at most N findings (default {SHOWN})"
    )
    parser.add_argument(
        "--now-ms",
        type=int,
        metavar="MS",
        help="the time at which to check whether open transactions hang; default: the time of the newest record",
    )
    parser.add_argument(
        "--grace-ms",
        type=int,
        default=GRACE_MS,
        metavar="MS",
        help=f"the tolerance beyond a transaction's timeout (default {GRACE_MS})",
    )
    add_output_arguments(parser)
    add_session_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the job in its own session; returns 1 if a finding has the severity `--fail-on` or a worse one."""
    for name in ("limit", "grace_ms"):
        if getattr(options, name) < 0:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(options, name)}: must not be negative")
    check_places(options, DONE)
    with session(options, "audit") as spark:
        audited = audit(
            spark,
            source_of(options),
            Output(spark, options.out, options.format, options.mode),
            topics=options.topic,
            now_ms=options.now_ms,
            grace_ms=options.grace_ms,
            shown=options.limit,
        )
    for line in lines(audited.worst, sum(audited.counts.values())):
        print(clean(line))
    for line in summary(audited.counts):
        print(clean(line))
    return 1 if audited.at_least(options.fail_on) else 0
