"""Tables in the formats of Delta Lake and Iceberg equal those in Parquet. Their packages come from Maven."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kcore.spark.events.segments import find_partitions
from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from tests.spark.maven_packages import DELTA, ICEBERG, packages

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
from kcore.spark.frames.output import Output
from kcore.spark.jobs.rebuild import Moment, rebuild_with_doubts
from kcore.spark.state.table_schemas import TABLES

form, events, parquet, place, settings = sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
expected = rebuild_with_doubts(spark, events, parquet)
output = Output(spark, place, form)
rebuild_with_doubts(spark, events, output, Moment({("__transaction_state", 3): 100}))
found = rebuild_with_doubts(spark, events, output)  # replaces the tables of another moment
assert found == expected, (found, expected)

def rows(frame):
    return sorted(map(repr, frame.collect()))

def stored(name):
    return spark.table(output.table(name)) if output.files is None else spark.read.format(form).load(output.table(name))

compared = 0
for name in TABLES:
    whole = rows(spark.read.parquet(f"{parquet}/{name}"))
    assert rows(stored(name)) == whole, name
    compared += len(whole)
again = rebuild_with_doubts(spark, events, Output(spark, place, form, "append"))
assert again == expected, "only the rows of this run are counted"
assert stored("transactions").count() == 2 * expected[0]["transactions"]
print(json.dumps(compared))
"""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def events(kafka_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats") / "events"
    names = {("__transaction_state", 3), ("__share_group_state", 1)}
    parts = [part for part in find_partitions(kafka_logs / "moment-1") if part[:2] in names]
    export(SegmentSource(kafka_logs, parts), folder)
    return folder


def check_format(form: str, events: Path, folder: Path, place: str, jars: list[Path], **settings: Any) -> None:
    """Writes tables twice, then adds rows, and compares with Parquet, in a process of its own."""
    given = json.dumps({**SETTINGS, "spark.jars": ",".join(map(str, jars)), **settings})
    command = [sys.executable, "-c", SCRIPT, form, str(events), str(folder / "parquet"), place, given]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if "Er" in line or "Ex" in line)
    assert json.loads(done.stdout.splitlines()[-1]) > 100


def test_delta_lake(events: Path, tmp_path: Path) -> None:
    extensions = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    check_format("delta", events, tmp_path, str(tmp_path / "delta"), packages(DELTA), **extensions)


def test_iceberg(events: Path, tmp_path: Path) -> None:
    catalog = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "warehouse"),
    }
    check_format("iceberg", events, tmp_path, "lake.kcore", packages(ICEBERG), **catalog)
