"""Decoding in Spark: DataFrames of Spark's own Kafka source, headers and timestamps of an export, and spark-submit."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kcore.spark.decode.columns import decode, decode_batch
from kcore.spark.events.arrow import to_batch
from kcore.spark.events.event import EventRow
from kcore.spark.events.segments import find_partitions, read_rows
from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.frames.transforms import rebuild_state, table_of
from kcore.spark.state.rebuild import rebuild
from kcore.spark.state.tables import table_rows
from tests.seeds import SEED
from tests.spark.test_export import FixedSource
from tests.spark.test_spark import plain

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
KAFKA_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
"""The columns of Spark's source `kafka` with `includeHeaders`. It has no batch fields, and null in place of empty
headers.
"""


@pytest.mark.seeded
def test_dataframes_of_sparks_kafka_source_are_decoded(spark: Any, kafka_logs: Path) -> None:
    """Rows of that source are decoded in any order and with duplicates, and the state is rebuilt from them."""
    (part,) = find_partitions(kafka_logs / "moment-1" / "__share_group_state-3")
    rows = [row for row in read_rows(part) if not row.control]
    noise = [EventRow(b"k", None, "orders", 0, 1, 0), EventRow(None, b"v", "__share_group_state", 9, 0, 0)]
    seed = SEED
    print("seed", seed)
    shuffled = random.Random(seed).sample([*rows, *rows[:50], *noise], len(rows) + 52)
    batch = to_batch(shuffled).select(["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"])
    headers = [None] * len(shuffled)
    frame = spark.createDataFrame(
        [(*row.values(), one) for row, one in zip(batch.to_pylist(), headers, strict=True)], KAFKA_DDL
    )
    names = ("ShareSnapshot", "ShareUpdate")
    order = ("partition", "offset", "topic")
    decoded = decode(frame, names)
    found = [plain(row.asDict(recursive=True)) for row in decoded.drop("timestamp").orderBy(*order).collect()]
    expected = decode_batch(to_batch(shuffled), names).drop_columns(["timestamp"])
    assert found == sorted(expected.to_pylist(), key=lambda row: tuple(row[name] for name in order))
    state = rebuild(part.topic, part.partition, (row._replace(producer_id=-1) for row in rows)).state
    own = [row for table, row in table_rows(state, False) if table == "share_states"]
    table = table_of(rebuild_state(frame), "share_states").where("coordinator_partition = 3")
    assert [
        plain(row.asDict(recursive=True)) for row in table.orderBy("group_id", "topic_id", "partition").collect()
    ] == (sorted(own, key=lambda row: (row["group_id"], row["topic_id"], row["partition"])))
    assert own


def test_headers_and_times_of_an_export_are_decoded(spark: Any, tmp_path: Path) -> None:
    """Spark reads the record headers of an export. The options for timestamps select rows by time, and a row without a
    timestamp counts as older than any other.
    """
    rows = [
        EventRow(b"a", b"1", "orders", 0, 0, -1),
        EventRow(b"b", b"2", "orders", 0, 1, 1_000, 0, (("trace", b"x"), ("none", None))),
        EventRow(b"c", b"3", "orders", 0, 2, 2_000),
        EventRow(None, None, "orders", 0, 3, 1_500, batch_only=True),
    ]
    export(FixedSource(rows), tmp_path, form="jsonl")
    read = spark.read.format("kcore")
    frame = read.option("includeBatches", "true").load(str(tmp_path))
    found = {row["offset"]: [tuple(map(plain, one)) for one in row["headers"]] for row in frame.collect()}
    assert found == {0: [], 1: [("trace", b"x"), ("none", None)], 2: [], 3: []}
    times = read.option("includeBatches", "false").option("startingTimestamp", 1_000).option("endingTimestamp", 2_000)
    assert [row["offset"] for row in times.load(str(tmp_path)).collect()] == [1]


@pytest.mark.long
@pytest.mark.timeout(600)  # it starts a Java runtime of its own
def test_spark_submit_runs_the_jobs(kafka_logs: Path, tmp_path: Path) -> None:
    """spark-submit runs the jobs' script and sets the master, as on a cluster."""
    submit = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if submit is None or shutil.which("java") is None:
        pytest.skip("spark-submit or its Java runtime is not here")
    events, out = tmp_path / "events", tmp_path / "state"
    export(SegmentSource(kafka_logs / "moment-1"), events, topic_filter={"__share_group_state"}.__contains__)
    small = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    local = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    settings = [word for name, value in (small | local).items() for word in ("--conf", f"{name}={value}")]
    script = str(ROOT / "kcore" / "spark" / "jobs" / "submit.py")
    fast_start = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a short run is over before optimised code pays
    command = [
        submit,
        "--master",
        "local[1]",
        "--driver-memory",
        "512m",
        "--driver-java-options",
        fast_start,
        *settings,
        script,
    ]
    done = subprocess.run(
        [*command, "rebuild", str(events), "--out", str(out)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr.decode()[-2_000:]
    rows = json.loads((out / "rebuild.json").read_bytes())["rows"]
    assert (rows["partitions"], rows["faults"]) == (5, 0)
    assert rows["share_states"] > 0
    assert f"{'share_states':14} {rows['share_states']}" in done.stdout.decode().splitlines()
