"""Tables of Delta Lake and Iceberg, with their packages from Maven: replaced as a whole, and appended to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.state.table_schemas import TABLES
from tests.spark.maven_packages import DELTA, ICEBERG, packages
from tests.spark.test_kafka_source import SPARK

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1800)]

CASES = {
    "delta": (
        DELTA,
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
    ),
    "iceberg": (
        ICEBERG,
        {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
        },
    ),
}

JOB = """
import json, sys
from pyspark.sql import SparkSession
from kcore.spark.frames.output import Output
from kcore.spark.jobs.rebuild import rebuild
from kcore.spark.jobs.session import prepare_local_workers
from kcore.spark.state.table_schemas import TABLES

prepare_local_workers()
form, events, place, plain, settings, result = sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def rows(output, names):
    read = spark.table if output.files is None else spark.read.format(output.form).load
    return {name: sorted(repr(row) for row in read(output.table(name)).collect()) for name in names}

expected, output = Output(spark, plain), Output(spark, place, form)
found = []
for target in (expected, output):
    rebuild(spark, events, target)
    found.append(rows(target, TABLES))
groups = spark.read.parquet(expected.table("groups"))
for mode in ("overwrite", "append"):
    Output(spark, place, form, mode).write("groups", groups)
    found.append(rows(output, ["groups"]))
with open(result, "w") as file:
    json.dump(found, file)
spark.stop()
"""
"""Packages are loaded when the JVM starts, so the jobs run in a process of their own."""


STREAM = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.jobs.session import prepare_local_workers
from kcore.spark.watch.tables import DDLS, EVENTS
from kcore.spark.watch.watch import Watch, WatchOptions

prepare_local_workers()
form, logs, place, folder, settings, result = sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
events, found = Path(folder, "events"), []
for stop in (400, None):
    export(SegmentSource(Path(logs, "__transaction_state-3")), events, stop=stop)
    for kind, out in (("parquet", f"{folder}/parquet"), (form, place)):
        options = WatchOptions(once=True, form=kind, checkpoint=f"{folder}/checkpoint-{kind}")
        watch = Watch(spark, str(events), out, options)
        for query in watch.start():
            query.awaitTermination()
        if stop is None:
            watch.report(4_000_000_000_000)
        tables = watch.tables
        repeated = tables.table(EVENTS).where("offset < 5").localCheckpoint()
        for _ in range(2):  # a repeated micro-batch replaces its rows
            tables.add(EVENTS, repeated, 1_000)
        names = {name: [column.name for column in spark.createDataFrame([], ddl).schema] for name, ddl in DDLS.items()}
        found.append({name: sorted(map(repr, tables.table(name).select(*names[name]).collect())) for name in names})
Path(result).write_text(json.dumps(found))
spark.stop()
"""


def arguments_of(form: str, tmp_path: Path) -> tuple[str, str]:
    """Returns the place of tables, and the settings of the session as JSON."""
    names, settings = CASES[form]
    given = {**SPARK, **settings, "spark.jars": ",".join(map(str, packages(names)))}
    if form == "iceberg":
        given["spark.sql.catalog.lake.warehouse"] = str(tmp_path / "warehouse")
    return "lake.state" if form == "iceberg" else str(tmp_path / "state"), json.dumps(given)


@pytest.mark.parametrize("form", CASES)
def test_a_stream_keeps_tables_of_other_formats(kafka_logs: Path, tmp_path: Path, form: str) -> None:
    """Two runs of a stream leave the rows that they leave in Parquet."""
    place, settings = arguments_of(form, tmp_path)
    arguments = [form, str(kafka_logs / "moment-1"), place, str(tmp_path), settings, str(tmp_path / "result")]
    command = [sys.executable, "-c", STREAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_500, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    first_expected, first, expected, second = json.loads((tmp_path / "result").read_text())
    assert first == first_expected
    assert second == expected
    filled = {name for name in expected if expected[name]}
    assert {"alerts", "events", "state/transactions", "timeline/transactions"} <= filled


@pytest.mark.parametrize("form", CASES)
def test_tables_of_other_formats_have_the_rows_of_parquet(kafka_logs: Path, tmp_path: Path, form: str) -> None:
    place, settings = arguments_of(form, tmp_path)
    for name in ("__consumer_offsets-2", "__transaction_state-3", "__share_group_state-1"):
        export(SegmentSource(kafka_logs / "moment-1" / name), tmp_path / "events")
    arguments = [form, str(tmp_path / "events"), place, str(tmp_path / "parquet"), settings]
    command = [sys.executable, "-c", JOB, *arguments, str(tmp_path / "result")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_500, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    expected, first, replaced, appended = json.loads((tmp_path / "result").read_text())
    assert {"groups", "offsets", "transactions", "share_states"} <= {name for name in TABLES if expected[name]}
    assert first == expected
    assert replaced == {"groups": expected["groups"]}
    assert appended == {"groups": sorted(expected["groups"] * 2)}
