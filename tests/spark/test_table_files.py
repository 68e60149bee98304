"""The files of a rebuild's tables are exactly those that the tasks returned."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kcore.spark.events.segments import SegmentPartition, find_partitions, read_batches
from kcore.spark.frames.transforms import LogProperties, replay_batches
from kcore.spark.state.batch_replay import rebuild_batches
from kcore.spark.state.offset_rows import table_schema
from kcore.spark.state.rebuild import END, Rebuilt
from kcore.spark.state.table_batches import TableBatch, all_tables, rows_batch, tables_and_checkpoints
from kcore.spark.state.table_files import (
    EARLIER,
    WrittenFile,
    complete_tables,
    indexed_offsets,
    put_tables,
    read_checkpoint,
    staging_folder,
    write_tables,
)
from kcore.spark.state.table_schemas import TABLES


def written(folder: Path, *groups: str) -> list[WrittenFile]:
    batches = [("groups", rows_batch("groups", [{"group_id": group, "member_count": 2}])) for group in groups]
    return list(write_tables(batches, folder))


def rows_of(target: Path, table: str) -> list[str]:
    return sorted(row["group_id"] for row in pq.read_table(target / table).to_pylist())


def test_unnamed_files_are_removed(tmp_path: Path) -> None:
    """A task that ran twice has left two files. The job keeps only the file that the results name."""
    staging = staging_folder(tmp_path)
    counted = [*written(staging, "a", "b"), *written(staging, "c")]
    written(staging, "a", "b")
    assert len(list((staging / "groups").iterdir())) == 3
    assert complete_tables(counted, staging) == {**dict.fromkeys(TABLES, 0), "groups": 3}
    put_tables(staging, tmp_path)
    assert rows_of(tmp_path, "groups") == ["a", "b", "c"]


def test_checkpoints_are_files_of_their_partitions(kafka_logs: Path, tmp_path: Path) -> None:
    """The layout is that of Spark's partitioned tables. A later run replaces the files and removes unnamed ones."""
    parts = [part for part in find_partitions(kafka_logs / "moment-1") if part.topic == "__transaction_state"]
    results = [rebuild_batches(*part[:2], read_batches(part), with_records=True) for part in parts]
    for count in (len(results), 2):
        staging = staging_folder(tmp_path)
        counted = list(write_tables(tables_and_checkpoints(results[:count]), staging))
        list(write_tables(tables_and_checkpoints(results), staging))  # of a task that ran twice
        counts = complete_tables(counted, staging)
        put_tables(staging, tmp_path)
        assert counts.keys() == set(TABLES)
        assert counts["partitions"] == count
        files = [one for one in counted if one.table.startswith("checkpoint/")]
        for one in files:
            table = read_checkpoint(pa.memory_map(str(tmp_path / one.table / one.file)).read_buffer())
            assert (len(table), table.column("offset")[0].as_py()) == (one.rows, one.next_offset)
        names = sorted(str(path.parent.relative_to(tmp_path)) for path in (tmp_path / "checkpoint").glob("*/*/*"))
        topic = "checkpoint/topic=__transaction_state"
        assert names == sorted(f"{topic}/partition={part.partition}" for part in parts[:count])
        offsets = {(one.state.topic, one.state.partition): one.state.next_offset for one in results[:count]}
        assert indexed_offsets((tmp_path / "checkpoint" / "_index.json").read_bytes()) == offsets


def test_a_run_replaces_the_tables_of_the_one_before(tmp_path: Path) -> None:
    """Empty tables are replaced, too: their file has the columns and no rows."""
    for groups in (("a", "b"), ()):
        staging = staging_folder(tmp_path)
        complete_tables(written(staging, *groups), staging)
        put_tables(staging, tmp_path)
        assert rows_of(tmp_path, "groups") == list(groups)
    for table in TABLES:
        (path,) = (tmp_path / table).iterdir()
        assert pq.read_schema(path).equals(table_schema(table))


def test_the_replacement_of_tables_needs_no_space(tmp_path: Path) -> None:
    """All files of the new tables are complete before the first table is replaced. So a full disk cannot leave the
    tables of two runs mixed.
    """
    for groups in (("a", "b"), ("c",)):
        staging = staging_folder(tmp_path)
        complete_tables(written(staging, *groups), staging)
        with no_file_may_grow():
            put_tables(staging, tmp_path)
        assert rows_of(tmp_path, "groups") == list(groups)
        assert sorted(path.name for path in (staging / EARLIER).iterdir()) == (sorted(TABLES) if "c" in groups else [])


@contextmanager
def no_file_may_grow() -> Iterator[None]:
    """Makes each write to a file of this process fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_files_of_an_interrupted_run_are_removed(tmp_path: Path) -> None:
    first = staging_folder(tmp_path)
    written(first, "a")
    assert staging_folder(tmp_path) != first
    assert not first.exists()


def test_a_file_of_a_task_that_fails_is_not_named(tmp_path: Path) -> None:
    def failing() -> Iterator[TableBatch]:
        yield "groups", rows_batch("groups", [{"group_id": "a"}])
        raise OSError("the log cannot be read any more")

    with pytest.raises(OSError, match="cannot be read any more"):
        list(write_tables(failing(), tmp_path))


def test_partitions_of_one_frame_are_separated(kafka_logs: Path) -> None:
    """Rows of several partitions arrive in one DataFrame, in small and large batches. Each partition is rebuilt
    separately.
    """
    parts = [part for part in find_partitions(kafka_logs / "moment-2") if part.topic != "__share_group_state"]
    batches = [batch for part in parts for batch in read_batches(part)]

    table = pa.Table.from_batches(batches)
    for size in (700, 1_000_000):
        found = replay_batches(table.combine_chunks().to_batches(size), {}, END, LogProperties())
        tables = [(row["table"], row[row["table"]]) for batch in found for row in batch.to_pylist()]
        expected = [(name, row) for name, batch in all_tables(map(rebuilt, parts)) for row in batch.to_pylist()]
        assert tables == expected


def rebuilt(part: SegmentPartition) -> Rebuilt:
    return rebuild_batches(*part[:2], read_batches(part))
