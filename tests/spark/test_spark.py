"""The Spark data source and the rebuild, compared with the same operations without Spark, and with a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kcore.errors import KcoreError
from kcore.spark.events.segments import find_partitions, read_rows
from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.frames.transforms import rebuild_state, table_of
from kcore.spark.jobs import rebuild as rebuild_job
from kcore.spark.state.table_schemas import TABLES
from tests.spark import oracle

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def exported(kafka_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    export(SegmentSource(kafka_logs / "moment-1"), folder, rows_per_file=3_000)
    return folder


def test_segments_and_exports_are_found_without_registration(spark: Any, kafka_logs: Path, exported: Path) -> None:
    """All sources give the same rows as a reader that does not use Spark."""
    expected = [
        (row.key, row.value, row.topic, row.partition, row.offset, row.producer_id, row.control)
        for part in find_partitions(kafka_logs / "moment-1")
        if part.topic == "__transaction_state"
        for row in read_rows(part)
        if not row.batch_only
    ]
    for path in (kafka_logs / "moment-1", exported):
        frame = spark.read.format("kcore").option("topic", "__transaction_state").load(str(path))
        columns = ("key", "value", "topic", "partition", "offset", "producer_id", "control")
        rows = frame.select(*columns).orderBy("topic", "partition", "offset").collect()
        found = [tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in rows]
        assert found == expected


def test_ranges_are_pushed_down(spark: Any, kafka_logs: Path) -> None:
    """Filters on topics, partitions and offsets give the same rows whether they are pushed down or applied
    afterwards.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    frame = spark.read.format("kcore").option("pushFilters", "true").load(str(kafka_logs / "moment-1"))
    some = frame.where("topic = '__transaction_state' and partition in (1, 2) and offset >= 100 and offset < 105")
    found = sorted((row["partition"], row["offset"]) for row in some.collect())
    assert found == [(partition, offset) for partition in (1, 2) for offset in range(100, 105)]


def test_empty_range_gives_no_rows(spark: Any, exported: Path) -> None:
    """Covers a missing topic, and a range that ends before it begins."""
    for options in ({"topic": "nope"}, {"startingOffset": "200", "endingOffset": "100"}):
        assert spark.read.format("kcore").options(**options).load(str(exported)).collect() == []


def test_job_equals_the_brokers_responses(spark: Any, exported: Path, tmp_path: Path) -> None:
    """Spark exports and rebuilds raw logs to Parquet. The result equals the broker's own responses."""
    responses = oracle.load()["moment-1"]
    counts = rebuild_job.rebuild(spark, exported, tmp_path)

    tables = {}
    for name in TABLES:
        tables[name] = [plain(row.asDict(recursive=True)) for row in spark.read.parquet(str(tmp_path / name)).collect()]
        assert len(tables[name]) == counts[name]
    assert oracle.differences(oracle.expected(responses), oracle.rebuilt(tables, responses["topic"])) == []


def plain(value: Any) -> Any:
    """Converts Spark's values to Python values."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, bytearray) else value


def test_cut_by_offset_applies_per_partition(spark: Any, kafka_logs: Path) -> None:
    events = spark.read.format("kcore").option("topic", "__transaction_state").load(str(kafka_logs / "moment-1"))
    state = rebuild_state(events, offsets={("__transaction_state", 2): 500})
    log = {row["coordinator_partition"]: row for row in table_of(state, "partitions").collect()}
    assert {partition: row["next_offset"] for partition, row in log.items()} == {
        0: 1156,
        1: 1254,
        2: 500,
        3: 1035,
        4: 1054,
    }
    assert all(row["complete"] for row in log.values())


@pytest.mark.long  # Spark gives the workers of a stream ten seconds to start, which a busy machine may exceed
def test_stream_of_available_rows_reads_all(spark: Any, exported: Path, tmp_path: Path) -> None:
    """The stream reads each available row once, in as many micro-batches as `maxOffsetsPerTrigger` requires."""
    frame = spark.readStream.format("kcore").option("topic", "__transaction_state").option("maxOffsetsPerTrigger", 700)
    query = (
        frame.load(str(exported))
        .select("partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    there = spark.read.format("kcore").option("topic", "__transaction_state").load(str(exported))
    expected = sorted(there.select("partition", "offset").collect())
    assert len(expected) > 3_500
    assert sorted(spark.read.parquet(str(tmp_path / "out")).select("partition", "offset").collect()) == expected


def test_an_offset_of_a_missing_log_is_an_error(exported: Path, tmp_path: Path, spark: Any) -> None:
    """The job refuses an offset for a log that does not exist, because the log's name may contain a typing error.

    If the job ignored the offset, the result would be the state at the end of the logs.
    """
    for topic_partition in (("__consumer_offsets", 77), ("__consumer_offset", 0)):
        with pytest.raises(
            KcoreError,
            match=f"does not contain {topic_partition[0]}-{topic_partition[1]}, but the options set an offset for it",
        ):
            rebuild_job.rebuild(spark, exported, tmp_path / "state", offsets={topic_partition: 5})


@pytest.mark.long  # Spark gives the workers of a stream ten seconds to start, which a busy machine may exceed
def test_stream_reads_new_rows_of_an_export(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """A query that is stopped and restarted on a growing export sees every row once."""
    source = SegmentSource(kafka_logs / "moment-1" / "__share_group_state-3")
    for stop in (100, 250):
        export(source, tmp_path / "events", stop=stop)
        frame = spark.readStream.format("kcore").load(str(tmp_path / "events")).select("offset")
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "seen"))
        )
        query.awaitTermination(60)
        rows = spark.read.parquet(str(tmp_path / "seen")).orderBy("offset").collect()
        assert [row["offset"] for row in rows] == list(range(stop))
