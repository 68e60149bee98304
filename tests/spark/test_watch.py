"""The streaming job: its tables equal the batch tables, across restarts, crashes and late partitions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.frames.views import register_views
from kcore.spark.jobs.rebuild import rebuild
from kcore.spark.jobs.submit import main
from kcore.spark.jobs.watch import cause_in
from kcore.spark.state.table_schemas import TABLES
from kcore.spark.watch.tables import GROWING, TablePart, WatchTables
from kcore.spark.watch.watch import Watch, WatchOptions
from tests.kit import wait_until
from tests.spark.test_watch_partition import ABOUT_THE_LOG, logs_of, one_pass

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RUN = "import sys; from kcore.cli import main; sys.exit(main())"


def rows_of(frame: Any, columns: list[str]) -> list[str]:
    return sorted(repr(row) for row in frame.select(*columns).collect())


def run_once(spark: Any, events: Path, out: Path, **options: Any) -> Watch:
    """Runs a stream to the end of the present content."""
    watch = Watch(spark, str(events), out, WatchOptions(once=True, **options))
    for query in watch.start():
        query.awaitTermination()
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
    """Compares the number of rows of growing tables with one pass over the logs: no row is missing or repeated."""
    counts = dict.fromkeys(growing, 0)
    for name in names:
        for topic, partition, rows in logs_of(logs / name):
            for table, found in one_pass(topic, partition, rows, False).items():
                if table in counts:
                    counts[table] += len(found)
    assert {table: tables.table(table).count() for table in counts} == counts
    assert counts["timeline/transactions"]


@pytest.mark.long  # Spark gives the workers of a stream ten seconds to start, which a busy machine may exceed
def test_a_stream_continues_with_more_events_and_late_partitions(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """A second run reads the rest of a partition and a new one; the state equals that of a rebuild."""
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
def test_all_tables_of_a_stream(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """Groups, decoded events and alerts in several micro-batches, and SQL views over the tables."""
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


def test_a_partition_without_rows_leaves_a_table(spark: Any, tmp_path: Path) -> None:
    """The folder of a partition is deleted when a later micro-batch has no rows of it, also after a restart."""
    tables = WatchTables(spark, tmp_path)
    for partition in (0, 1):
        folder = tmp_path / "state" / "transactions" / f"coordinator_partition={partition}"
        folder.mkdir()
        (folder / "part-0.parquet").write_bytes(b"")
    other = tmp_path / "state" / "groups" / "coordinator_partition=0"
    other.mkdir()
    (other / "part-0.parquet").write_bytes(b"")
    tables = WatchTables(spark, tmp_path)
    tables._delete_empty({TablePart("state/partitions", "__transaction_state", 0)})
    left = sorted(path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.glob("state/*/*/*.parquet"))
    assert left == ["state/groups/coordinator_partition=0", "state/transactions/coordinator_partition=1"]


@pytest.mark.long
def test_a_killed_stream_continues(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """The job and its JVM are killed in the middle of a micro-batch. The next run loses and repeats no row."""
    logs = kafka_logs / "moment-4"
    events, out = tmp_path / "events", tmp_path / "out"
    names = ["__transaction_state-3", "__share_group_state-1"]
    for name in names:
        export(SegmentSource(logs / name), events)
    command = [sys.executable, "-c", RUN, "spark", "watch", str(events), "--out", str(out), "--trigger-ms", "0"]
    command += ["--max-offsets", "300", "--without-events", "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    with (tmp_path / "output").open("wb") as output:
        job = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            # The second micro-batch has begun: its offsets are written, and its results are not.
            begun = out / "checkpoint" / "watch" / "offsets" / "1"
            wait_until(lambda: begun.exists() or job.poll() is not None, "the second micro-batch begins", 300)
            assert job.poll() is None, (tmp_path / "output").read_text()[-4_000:]
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    watch = run_once(spark, events, out, with_events=False)
    check_state(spark, watch.tables, events, tmp_path / "state")
    check_growing(watch.tables, logs, names)


def test_bad_arguments_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["--trigger-ms", "-1"], "--trigger-ms -1: must not be negative"),
        (["--max-offsets", "0"], "--max-offsets 0: must be at least 1"),
        (["--publish", "HOST:9092"], "--publish HOST:9092 is not HOST:PORT/TOPIC"),
    ):
        assert main(["watch", str(tmp_path), "--out", str(tmp_path / "out"), *arguments]) == 1
        assert capsys.readouterr().err == f"kcore: {expected}\n"


def test_the_cause_of_a_failed_stream_is_named() -> None:
    text = "[STREAM_FAILED] Query failed\nTraceback\nkcore.errors.KcoreError: another version\nat java"
    assert cause_in(text) == "another version"
    assert cause_in("[STREAM_FAILED] Query failed\nat java") == "[STREAM_FAILED] Query failed"
    assert cause_in("") == "unknown cause"
