"""Writes the tables and checkpoints of a rebuild as files: tasks write to a staging folder and return the file names.

A task that fails and is repeated, or runs twice, leaves files whose names are not returned. `complete_tables` alone
decides which files the tables contain, once all tasks are done. `put_tables` then replaces the earlier tables.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from kcore.json_text import parse_json
from kcore.spark.export.storage import sync_folder, write_whole
from kcore.spark.state.offset_rows import table_schema
from kcore.spark.state.table_batches import TableBatch
from kcore.spark.state.table_schemas import CHECKPOINT, TABLES

GROUP_BYTES: Final = 8 << 20
"""Size in bytes at which the gathered rows are written as a row group."""

STAGING: Final = ".writing-"
EARLIER: Final = "earlier"
"""Name of the folder, within a staging folder, to which `put_tables` moves the earlier tables."""
PLACE: Final = ("topic", "partition")
"""Columns of a checkpoint that are not in its files, but in the names of their folders.

The folders have names like checkpoint/topic=T/partition=N.
"""
_ARROW: Final = b"ARROW1"
"""The first bytes of an Arrow file."""
_SERIAL: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""Options that make Arrow read without threads. With threads, a small file takes twice the processor time."""
INDEX: Final = "_index.json"
"""Name of the file with the offsets of the checkpoints. It exists only if they are complete. Spark ignores the file."""

WRITTEN_DDL: Final = "`table` string, file string, `rows` bigint, next_offset bigint"


class WrittenFile(NamedTuple):
    """A file of a table.

    Attributes:
        table: the name of the table; for a checkpoint, the folder of its partition.
        file: the name of the file.
        rows: the number of rows in the file.
        next_offset: the offset of a checkpoint; None for a table.
    """

    table: str
    file: str
    rows: int
    next_offset: int | None = None


def staging_folder(target: Path) -> Path:
    """Creates a folder for tasks to write to; removes the folders of interrupted runs."""
    target.mkdir(parents=True, exist_ok=True)
    for left in target.glob(f"{STAGING}*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = target / f"{STAGING}{uuid.uuid4().hex}"
    folder.mkdir()
    return folder


def write_tables(batches: Iterable[TableBatch], folder: str | Path) -> Iterator[WrittenFile]:
    """Writes rows of tables, one Parquet file per table, and one Arrow file per partition of the checkpoints.

    Checkpoints use Arrow's format, because another run reads a checkpoint as a whole. This format takes less time than
    Parquet, but more space.

    Args:
        batches: the rows of each table.
        folder: a folder from `staging_folder`, which gets a subfolder for each table.

    Returns:
        The complete files.
    """
    name = f"part-{uuid.uuid4().hex}"
    files: dict[str, _TableFile | _CheckpointFile] = {}
    checkpoint: _CheckpointFile | None = None
    try:
        for kind, rows in batches:
            if kind != CHECKPOINT:
                if kind not in files:
                    files[kind] = _TableFile(Path(folder) / kind / f"{name}.parquet", rows.schema)
                files[kind].add(rows)
                continue
            table, batch = _of_partition(rows)
            if table not in files:
                if checkpoint is not None:  # partitions come one after another
                    checkpoint.close()
                files[table] = checkpoint = _CheckpointFile(Path(folder) / table / f"{name}.arrow", batch)
            files[table].add(batch)
    finally:
        for file in files.values():
            file.close()
    for table, file in files.items():
        yield WrittenFile(table, file.path.name, file.rows, file.next_offset)


def _of_partition(checkpoint: pa.RecordBatch) -> TableBatch:
    """Returns the folder for the checkpoint of a partition, and the checkpoint without the columns in `PLACE`."""
    topic, partition = (checkpoint.column(name)[0].as_py() for name in PLACE)
    return f"{CHECKPOINT}/topic={topic}/partition={partition}", checkpoint.drop_columns(list(PLACE))


def complete_tables(written: Collection[WrittenFile], staging: Path) -> dict[str, int]:
    """Completes the tables in a staging folder, so that `put_tables` only needs to rename their folders.

    It removes the files that are not in `written`, and makes the folders durable. Every table gets a file, even without
    rows.

    Args:
        written: the files of the tables and checkpoints.
        staging: the folder from `staging_folder`.

    Returns:
        The number of rows of each table.
    """
    counts = dict.fromkeys(TABLES, 0)
    checkpoints = [file for file in written if file.table not in counts]
    for file in written:
        if file.table in counts:
            counts[file.table] += file.rows
    named = {(file.table, file.file) for file in written}
    for table in TABLES:
        folder = staging / table
        if not counts[table]:
            shutil.rmtree(folder, ignore_errors=True)
            _TableFile(folder / "part-none.parquet", table_schema(table)).close()
        else:
            for path in folder.iterdir():
                if (table, path.name) not in named:
                    path.unlink()
        sync_folder(folder)
    if checkpoints:
        _complete_checkpoints(checkpoints, staging)
    (staging / EARLIER).mkdir()
    return counts


def _complete_checkpoints(written: Iterable[WrittenFile], staging: Path) -> None:
    """Removes the checkpoint files that are not in `written`, and writes the index.

    The folders have the layout of Spark's partitioned tables.
    """
    folder = staging / CHECKPOINT
    named = {Path(one.table) / one.file: one.next_offset for one in written}
    for path in folder.glob("*/*/*"):
        if path.relative_to(staging) not in named:
            path.unlink()
    offsets = {place: offset for path, offset in named.items() if offset is not None for place in place_of(str(path))}
    write_whole(folder / INDEX, index_of(offsets))
    for path in (*folder.glob("*/*"), *folder.glob("*"), folder):
        if path.is_dir():
            sync_folder(path)


def put_tables(staging: Path, target: Path) -> None:
    """Replaces the tables and checkpoints of an output by complete ones.

    It only renames folders, which needs no disk space and takes milliseconds even for large tables. The earlier tables
    move to the staging folder.

    Args:
        staging: the folder with the complete tables.
        target: the folder of the output.
    """
    earlier = staging / EARLIER
    for table in (*TABLES, CHECKPOINT):
        if (staging / table).exists():
            with suppress(FileNotFoundError):
                os.rename(target / table, earlier / table)
            os.rename(staging / table, target / table)
    sync_folder(target)


def place_of(name: str) -> Iterator[tuple[str, int]]:
    """Yields the topic and partition in the path of a checkpoint's file, checkpoint/topic=T/partition=N/FILE.

    Yields no value for any other path.
    """
    parts = name.split("/")
    if len(parts) == 4 and parts[0] == CHECKPOINT and parts[3].startswith("part-"):
        yield unquote(parts[1].partition("=")[2]), int(parts[2].partition("=")[2])


def index_of(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Returns the content of the file that lists the offsets of the checkpoints.

    Args:
        offsets: partition -> the offset of its checkpoint.
    """
    return json.dumps([[*place, offset] for place, offset in sorted(offsets.items())]).encode()


def indexed_offsets(content: bytes) -> dict[tuple[str, int], int]:
    """Parses a result of `index_of`. Returns a mapping from each partition to the offset of its checkpoint."""
    return {(topic, partition): offset for topic, partition, offset in parse_json(content)}


def read_checkpoint(content: Any) -> pa.Table:
    """Reads a file of a checkpoint. Its format is Arrow, or Parquet if Spark has written it.

    Args:
        content: the file, as a buffer of pyarrow.
    """
    if content.size >= len(_ARROW) and content[: len(_ARROW)].to_pybytes() == _ARROW:
        return pa.ipc.open_file(content, options=_SERIAL).read_all()
    # A small file is read faster without the threads and the data set of `read_table`.
    return pq.ParquetFile(content).read(use_threads=False)


class _OpenFile:
    """A file that is being written, batch by batch.

    Attributes:
        path: the file's path in the staging folder.
        rows: the number of rows.
        next_offset: the offset of a checkpoint; None for a table.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rows = 0
        self.next_offset: int | None = None
        self._file: Any = open(path, "wb")  # noqa: SIM115  # closed by `close`

    def _end(self) -> None:
        """Writes the footer of the file format."""

    def close(self) -> None:
        """Makes the file durable and closes it, unless it is closed already."""
        if self._file.closed:
            return
        try:
            self._end()
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()


class _CheckpointFile(_OpenFile):
    """A checkpoint of a partition, in Arrow's format. The first row has the offset of the checkpoint."""

    def __init__(self, path: Path, first: pa.RecordBatch) -> None:
        super().__init__(path)
        self.next_offset = first.column("offset")[0].as_py()
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        self._writer = pa.ipc.new_file(self._file, first.schema, options=options)

    def add(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def _end(self) -> None:
        self._writer.close()


class _TableFile(_OpenFile):
    """A Parquet file, written row group by row group."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        super().__init__(path)
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        # A dictionary of numbers costs time and saves nothing. Snappy, which Spark's writers use by default, compresses
        # less than zstd, but takes half the time.
        self._writer = pq.ParquetWriter(self._file, schema, compression="snappy", use_dictionary=texts or False)
        self._batches: list[pa.RecordBatch] = []
        self._size_bytes = 0

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

    def _end(self) -> None:
        self._write()
        self._writer.close()
