"""Logs at URIs give the same results and faults as logs in a local folder, in any session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kcore.errors import ConfigError, KcoreError
from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.events.sources import Part, SegmentSource, Source, open_source
from kcore.spark.export.exporter import ExportSource, export, open_export, verify
from kcore.spark.export.manifest import MANIFEST, SAVED_EVERY
from kcore.spark.export.storage import ArrowStorage, LocalStorage, is_uri, local_path, storage_of
from kcore.spark.frames.stored_files import FILE_DDL, sources_of, stored_log
from tests.spark.audit.test_log_order import batches as starts_of

Read = dict[tuple[str, int], tuple[list[EventRow], list[LogFault]]]


def read_all(pairs: Iterator[tuple[Source, Part]]) -> Read:
    found: Read = {}
    for source, part in pairs:
        faults: list[LogFault] = []
        found[part[:2]] = (list(source.rows(part, on_fault=faults.append)), faults)
    return found


def read_locally(folder: Path) -> Read:
    with open_source(folder) as source:
        return read_all((source, part) for part in source.parts())


def unread(name: str) -> Any:
    raise AssertionError(f"{name} is not needed to list the partitions")


def read_as_rows(folder: Path, rows_per_batch: int) -> Read:
    """Reads a folder from rows of `FILE_DDL`, as a task in Spark receives them."""
    log = stored_log(LocalStorage(folder))
    parts = log.source(unread).parts()
    rows = []
    for index, part in enumerate(parts):
        rows.append((0, index, -1, "", b""))
        rows += [(0, index, n, name, (folder / name).read_bytes()) for n, name in enumerate(log.files[part[:2]])]
    schema = pa.schema(list(arrow_struct(FILE_DDL)))
    names = schema.names
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)
    return read_all(sources_of(table.to_batches(max_chunksize=rows_per_batch), log, parts))


@pytest.fixture
def damaged(kafka_logs: Path, tmp_path: Path) -> Path:
    """Returns a folder with two partitions, each with a damaged batch, two overlapping files, and a truncated end. One
    of the partitions also has an index without a segment.
    """
    logs = tmp_path / "logs"
    for name in ("__transaction_state-0", "__share_group_state-1"):
        (logs / name).mkdir(parents=True)
        data = (kafka_logs / "moment-1" / name / f"{0:020d}.log").read_bytes()
        starts = starts_of(bytearray(data))
        middle = starts[len(starts) // 2]
        base = int.from_bytes(data[middle : middle + 8], "big")
        first = bytearray(data[: starts[len(starts) // 2 + 3]])
        first[starts[5] + 70] ^= 1
        (logs / name / f"{0:020d}.log").write_bytes(first)
        (logs / name / f"{base:020d}.log").write_bytes(data[middle:-10])
    (logs / "__transaction_state-0" / f"{10**6:020d}.index").write_bytes(b"")
    return logs


@pytest.mark.parametrize("rows_per_batch", [1, 2, 100])
def test_files_as_rows_are_read_like_a_folder(damaged: Path, tmp_path: Path, rows_per_batch: int) -> None:
    """Segment files, and exports in which a file is missing, give the same rows and faults."""
    expected = read_locally(damaged)
    assert {fault.kind for _, faults in expected.values() for fault in faults} == {
        "corrupt",
        "duplicate",
        "missing",
        "truncated",
    }
    assert read_as_rows(damaged, rows_per_batch) == expected
    one = "__share_group_state-1"
    assert read_as_rows(damaged / one, rows_per_batch) == read_locally(damaged / one)

    for form in ("parquet", "jsonl"):
        events = tmp_path / form
        export(SegmentSource(damaged), events, form=form, rows_per_file=100)
        assert read_as_rows(events, rows_per_batch) == read_locally(events)
        ends = {partition: rows[-1].offset for partition, (rows, _) in expected.items()}
        assert {partition: rows[-1].offset for partition, (rows, _) in read_locally(events).items()} == ends
        second = sorted((events / "topic=__transaction_state" / "partition=0").iterdir())[1]
        second.unlink()
        rows, faults = read_as_rows(events, rows_per_batch)["__transaction_state", 0]
        local_rows, local_faults = read_locally(events)["__transaction_state", 0]
        assert rows == local_rows
        assert [fault[:4] for fault in faults] == [fault[:4] for fault in local_faults]


def test_a_location_without_logs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KcoreError, match="contains neither an export nor segment files"):
        stored_log(LocalStorage(tmp_path))
    (tmp_path / "data.mdb").write_bytes(b"")
    with pytest.raises(KcoreError, match=r"is a data folder, which Spark tasks cannot open"):
        stored_log(LocalStorage(tmp_path))


def test_uris_and_paths_are_distinguished(tmp_path: Path) -> None:
    assert [is_uri(one) for one in ("s3a://b/x", "file:/x", "hdfs://n:9/x", "a/b", "/a", "c:/x", tmp_path)] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert local_path("file:///a%20b") == Path("/a b")
    assert local_path("s3://b/x") is None
    with pytest.raises(KcoreError, match="must not name a host"):
        local_path("file://somewhere/x")
    with pytest.raises(ConfigError, match="nowhere://x"):
        storage_of("nowhere://x")


def test_an_export_through_pyarrow_equals_a_local_one(kafka_logs: Path, tmp_path: Path) -> None:
    """An export through pyarrow is interrupted. The next run deletes the files that the last manifest does not name,
    and continues from this manifest. The result equals a local export.
    """
    source = SegmentSource(kafka_logs / "moment-1" / "__transaction_state-1")
    export(source, tmp_path / "local", rows_per_file=20)
    stored = ArrowStorage((tmp_path / "stored").as_uri())
    seen = []

    def stop(file: Any) -> None:
        seen.append(file.path)
        if len(seen) == SAVED_EVERY + 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(source, stored, rows_per_file=20, on_file=stop)
    (part,) = open_export(stored, "parquet").partitions.values()
    assert [one.path for one in part.files] == seen[:SAVED_EVERY]
    assert sorted(stored.sizes()) == sorted([*seen[:SAVED_EVERY], MANIFEST]), "files without an entry are deleted"

    report = export(source, stored, rows_per_file=20)
    local = json.loads((tmp_path / "local" / MANIFEST).read_bytes())
    assert json.loads(stored.read(MANIFEST)) == local
    assert report.files == len(local["partitions"][0]["files"]) - SAVED_EVERY
    assert verify(stored) == []
    (part_of_source,) = (again := ExportSource(stored)).parts()
    assert list(again.rows(part_of_source)) == read_locally(tmp_path / "local")["__transaction_state", 1][0]
    stored.delete(part.files[3].path)
    stored.write("topic=__transaction_state/partition=1/x.parquet", b"")
    assert verify(stored) == [
        f"{part.files[3].path}: is missing",
        "topic=__transaction_state/partition=1/x.parquet: is not in the manifest",
    ]
