"""The driver of the job `watch`: its two queries, and its reports of lag and alerts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import ConfigError
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.frames.kafka_logs import cluster_parts, kafka_options
from kcore.spark.frames.logs import KafkaCluster, LogSource
from kcore.spark.frames.output import ICEBERG, PARQUET, check_apart
from kcore.spark.timeline.history import HistoryOptions
from kcore.spark.watch.alerts import (
    Limits,
    groups_without_commits,
    hanging_transactions,
    lag_by_group,
    rebalance_storms,
)
from kcore.spark.watch.continuation import ReportedAlerts, check_stream, check_tables, key_of, topic_ids
from kcore.spark.watch.continued import FINDINGS, STATE, TIMELINE
from kcore.spark.watch.streams import as_json, decoded, events_of, watched
from kcore.spark.watch.tables import ALERTS, ALERTS_DDL, EVENTS, LAG, LAG_DDL, WatchTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT: Final = "checkpoint"

KEYS: Final = {
    EVENTS: "concat(topic, '-', partition)",
    FINDINGS: "coalesce(group_id, transactional_id)",
    f"{TIMELINE}/transactions": "transactional_id",
    ALERTS: "subject",
}
"""Growing table -> an SQL expression for the key of the records in Kafka. For other tables, the key is the group id."""


class WatchOptions(NamedTuple):
    """The options of a stream.

    Attributes:
        trigger_ms: the time between the starts of two micro-batches.
        once: True to process the existing records and then end.
        max_offsets: the maximum number of offsets of a micro-batch (see `streams.events_of`); None: no limit.
        with_events: True to write the table of decoded events.
        history: the options of the timeline's events.
        limits: the limits above which alerts are reported.
        publish: a cluster, and the topic to which new rows are also written; None: they are only written to the tables.
        form: the format of the tables, one of `output.FORMATS`.
        checkpoint: the folder of the stream's checkpoints, a path or a URI; None: `checkpoint` in the output folder.
    """

    trigger_ms: int = 60_000
    once: bool = False
    max_offsets: int | None = None
    with_events: bool = True
    history: HistoryOptions = HistoryOptions()
    limits: Limits = Limits()
    publish: tuple[KafkaCluster, str] | None = None
    form: str = PARQUET
    checkpoint: str | None = None


class Watch:
    """A stream from a source to tables.

    Args:
        spark: a session; with the package of Spark's Kafka source for a cluster.
        source: a cluster, or a folder that an export fills.
        out: the output folder; CATALOG.NAMESPACE for Iceberg.
        options: the settings of the queries and alerts. A later stream with the same folder of checkpoints continues
            this stream.

    Raises:
        KcoreError: the output cannot be reached or is inside the source, the options name no folder of checkpoints for
            Iceberg, or the checkpoints belong to other tables or logs.
    """

    def __init__(
        self, spark: SparkSession, source: LogSource, out: str | Path, options: WatchOptions | None = None
    ) -> None:
        self._spark = spark
        self._source = source
        self._options = options or WatchOptions()
        place = self._options.checkpoint
        if place is None and self._options.form == ICEBERG:
            raise ConfigError("tables of Iceberg have no folder: name one for the checkpoints of the stream")
        publish = None if self._options.publish is None else self._publish
        if not isinstance(source, KafkaCluster) and self._options.form != ICEBERG:
            check_apart(source, out)
        self._checkpoints = HadoopFiles(spark, f"{out}/{CHECKPOINT}" if place is None else place)
        if place is not None:  # otherwise, the checkpoints are below the tables
            tables = str(out) if self._options.form == ICEBERG else HadoopFiles(spark, out).uri
        check_stream(self._checkpoints, self._options.form, None if place is None else tables, topic_ids(source))
        self.tables = WatchTables(spark, out, publish, self._options.form)
        self._writing = threading.Lock()  # a report does not read tables while a micro-batch replaces their files
        self._reported = ReportedAlerts(self._checkpoints)

    def start(self) -> list[StreamingQuery]:
        """Starts the queries. They continue where the queries of an earlier stream with the same output ended.

        Raises:
            KcoreError: the tables are those of an earlier stream, whose checkpoints are missing.
        """
        options = self._options
        hides_control = isinstance(self._source, KafkaCluster)
        events = events_of(self._spark, self._source, options.max_offsets)
        queries = [self._query("watch", watched(events, options.history, hides_control), self._watched)]
        if options.with_events:
            queries.append(self._query(EVENTS, decoded(events), self._decoded))
        return queries

    def _query(self, name: str, rows: DataFrame, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
        check_tables(self._checkpoints, name, self.tables)
        writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{self._checkpoints.uri}/{name}")
        if self._options.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._options.trigger_ms} milliseconds").start()

    def _watched(self, rows: DataFrame, batch_id: int) -> None:
        with self._writing:
            self.tables.apply(rows, batch_id)

    def _decoded(self, rows: DataFrame, batch_id: int) -> None:
        self.tables.add(EVENTS, rows, batch_id)

    def _publish(self, table: str, rows: DataFrame) -> None:
        assert self._options.publish is not None
        cluster, topic = self._options.publish
        records = as_json(rows, table, KEYS.get(table, "group_id"))
        kafka_options(records.write.format("kafka"), cluster).option("topic", topic).save()

    def report(self, now_ms: int, as_of_ms: int | None = None) -> list[Row]:
        """Appends the lag of groups, if the source is a cluster, and new alerts; returns the new alerts.

        An alert is new if its condition did not hold at the previous report of this stream. The previous report may be
        from before a restart.

        Args:
            now_ms: the present time, in ms since the epoch.
            as_of_ms: the time up to which the tables have the events of the source; None: `now_ms`. Later events may
                have ended a condition.
        """
        # After a restart, no micro-batch has finished yet, but the tables are not older than at the last report.
        as_of_ms = max(now_ms if as_of_ms is None else as_of_ms, self._reported.as_of_ms)
        with self._writing:
            lags = self._lag(now_ms)
            tables, limits = self.tables, self._options.limits
            alerts = hanging_transactions(tables.table(f"{STATE}/transactions"), now_ms, limits, as_of_ms)
            for others in (
                rebalance_storms(tables.table(f"{TIMELINE}/rebalances"), now_ms, limits),
                groups_without_commits(
                    tables.table(f"{STATE}/groups"), tables.table(f"{STATE}/offsets"), lags, now_ms, limits, as_of_ms
                ),
            ):
                alerts = alerts.unionByName(others)
            active = alerts.orderBy("kind", "subject").collect()
            new = self._reported.new(active)
            if new:
                in_table = self._reported.interrupted(tables.table(ALERTS))
                unpublished = [row for row in new if key_of(row) in in_table]
                unwritten = [row for row in new if key_of(row) not in in_table]
                for rows, write in ((unwritten, tables.append), (unpublished, tables.publish)):
                    if rows:
                        write(ALERTS, self._spark.createDataFrame(rows, ALERTS_DDL))
            self._reported.store(active, now_ms, as_of_ms)
            return new

    def _lag(self, now_ms: int) -> DataFrame:
        """Appends the present lag of each group to the table of lags, and returns the appended rows."""
        if not isinstance(self._source, KafkaCluster):
            return self._spark.createDataFrame([], LAG_DDL)
        offsets = self.tables.table(f"{STATE}/offsets")
        topics = [row[0] for row in offsets.select("topic").distinct().collect()]
        parts = cluster_parts(self._spark, self._source, topics)
        ends = self._spark.createDataFrame(
            [(part.topic, part.partition, part.end) for part in parts], "topic string, partition int, end_offset bigint"
        )
        lags = self._spark.createDataFrame(lag_by_group(offsets, ends, now_ms).collect(), LAG_DDL)
        self.tables.append(LAG, lags)
        return lags
