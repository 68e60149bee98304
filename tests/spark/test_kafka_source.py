"""Jobs on live clusters through Spark's Kafka source: `kcore serve`, and Apache Kafka as the reference."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow.dataset import dataset

import kcore
from kcore.spark.events.sources import ServerSource
from kcore.spark.frames.folders import rebuilt_of
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.state.rebuild import END
from kcore.spark.state.table_batches import all_tables
from kcore.spark.state.table_schemas import TABLES
from kcore.spark.watch.alerts import OWN_GROUPS
from tests.kit import wait_until
from tests.spark.maven_packages import KAFKA_SOURCE, packages
from tests.spark.processes import RUN
from tests.spark.test_engine_oracle import real_traffic

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.clients, pytest.mark.timeout(1800)]

HIDDEN = ("producers", "partitions", "faults")
"""Tables that are not compared: they need batch headers and transaction markers, which the source does not have."""
SPARK = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


def state_of(bootstrap: str) -> dict[str, list[str]]:
    """Returns the tables of the state, read through Fetch."""
    found: dict[str, list[str]] = {}
    with kcore.connect(bootstrap) as node:
        source = ServerSource(node, COORDINATOR_TOPICS)
        for part in source.parts():
            for table, batch in all_tables([rebuilt_of(source, part, END, False)]):
                found.setdefault(table, []).extend(map(repr, batch.to_pylist()))
    return {table: sorted(rows) for table, rows in found.items() if table not in HIDDEN}


def finished_traffic(bootstrap: str) -> None:
    """Runs clients, and waits until the last member has left, so that nothing changes the state afterwards."""
    real_traffic(bootstrap)
    wait_until(
        lambda: "members" not in without_own_groups(state_of(bootstrap)), "every member leaves or times out", 180
    )


def spark_job(job: str, *arguments: str, jars: list[Path], **settings: Any) -> subprocess.CompletedProcess[str]:
    """Runs a job in a separate process, because packages are loaded when the JVM starts."""
    command = [sys.executable, "-c", RUN, "spark", job, *arguments, "--master", "local[2]"]
    for name, value in {**SPARK, "spark.jars": ",".join(map(str, jars)), **settings}.items():
        command += ["--conf", f"{name}={value}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=1_500, check=False)


def causes(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the lines of Spark's output that name an error."""
    return "\n".join(line for line in done.stderr.splitlines() if "Error" in line or "Exception" in line)


def test_a_rebuild_reads_sparks_kafka_source(cluster: str, tmp_path: Path) -> None:
    """The state equals the state that is read by Fetch. Aborted offsets are left out, and gaps in place of markers are
    no losses.
    """
    jars = packages(KAFKA_SOURCE)
    finished_traffic(cluster)
    done = spark_job("rebuild", "--kafka", cluster, "--out", str(tmp_path / "state"), jars=jars)
    assert done.returncode == 0, causes(done)
    expected = state_of(cluster)
    assert {"groups", "offsets", "transactions"} <= expected.keys()
    for table in [path.name for path in (tmp_path / "state").iterdir() if path.is_dir()]:
        if table not in HIDDEN:
            rows = [repr(row) for row in pq.read_table(tmp_path / "state" / table).to_pylist()]
            assert sorted(rows) == expected.get(table, []), table

    audited = spark_job("audit", "--kafka", cluster, "--out", str(tmp_path / "audit"), jars=jars)
    assert audited.returncode == 0, audited.stdout + causes(audited)


def watched_tables(out: Path) -> dict[str, list[str]]:
    """Returns the tables of the state that a stream maintains, in the form of `state_of`."""
    found: dict[str, list[str]] = {}
    for table in (path.name for path in (out / "state").iterdir()):
        names = [name for name, _, _ in TABLES[table]]
        if table not in HIDDEN and list((out / "state" / table).glob("*/*.parquet")):
            rows = dataset(out / "state" / table, partitioning="hive", format="parquet").to_table()
            column = names.index("coordinator_partition")
            rows = rows.set_column(
                rows.schema.get_field_index(names[column]), names[column], rows.column(names[column]).cast("int32")
            )
            found[table] = sorted(map(repr, rows.select(names).to_pylist()))
    return without_own_groups(found)


def without_own_groups(tables: dict[str, list[str]]) -> dict[str, list[str]]:
    """Returns the non-empty tables without the consumer groups that the streaming queries themselves have used."""
    kept = {table: [row for row in rows if f"'group_id': '{OWN_GROUPS}-" not in row] for table, rows in tables.items()}
    return {table: rows for table, rows in kept.items() if rows}


def test_a_stream_reads_sparks_kafka_source(cluster: str, tmp_path: Path) -> None:
    """The stream finds topics that are created later, reports the lag, and publishes new rows to a topic."""
    jars = packages(KAFKA_SOURCE)
    common = {"bootstrap.servers": cluster, "log_level": 0}
    admin = AdminClient(common)
    admin.create_topics([NewTopic("early", 1, 1), NewTopic("rows", 1, 1)])["rows"].result(30)
    producer = Producer(common)
    for number in range(5):
        producer.produce("early", str(number))
    wait_until(lambda: not producer.flush(1), "all is sent")
    reader = Consumer({**common, "group.id": "early"})
    reader.commit(offsets=[TopicPartition("early", 0, 2)], asynchronous=False)
    reader.close()
    out = str(tmp_path / "out")
    arguments = ("--kafka", cluster, "--out", out, "--once", "--publish", f"{cluster}/rows")
    for traffic in (lambda: None, lambda: finished_traffic(cluster)):
        traffic()
        done = spark_job("watch", *arguments, jars=jars)
        assert done.returncode == 0, causes(done)
    expected = without_own_groups(state_of(cluster))
    assert {"groups", "offsets", "transactions"} <= expected.keys()
    assert watched_tables(tmp_path / "out") == expected

    lags = pq.read_table(tmp_path / "out" / "lag", partitioning=None).to_pylist()
    assert {(row["topic"], row["partitions"], row["lag"]) for row in lags if row["group_id"] == "early"} == {
        ("early", 1, 3)
    }
    published = Consumer({**common, "group.id": "rows", "auto.offset.reset": "earliest"})
    published.subscribe(["rows"])
    tables: dict[str, int] = {}

    def all_rows() -> bool:
        for message in published.consume(500, 1.0):
            assert message.error() is None
            table = json.loads(message.value())["table"]
            tables[table] = tables.get(table, 0) + 1
        return tables.get("timeline/transactions") == 2 and tables.get("lag", 0) >= len(lags)

    wait_until(all_rows, "the rows of finished transactions and of lag are published", 60)
    published.close()
    assert {"events", "timeline/commits", "timeline/rebalances"} <= tables.keys()
