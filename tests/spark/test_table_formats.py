"""Tables in Delta Lake and Iceberg, with packages from Maven: a run replaces them as a whole, or appends to them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.state.table_schemas import TABLES
from tests.spark.maven_packages import DELTA, ICEBERG, interpreter_with, packages
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
"""The program of a job. It runs in its own process, because Spark loads packages only when its JVM starts."""


STREAM = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.jobs.session import prepare_local_workers
from kcore.spark.jobs.watch import WatchRun
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
        with WatchRun(watch) as stream:
            stream.wait(None)
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


COMMAND = "import sys; from kcore.cli import main; sys.exit(main())"

READ = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from kcore.spark.watch.tables import DDLS

form, place, settings, result = sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def table(name):
    if form == "iceberg":
        return spark.table(f"{place}.{name.replace('/', '_')}")
    return spark.read.schema(DDLS[name]).parquet(f"{place}/{name}") if form == "parquet" else (
        spark.read.format(form).load(f"{place}/{name}"))

names = {name: spark.createDataFrame([], ddl).columns for name, ddl in DDLS.items()}
found = {name: sorted(map(repr, table(name).select(*columns).collect())) for name, columns in names.items()}
Path(result).write_text(json.dumps(found))
spark.stop()
"""


class Interpreter(NamedTuple):
    """A Python interpreter, and the version of its Spark package."""

    path: str
    spark: str


@pytest.fixture(scope="module")
def iceberg_interpreter(tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    """Returns an interpreter with a version of Spark for which Iceberg has a package."""
    installed = pytest.importorskip("pyspark").__version__
    if installed.startswith("4.1."):
        return Interpreter(sys.executable, installed)
    path = interpreter_with("==4.1.*", tmp_path_factory.mktemp("iceberg") / "venv")
    show = [path, "-c", "import pyspark; print(pyspark.__version__)"]
    return Interpreter(path, subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip())


@pytest.fixture(params=CASES)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def interpreter(form: str, request: pytest.FixtureRequest) -> Interpreter:
    if form == "iceberg":
        found: Interpreter = request.getfixturevalue("iceberg_interpreter")
        return found
    return Interpreter(sys.executable, pytest.importorskip("pyspark").__version__)


def run(interpreter: Interpreter, script: str, *arguments: str) -> str:
    """Runs a script in a separate process. Returns the output."""
    command = [interpreter.path, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_500, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


def arguments_of(form: str, interpreter: Interpreter, tmp_path: Path) -> tuple[str, str]:
    """Returns the location of the tables, and the settings of the session as JSON."""
    names, settings = CASES[form]
    given = {**SPARK, **settings, "spark.jars": ",".join(map(str, packages(names, interpreter.spark)))}
    if form == "iceberg":
        given["spark.sql.catalog.lake.warehouse"] = str(tmp_path / "warehouse")
    return "lake.state" if form == "iceberg" else str(tmp_path / "state"), json.dumps(given)


def test_the_command_watch_keeps_tables_of_several_topics(
    kafka_logs: Path, tmp_path: Path, form: str, interpreter: Interpreter
) -> None:
    """The second run reads the remaining records of a topic, and two topics that were created after the first run."""
    place, settings = arguments_of(form, interpreter, tmp_path)
    conf = [f"--conf={name}={value}" for name, value in json.loads(settings).items()]
    parquet = str(tmp_path / "parquet")
    transactions, *others = ("__transaction_state-3", "__consumer_offsets-3", "__share_group_state-1")
    events, logs = tmp_path / "events", kafka_logs / "moment-4"
    found: list[dict[str, list[str]]] = []
    for names, stop in (((transactions,), 300), ((transactions, *others), None)):
        for name in names:
            export(SegmentSource(logs / name), events, stop=stop)
        for kind, out in (("parquet", parquet), (form, place)):
            checkpoint, result = tmp_path / f"checkpoint-{kind}", tmp_path / "result"
            options = ["--master", "local[2]", "--once", "--format", kind, "--checkpoint", str(checkpoint)]
            run(interpreter, COMMAND, "spark", "watch", str(events), "--out", out, *options, *conf)
            run(interpreter, READ, kind, out, settings, str(result))
            found.append({name: rows for name, rows in json.loads(result.read_text()).items() if name != "alerts"})
    first_expected, first, expected, second = found
    assert first == first_expected
    assert second == expected
    filled = {name for name in expected if expected[name]}
    state = {f"state/{name}" for name in ("groups", "offsets", "transactions", "share_states", "producers")}
    assert {*state, "events", "timeline/commits", "timeline/transactions"} <= filled


def test_a_stream_keeps_tables_of_other_formats(
    kafka_logs: Path, tmp_path: Path, form: str, interpreter: Interpreter
) -> None:
    """Two runs of a stream leave the same rows as in Parquet."""
    place, settings = arguments_of(form, interpreter, tmp_path)
    arguments = [form, str(kafka_logs / "moment-1"), place, str(tmp_path), settings, str(tmp_path / "result")]
    run(interpreter, STREAM, *arguments)
    first_expected, first, expected, second = json.loads((tmp_path / "result").read_text())
    assert first == first_expected
    assert second == expected
    filled = {name for name in expected if expected[name]}
    assert {"alerts", "events", "state/transactions", "timeline/transactions"} <= filled


def test_tables_of_other_formats_have_the_rows_of_parquet(
    kafka_logs: Path, tmp_path: Path, form: str, interpreter: Interpreter
) -> None:
    place, settings = arguments_of(form, interpreter, tmp_path)
    for name in ("__consumer_offsets-2", "__transaction_state-3", "__share_group_state-1"):
        export(SegmentSource(kafka_logs / "moment-1" / name), tmp_path / "events")
    arguments = [form, str(tmp_path / "events"), place, str(tmp_path / "parquet"), settings]
    run(interpreter, JOB, *arguments, str(tmp_path / "result"))
    expected, first, replaced, appended = json.loads((tmp_path / "result").read_text())
    assert {"groups", "offsets", "transactions", "share_states"} <= {name for name in TABLES if expected[name]}
    assert first == expected
    assert replaced == {"groups": expected["groups"]}
    assert appended == {"groups": sorted(expected["groups"] * 2)}
