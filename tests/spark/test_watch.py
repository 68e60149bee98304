"""The streaming job: its tables equal the batch tables, across restarts, crashes and partitions that appear late."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyarrow.dataset import dataset

from kcore.spark.events.arrow import EVENT_DDL
from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.frames.views import register_views
from kcore.spark.jobs.rebuild import rebuild
from kcore.spark.jobs.submit import main
from kcore.spark.jobs.watch import WatchRun, add_arguments, cause_in, known_at, options_of
from kcore.spark.state.table_batches import rows_batch
from kcore.spark.state.table_schemas import TABLES
from kcore.spark.timeline.event_kinds import EVENT_KINDS
from kcore.spark.timeline.history import HistoryOptions
from kcore.spark.watch.streams import WATCHED_DDL, packed, watched
from kcore.spark.watch.tables import GROWING, WatchTables
from kcore.spark.watch.watch import Watch, WatchOptions
from tests.kit import wait_until
from tests.spark.processes import RUN, watching
from tests.spark.test_watch_partition import ABOUT_THE_LOG, logs_of, one_pass

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def rows_of(frame: Any, columns: list[str]) -> list[str]:
    return sorted(repr(row) for row in frame.select(*columns).collect())


def run_once(spark: Any, events: Path, out: Path, **options: Any) -> Watch:
    """Runs a stream to the end of the existing content."""
    watch = Watch(spark, str(events), out, WatchOptions(once=True, **options))
    with WatchRun(watch) as stream:
        assert not stream.wait(None)
    return watch


def check_state(
    spark: Any, tables: WatchTables, events: Path, folder: Path, names: Iterable[str] = tuple(TABLES)
) -> None:
    """Compares tables of the state with those of a rebuild."""
    rebuild(spark, events, folder)
    for name in names:
        if f"state/{name}" not in ABOUT_THE_LOG:
            columns = [column for column, _, _ in TABLES[name]]
            expected = rows_of(spark.read.parquet(str(folder / name)), columns)
            assert rows_of(tables.table(f"state/{name}"), columns) == expected, name


def check_growing(tables: WatchTables, logs: Path, names: list[str], growing: Iterable[str] = GROWING) -> None:
    """Compares the row counts of growing tables with one pass over the logs: no row is missing or repeated."""
    counts = dict.fromkeys(growing, 0)
    for name in names:
        for topic, partition, rows in logs_of(logs / name):
            for table, found in one_pass(topic, partition, rows, False).items():
                if table in counts:
                    counts[table] += len(found)
    assert {table: tables.table(table).count() for table in counts} == counts
    assert counts["timeline/transactions"]


def test_a_stream_of_files_gives_the_state_and_the_history(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """One short stream writes the tables of the state and of the timeline, which must equal those of one pass over the
    log.

    Spark reads the exported files itself. It would wait only ten seconds for the worker of a Python source.
    """
    folder = kafka_logs / "moment-1" / "__transaction_state-3"
    export(SegmentSource(folder), tmp_path / "events", stop=200)
    ((topic, partition, rows),) = logs_of(folder)
    expected = one_pass(topic, partition, rows[: sum(row.offset < 200 for row in rows)], False)
    events = spark.readStream.schema(EVENT_DDL).parquet(f"{tmp_path}/events/topic={topic}/partition={partition}")
    tables = WatchTables(spark, tmp_path / "out")
    query = (
        watched(events, HistoryOptions(), hides_control=False)
        .writeStream.foreachBatch(tables.apply)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)
    for table, columns in (
        ("state/transactions", TABLES["transactions"]),
        ("timeline/transactions", EVENT_KINDS["transactions"]),
    ):
        found = tables.table(table).select(*(name for name, _, _ in columns)).collect()
        assert sorted(repr(row.asDict(recursive=True)) for row in found) == sorted(expected[table]), table


@pytest.mark.long  # Spark gives the workers of a stream ten seconds to start, which a busy machine may exceed
def test_a_stream_continues_with_more_events_and_late_partitions(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """A second run reads the rest of a partition, and a new partition. The state equals that of a rebuild."""
    logs = kafka_logs / "moment-1"
    events, out = tmp_path / "events", tmp_path / "out"
    export(SegmentSource(logs / "__transaction_state-3"), events, stop=400)
    run_once(spark, events, out, with_events=False)
    names = ["__transaction_state-0", "__transaction_state-3"]
    for name in names:
        export(SegmentSource(logs / name), events)
    watch = run_once(spark, events, out, with_events=False)
    check_state(spark, watch.tables, events, tmp_path / "state", ["transactions", "producers"])
    check_growing(watch.tables, logs, names, ["timeline/transactions"])


@pytest.mark.long
def test_a_worker_that_starts_too_late_is_started_again(kafka_logs: Path, tmp_path: Path) -> None:
    """A worker of the stream starts later than the ten seconds that Spark waits. The command starts the stream again
    and succeeds.
    """
    export(SegmentSource(kafka_logs / "moment-1" / "__transaction_state-3"), tmp_path / "events", stop=50)
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *python_streaming_source_runner*) [ -e {tmp_path}/late ] || '
        f"{{ touch {tmp_path}/late; sleep 12; }};; esac\n"
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    command = [sys.executable, "-c", RUN, "spark", "watch", str(tmp_path / "events"), "--out", str(tmp_path / "out")]
    command += ["--once", "--without-events", "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    assert "did not start within ten seconds: starting the stream again" in done.stderr
    assert (tmp_path / "late").exists()
    assert dataset(tmp_path / "out" / "state" / "transactions").count_rows() > 0


@pytest.mark.long
def test_all_tables_of_a_stream(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """The stream writes groups, decoded events and alerts in several micro-batches. SQL views read the tables."""
    logs = kafka_logs / "moment-4"
    events, out = tmp_path / "events", tmp_path / "out"
    names = ["__consumer_offsets-3", "__transaction_state-3", "__share_group_state-1"]
    for name in names:
        export(SegmentSource(logs / name), events)
    watch = run_once(spark, events, out, max_offsets=9_000)
    check_state(spark, watch.tables, events, tmp_path / "state")
    check_growing(watch.tables, logs, names)

    decoded = watch.tables.table("events").groupBy("topic", "status").count().collect()
    exported = spark.read.format("kcore").option("includeBatches", "true").load(str(events))
    assert sum(row["count"] for row in decoded) == exported.count()
    assert {row["status"] for row in decoded} >= {"ok", "tombstone"}
    record = watch.tables.table("events").where("type = 'TransactionLog' and status = 'ok'").first()
    assert '"transactional_id":' in record["record"]

    last_ms = watch.tables.table("timeline/rebalances").selectExpr("max(start_ms)").first()[0]
    first, second = watch.report(last_ms), watch.report(last_ms + 1)
    assert "rebalance-storm" in {row["kind"] for row in first}
    assert second == []
    assert rows_of(watch.tables.table("alerts"), ["kind", "subject"]) == sorted(
        repr(type(row)(kind=row["kind"], subject=row["subject"])) for row in first
    )

    register_views(spark, state=out / "state", prefix="watched_")
    assert spark.sql("select * from watched_current_offsets").count() > 0
    assert spark.sql("select * from watched_topologies").count() == 0


def watched_frame(spark: Any, rows: list[tuple[str, str, int, bytes]]) -> Any:
    return spark.createDataFrame(rows, WATCHED_DDL)


def packed_rows(table: str, **columns: Any) -> bytes:
    return packed(rows_batch(table, [columns]))


def test_a_partition_without_rows_leaves_a_table(spark: Any, tmp_path: Path) -> None:
    """A later micro-batch has no rows of a partition for a table. The stream deletes the partition's earlier rows from
    the table, also after a restart.
    """
    topic = "__transaction_state"
    first = [
        (f"state/{table}", topic, number, packed_rows(table, coordinator_partition=number, **columns))
        for table, columns in (("transactions", {"transactional_id": "id"}), ("partitions", {"topic": topic}))
        for number in (0, 1)
    ]
    WatchTables(spark, tmp_path).apply(watched_frame(spark, first), 0)
    tables = WatchTables(spark, tmp_path)
    assert rows_of(tables.table("state/transactions"), ["coordinator_partition"]) == [
        "Row(coordinator_partition=0)",
        "Row(coordinator_partition=1)",
    ]
    tables.apply(watched_frame(spark, [row for row in first if row[2] == 0 and "partitions" in row[0]]), 1)
    assert rows_of(tables.table("state/transactions"), ["coordinator_partition"]) == ["Row(coordinator_partition=1)"]
    assert tables.table("state/partitions").count() == 2


def test_an_alert_is_not_repeated_after_a_restart(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """The stream reports an alert once, even if it restarts while the alert's condition still holds.

    The stream may crash after it has written an alert to its table and before it reports the alert. Then the next run
    reports it, and the table has no second row.
    """
    events, out, topic = tmp_path / "events", tmp_path / "out", "__transaction_state"
    export(SegmentSource(kafka_logs / "moment-1" / "__transaction_state-3"), events, stop=50)
    hanging = {"coordinator_partition": 3, "state": "Ongoing", "timeout_ms": 1_000, "start_timestamp_ms": 1_000}
    rows = [
        ("state/transactions", topic, 3, packed_rows("transactions", transactional_id="id", **hanging)),
        ("state/partitions", topic, 3, packed_rows("partitions", topic=topic, coordinator_partition=3)),
    ]
    WatchTables(spark, out).apply(watched_frame(spark, rows), 0)

    def report(at_ms: int) -> list[str]:
        """Restarts the stream. Returns the subjects of its alerts, before and after the first micro-batch."""
        watch = Watch(spark, str(events), out)
        return [row["subject"] for as_of_ms in (0, at_ms) for row in watch.report(at_ms, as_of_ms)]

    def written() -> list[int]:
        return [row["at_ms"] for row in WatchTables(spark, out).table("alerts").collect()]

    assert (report(100_000), report(200_000), written()) == (["id"], [], [100_000])
    (out / "checkpoint" / "alerting.json").unlink()
    assert (report(300_000), report(400_000), written()) == (["id"], [], [100_000])


def test_clients_of_the_published_topic_have_settings(tmp_path: Path) -> None:
    """The client settings for publishing come from the file of `--publish-config`.

    Without this option, they come from the source's file, if the topic is on the same cluster as the source.
    """
    source, other = tmp_path / "source.properties", tmp_path / "other.properties"
    source.write_text("security.protocol=SSL\n")
    other.write_text("security.protocol=SASL_SSL\n")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    common = ["--kafka", "a:1", "--kafka-config", str(source), "--out", "out", "--publish"]
    for arguments, expected in (
        (["a:1/rows"], {"security.protocol": "SSL"}),
        (["b:1/rows"], {}),
        (["a:1/rows", "--publish-config", str(other)], {"security.protocol": "SASL_SSL"}),
    ):
        publish = options_of(parser.parse_args([*common, *arguments])).publish
        assert publish is not None
        assert dict(publish[0].options) == expected


@pytest.mark.long
def test_a_killed_stream_continues(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """The job and its JVM are killed in the middle of a micro-batch. The next run neither loses nor repeats a row."""
    logs = kafka_logs / "moment-4"
    events, out = tmp_path / "events", tmp_path / "out"
    names = ["__transaction_state-3", "__share_group_state-1"]
    for name in names:
        export(SegmentSource(logs / name), events)
    arguments = [str(events), "--out", str(out), "--trigger-ms", "0", "--max-offsets", "300", "--without-events"]
    arguments += ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    arguments += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    with watching(arguments, tmp_path / "output") as job:
        # The second micro-batch has begun: its offsets are written, and its results are not.
        begun = out / "checkpoint" / "watch" / "offsets" / "1"
        wait_until(lambda: begun.exists() or job.poll() is not None, "the second micro-batch begins", 300)
        assert job.poll() is None, (tmp_path / "output").read_text()[-4_000:]
    watch = run_once(spark, events, out, with_events=False)
    check_state(spark, watch.tables, events, tmp_path / "state")
    check_growing(watch.tables, logs, names)


def test_bad_arguments_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["--trigger-ms", "-1"], "--trigger-ms -1: must not be negative"),
        (["--max-offsets", "0"], "--max-offsets 0: must be at least 1"),
        (["--format", "iceberg"], "--format iceberg needs --checkpoint FOLDER for the checkpoints of the stream"),
        (["--publish", "HOST:9092"], "--publish HOST:9092 is not HOST:PORT/TOPIC"),
        (["--publish-config", "client.properties"], "--publish-config needs --publish HOST:PORT/TOPIC"),
    ):
        assert main(["watch", str(tmp_path), "--out", str(tmp_path / "out"), *arguments]) == 1
        assert capsys.readouterr().err == f"kcore: {expected}\n"


def test_the_tables_are_as_old_as_the_last_micro_batch() -> None:
    """The tables show the logs as of the start of the last micro-batch, unless the stream waits for new data. Alerts
    use this time: with the present time, a transaction that has ended meanwhile would seem to hang.
    """
    began, now_ms = "2026-01-01T00:00:00.250Z", 1_767_225_700_000
    waiting = {"message": "Waiting for next trigger", "isDataAvailable": False, "isTriggerActive": False}
    after_batch = {**waiting, "isDataAvailable": True}
    starting = {**waiting, "message": "Initializing sources"}
    working = {"message": "Processing new data", "isDataAvailable": True, "isTriggerActive": True}
    for status, batch, expected in (
        (after_batch, began, 1_767_225_600_250),
        (working, began, 1_767_225_600_250),
        (working, None, 0),
        (starting, None, 0),
        (waiting, began, now_ms - 60_000),
        (waiting, None, now_ms - 60_000),
    ):
        assert known_at(batch, status, now_ms, 60_000) == expected, status


def test_the_cause_of_a_failed_stream_is_named() -> None:
    text = "[STREAM_FAILED] Query failed\nTraceback\nkcore.errors.KcoreError: another version\nat java"
    assert cause_in(text) == "another version"
    assert cause_in("[STREAM_FAILED] Query failed\nat java") == "[STREAM_FAILED] Query failed"
    assert cause_in("") == "unknown cause"
