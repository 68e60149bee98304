"""The output of jobs: tables through Spark's `DataFrameWriter`, and small files beside them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kcore.errors import ConfigError, KcoreError
from kcore.spark.export.storage import Files, LocalStorage, local_path
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
ERROR: Final = "error"
DELTA_LOG: Final = "_delta_log"
"""Name of the folder in which a Delta Lake table records its versions."""
MODES: Final = (OVERWRITE, APPEND, ERROR)
REBUILD_DONE: Final = "rebuild.json"
TIMELINE_DONE: Final = "timeline.json"
INCOMPLETE: Final = ".incomplete"
"""The suffix of a file that marks tables which a job is changing, for example rebuild.json.incomplete.

The file stays if the job fails or is killed.
"""
WRITERS: Final = 4
"""Number of tables that Spark writes at a time. They share the executors of the session."""


class Output:
    """The tables of a job.

    A table of Parquet or Delta is a folder below the output. A table of Iceberg is a table of a catalog, below the
    namespace that the output names. An Iceberg output has no files besides its tables.

    Args:
        spark: a session.
        location: a path, a URI, or CATALOG.NAMESPACE for Iceberg.
        form: one of `FORMATS`. Delta and Iceberg need their package and settings in the session.
        mode: `overwrite` replaces existing tables, `append` adds rows to them, `error` raises KcoreError if there is an
            earlier output.

    Attributes:
        form: the format of the tables.
        files: the output's folder; None for Iceberg.

    Raises:
        KcoreError: the format or mode is unknown, or the folder cannot be reached.
    """

    def __init__(self, spark: SparkSession, location: str | Path, form: str = PARQUET, mode: str = OVERWRITE) -> None:
        if form not in FORMATS or mode not in MODES:
            raise ConfigError(
                f"format={form}, mode={mode}; valid formats: {', '.join(FORMATS)}; valid modes: {', '.join(MODES)}"
            )
        self._spark = spark
        self._location = str(location)
        self._mode = mode
        self.form = form
        self._local = form != ICEBERG and is_local(spark, location)
        self.files: Files | None = None
        if self._local:
            storage = LocalStorage(Path(location).absolute())
            storage.prepare()
            self.files = storage
        elif form != ICEBERG:
            self.files = HadoopFiles(spark, location)

    @property
    def folder(self) -> Path | None:
        """The folder to which local tasks may write Parquet files directly.

        None unless the output is a local folder, has the format Parquet, and replaces the rows of earlier runs.
        """
        if not self._local or self.form != PARQUET or self._mode != OVERWRITE:
            return None
        return Path(self._location).absolute()

    @property
    def replaces(self) -> bool:
        """True if the output has only the rows of this run."""
        return self._mode != APPEND

    def check_checkpoints(self) -> None:
        """Raises ConfigError if checkpoints cannot be part of this output."""
        check_checkpoints(self.form, self._mode)

    @contextmanager
    def run(self, source: str, done: str, table: str) -> Iterator[None]:
        """Checks the output, and locks a local folder until the end of the block. Changes no file.

        While the lock exists, other runs with the same folder raise KcoreError. The lock is flock(2) on the folder
        itself. The kernel releases the lock when the process ends in any way.

        Args:
            source: the path, URI or address of the logs.
            done: the name of the file that shows that an output is complete.
            table: the name of a table that each output of the job has.

        Raises:
            KcoreError: another job writes to the folder, the output is inside the source, its tables have another
                format, or the mode is `error` and there is an earlier output.
        """
        if self.form != ICEBERG:
            check_apart(source, self._location)
        folder = None
        try:
            if self._local:
                folder = os.open(self._location, os.O_RDONLY)
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise KcoreError(
                        f"another job writes to {self._location}: wait for its end, or name another folder"
                    ) from None
                except OSError:
                    pass  # the file system has no locks of folders
            self._check(done, table)
            yield
        finally:
            if folder is not None:
                os.close(folder)

    def _check(self, done: str, table: str) -> None:
        """Raises KcoreError if this run cannot write to the output; `run` documents the arguments."""
        if self.files is None:
            return
        check_new(self.files, self._location, self._mode, done)
        mark = f"{done}{INCOMPLETE}"
        if self._mode == APPEND and self.files.exists(mark) and not self.files.exists(done):
            raise KcoreError(
                f"an earlier run did not end, and some tables in {self._location} may have its rows: replace them with "
                f"--mode overwrite, or delete the file {mark} to keep these rows"
            )
        of_delta = self.files.exists(f"{table}/{DELTA_LOG}")
        if of_delta and self.form == PARQUET:
            raise KcoreError(f"{self._location} has tables of Delta Lake: pass --format delta, or name another folder")
        if not of_delta and self.form == DELTA and self.files.exists(done):
            raise KcoreError(f"{self._location} has tables of Parquet: pass --format parquet, or name another folder")

    def begin(self, done: str) -> None:
        """Marks the output as incomplete. A job calls it before it changes a table.

        Args:
            done: the name of the file that shows that an output is complete. `begin` removes this file.
        """
        if self.files is not None:
            self.files.write(f"{done}{INCOMPLETE}", b"A job changes these tables, or did not end. Run it again.\n")
            self.files.delete(done)

    def end(self, done: str, data: bytes) -> None:
        """Marks the output as complete, unless it has no folder.

        Args:
            done: the name of the file that shows that the output is complete.
            data: the content of this file.
        """
        if self.note(done, data) and self.files is not None:
            self.files.delete(f"{done}{INCOMPLETE}")

    def table(self, name: str) -> str:
        """Returns the path or the name of a table."""
        if self.files is None:
            return f"{self._location}.{name}"
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

    def write_all(self, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Writes tables as `write` does, several at a time, because one small table keeps few executors busy.

        Args:
            frames: the tables by name.

        Returns:
            The frames that `write` returns, by name. If a write fails, `write_all` raises the error after the other
            running writes have ended.
        """
        from pyspark import inheritable_thread_target  # noqa: PLC0415

        with ThreadPoolExecutor(WRITERS, "kcore-write") as pool:
            writing = {}
            for name, frame in frames.items():
                write: Any = inheritable_thread_target(self._spark)(self.write)  # with a copy of properties for each
                writing[name] = pool.submit(write, name, frame)
            try:
                return {name: one.result() for name, one in writing.items()}
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

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


def check_checkpoints(form: str, mode: str) -> None:
    """Raises ConfigError if an output of this format and mode cannot have checkpoints."""
    if form == ICEBERG or mode == APPEND:
        raise ConfigError("checkpoints need an output with a folder, and the mode overwrite or error")


def check_new(files: Files, location: str, mode: str, done: str) -> None:
    """Raises KcoreError if the mode is `error`, and the output has the file `done` of an earlier run.

    Args:
        files: the output's folder.
        location: the output's name, for the error message.
        mode: one of `MODES`.
        done: the name of the file that shows that a run has completed the output.
    """
    if mode == ERROR and files.exists(done):
        raise KcoreError(f"{location} has an earlier output ({done}); use --mode overwrite to replace it")


def check_apart(source: str | Path, out: str | Path) -> None:
    """Raises ConfigError if an output is in the same folder as its source, or below it.

    Args:
        source: the path or URI of the logs.
        out: the path or URI of the output.
    """
    folder, inside = _normal(source), _normal(out)
    if inside == folder or inside.startswith(f"{folder.rstrip('/')}/"):
        raise ConfigError(f"the output {out} would be inside of the source {source}: name a folder outside of it")


def _normal(location: str | Path) -> str:
    """Returns a location in a normal form, for comparisons."""
    scheme = str(location).partition(":")[0]
    if scheme in ("s3", "s3n"):
        location = f"s3a{str(location)[len(scheme) :]}"
    try:
        path = local_path(location)
    except KcoreError:
        path = None
    return str(path.resolve()) if path is not None else str(location).partition("?")[0].rstrip("/")
