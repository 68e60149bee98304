"""Jobs over URIs in Spark: Spark's readers and writers give the same tables as the tasks of a local session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kcore.errors import ConfigError, KcoreError
from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.frames.output import REBUILD_DONE, Output
from kcore.spark.jobs.audit import audit
from kcore.spark.jobs.rebuild import Moment, rebuild, rebuild_with_uncertainties
from kcore.spark.jobs.restore_plan import committed_as_of
from kcore.spark.jobs.session import JVM_SETTINGS, parse_settings, settings_of
from kcore.spark.jobs.timeline import REPORT, timeline
from kcore.spark.state.table_schemas import TABLES
from tests.spark.audit.test_log_order import batches

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def logs(kafka_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yields partitions of every internal topic. One partition is damaged, and one partition of `__consumer_offsets` is
    missing.
    """
    folder = tmp_path_factory.mktemp("uri") / "logs"
    for name in ("__consumer_offsets-2", "__transaction_state-3", "__share_group_state-1"):
        (folder / name).mkdir(parents=True)
        for path in (kafka_logs / "moment-2" / name).glob("*.log"):
            data = bytearray(path.read_bytes())
            if name == "__transaction_state-3":
                data[batches(data)[3] + 70] ^= 1
            (folder / name / path.name).write_bytes(data)
    return folder


def rows_of(spark: Any, uri: str, name: str) -> list[str]:
    return sorted(map(repr, spark.read.parquet(f"{uri}/{name}").collect()))


def test_a_rebuild_through_sparks_readers_and_writers_equals_the_local_one(
    spark: Any, logs: Path, tmp_path: Path
) -> None:
    """Tables, counts and messages are the same, including those on damage and on missing partitions."""
    export(SegmentSource(logs), tmp_path / "events", rows_per_file=500)
    local = rebuild_with_uncertainties(spark, tmp_path / "events", tmp_path / "local")
    stored = rebuild_with_uncertainties(spark, (tmp_path / "events").as_uri(), (tmp_path / "stored").as_uri())
    assert stored == local
    assert local[1].are_grave
    for name in TABLES:
        assert rows_of(spark, str(tmp_path / "stored"), name) == rows_of(spark, str(tmp_path / "local"), name), name
    done, expected = (json.loads((tmp_path / out / REBUILD_DONE).read_text()) for out in ("stored", "local"))
    assert {**done, "source": ""} == {**expected, "source": ""}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_job_reads_segments_at_a_uri(spark: Any, logs: Path, tmp_path: Path) -> None:
    uri, out = logs.as_uri(), tmp_path.as_uri()
    assert rebuild(spark, uri, f"{out}/state") == rebuild(spark, logs, tmp_path / "local-state")
    for name in TABLES:
        assert rows_of(spark, f"{out}/state", name) == rows_of(spark, str(tmp_path / "local-state"), name)
    assert audit(spark, uri, f"{out}/audit") == audit(spark, logs, tmp_path / "local-audit")
    assert committed_as_of(spark, uri, timestamp_ms=2**62) == committed_as_of(spark, logs, timestamp_ms=2**62)
    stored, local = timeline(spark, uri, f"{out}/timeline"), timeline(spark, logs, tmp_path / "local-timeline")
    assert {**stored, "source": ""} == {**local, "source": ""}
    assert (tmp_path / "timeline" / REPORT).read_text().startswith("<!DOCTYPE html>")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_that_fails_leaves_no_checkpoints(
    spark: Any, kafka_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed run deletes its own checkpoints, and those of an earlier run to the same output, because the tables have
    changed.

    It keeps the checkpoints of another output from which it continues.
    """
    events, state = kafka_logs / "moment-1" / "__transaction_state-3", tmp_path / "state"
    rebuild_with_uncertainties(spark, events, state, checkpoint=True)
    with pytest.raises(KcoreError, match="is also the output, which would replace the checkpoints"):
        rebuild_with_uncertainties(spark, events, state, since=state)
    rebuild_with_uncertainties(spark, events, tmp_path / "next", since=state)
    (path,) = (state / "checkpoint").glob("*/*/*.arrow")
    path.unlink()
    with pytest.raises(KcoreError, match="some files of the checkpoints in"):
        rebuild_with_uncertainties(spark, events, tmp_path / "next", since=state)

    def fail(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("kcore.spark.jobs.rebuild.put_tables", fail)
    with pytest.raises(OSError, match="no space left"):
        rebuild_with_uncertainties(spark, events, state, checkpoint=True)
    assert not (state / REBUILD_DONE).exists()
    assert [path.name for path in state.iterdir() if path.name.startswith(".")] == []
    with pytest.raises(KcoreError, match="has no complete checkpoints"):
        rebuild_with_uncertainties(spark, events, tmp_path / "next", since=state)


def check_continued(spark: Any, kafka_logs: Path, tmp_path: Path, as_place: Callable[[Path], str]) -> None:
    """Rebuilds a part of a log with checkpoints, lets the log grow, and continues from the checkpoints.

    Compares the result with a rebuild of the whole log.
    """
    folder = tmp_path / "logs"
    for name in ("__transaction_state-3", "__share_group_state-1"):
        (folder / name).mkdir(parents=True)
        for path in (kafka_logs / "moment-1" / name).glob("*.log"):
            (folder / name / path.name).write_bytes(path.read_bytes())
    events = tmp_path / "events"
    export(SegmentSource(folder / "__transaction_state-3"), events, stop=400, rows_per_file=100)
    paths = {name: as_place(tmp_path / name) for name in ("events", "first", "continued", "whole")}
    rebuild_with_uncertainties(spark, paths["events"], paths["first"], checkpoint=True)

    export(SegmentSource(folder), events, rows_per_file=100)
    moment = Moment({("__transaction_state", 3): 700})
    options = {"moment": moment, "since": paths["first"]}
    continued = rebuild_with_uncertainties(spark, paths["events"], paths["continued"], **options)
    assert continued == rebuild_with_uncertainties(spark, paths["events"], paths["whole"], moment)
    for name in TABLES:
        assert rows_of(spark, paths["continued"], name) == rows_of(spark, paths["whole"], name), name

    with pytest.raises(KcoreError, match="has no complete checkpoints"):
        rebuild_with_uncertainties(spark, paths["events"], paths["whole"], since=paths["continued"])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_rebuild_continues_from_checkpoints(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """A new partition, which has no checkpoint, is replayed from its start."""
    check_continued(spark, kafka_logs, tmp_path, str)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_rebuild_continues_from_checkpoints_at_uris(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    check_continued(spark, kafka_logs, tmp_path, Path.as_uri)


def test_each_mode_of_an_output_acts_like_sparks_writer(spark: Any, tmp_path: Path) -> None:
    """The modes are those of Spark's writer. In addition, the mode `error` refuses an output that contains the file
    which marks a complete run.
    """
    uri = tmp_path.as_uri()

    def write(mode: str, *numbers: int) -> list[int]:
        output = Output(spark, uri, mode=mode)
        with output.run("source", "done.json", "t"):
            output.begin("done.json")
            frame = spark.createDataFrame([(number,) for number in numbers], "n int").coalesce(1)
            written = sorted(row[0] for row in output.write("t", frame).collect())
            output.note("done.json", b"{}")
        return written

    def table() -> list[int]:
        return sorted(row[0] for row in spark.read.parquet(f"{uri}/t").collect())

    assert (write("overwrite", 1, 2), table()) == ([1, 2], [1, 2])
    assert (write("overwrite", 3), table()) == ([3], [3])
    assert (write("append", 4), table()) == ([4], [3, 4]), "later tables are computed from the rows of this run only"
    with pytest.raises(KcoreError, match=r"has an earlier output \(done\.json\)"):
        write("error", 5)
    assert (tmp_path / "done.json").read_bytes() == b"{}"
    with pytest.raises(ConfigError, match="valid formats: parquet, delta, iceberg"):
        Output(spark, uri, "csv")


def test_a_table_that_fails_ends_the_writing_of_tables(spark: Any, tmp_path: Path) -> None:
    """Writing one of several tables fails. The writes that have already begun end before the error is raised, and the
    remaining writes do not begin.
    """
    output = Output(spark, tmp_path.as_uri())
    good = {f"t{number}": spark.range(number).coalesce(1) for number in range(20)}
    written = output.write_all(good)
    assert {name: frame.count() for name, frame in written.items()} == {f"t{number}": number for number in range(20)}
    bad = spark.range(1).selectExpr("raise_error('this row fails') as id")
    with pytest.raises(Exception, match="this row fails"):
        output.write_all({"bad": bad, **{name: frame.selectExpr("-id as id") for name, frame in good.items()}})
    assert spark.sparkContext.statusTracker().getActiveStageIds() == []
    assert spark.read.parquet(f"{tmp_path}/t19").where("id < 0").count() == 0, "it waited behind the failed table"


@pytest.mark.parametrize("scheme", ["file", "viewfs"])
def test_files_of_a_spark_session_are_written_and_read(spark: Any, tmp_path: Path, scheme: str) -> None:
    """Writes, reads, lists and deletes files through Hadoop, with the scheme `file` and with another scheme, as for
    HDFS or S3.
    """
    spark.conf.set("fs.viewfs.mounttable.mine.link./folder", tmp_path.as_uri())
    files = HadoopFiles(spark, {"file": tmp_path.as_uri(), "viewfs": "viewfs://mine/folder"}[scheme] + "/new")
    assert files.sizes() == {}
    for content in (b"one", bytes(range(256))):
        files.write("a/b%2Fc d.bin", content)
        assert files.read("a/b%2Fc d.bin") == content
    assert files.sizes() == {"a/b%2Fc d.bin": 256}
    assert (files.exists("a/b%2Fc d.bin"), files.exists("a/none")) == (True, False)
    with pytest.raises(FileNotFoundError):
        files.read("a/none")
    odd = "x; isDirectory=false; length=7; ünd so weiter, path=y}"
    files.write(odd, b"odd")
    assert files.sizes() == {"a/b%2Fc d.bin": 256, odd: 3}
    files.delete("a/b%2Fc d.bin")
    assert not files.exists("a/b%2Fc d.bin")
    with pytest.raises(KcoreError, match="UnsupportedFileSystemException: No FileSystem for scheme"):
        HadoopFiles(spark, "nowhere://host/folder")


def test_settings_of_a_session_are_parsed() -> None:
    assert parse_settings(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(ConfigError, match="'a' is not NAME=VALUE"):
        parse_settings(["a"])


def test_tasks_get_files_in_small_batches_unless_a_setting_is_given() -> None:
    """The jobs reduce Spark's batch size from 64 MB to 8 MB, unless the user sets it. A Python worker has two batches
    in memory, and a large batch would contain many files.
    """
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    assert settings_of("audit", []) == {name: "8m"}
    assert settings_of("rebuild", ["a=b"]) == {name: "8m", **JVM_SETTINGS, "a": "b"}
    assert settings_of("audit", [f"{name}=1m"]) == {name: "1m"}
