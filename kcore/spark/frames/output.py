"""The output of jobs: tables through Spark's `DataFrameWriter`, and small files beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kcore.errors import ConfigError, KcoreError
from kcore.spark.export.storage import Files, LocalStorage
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.frames.logs import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET: Final = "parquet"
ICEBERG: Final = "iceberg"
DELTA: Final = "delta"
FORMATS: Final = (PARQUET, DELTA, ICEBERG)
OVERWRITE: Final = "overwrite"
APPEND: Final = "append"
MODES: Final = (OVERWRITE, APPEND, "error")


class Output:
    """The tables of a job.

    A table of Parquet or Delta is a folder below the output. A table of Iceberg is a table of a catalog, below the
    namespace that the output names; such an output has no other files.

    Args:
        spark: a session.
        place: a path, a URI, or CATALOG.NAMESPACE for Iceberg.
        form: one of `FORMATS`. Delta and Iceberg need their package and settings in the session.
        mode: `overwrite` replaces existing tables, `append` adds rows to them, `error` refuses them.

    Attributes:
        form: the format of the tables.
        files: the output's folder; None for Iceberg.

    Raises:
        KcoreError: the format or mode is unknown, or the folder cannot be reached.
    """

    def __init__(self, spark: SparkSession, place: str | Path, form: str = PARQUET, mode: str = OVERWRITE) -> None:
        if form not in FORMATS or mode not in MODES:
            raise ConfigError(f"{form}, {mode}: the formats are {', '.join(FORMATS)}; the modes {', '.join(MODES)}")
        self._spark = spark
        self._place = str(place)
        self._mode = mode
        self.form = form
        self._local = form != ICEBERG and is_local(spark, place)
        self.files: Files | None = None
        if self._local:
            storage = LocalStorage(Path(place).absolute())
            storage.prepare()
            self.files = storage
        elif form != ICEBERG:
            self.files = HadoopFiles(spark, place)

    @property
    def folder(self) -> Path | None:
        """The folder to which local tasks may write Parquet files directly.

        None if the output has another format, is not a local folder, or keeps earlier rows.
        """
        if not self._local or self.form != PARQUET or self._mode != OVERWRITE:
            return None
        return Path(self._place).absolute()

    @property
    def replaces(self) -> bool:
        """True if the output has only the rows of this run."""
        return self._mode != APPEND

    def begin(self, done: str) -> None:
        """Removes the file which shows that an earlier output is complete.

        Args:
            done: the name of this file.

        Raises:
            KcoreError: the mode is `error`, and the file exists.
        """
        if self.files is None:
            return
        if self._mode == "error" and self.files.exists(done):
            raise KcoreError(f"{self._place} has an earlier output, {done}; --mode overwrite replaces it")
        self.files.delete(done)

    def table(self, name: str) -> str:
        """Returns the path or the name of a table."""
        if self.files is None:
            return f"{self._place}.{name}"
        return f"{self.files.uri}/{name}"

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """Writes a table. Returns a frame of the rows of this run, from which later tables may be computed."""
        from pyspark import StorageLevel  # noqa: PLC0415

        if self._mode == APPEND:  # the table has rows of other runs
            frame = frame.persist(StorageLevel.DISK_ONLY)
        writer = frame.write.format(self.form).mode(self._mode)
        if self.files is not None:
            if self._mode == OVERWRITE and self.form == DELTA:
                writer = writer.option("overwriteSchema", "true")
            writer.save(self.table(name))
        elif self._mode == OVERWRITE:
            frame.writeTo(self.table(name)).using(ICEBERG).createOrReplace()
        else:
            writer.saveAsTable(self.table(name))
        return frame if self._mode == APPEND else self._read(name, frame)

    def _read(self, name: str, frame: DataFrame) -> DataFrame:
        if self.files is None:
            return self._spark.table(self.table(name))
        reader = self._spark.read.format(self.form)
        return (reader.schema(frame.schema) if self.form == PARQUET else reader).load(self.table(name))

    def note(self, name: str, data: bytes) -> bool:
        """Writes a small file beside the tables; returns False if the output has no folder."""
        if self.files is None:
            return False
        self.files.write(name, data)
        return True
