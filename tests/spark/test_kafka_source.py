"""Jobs on live clusters through Spark's Kafka source: `kcore serve`, and Apache Kafka as the reference."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kcore
from kcore.spark.events.sources import ServerSource
from kcore.spark.frames.folders import rebuilt_of
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.state.rebuild import END
from kcore.spark.state.table_batches import all_tables
from kcore.testing import ServerProcess
from tests.apache.broker import ApacheKafka
from tests.spark.maven_packages import KAFKA_SOURCE, packages
from tests.spark.test_engine_oracle import SETTINGS, real_traffic

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.clients, pytest.mark.timeout(600)]

RUN = "import sys; from kcore.cli import main; sys.exit(main())"
HIDDEN = ("producers", "partitions", "faults")
"""Tables that need the headers of batches and the markers, which the source does not show."""
SPARK = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(params=["serve", "kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Starts a broker. Apache Kafka takes part if `KCORE_TEST_KAFKA` is `start`."""
    if request.param == "kafka":
        if os.environ.get("KCORE_TEST_KAFKA") != "start":
            pytest.skip("KCORE_TEST_KAFKA=start runs the test against Apache Kafka")
        (tmp_path / "kafka").mkdir()
        with ApacheKafka(tmp_path / "kafka") as broker:
            yield broker.bootstrap
    else:
        with ServerProcess(tmp_path / "data", {name: str(value) for name, value in SETTINGS.items()}) as server:
            yield server.bootstrap


def state_of(bootstrap: str) -> dict[str, list[str]]:
    """Returns the tables of the state, read through Fetch."""
    found: dict[str, list[str]] = {}
    with kcore.connect(bootstrap) as node:
        source = ServerSource(node, COORDINATOR_TOPICS)
        for part in source.parts():
            for table, batch in all_tables([rebuilt_of(source, part, END, False)]):
                found.setdefault(table, []).extend(map(repr, batch.to_pylist()))
    return {table: sorted(rows) for table, rows in found.items() if table not in HIDDEN}


def spark_job(job: str, *arguments: str, jars: list[Path], **settings: Any) -> subprocess.CompletedProcess[str]:
    """Runs a job in a process of its own, because packages are loaded when the JVM starts."""
    command = [sys.executable, "-c", RUN, "spark", job, *arguments, "--master", "local[2]"]
    for name, value in {**SPARK, "spark.jars": ",".join(map(str, jars)), **settings}.items():
        command += ["--conf", f"{name}={value}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


def causes(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the lines of Spark's output that name an error."""
    return "\n".join(line for line in done.stderr.splitlines() if "Error" in line or "Exception" in line)


def test_a_rebuild_through_sparks_kafka_source(bootstrap: str, tmp_path: Path) -> None:
    """The state equals the one read by Fetch: aborted offsets are left out, and gaps of markers are no loss."""
    jars = packages(KAFKA_SOURCE)
    real_traffic(bootstrap)
    done = spark_job("rebuild", "--kafka", bootstrap, "--out", str(tmp_path / "state"), jars=jars)
    assert done.returncode == 0, causes(done)
    expected = state_of(bootstrap)
    assert {"groups", "offsets", "transactions"} <= expected.keys()
    for table in [path.name for path in (tmp_path / "state").iterdir() if path.is_dir()]:
        if table not in HIDDEN:
            rows = [repr(row) for row in pq.read_table(tmp_path / "state" / table).to_pylist()]
            assert sorted(rows) == expected.get(table, []), table

    audited = spark_job("audit", "--kafka", bootstrap, "--out", str(tmp_path / "audit"), jars=jars)
    assert audited.returncode == 0, audited.stdout + causes(audited)
