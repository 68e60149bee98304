"""Rebuild of coordinators' state with Spark, end to end, compared with the engine's own recovery and pandas.

    pytest bench/test_spark_rebuild.py                                  # 200 000 events
    KCORE_BENCH_SPARK_EVENTS=10000000 pytest bench/test_spark_rebuild.py

In the log, 1,000 groups in eight partitions commit 100,000 different offsets repeatedly, in batches of ten. If the log
has fewer events, each event commits a different offset. A longer log does not have a larger state, so costs that are
proportional to the length are visible.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import PartitionKey
from kcore.protocol.records import CONSUMER_OFFSETS, decode_key, decode_value
from kcore.runtime.partitioner import partition_for
from kcore.spark.events.arrow import from_batch
from kcore.spark.events.sources import FolderSource, Part
from kcore.spark.export.exporter import ExportSource, export
from kcore.spark.frames.folders import folder_state
from kcore.spark.jobs.rebuild import rebuild as rebuild_job
from kcore.spark.state.batch_replay import REPLAYED, rebuild_batches
from kcore.spark.state.rebuild import Rebuilt, rebuild
from kcore.spark.state.table_batches import all_tables
from kcore.spark.state.table_files import write_tables
from kcore_ext.batch import BatchBuilder
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

EVENTS = int(os.environ.get("KCORE_BENCH_SPARK_EVENTS", "200000"))
PARTITIONS = 8
GROUP_OFFSETS = 100
GROUPS = min(1_000, EVENTS // GROUP_OFFSETS)
ROUNDS = max(1, EVENTS // (GROUPS * GROUP_OFFSETS))
BATCH_RECORDS = 10
WALL_MS = 1_700_000_000_000

Benchmark = Callable[..., Any]

pytestmark = pytest.mark.timeout(180 + EVENTS // 500)


def open_node(folder: Path) -> Engine:
    settings = {
        "kcore.data.dir": str(folder),
        "kcore.durability": "os",
        "offsets.topic.num.partitions": str(PARTITIONS),
    }
    return Engine.open(Config.of(settings), clock=ManualClock(wall_ms=WALL_MS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a data folder with the log."""
    path = tmp_path_factory.mktemp("rebuild") / "data"
    engine = open_node(path)
    topic = engine.topics.by_name(CONSUMER_OFFSETS)
    assert topic is not None
    for turn in range(ROUNDS):
        for number in range(GROUPS):
            group = f"group-{number}"
            log = engine.log.open(PartitionKey(topic.topic_id, partition_for(group, PARTITIONS)))
            for start in range(0, GROUP_OFFSETS, BATCH_RECORDS):
                builder = BatchBuilder(1 << 20, base_timestamp_ms=WALL_MS)
                for at in range(start, start + BATCH_RECORDS):
                    key = CommitKey(group, f"topic-{at // 10}", at % 10)
                    value = OffsetAndMetadata(-1, turn * 1000 + at, 3, "", WALL_MS, -1, bytes(15) + b"\x01")
                    builder.append(WALL_MS, key.encode_key(), value.encode_value(4))
                log.append(builder.build_bytearray(), log.leader_epoch)
            if number % 200 == 0:
                engine.log.commit()
        engine.log.commit()
    engine.close()
    return path


@pytest.fixture(scope="module")
def events(folder: Path) -> Path:
    """Yields the log as an export."""
    out = folder.parent / "events"
    with FolderSource(folder) as source:
        export(source, out, topic_filter={CONSUMER_OFFSETS}.__contains__)
    return out


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Yields a warm session on two cores."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime, and there is no `java` here")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    session.range(10).mapInArrow(lambda batches: batches, "id bigint").count()
    yield session
    session.stop()


def tree_cpu_s() -> float:
    """Returns the CPU seconds of this process and its descendants, because wall-clock time is unreliable on a shared
    machine.
    """
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue  # the process has ended
        fields = text.rpartition(")")[2].split()
        pid = int(text.split(" ", 1)[0])
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))  # its own time, and that of children it waited for
    ticks_, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        ticks_ += ticks.get(pid, 0)
        todo += children.get(pid, [])
    return ticks_ / os.sysconf("SC_CLK_TCK")


def test_end_to_end(benchmark: Benchmark, spark: Any, events: Path, tmp_path: Path) -> None:
    """Measures the conversion of an export to tables in Parquet on two cores, without the start of Spark."""
    cpu_s: list[float] = []

    def run() -> dict[str, int]:
        before_s = tree_cpu_s()
        counts = rebuild_job(spark, events, tmp_path / "state")
        cpu_s.append(round(tree_cpu_s() - before_s, 2))
        return counts

    counts = benchmark.pedantic(run, rounds=2, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info.update(events=GROUPS * GROUP_OFFSETS * ROUNDS, cpu_s=min(cpu_s))  # type: ignore[attr-defined]
    assert counts["offsets"] == GROUPS * GROUP_OFFSETS


def test_end_to_end_replay_alone(benchmark: Benchmark, spark: Any, events: Path) -> None:
    """Measures the rebuild without the tables' files: Spark's jobs read, replay and count the rows."""
    cpu_s: list[float] = []

    def run() -> int:
        before_s = tree_cpu_s()
        count = folder_state(spark, events).where("`table` = 'offsets'").count()
        cpu_s.append(round(tree_cpu_s() - before_s, 2))
        return count

    count_ = benchmark.pedantic(run, rounds=2, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info.update(events=GROUPS * GROUP_OFFSETS * ROUNDS, cpu_s=min(cpu_s))  # type: ignore[attr-defined]
    assert count_ == GROUPS * GROUP_OFFSETS


# ---- the split, on one core and without Spark


def parts_of(source: ExportSource) -> list[Part]:
    """Selects partitions with about a million events together, or all partitions if there are fewer events."""
    parts: list[Part] = []
    for part in source.parts():
        if sum(one.end or 0 for one in parts) < 1_000_000:
            parts.append(part)
    return parts


def read(source: ExportSource, part: Part) -> list[Any]:
    return list(source.batches(part, columns=[name for name, _ in REPLAYED]))


def rebuilt(source: ExportSource, part: Part) -> Rebuilt:
    return rebuild_batches(*part[:2], read(source, part), cleaned_to=part.cleaned_to)


@pytest.fixture(scope="module")
def batches(events: Path) -> dict[tuple[str, int], list[Any]]:
    """Returns the input of a task: Arrow batches by partition, with at most a million events."""
    source = ExportSource(events)
    return {part[:2]: read(source, part) for part in parts_of(source)}


@pytest.fixture(scope="module")
def states(events: Path) -> list[Rebuilt]:
    """Returns the rebuilt state of each partition that `parts_of` selects."""
    source = ExportSource(events)
    return [rebuilt(source, part) for part in parts_of(source)]


def count_rows(batches: Iterable[Any]) -> int:
    return sum(batch.num_rows for batch in batches)


def test_split_reading(benchmark: Benchmark, events: Path) -> None:
    """Measures reading Parquet to Arrow."""
    source = ExportSource(events)

    def run() -> int:
        return sum(count_rows(read(source, part)) for part in parts_of(source))

    benchmark.extra_info["events"] = benchmark(run)  # type: ignore[attr-defined]


def test_split_decode_and_replay(benchmark: Benchmark, batches: dict[tuple[str, int], list[Any]]) -> None:
    """Measures decoding and replay: from Arrow buffers to the state."""

    def run() -> int:
        return sum(
            rebuild_batches(*topic_partition, of_place).state.records for topic_partition, of_place in batches.items()
        )

    benchmark.extra_info["events"] = benchmark(run)  # type: ignore[attr-defined]
    assert benchmark.extra_info["events"] == sum(map(count_rows, batches.values()))  # type: ignore[attr-defined]


def test_split_decode_and_replay_row_by_row(benchmark: Benchmark, batches: dict[tuple[str, int], list[Any]]) -> None:
    """Measures decoding and replay with one object per row, the slower code for records other than offsets."""

    def run() -> int:
        rows = {
            topic_partition: chain.from_iterable(map(from_batch, of_place))
            for topic_partition, of_place in whole.items()
        }
        return sum(rebuild(*topic_partition, of_place).state.records for topic_partition, of_place in rows.items())

    whole = {
        topic_partition: [with_place(batch, *topic_partition) for batch in of_place]
        for topic_partition, of_place in batches.items()
    }
    benchmark.extra_info["events"] = benchmark.pedantic(run, rounds=3, warmup_rounds=0)  # type: ignore[attr-defined]
    assert benchmark.extra_info["events"] == sum(map(count_rows, batches.values()))  # type: ignore[attr-defined]


def with_place(batch: Any, topic: str, partition: int) -> Any:
    size = batch.num_rows
    columns = [pa.repeat(pa.scalar(topic), size), pa.repeat(pa.scalar(partition, pa.int32()), size)]
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], names=[*batch.schema.names, "topic", "partition"])


def test_split_rows_of_tables(benchmark: Benchmark, states: list[Rebuilt]) -> None:
    """Measures the conversion of the state to Arrow."""
    rows = benchmark(lambda: count_rows(batch for _, batch in all_tables(states)))
    benchmark.extra_info["rows"] = rows  # type: ignore[attr-defined]


def test_split_files(benchmark: Benchmark, states: list[Rebuilt], tmp_path: Path) -> None:
    """Measures writing the tables to Parquet files, with fsync."""
    tables = list(all_tables(states))
    assert benchmark(lambda: sum(one.rows for one in write_tables(tables, tmp_path))) == count_rows(
        b for _, b in tables
    )


def test_split_all_of_a_task(benchmark: Benchmark, events: Path, tmp_path: Path) -> None:
    """Measures the whole work of a task: Parquet to the tables' Parquet."""
    source = ExportSource(events)
    parts = parts_of(source)
    benchmark.extra_info["events"] = sum(part.end or 0 for part in parts)  # type: ignore[attr-defined]
    files = benchmark(lambda: list(write_tables(all_tables(rebuilt(source, part) for part in parts), tmp_path)))
    assert sum(one.rows for one in files if one.table == "partitions") == len(parts)


# ---- comparisons


def test_the_engine_recovers_the_same(benchmark: Benchmark, folder: Path) -> None:
    """Measures the opening of the folder by the engine, as in a restart of the server on one core."""
    counts: list[int] = []

    def run() -> None:
        engine = open_node(folder)
        counts.append(sum(shard.machine.offsets.offset_count for shard in engine.groups))
        engine.log.close()

    benchmark.pedantic(run, rounds=2, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info["events"] = GROUPS * GROUP_OFFSETS * ROUNDS  # type: ignore[attr-defined]
    assert set(counts) == {GROUPS * GROUP_OFFSETS}


def test_pandas_last_of_each_key(benchmark: Benchmark, events: Path) -> None:
    """Measures finding and decoding the last record of each key with pandas.

    Ignores transactions and deleted groups.
    """

    def run() -> int:
        files = sorted((events / f"topic={CONSUMER_OFFSETS}").glob("*/*.parquet"))
        frame = pd.concat([pd.read_parquet(path, columns=["key", "value", "partition", "offset"]) for path in files])
        last = frame.sort_values(["partition", "offset"]).drop_duplicates("key", keep="last")
        last = last[last["value"].notna()]
        keys = [decode_key(CONSUMER_OFFSETS, key) for key in last["key"]]
        values = [decode_value(key, value) for key, value in zip(keys, last["value"], strict=True)]
        return len(pd.DataFrame([(k.group, k.topic, k.partition, v.offset) for k, v in zip(keys, values, strict=True)]))

    count = benchmark.pedantic(run, rounds=2, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info["events"] = GROUPS * GROUP_OFFSETS * ROUNDS  # type: ignore[attr-defined]
    assert count == GROUPS * GROUP_OFFSETS


def test_pandas_replays(benchmark: Benchmark, events: Path) -> None:
    """Measures a simple replay: reads the records with pandas, decodes them, and stores the values in a dictionary."""

    def run() -> int:
        state: dict[tuple[str, str, int], Any] = {}
        for path in sorted((events / f"topic={CONSUMER_OFFSETS}").glob("*/*.parquet")):
            frame = pd.read_parquet(path, columns=["key", "value"])
            for data, value in zip(frame["key"], frame["value"], strict=True):
                key: Any = decode_key(CONSUMER_OFFSETS, data)
                state[key.group, key.topic, key.partition] = None if value is None else decode_value(key, value)
        return len(state)

    count = benchmark.pedantic(run, rounds=1, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info["events"] = GROUPS * GROUP_OFFSETS * ROUNDS  # type: ignore[attr-defined]
    assert count == GROUPS * GROUP_OFFSETS


PEAK = """
import re, sys
from kcore.spark.state.batch_replay import REPLAYED, rebuild_batches
from kcore.spark.export.exporter import ExportSource
from kcore.spark.state.table_batches import all_tables
from kcore.spark.state.table_files import write_tables
source = ExportSource(sys.argv[1])
def peak_kb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak_kb()
part = max(source.parts(), key=lambda part: part.end)
batches = source.batches(part, columns=[name for name, _ in REPLAYED])
list(write_tables(all_tables([rebuild_batches(*part[:2], batches)]), sys.argv[2]))
print(part.end, before, peak_kb())
"""


def test_peak_memory(benchmark: Benchmark, events: Path, tmp_path: Path) -> None:
    """Measures a process that runs the task of the largest partition: its memory before the task, and at the peak."""
    command = [sys.executable, "-c", PEAK, str(events), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}

    def run() -> list[int]:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert not done.returncode, done.stderr
        return [int(word) for word in done.stdout.split()]

    rows, before_kb, peak_kb = benchmark.pedantic(run, rounds=1, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info.update(events=rows, before_mb=before_kb >> 10, peak_mb=peak_kb >> 10)  # type: ignore[attr-defined]
    assert peak_kb > before_kb
