"""The tables that the job `watch` keeps up to date, as Parquet on any file system of the session.

A micro-batch that a crash interrupted is repeated, and writes the same files again:

- *Tables of the state* have the rows of the newest micro-batch of each partition, in a folder per partition, which a
  later micro-batch replaces.
- *Growing tables* have a folder `batch=N` per micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.spark.audit.finding import findings_ddl
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.state.table_schemas import TABLES, table_ddl
from kcore.spark.timeline.event_kinds import EVENT_KINDS, kind_ddl
from kcore.spark.watch.continued import FINDINGS, STATE, TIMELINE
from kcore.spark.watch.streams import DECODED, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

EVENTS: Final = "events"
LAG: Final = "lag"
ALERTS: Final = "alerts"
KINDS: Final = tuple(kind for kind in EVENT_KINDS if kind != "logs")
"""The kinds of timeline events that a stream has. Those of logs belong to their ends."""

LAG_DDL: Final = "at_ms bigint, group_id string, topic string, partitions int, lag bigint, max_lag bigint"
"""The lag of a group in a topic at a time: the sum over its partitions, and the largest one."""
ALERTS_DDL: Final = "at_ms bigint, kind string, subject string, since_ms bigint, detail string"
"""An alert: its kind, the group or transactional id, and the time from which its condition holds."""

DDLS: Final[dict[str, str]] = {
    **{f"{STATE}/{name}": table_ddl(name) for name in TABLES},
    **{f"{TIMELINE}/{kind}": kind_ddl(kind) for kind in KINDS},
    FINDINGS: findings_ddl(),
    EVENTS: ", ".join(f"{name} {kind}" for name, kind, _ in DECODED),
    LAG: LAG_DDL,
    ALERTS: ALERTS_DDL,
}
"""Table -> its schema."""

GROWING: Final = (*(f"{TIMELINE}/{kind}" for kind in KINDS), FINDINGS)
"""The tables to which micro-batches of `watched` add rows."""

SHARED: Final = ("producers", "partitions", "faults")
"""The tables of the state that all internal topics have. They are divided into folders by topic, too."""

TOPIC_OF: Final[dict[str, str]] = {
    **{name: CONSUMER_OFFSETS for name in TABLES if name not in SHARED},
    "transactions": TRANSACTION_STATE,
    "share_states": SHARE_GROUP_STATE,
}
"""The internal topic of the other tables of the state."""

BATCH: Final = "batch"
MARK: Final = "_table"
"""An empty file in the folder of each table, which exists before its first rows do. Spark ignores it."""


class TablePart(NamedTuple):
    """The rows of one partition in a table of the state."""

    table: str
    topic: str
    partition: int

    @property
    def folder(self) -> str:
        """The name of its folder."""
        columns = partition_columns(self.table)
        own = [f"topic={self.topic}"] if "topic" in columns else []
        return "/".join([self.table, *own, f"{columns[-1]}={self.partition}"])


def partition_columns(table: str) -> tuple[str, ...]:
    """Returns the columns by which a table of the state is divided into folders."""
    shared = table.rpartition("/")[2] in SHARED
    return ("topic", "coordinator_partition") if shared else ("coordinator_partition",)


class WatchTables:
    """The tables below an output folder.

    Args:
        spark: a session.
        place: the folder: a path or a URI.
        publish: receives the new rows of growing tables with their table's name, after they were written; None:
            nothing else does.

    Raises:
        KcoreError: the folder cannot be reached.
    """

    def __init__(
        self, spark: SparkSession, place: str | Path, publish: Callable[[str, DataFrame], None] | None = None
    ) -> None:
        self._spark = spark
        self._publish = publish
        self.files = HadoopFiles(spark, place)
        present = self.files.sizes()
        for table in DDLS:
            if f"{table}/{MARK}" not in present:
                self.files.write(f"{table}/{MARK}", b"")
        self._filled = {name.rpartition("/")[0] for name in present if not name.endswith(f"/{MARK}")}

    def table(self, name: str) -> DataFrame:
        """Returns the rows of a table as of now."""
        return self._spark.read.schema(DDLS[name]).parquet(f"{self.files.uri}/{name}")

    def apply(self, watched_rows: DataFrame, batch_id: int) -> None:
        """Writes a micro-batch of `watched`.

        Args:
            watched_rows: the micro-batch.
            batch_id: its number.
        """
        from pyspark import StorageLevel  # noqa: PLC0415

        watched_rows = watched_rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            found = {TablePart(*row) for row in watched_rows.select("table", "topic", "partition").distinct().collect()}
            for table in sorted({part.table for part in found}):
                rows = rows_of(watched_rows, table, DDLS[table])
                if table in GROWING:
                    self.add(table, rows, batch_id)
                else:
                    self._replace(table, rows)
            self._delete_empty(found)
        finally:
            watched_rows.unpersist()

    def add(self, table: str, rows: DataFrame, batch_id: int) -> None:
        """Writes the rows that a micro-batch adds to a growing table, instead of those of an earlier attempt."""
        folder = f"{self.files.uri}/{table}/{BATCH}={batch_id}"
        rows.coalesce(1).write.mode("overwrite").parquet(folder)
        self._published(table, self._spark.read.schema(DDLS[table]).parquet(folder))

    def append(self, table: str, rows: DataFrame) -> None:
        """Appends rows of a point in time to a table."""
        rows.coalesce(1).write.mode("append").parquet(f"{self.files.uri}/{table}")
        self._published(table, rows)

    def _published(self, table: str, rows: DataFrame) -> None:
        if self._publish is not None:
            self._publish(table, rows)

    def _replace(self, table: str, rows: DataFrame) -> None:
        columns = partition_columns(table)
        writer = rows.repartition(*columns).write.mode("overwrite").partitionBy(*columns)
        writer.option("partitionOverwriteMode", "dynamic").parquet(f"{self.files.uri}/{table}")

    def _delete_empty(self, found: Iterable[TablePart]) -> None:
        """Deletes the rows of partitions in tables of which they have no rows any more."""
        filled = {part.folder for part in found if part.table not in GROWING}
        places = {(part.topic, part.partition) for part in found}
        possible = {
            TablePart(f"{STATE}/{name}", *place).folder
            for name in TABLES
            for place in places
            if TOPIC_OF.get(name, place[0]) == place[0]
        }
        for folder in sorted((possible & self._filled) - filled):
            self.files.delete_folder(folder)
        self._filled = (self._filled - possible) | filled
