"""The streams of the job `watch`: events of a cluster or of a growing folder, decoded events, and rows of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kcore.spark.decode.columns import decode
from kcore.spark.decode.record_types import TOPICS, record_types
from kcore.spark.frames.kafka_logs import READ_COMMITTED, kafka_options, use_consumer_offsets
from kcore.spark.frames.logs import KafkaCluster, LogSource
from kcore.spark.frames.transforms import DETAIL_COLUMNS
from kcore.spark.state.table_schemas import INTERNAL_TOPIC, NUMBER
from kcore.spark.watch.alerts import OWN_GROUPS
from kcore.spark.watch.continued import STATE_DDL, ContinuedPartition, Stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from kcore.spark.timeline.history import HistoryOptions

COLUMNS: Final = ("table", "topic", "partition", "rows")
WATCHED_DDL: Final = "table string, topic string, partition int, rows binary"
"""Schema of `watched`: the column `rows` has rows of the table `table` as an Arrow stream."""

DECODED: Final = (
    INTERNAL_TOPIC,
    NUMBER,
    ("offset", "bigint", "the offset of the record"),
    ("timestamp", "timestamp", "its time"),
    ("status", "string", "the result of decoding (see docs/spark.md)"),
    ("type", "string", "the record type; null if unknown"),
    ("record", "string", "key and value as JSON; null if it could not be decoded"),
)
"""The columns of decoded events."""

_MICROS: Final = "timestamp_us"
"""The column with an event's time in microseconds: pandas cannot represent all timestamps that records may have."""


def events_of(spark: SparkSession, source: LogSource, max_offsets: int | None = None) -> DataFrame:
    """Returns the internal topics as a stream from their start, including partitions that appear later.

    Args:
        spark: a session; with the package of Spark's Kafka source for a cluster.
        source: a cluster, or a folder that an export fills.
        max_offsets: the maximum number of offsets of a micro-batch: of all partitions together for a cluster, of each
            partition for a folder; None: no limit.
    """
    if isinstance(source, KafkaCluster):
        use_consumer_offsets(spark)
        reader: DataStreamReader = kafka_options(spark.readStream.format("kafka"), source)
        reader = (
            reader.option("subscribePattern", "|".join(TOPICS))
            .option("kafka.exclude.internal.topics", "false")
            .option("groupIdPrefix", OWN_GROUPS)
            .option("kafka.isolation.level", READ_COMMITTED)
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "false")  # compaction may remove records meanwhile
        )
    else:
        reader = spark.readStream.format("kcore").option("topic", ",".join(TOPICS)).option("includeBatches", "true")
    if max_offsets is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(max_offsets))
    return reader.load() if isinstance(source, KafkaCluster) else reader.load(str(source))


def decoded(events: DataFrame) -> DataFrame:
    """Returns a stream of decoded events with the columns of `DECODED`."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    names = list(record_types())
    decoded_rows = decode(events, names)
    record = f.coalesce(*(f.to_json(name) for name in names)).alias("record")
    return decoded_rows.select(*(name for name, _, _ in DECODED[:-1]), record)


def watched(events: DataFrame, options: HistoryOptions, hides_control: bool) -> DataFrame:
    """Returns the rows that each micro-batch of events adds to tables, or replaces in them.

    A stateful operator keeps one state per partition. Its task reads the new events of the partition in offset order.

    Args:
        events: a stream of `events_of`.
        options: the options of the history.
        hides_control: True if the events lack transaction markers.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.streaming.state import GroupStateTimeout  # noqa: PLC0415

    def step(key: tuple[str, int], pieces: Iterable[Any], state: Any) -> Iterator[Any]:
        stored = Stored(*state.get) if state.exists else None
        continued = ContinuedPartition(*key, options, hides_control, stored)
        continued.add(in_order(pa.Table.from_pandas(piece, preserve_index=False) for piece in pieces))
        for table, batch in continued.tables():
            row = zip(COLUMNS, (table, *key, packed(batch)), strict=True)
            yield pa.table({name: [value] for name, value in row}).to_pandas()
        state.update(continued.stored())

    details = [name for name in DETAIL_COLUMNS if name in events.columns]
    columns = ("key", "value", "topic", "partition", "offset", "timestampType")
    chosen = events.select(*columns, f.unix_micros("timestamp").alias(_MICROS), *details)
    return chosen.groupBy("topic", "partition").applyInPandasWithState(
        step, WATCHED_DDL, STATE_DDL, "append", GroupStateTimeout.NoTimeout
    )


def rows_of(watched_rows: DataFrame, table: str, ddl: str) -> DataFrame:
    """Returns the rows of one table from a micro-batch of `watched`."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column(0):
                with pa.ipc.open_stream(data.as_buffer()) as reader:
                    yield from reader

    return watched_rows.where(f.col("table") == table).select("rows").mapInArrow(unpack, ddl)


def as_json(rows: DataFrame, table: str, key: str) -> DataFrame:
    """Returns rows as records of Kafka: the value is a JSON object with all columns, and the table's name.

    Args:
        rows: rows of one table, with all its columns.
        table: the name of this table.
        key: an SQL expression for the key of the records.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    value = f.to_json(f.struct(f.lit(table).alias("table"), *rows.columns)).alias("value")
    return rows.select(f.expr(key).cast("string").alias("key"), value)


# ---- what runs on executors


def in_order(pieces: Iterable[pa.Table]) -> pa.RecordBatch:
    """Returns the events of a partition in offset order, in the columns of a data source of events."""
    table = pa.concat_tables(pieces, promote_options="default").sort_by("offset").combine_chunks()
    times = table.column(_MICROS).cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = table.set_column(table.schema.get_field_index(_MICROS), "timestamp", times)
    for name in ("key", "value"):  # a column of nulls only has no type
        table = table.set_column(table.schema.get_field_index(name), name, table.column(name).cast(pa.binary()))
    batches = table.to_batches()
    return batches[0]


def packed(batch: pa.RecordBatch) -> bytes:
    """Returns a batch as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
