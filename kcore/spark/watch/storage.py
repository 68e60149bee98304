"""The storage of the tables that the job `watch` keeps up to date: Parquet, Delta Lake, or Iceberg.

A crash may interrupt a micro-batch, which Spark then repeats. Therefore, every write of a micro-batch replaces the rows
of an earlier attempt. In tables that have the current state, these are all rows of a partition. In growing tables, they
are the rows with the number of the micro-batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.errors import ConfigError
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.frames.output import DELTA, FORMATS, ICEBERG, PARQUET

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BATCH: Final = "batch"
"""Name of a column in growing tables, which keep the rows of all micro-batches.

It contains the number of the micro-batch that added the row.
"""
MARK: Final = "_table"
"""Name of an empty file that marks the folder of a Parquet table, even before the table has rows. Spark ignores it."""

SHARED: Final = ("producers", "partitions", "faults")
"""Tables of the state with rows of all internal topics. Their files are partitioned by topic, too."""


def partition_columns(table: str) -> tuple[str, ...]:
    """Returns the columns by which a table of the state is partitioned."""
    shared = table.rpartition("/")[2] in SHARED
    return ("topic", "coordinator_partition") if shared else ("coordinator_partition",)


class TablePart(NamedTuple):
    """The rows of one partition of an internal topic in a table of the state."""

    table: str
    topic: str
    partition: int

    @property
    def folder(self) -> str:
        """The name of the part's folder in a Parquet table."""
        columns = partition_columns(self.table)
        own = [f"topic={self.topic}"] if "topic" in columns else []
        return "/".join([self.table, *own, f"{columns[-1]}={self.partition}"])

    @property
    def condition(self) -> str:
        """The SQL condition for its rows."""
        columns = partition_columns(self.table)
        own = [f"topic = '{self.topic}'"] if "topic" in columns else []
        return " and ".join([*own, f"{columns[-1]} = {self.partition}"])


class TableStorage(ABC):
    """The interface that creates, reads and writes tables. Tables have names with slashes, like `state/offsets`."""

    @abstractmethod
    def create(self, table: str, ddl: str, partitioned: Sequence[str]) -> bool:
        """Creates a table, unless it exists; returns True if it did not exist.

        A table of the state has the newest rows of each partition. A growing table has the rows of all micro-batches.

        Args:
            table: the name of the table.
            ddl: the schema of the table. A growing table also has the column `batch`.
            partitioned: the columns by which the table is partitioned: `batch` for a growing table.
        """

    @abstractmethod
    def read(self, table: str, ddl: str, batch_id: int | None = None) -> DataFrame:
        """Returns the rows of a table as of now.

        Args:
            table: the name of the table.
            ddl: the columns to read.
            batch_id: the micro-batch whose rows to read; None: all.
        """

    @abstractmethod
    def replace(self, table: str, rows: DataFrame, filled: Sequence[TablePart], emptied: Sequence[TablePart]) -> None:
        """Replaces the rows of partitions in a table of the state.

        Args:
            table: the name of the table.
            rows: the new rows.
            filled: the partitions that have new rows.
            emptied: the partitions that have no rows any more.
        """

    @abstractmethod
    def add(self, table: str, rows: DataFrame, batch_id: int) -> None:
        """Writes the rows that a micro-batch adds to a table that keeps the rows of all micro-batches.

        Replaces the rows of an earlier attempt at this micro-batch.
        """

    @abstractmethod
    def append(self, table: str, rows: DataFrame) -> None:
        """Appends rows to a table that is not partitioned."""


class ParquetTables(TableStorage):
    """Parquet tables in one folder. Each partition or micro-batch has a subfolder, which is replaced as a whole.

    Args:
        spark: a session.
        files: the folder of all tables.
    """

    def __init__(self, spark: SparkSession, files: HadoopFiles) -> None:
        self._spark = spark
        self._files = files
        self._present = files.sizes().keys()

    def create(self, table: str, ddl: str, partitioned: Sequence[str]) -> bool:
        """Implements `TableStorage.create`."""
        if f"{table}/{MARK}" in self._present:
            return False
        self._files.write(f"{table}/{MARK}", b"")
        return True

    def read(self, table: str, ddl: str, batch_id: int | None = None) -> DataFrame:
        """Implements `TableStorage.read`."""
        folder = table if batch_id is None else f"{table}/{BATCH}={batch_id}"
        return self._spark.read.schema(ddl).parquet(f"{self._files.uri}/{folder}")

    def replace(self, table: str, rows: DataFrame, filled: Sequence[TablePart], emptied: Sequence[TablePart]) -> None:
        """Implements `TableStorage.replace`: overwrites the folders of `filled`, and deletes the folders of
        `emptied`.
        """
        if filled:
            columns = partition_columns(table)
            writer = rows.repartition(*columns).write.mode("overwrite").partitionBy(*columns)
            writer.option("partitionOverwriteMode", "dynamic").parquet(f"{self._files.uri}/{table}")
        for part in emptied:
            self._files.delete_folder(part.folder)

    def add(self, table: str, rows: DataFrame, batch_id: int) -> None:
        """Implements `TableStorage.add`: overwrites the folder of the micro-batch."""
        rows.coalesce(1).write.mode("overwrite").parquet(f"{self._files.uri}/{table}/{BATCH}={batch_id}")

    def append(self, table: str, rows: DataFrame) -> None:
        """Implements `TableStorage.append`."""
        rows.coalesce(1).write.mode("append").parquet(f"{self._files.uri}/{table}")


class LakeTables(TableStorage):
    """Tables of Delta Lake or Iceberg, which atomically replace the rows that satisfy an SQL condition."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @abstractmethod
    def exists(self, table: str) -> bool:
        """Returns True if the table exists."""

    @abstractmethod
    def create_from(self, table: str, empty: DataFrame, partitioned: Sequence[str]) -> None:
        """Creates a table with the columns of a frame without rows."""

    @abstractmethod
    def all_rows(self, table: str) -> DataFrame:
        """Returns the rows of a table with all its columns."""

    @abstractmethod
    def overwrite(self, table: str, rows: DataFrame, condition: str) -> None:
        """Replaces the rows of a table that satisfy an SQL condition, which new rows must satisfy, too."""

    def create(self, table: str, ddl: str, partitioned: Sequence[str]) -> bool:
        """Implements `TableStorage.create`."""
        if self.exists(table):
            return False
        columns = f"{ddl}, {BATCH} bigint" if BATCH in partitioned else ddl
        self.create_from(table, self._spark.createDataFrame([], columns), partitioned)
        return True

    def read(self, table: str, ddl: str, batch_id: int | None = None) -> DataFrame:
        """Implements `TableStorage.read`."""
        rows = self.all_rows(table)
        if batch_id is not None:
            rows = rows.where(f"{BATCH} = {batch_id}")
        return rows.select(*self._spark.createDataFrame([], ddl).columns)

    def replace(self, table: str, rows: DataFrame, filled: Sequence[TablePart], emptied: Sequence[TablePart]) -> None:
        """Implements `TableStorage.replace`."""
        parts = [*filled, *emptied]
        if parts:
            self.overwrite(table, rows, " or ".join(f"({part.condition})" for part in parts))

    def add(self, table: str, rows: DataFrame, batch_id: int) -> None:
        """Implements `TableStorage.add`."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        numbered = rows.coalesce(1).withColumn(BATCH, f.lit(batch_id).cast("bigint"))
        self.overwrite(table, numbered, f"{BATCH} = {batch_id}")


class DeltaTables(LakeTables):
    """Tables of Delta Lake. Each table has a subfolder of one folder.

    Args:
        spark: a session with Delta's package and settings.
        files: the folder of all tables.
    """

    def __init__(self, spark: SparkSession, files: HadoopFiles) -> None:
        super().__init__(spark)
        self._files = files

    def exists(self, table: str) -> bool:
        """Implements `LakeTables.exists`."""
        return self._files.exists(f"{table}/_delta_log")

    def create_from(self, table: str, empty: DataFrame, partitioned: Sequence[str]) -> None:
        """Implements `LakeTables.create_from`."""
        self._writer(empty, "append").partitionBy(*partitioned).save(f"{self._files.uri}/{table}")

    def all_rows(self, table: str) -> DataFrame:
        """Implements `LakeTables.all_rows`."""
        return self._spark.read.format(DELTA).load(f"{self._files.uri}/{table}")

    def overwrite(self, table: str, rows: DataFrame, condition: str) -> None:
        """Implements `LakeTables.overwrite`."""
        self._writer(rows, "overwrite").option("replaceWhere", condition).save(f"{self._files.uri}/{table}")

    def append(self, table: str, rows: DataFrame) -> None:
        """Implements `TableStorage.append`."""
        self._writer(rows, "append").save(f"{self._files.uri}/{table}")

    def _writer(self, rows: DataFrame, mode: str) -> Any:
        return rows.write.format(DELTA).mode(mode)


class IcebergTables(LakeTables):
    """Tables of Iceberg below a namespace. `state/offsets` has the name `state_offsets`.

    Args:
        spark: a session with Iceberg's package and the catalog.
        namespace: CATALOG.NAMESPACE, which is created if it does not exist.
    """

    def __init__(self, spark: SparkSession, namespace: str) -> None:
        super().__init__(spark)
        self._namespace = namespace
        spark.sql(f"create namespace if not exists {namespace}")

    def _name(self, table: str) -> str:
        return f"{self._namespace}.{table.replace('/', '_')}"

    def exists(self, table: str) -> bool:
        """Implements `LakeTables.exists`."""
        return self._spark.catalog.tableExists(self._name(table))

    def create_from(self, table: str, empty: DataFrame, partitioned: Sequence[str]) -> None:
        """Implements `LakeTables.create_from`."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        writer: Any = empty.writeTo(self._name(table)).using(ICEBERG)
        (writer.partitionedBy(*map(f.col, partitioned)) if partitioned else writer).create()

    def all_rows(self, table: str) -> DataFrame:
        """Implements `LakeTables.all_rows`."""
        # A micro-batch writes in a session of its own. This session's catalog would keep the table as it was before.
        self._spark.catalog.refreshTable(self._name(table))
        return self._spark.table(self._name(table))

    def overwrite(self, table: str, rows: DataFrame, condition: str) -> None:
        """Implements `LakeTables.overwrite`."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        rows.writeTo(self._name(table)).overwrite(f.expr(condition))

    def append(self, table: str, rows: DataFrame) -> None:
        """Implements `TableStorage.append`."""
        rows.writeTo(self._name(table)).append()


def table_storage(spark: SparkSession, place: str | Path, form: str) -> TableStorage:
    """Returns the storage of a format.

    Args:
        spark: a session.
        place: a path or a URI; CATALOG.NAMESPACE for Iceberg.
        form: one of `output.FORMATS`.

    Raises:
        KcoreError: the format is unknown, or the folder cannot be reached.
    """
    if form == ICEBERG:
        return IcebergTables(spark, str(place))
    if form not in FORMATS:
        raise ConfigError(f"format={form}; valid: {', '.join(FORMATS)}")
    files = HadoopFiles(spark, place)
    return ParquetTables(spark, files) if form == PARQUET else DeltaTables(spark, files)
