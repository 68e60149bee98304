"""Jobs refuse arguments that would damage an output or a source. They do so before they start a JVM, if possible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from kcore.errors import ConfigError, KcoreError
from kcore.spark.events.sources import Part, SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.frames.output import DELTA, Output, check_apart
from kcore.spark.frames.views import register_views
from kcore.spark.jobs import early_checks
from kcore.spark.jobs.audit import audit
from kcore.spark.jobs.rebuild import Moment, rebuild, rebuild_with_uncertainties
from kcore.spark.jobs.submit import main
from kcore.spark.state.rebuild_report import before_all, beyond_end, without_records
from kcore.spark.watch.continuation import STREAM, check_stream
from kcore.spark.watch.watch import Watch, WatchOptions
from tests.spark.test_watch import packed_rows, watched_frame

LOG = "__transaction_state-3"
DONE = ("rebuild.json", "partitions")


@pytest.fixture(scope="module")
def events(kafka_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refusals") / "events"
    export(SegmentSource(kafka_logs / "moment-1" / LOG), folder, stop=60)
    return folder


def test_an_output_inside_its_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "events")
    for source, out in (
        (tmp_path / "events", tmp_path / "events"),
        (str(tmp_path / "events"), f"{tmp_path}/x/../events/state"),
        (tmp_path / "events", tmp_path / "link" / "state"),
        ((tmp_path / "events").as_uri(), tmp_path / "events" / "state"),
        ("s3a://bucket/events", "s3://bucket/events/"),
        ("s3://bucket/events?region=eu", "s3a://bucket/events/state"),
        ("hdfs:///", "hdfs:///state"),
    ):
        with pytest.raises(ConfigError, match="would be inside of the source"):
            check_apart(source, out)
    for source, out in (
        (tmp_path / "events", tmp_path / "events-state"),
        (tmp_path / "events" / "a", tmp_path / "events"),
        ("s3a://bucket/events", "s3a://other/events"),
        ("kafka://host:9092", tmp_path / "state"),
    ):
        check_apart(source, out)


def test_a_refusal_needs_no_jvm(
    events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("the job starts a session")

    monkeypatch.delenv(early_checks.GATEWAY, raising=False)
    monkeypatch.setattr("kcore.spark.jobs.session.check_java", start)
    for job, done in (("rebuild", "rebuild.json"), ("audit", "audit.json"), ("timeline", "timeline.json")):
        (tmp_path / job).mkdir()
        (tmp_path / job / done).write_text("{}")
    out = ["--out", str(tmp_path / "new")]
    (tmp_path / "file").touch()
    for arguments, message in (
        (["rebuild", f"{tmp_path}/none", *out], "is not a folder"),
        (["audit", f"{tmp_path}/rebuild", *out], "contains no logs"),
        (["timeline", f"{tmp_path}/none", *out], "is not a folder"),
        (["watch", f"{tmp_path}/none", *out], "is not a folder"),
        (["restore-plan", f"{tmp_path}/none", "--as-of-ms", "1", "--out", "plan.json"], "is not a folder"),
        (
            ["restore-plan", str(events), "--as-of-offset", f"{LOG}:5", "--out", "plan.json"],
            "--as-of-offset __transaction_state: only offsets of __consumer_offsets can define the time",
        ),
        *(
            ([job, str(events), "--out", f"{tmp_path}/{job}", "--mode", "error"], "has an earlier output")
            for job in ("rebuild", "audit", "timeline")
        ),
        *(
            ([job, str(events), "--out", f"{events}/out"], "would be inside of the source")
            for job in ("rebuild", "audit", "timeline", "watch")
        ),
        *(
            ([job, str(events), "--out", f"{tmp_path}/file/state"], f"{tmp_path}/file is a file: name a folder")
            for job in ("rebuild", "audit", "timeline")
        ),
        *(
            ([job, str(events), *out, "--kafka-config", "client.properties"], "--kafka-config needs --kafka")
            for job in ("rebuild", "audit", "timeline", "watch")
        ),
        (
            ["restore-plan", str(events), "--as-of-ms", "1", "--out", "plan.json", "--command-config", "c.properties"],
            "--command-config needs --bootstrap HOST:PORT",
        ),
        (["rebuild", str(events), *out, "--as-of-offset", "t-\u00b2:1"], "is not TOPIC-PARTITION:OFFSET"),
        (["rebuild", str(events), *out, "--topic-partitions", "__transaction_state=0"], "and a count of 1 or more"),
        (["audit", str(events), *out, "--limit", "-1"], "--limit -1: must not be negative"),
        (["audit", str(events), *out, "--grace-ms", "-1"], "--grace-ms -1: must not be negative"),
        (["rebuild", str(events), *out, "--since", f"{tmp_path}/rebuild"], "has no complete checkpoints"),
        (["rebuild", "--kafka", "h:1", *out, "--since", "state"], "--since does not work with --kafka"),
        (["rebuild", str(events), *out, "--checkpoint", "--mode", "append"], "checkpoints need an output"),
        (["rebuild", str(events), "--out", "lake.n", "--checkpoint", "--format", "iceberg"], "checkpoints need"),
    ):
        assert main([*arguments, "--master", "local[1]"]) == 1
        assert message in capsys.readouterr().err, arguments
    monkeypatch.setenv(early_checks.GATEWAY, "1")  # spark-submit may resolve paths elsewhere
    with pytest.raises(AssertionError, match="starts a session"):
        main(["rebuild", f"{tmp_path}/none", *out, "--master", "local[1]"])


def test_a_moment_beyond_the_end_of_a_log_is_reported() -> None:
    parts = [Part("t", 0, 0, 40), Part("t", 1, 0, 40), Part("t", 2, 0, None), Part("t", 3, 0, 40)]
    offsets = {("t", 0): 40, ("t", 1): 41, ("t", 2): 50}
    assert beyond_end(parts, offsets) == (
        ["t-1 ends at offset 40, before 41: the state is as of its end"],
        {("t", 2): 50},
    )
    ends = [("t", 2, 44), ("t", 3, 40)]
    assert without_records(ends, {("t", 2): 50}) == ["t-2 has no records from offset 44 up to 50"]
    assert without_records(ends, {("t", 2): 44}) == []


def test_a_time_before_all_records_is_reported() -> None:
    """A frequent cause is a time in seconds."""
    about_logs = {"partitions": 15, "faults": 1}
    message = "the state as of 1795963684 ms since the epoch is empty"
    assert before_all(1_795_963_684, {"groups": 0, **about_logs}) == [message]
    assert before_all(1_795_963_684, {"groups": 1, **about_logs}) == []
    assert before_all(None, {"groups": 0, **about_logs}) == []


@pytest.mark.spark
@pytest.mark.parametrize("as_place", [str, pytest.param(Path.as_uri, marks=pytest.mark.long)])
def test_the_end_of_a_log_before_the_moment_is_not_silent(
    spark: Any, events: Path, kafka_logs: Path, tmp_path: Path, as_place: Any
) -> None:
    place = ("__transaction_state", 3)
    _, at_end = rebuild_with_uncertainties(spark, as_place(events), as_place(tmp_path / "out"), Moment({place: 60}))
    _, beyond = rebuild_with_uncertainties(spark, as_place(events), as_place(tmp_path / "out"), Moment({place: 61}))
    assert beyond.lines == [f"{LOG} ends at offset 60, before 61: the state is as of its end", *at_end.lines]
    logs = kafka_logs / "moment-1" / LOG
    rebuild_with_uncertainties(spark, as_place(logs), as_place(tmp_path / "out"))
    partitions = spark.read.parquet(str(tmp_path / "out" / "partitions")).collect()
    end = max(row["next_offset"] for row in partitions)
    _, beyond = rebuild_with_uncertainties(spark, as_place(logs), as_place(tmp_path / "out"), Moment({place: end + 7}))
    assert f"{LOG} has no records from offset {end} up to {end + 7}" in beyond.lines


@pytest.mark.spark
def test_two_jobs_do_not_write_to_one_folder(spark: Any, events: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    rebuild(spark, events, out)
    with Output(spark, out).run(str(events), *DONE):
        for job in (rebuild, audit):
            with pytest.raises(KcoreError, match=r"another job writes to .*out: wait for its end"):
                job(spark, events, out)
        rebuild(spark, events, tmp_path / "other")
    assert (out / "rebuild.json").exists(), "a refused job changes nothing"
    rebuild(spark, events, out)


@pytest.mark.spark
def test_a_run_that_fails_before_its_first_table_leaves_the_earlier_output(
    spark: Any, events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables and checkpoints of the earlier output stay, and so do the files that mark them as complete."""
    out = tmp_path / "out"
    rebuild_with_uncertainties(spark, events, out, checkpoint=True)
    audit(spark, events, tmp_path / "audit")

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("kcore.spark.jobs.rebuild.write_tables", fail)
        with pytest.raises(OSError, match="no space left"):
            rebuild_with_uncertainties(spark, events, out, checkpoint=True)
    assert (out / "rebuild.json").exists()
    assert not list(out.glob(".writing-*"))
    rebuild_with_uncertainties(spark, events, tmp_path / "next", since=out)
    for source in (tmp_path / "none", tmp_path / "audit"):
        with pytest.raises(KcoreError):
            audit(spark, source, tmp_path / "audit")
    with pytest.raises(KcoreError, match="contains no logs of t"):
        audit(spark, events, tmp_path / "audit", topics=["t"])
    assert (tmp_path / "audit" / "audit.json").exists()


@pytest.mark.spark
def test_tables_of_another_format_are_not_mixed(spark: Any, events: Path, tmp_path: Path) -> None:
    """A run without `--format delta` would delete a table of Delta Lake with its versions."""
    out = tmp_path / "out"
    for table in ("partitions", "groups"):
        (out / table / "_delta_log").mkdir(parents=True)
    with pytest.raises(KcoreError, match="has tables of Delta Lake: pass --format delta"):
        rebuild(spark, events, out)
    for folder in (str(out), out.as_uri()):
        with pytest.raises(KcoreError, match='has tables of Delta Lake: pass form="delta"'):
            register_views(spark, state=folder)
    rebuild(spark, events, tmp_path / "parquet")
    target = Output(spark, tmp_path / "parquet", DELTA)
    with pytest.raises(KcoreError, match="has tables of Parquet"), target.run(str(events), *DONE):
        pass


@pytest.mark.spark
def test_a_stream_without_its_checkpoints_is_refused(spark: Any, events: Path, tmp_path: Path) -> None:
    """A stream refuses to start if its tables exist but its checkpoints do not.

    Otherwise it would read all rows from the start and add them to the tables again.
    """
    out = tmp_path / "out"
    packed = packed_rows("partitions", coordinator_partition=3, topic="__transaction_state", next_offset=60)
    rows = watched_frame(spark, [("state/partitions", "__transaction_state", 3, packed)])
    watch = Watch(spark, str(events), out, WatchOptions(once=True))
    watch.tables.apply(rows, 0)
    again = Watch(spark, str(events), out, WatchOptions(once=True))
    with pytest.raises(KcoreError, match=r"tables of an earlier stream, whose checkpoints are not in .*name a new"):
        again.start()
    with pytest.raises(KcoreError, match="would be inside of the source"):
        Watch(spark, str(events), events / "out")


@pytest.mark.spark
def test_checkpoints_of_other_tables_are_refused(spark: Any, events: Path, tmp_path: Path) -> None:
    """A stream refuses checkpoints that belong to other tables, because its own tables would lack the earlier rows."""
    kept = str(tmp_path / "kept")
    Watch(spark, str(events), tmp_path / "one", WatchOptions(checkpoint=kept))
    Watch(spark, str(events), (tmp_path / "one").as_uri(), WatchOptions(checkpoint=kept))
    with pytest.raises(KcoreError, match=r"belong to a stream with tables of parquet in file:.*/one"):
        Watch(spark, str(events), tmp_path / "two", WatchOptions(checkpoint=kept))
    assert not (tmp_path / "two").exists()
    files = HadoopFiles(spark, tmp_path / "three")
    check_stream(files, "parquet", None, {})
    check_stream(files, "parquet", files.uri.rpartition("/")[0], {"t": "aa"})
    with pytest.raises(KcoreError, match=r"belong to a stream with tables of parquet in file:.*: name another"):
        check_stream(files, "parquet", "file:/other", {})  # the first run had the checkpoints below its tables
    check_stream(files, "parquet", None, {"t": "aa", "u": "bb"})
    with pytest.raises(KcoreError, match=r"t has the id cc, and aa in the checkpoints in .*: it is a different log"):
        check_stream(files, "parquet", None, {"t": "cc"})
    with pytest.raises(KcoreError, match=r"belong to a stream with tables of parquet in file:.*: name another"):
        check_stream(files, DELTA, None, {})
    stored = {"format": "parquet", "out": None, "topics": {"t": "aa", "u": "bb"}}
    assert json.loads(files.read(STREAM)) == stored
