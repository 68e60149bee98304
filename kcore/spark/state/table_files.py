"""Writes the tables of a rebuild as Parquet files: tasks write to a staging folder and return the file names.

A task that fails and is repeated, or runs twice, leaves files whose names are not returned. `put_tables` alone
decides which files the tables contain, once all tasks are done.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kcore.spark.state.table_batches import TableBatch, table_schema
from kcore.spark.state.table_schemas import CHECKPOINT, TABLES

GROUP_BYTES: Final = 8 << 20
"""The size of a row group: rows are gathered up to this size before they are written."""

STAGING: Final = ".writing-"
PLACE: Final = ("topic", "partition")
"""The columns of a checkpoint that its folder tells: checkpoint/topic=T/partition=N."""
SUCCESS: Final = "_SUCCESS"
"""The empty file that Spark's writers add to a complete table."""

WRITTEN_DDL: Final = "`table` string, file string, `rows` bigint"


class WrittenFile(NamedTuple):
    """A file of a table, and its number of rows."""

    table: str
    file: str
    rows: int


def staging_folder(target: Path) -> Path:
    """Creates a folder for tasks to write to; removes those of interrupted runs."""
    target.mkdir(parents=True, exist_ok=True)
    for left in target.glob(f"{STAGING}*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = target / f"{STAGING}{uuid.uuid4().hex}"
    folder.mkdir()
    return folder


def write_tables(batches: Iterable[TableBatch], folder: str | Path) -> Iterator[WrittenFile]:
    """Writes rows of tables, one file per table, and one per partition of the checkpoints.

    Args:
        batches: the rows.
        folder: a folder from `staging_folder`, which gets a subfolder for each table.

    Returns:
        The complete files.
    """
    name = f"part-{uuid.uuid4().hex}.parquet"
    files: dict[str, _TableFile] = {}
    checkpoints: list[_TableFile] = []
    try:
        for kind, rows in batches:
            table, batch = _of_partition(rows) if kind == CHECKPOINT else (kind, rows)
            if table not in files:
                for done in checkpoints:  # partitions come one after another
                    done.close()
                files[table] = _TableFile(Path(folder) / table / name, batch.schema)
                checkpoints = [files[table]] if kind == CHECKPOINT else []
            files[table].add(batch)
    finally:
        for file in files.values():
            file.close()
    for table, file in files.items():
        yield WrittenFile(table, name, file.rows)


def _of_partition(checkpoint: pa.RecordBatch) -> TableBatch:
    """Returns rows of a checkpoint as those of a table for their partition."""
    topic, partition = (checkpoint.column(name)[0].as_py() for name in PLACE)
    return f"{CHECKPOINT}/topic={topic}/partition={partition}", checkpoint.drop_columns(list(PLACE))


def put_tables(written: Collection[WrittenFile], staging: Path, target: Path) -> dict[str, int]:
    """Replaces the existing tables by the named files. Every table gets a file, even without rows.

    Returns:
        The number of rows of each table.
    """
    counts = dict.fromkeys(TABLES, 0)
    checkpoints = [one for one in written if one.table not in counts]
    for one in written:
        if one.table in counts:
            counts[one.table] += one.rows
    named = {(one.table, one.file) for one in written}
    for table in TABLES:
        folder = staging / table
        if not counts[table]:
            shutil.rmtree(folder, ignore_errors=True)
            _TableFile(folder / "part-none.parquet", table_schema(table)).close()
        else:
            for path in folder.iterdir():
                if (table, path.name) not in named:
                    path.unlink()
        shutil.rmtree(target / table, ignore_errors=True)
        os.replace(folder, target / table)
    if checkpoints:
        _put_checkpoints(checkpoints, staging, target)
    return counts


def _put_checkpoints(written: Iterable[WrittenFile], staging: Path, target: Path) -> None:
    """Replaces the existing checkpoints by the named files, in the layout of Spark's partitioned tables."""
    folder = staging / CHECKPOINT
    named = {Path(one.table) / one.file for one in written}
    for path in folder.glob("*/*/*"):
        if path.relative_to(staging) not in named:
            path.unlink()
    shutil.rmtree(target / CHECKPOINT, ignore_errors=True)
    os.replace(folder, target / CHECKPOINT)
    (target / CHECKPOINT / SUCCESS).touch()


class _TableFile:
    """One file, written row group by row group."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: Any = open(path, "wb")  # noqa: SIM115  # closed by `close`
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        # A dictionary of numbers or of the keys of a checkpoint costs time and saves nothing. Snappy, which Spark's
        # writers use by default, compresses less than zstd, but takes half the time.
        self._writer = pq.ParquetWriter(self._file, schema, compression="snappy", use_dictionary=texts or False)
        self._batches: list[pa.RecordBatch] = []
        self._size_bytes = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._size_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._size_bytes >= GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
            self._batches, self._size_bytes = [], 0

    def close(self) -> None:
        """Makes the file durable and closes it, unless it is closed already."""
        if self._file.closed:
            return
        try:
            self._write()
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()
