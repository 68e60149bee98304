"""Event logs of a live cluster, read by Spark's Kafka source up to the offsets at the start of the job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kcore.errors import KcoreError
from kcore.spark.decode.record_types import TOPICS
from kcore.spark.events.arrow import EVENT_SCHEMA, from_batch, in_range
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import Part, Source, Span
from kcore.spark.frames.hadoop import cause_of
from kcore.spark.frames.logs import Beside, EventLogs, Give, KafkaCluster, in_tasks, shares

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

PACKAGE = "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION, with Spark's version"
ADMIN_TIMEOUT_MS = "30000"
READ_COMMITTED = "read_committed"
CONSUMER_OFFSETS_SETTING = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
"""The setting by which Spark's Kafka source requests offsets with a consumer.

Without this setting, the source uses an admin client and leaves out internal topics.
"""

_DEFAULTS: Mapping[str, Any] = {
    "producer_id": -1,
    "producer_epoch": -1,
    "last_sequence": -1,
    "transactional": False,
    "control": False,
    "batch_only": False,
}
"""Column that Spark's Kafka source lacks -> the value that the column has in a record without a transaction."""


class KafkaLogs(EventLogs):
    """The internal topics of a running cluster.

    Only committed records are read, because the source shows no transaction markers. A partition ends at its last
    stable offset at the start of the job.

    Args:
        spark: a session with the package of Spark's Kafka source.
        cluster: the address of the cluster, and the settings of clients.
        topics: names of the internal topics to read.

    Raises:
        KcoreError: the package is not in the session, or the cluster cannot be reached.
    """

    hides_control = True

    def __init__(self, spark: SparkSession, cluster: KafkaCluster, topics: Sequence[str] = TOPICS) -> None:
        self._spark = spark
        use_consumer_offsets(spark)
        self._cluster = cluster
        self.name = str(cluster)
        self._parts = sorted(cluster_parts(spark, cluster, topics))

    def parts(self) -> list[Part]:
        """Implements `EventLogs.parts`."""
        return self._parts

    def run(self, parts: Iterable[Part], give: Give, ddl: str, beside: Beside | None = None) -> DataFrame:
        """Implements `EventLogs.run`.

        Raises KcoreError for files `beside` the logs: a job on a live cluster cannot continue from a checkpoint.
        """
        if beside is not None:
            raise KcoreError(
                f"{self.name}: a job that reads a live cluster cannot continue from the checkpoints in {beside.uri}; "
                "export the cluster first"
            )
        from pyspark.sql import functions as f  # noqa: PLC0415

        tasks = shares(parts, 4 * self._spark.sparkContext.defaultParallelism)
        ordered = [part for task in tasks for part in task]
        places = [(task, *part[:2]) for task, of_task in enumerate(tasks) for part in of_task]
        rows = [(task, index, topic, partition) for index, (task, topic, partition) in enumerate(places)]
        numbers = self._spark.createDataFrame(rows, "task int, part int, topic string, partition int")
        frame = f.broadcast(numbers)
        starts = numbers.select("task", "part", f.lit(-1).cast("bigint").alias("offset"))
        events = self._events(ordered)
        if events is not None:
            starts = starts.unionByName(events.join(frame, ["topic", "partition"]), allowMissingColumns=True)

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from give(sources_of(batches, ordered))

        return in_tasks(starts, len(tasks), ("part", "offset")).mapInArrow(run, ddl)

    def _events(self, parts: Sequence[Part]) -> DataFrame | None:
        """Returns the rows of partitions; None if all are empty."""
        filled = [part for part in parts if part.end is not None and part.start < part.end]
        if not filled:
            return None
        assigned: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int | None]] = {}
        for part in filled:
            assigned.setdefault(part.topic, []).append(part.partition)
            starts.setdefault(part.topic, {})[str(part.partition)] = part.start
            ends.setdefault(part.topic, {})[str(part.partition)] = part.end
        reader: DataFrameReader = kafka_options(self._spark.read.format("kafka"), self._cluster)
        return (
            reader.option("kafka.isolation.level", READ_COMMITTED)
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "false")  # compaction may remove records meanwhile
            .load()
        )


def use_consumer_offsets(spark: SparkSession) -> None:
    """Makes Spark's Kafka source read internal topics in this session."""
    spark.conf.set(CONSUMER_OFFSETS_SETTING, "true")


def kafka_options(reader: Any, cluster: KafkaCluster) -> Any:
    """Returns a reader or a writer of Spark with the options that connect it to a cluster."""
    reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap)
    for name, value in cluster.options.items():
        reader = reader.option(f"kafka.{name}", value)
    return reader


def cluster_parts(spark: SparkSession, cluster: KafkaCluster, topics: Sequence[str]) -> Iterator[Part]:
    """Yields the partitions of the existing topics, with their first offsets and last stable offsets.

    Raises:
        KcoreError: the package of Spark's Kafka source is not in the session, or the cluster cannot be reached.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415

    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        raise KcoreError(f"{cluster}: jobs need a session with a JVM of its own, and Spark Connect has none")
    settings = jvm.java.util.Properties()
    options = {"default.api.timeout.ms": ADMIN_TIMEOUT_MS, **cluster.options, "bootstrap.servers": cluster.bootstrap}
    for name, value in options.items():
        settings.setProperty(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    except Py4JJavaError as error:
        raise KcoreError(f"{cluster}: {cause_of(error)}") from error
    except (Py4JError, TypeError) as error:
        raise KcoreError(f"{cluster}: the session lacks Spark's Kafka source; add {PACKAGE}") from error
    try:
        present = set(admin.listTopics(_with_internal(jvm)).names().get())
        existing_topics = jvm.java.util.ArrayList()
        for topic in topics:
            if topic in present:
                existing_topics.add(topic)
        topic_partitions = [
            (str(topic), int(partition.partition()))
            for topic, description in admin.describeTopics(existing_topics).allTopicNames().get().items()
            for partition in description.partitions()
        ]
        starts, ends = (_offsets(jvm, admin, topic_partitions, name) for name in ("earliest", "latest"))
    except Py4JJavaError as error:
        raise KcoreError(f"{cluster}: {cause_of(error)}") from error
    finally:
        admin.close()
    for topic_partition in topic_partitions:
        yield Part(*topic_partition, starts[topic_partition], ends[topic_partition], log_start=starts[topic_partition])


def _with_internal(jvm: Any) -> Any:
    return jvm.org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(True)


def _offsets(
    jvm: Any, admin: Any, topic_partitions: Sequence[tuple[str, int]], which: str
) -> dict[tuple[str, int], int]:
    requested, partitions = jvm.java.util.HashMap(), {}
    for topic, partition in topic_partitions:
        partitions[topic, partition] = jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
        requested.put(partitions[topic, partition], spec.earliest() if which == "earliest" else spec.latest())
    level = jvm.org.apache.kafka.common.IsolationLevel.READ_COMMITTED
    results = admin.listOffsets(requested, jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level))
    return {
        topic_partition: int(results.partitionResult(one).get().offset()) for topic_partition, one in partitions.items()
    }


# ---- what runs on executors


class RowsSource(Source):
    """Rows of a task's partitions, one partition after another.

    Args:
        pieces: pairs of the index of a partition and some of its rows, ordered by partition and offset. The first row
            of each partition is a placeholder with the offset -1.
    """

    def __init__(self, pieces: Iterator[tuple[int, pa.RecordBatch]]) -> None:
        self._pieces = pieces
        self._next: tuple[int, pa.RecordBatch] | None = None
        self._index = -1

    def indexes(self) -> Iterator[int]:
        """Yields the indexes of the partitions. Skips the rows that the reader of a partition left unread."""
        while (piece := self._peek()) is not None:
            if piece[0] == self._index:
                self._next = None
                continue
            self._index = piece[0]
            yield piece[0]

    def _peek(self) -> tuple[int, pa.RecordBatch] | None:
        if self._next is None:
            self._next = next(self._pieces, None)
        return self._next

    def parts(self) -> list[Part]:
        """Returns an empty list, because the driver knows the partitions."""
        return []

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Implements `Source.read_rows`."""
        return chain.from_iterable(map(from_batch, self.read_batches(span)))

    def read_batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Implements `Source.read_batches`. The rows of a partition can be read only once."""
        while (piece := self._peek()) is not None and piece[0] == self._index:
            self._next = None
            batch = in_range(piece[1], max(span.start, 0), span.stop)
            if batch.num_rows:
                yield batch


def sources_of(batches: Iterable[pa.RecordBatch], parts: Sequence[Part]) -> Iterator[tuple[Source, Part]]:
    """Yields the partitions of a task with their source. The caller reads each partition before it takes the next."""
    source = RowsSource(chain.from_iterable(map(_pieces, batches)))
    for index in source.indexes():
        yield source, parts[index]


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Splits a batch into runs of rows of one partition. Yields the partition's index, and the rows as events."""
    events = _as_events(batch)
    ends = pc.run_end_encode(batch.column("part")).run_ends.to_pylist()
    start = 0
    for end in ends:
        yield batch.column("part")[start].as_py(), events.slice(start, end - start)
        start = end


def _as_events(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch in the columns of `EVENT_SCHEMA`."""
    size, names = batch.num_rows, set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in names
        else pa.repeat(pa.scalar(_DEFAULTS[field.name], field.type), size)
        if field.name in _DEFAULTS
        else pa.nulls(size, field.type)
        for field in EVENT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT_SCHEMA)
