"""The job `watch`: keeps tables of state, history, findings, lag and alerts up to date, as a stream."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from kcore.errors import ConfigError, KcoreError
from kcore.printable import clean
from kcore.spark.frames.logs import KafkaCluster
from kcore.spark.frames.output import FORMATS, ICEBERG
from kcore.spark.jobs.early_checks import check_places
from kcore.spark.jobs.session import (
    add_folder_argument,
    add_session_arguments,
    kafka_cluster,
    parse_settings,
    session,
    source_of,
)
from kcore.spark.timeline.history import HistoryOptions
from kcore.spark.watch.alerts import Limits
from kcore.spark.watch.continuation import STREAM
from kcore.spark.watch.watch import Watch, WatchOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SHUFFLE = "spark.sql.shuffle.partitions"
RETAINED = "spark.sql.streaming.minBatchesToRetain"
RETAINED_BATCHES = "10"
"""Number of micro-batches whose states Spark keeps. Each state has the live records of its partitions. Spark's default
is 100.
"""

WORKER_TIMEOUT = "Python worker failed to connect back"
"""A part of Spark's error message if the worker of a Python source starts too late.

Spark waits ten seconds for the worker, and has no setting for this time.
"""
WAITING = "Waiting"
"""The first word of the status message that Spark reports for a query between two triggers."""
MS = 1_000_000
"""Nanoseconds in a millisecond."""
RESTARTS = 5
"""Maximum number of restarts in a row because a worker started too late, which happens on a busy machine."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the job's arguments."""
    defaults, limits = WatchOptions(), Limits()
    add_folder_argument(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="the output folder for tables and checkpoints, a path or a URI; CATALOG.NAMESPACE for Iceberg",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default=defaults.form, help="the format of the tables (default %(default)s)"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="the folder for the checkpoints of the stream, a path or a URI (default: `checkpoint` in the output "
        "folder); required for Iceberg",
    )
    parser.add_argument(
        "--trigger-ms",
        type=int,
        default=defaults.trigger_ms,
        metavar="MS",
        help="the time between two micro-batches, and between two reports of lag and alerts (default %(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="process the existing records, report once, and exit")
    parser.add_argument(
        "--max-offsets",
        type=int,
        metavar="N",
        help="the maximum number of offsets of a micro-batch: in total for a cluster, per partition for a folder",
    )
    parser.add_argument("--without-events", action="store_true", help="do not write the table of decoded events")
    parser.add_argument(
        "--session-timeout-ms",
        type=int,
        metavar="MS",
        help="the value of group.consumer.session.timeout.ms, which no log contains; the tables then distinguish "
        "members that left from members that timed out",
    )
    for name, default, help_ in (
        ("--gap-ms", limits.gap_ms, "alert on a group that has members and lag, but no commit for this time"),
        ("--storm-count", limits.storm_count, "alert on this number of rebalances of one group"),
        ("--storm-window-ms", limits.storm_window_ms, "the time within which these rebalances begin"),
        ("--grace-ms", limits.grace_ms, "alert on transactions that exceed their timeouts by this time"),
    ):
        metavar = "N" if name == "--storm-count" else "MS"
        parser.add_argument(name, type=int, default=default, metavar=metavar, help=f"{help_} (default %(default)s)")
    parser.add_argument(
        "--publish", metavar="HOST:PORT/TOPIC", help="also write new rows to this topic of a cluster, as JSON"
    )
    parser.add_argument(
        "--publish-config",
        metavar="FILE",
        help="a properties file with the TLS and SASL settings of Kafka's clients, for --publish (default: that of "
        "--kafka-config, if both options name the same HOST:PORT)",
    )
    add_session_arguments(parser)


def options_of(options: argparse.Namespace) -> WatchOptions:
    """Returns the options of the stream that the arguments name. Raises ConfigError for an invalid one."""
    if options.trigger_ms < 0:
        raise ConfigError(f"--trigger-ms {options.trigger_ms}: must not be negative")
    if options.max_offsets is not None and options.max_offsets < 1:
        raise ConfigError(f"--max-offsets {options.max_offsets}: must be at least 1")
    if options.format == ICEBERG and options.checkpoint is None:
        raise ConfigError("--format iceberg needs --checkpoint FOLDER for the checkpoints of the stream")
    publish = None
    if options.publish is not None:
        bootstrap, _, topic = options.publish.partition("/")
        if not bootstrap or not topic:
            raise ConfigError(f"--publish {options.publish} is not HOST:PORT/TOPIC")
        publish = publish_cluster(bootstrap, options), topic
    elif options.publish_config is not None:
        raise ConfigError("--publish-config needs --publish HOST:PORT/TOPIC")
    return WatchOptions(
        options.trigger_ms,
        options.once,
        options.max_offsets,
        not options.without_events,
        HistoryOptions(None, options.session_timeout_ms),
        Limits(options.gap_ms, options.storm_count, options.storm_window_ms, options.grace_ms),
        publish,
        options.format,
        options.checkpoint,
    )


def publish_cluster(bootstrap: str, options: argparse.Namespace) -> KafkaCluster:
    """Returns the cluster of `--publish`, with the settings of its clients.

    Args:
        bootstrap: HOST:PORT of the cluster.
        options: the arguments of the command line.

    Raises:
        KcoreError: the file with the settings cannot be read.
    """
    if options.publish_config is not None:
        return kafka_cluster(bootstrap, options.publish_config)
    return kafka_cluster(bootstrap, options.kafka_config if bootstrap == options.kafka else None)


def prepare(spark: SparkSession, configured: set[str]) -> None:
    """Replaces expensive defaults of Spark, except for the settings in `configured`.

    Each micro-batch runs a task per shuffle partition. The first run of a stream fixes the number of these partitions.
    """
    if SHUFFLE not in configured:
        spark.conf.set(SHUFFLE, str(max(1, spark.sparkContext.defaultParallelism)))
    if RETAINED not in configured:
        spark.conf.set(RETAINED, RETAINED_BATCHES)


class WorkerStartError(KcoreError):
    """A query failed because Spark waits only ten seconds for a Python worker to start."""


def run(options: argparse.Namespace) -> int:
    """Runs the job in its own session until it is stopped, or with `--once` to the end of the existing records.

    Raises:
        KcoreError: a query failed.
    """
    source, watch_options = source_of(options), options_of(options)
    check_places(options, STREAM)
    with session(options, "watch") as spark:
        prepare(spark, set(parse_settings(options.conf)))
        watch = Watch(spark, source, options.out, watch_options)
        with WatchRun(watch) as stream:
            running = True
            while running:
                running = stream.wait(None if watch_options.once else watch_options.trigger_ms / 1000)
                now_ms = time.time_ns() // MS
                for alert in watch.report(now_ms, stream.as_of_ms(now_ms, watch_options)):
                    print(clean(f"{alert['kind']}: {alert['subject']}: {alert['detail']}"), flush=True)
    return 0


class WatchRun:
    """The running queries of a stream. If a Python worker starts too late, the queries are started again.

    Args:
        watch: the stream. Its queries start with this object and stop at the end of its `with` block.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._known_ms = 0
        self._start()

    def _start(self) -> None:
        self._started_ms = time.time_ns() // MS
        self._queries = self._watch.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _stop(self) -> None:
        for query in self._queries:
            query.stop()

    def as_of_ms(self, now_ms: int, options: WatchOptions) -> int:
        """Returns the time up to which the tables of the state include the events of the source.

        Args:
            now_ms: the present time, in ms since the epoch.
            options: the options of the stream.
        """
        if options.once:  # the queries read what existed at their start
            return self._started_ms
        query = self._queries[0]
        progress = query.lastProgress
        batch = None if progress is None else progress["timestamp"]
        self._known_ms = max(self._known_ms, known_at(batch, query.status, now_ms, options.trigger_ms))
        return self._known_ms

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until the queries end, at most `timeout_s`. Returns True if a query still runs.

        Args:
            timeout_s: the time limit in seconds; None: no limit.

        Raises:
            WorkerStartError: a Python worker started too late more than `RESTARTS` times.
            KcoreError: a query failed.
        """
        for _ in range(RESTARTS):
            try:
                return wait(self._queries, timeout_s)
            except WorkerStartError as error:
                print(f"kcore: {error}: starting the stream again", file=sys.stderr, flush=True)
                self._stop()
                self._start()
        return wait(self._queries, timeout_s)


def known_at(batch: str | None, status: Mapping[str, Any], now_ms: int, trigger_ms: int) -> int:
    """Returns the time up to which a query has read its source; 0 if it is unknown.

    Args:
        batch: the start of the last finished micro-batch, in ISO 8601; None: there is none.
        status: the status of the query, with Spark's keys.
        now_ms: the present time, in ms since the epoch.
        trigger_ms: the time between two triggers.
    """
    if status["message"].startswith(WAITING) and not status["isDataAvailable"]:
        return now_ms - trigger_ms  # the last trigger found no new data
    return 0 if batch is None else round(datetime.fromisoformat(batch).timestamp() * 1_000)


def wait(queries: list[StreamingQuery], timeout_s: float | None) -> bool:
    """Waits until the queries end, at most `timeout_s`. Returns True if a query still runs.

    Args:
        queries: the running queries of a stream.
        timeout_s: the time limit in seconds; None: no limit.

    Raises:
        WorkerStartError: a query failed because a Python worker started too late. The query can be started again.
        KcoreError: a query failed.
    """
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        for query in queries:
            if until_s is None:
                query.awaitTermination()
            else:
                query.awaitTermination(max(1, round(until_s - time.monotonic())))
    except StreamingQueryException as error:
        text = str(error)
        if WORKER_TIMEOUT in text:
            raise WorkerStartError("the stream failed: a Python worker did not start within ten seconds") from error
        raise KcoreError(f"the stream failed: {cause_in(text)}") from error
    return any(query.isActive for query in queries)


def cause_in(text: str) -> str:
    """Returns the line of Spark's message that names the cause: the last line of the last Python traceback, if any."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("kcore.errors.")]
    return named[-1].partition(": ")[2] if named else lines[0] if lines else "unknown cause"
