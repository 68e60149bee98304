"""Rebuilding the state of coordinators with Spark, end to end, beside the engine's own recovery and pandas.

    pytest bench/test_spark_rebuild.py                                  # 200 000 events
    KCORE_BENCH_SPARK_EVENTS=10000000 pytest bench/test_spark_rebuild.py

The log: 100,000 offsets of 1,000 groups in eight partitions (all events, if there are fewer), committed again and again
in batches of ten: the state is as large whatever the history, so that what grows with the history shows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pandas as pd
from pyspark.sql import SparkSession

from kcore.clock import ManualClock
from kcore.config import Config
from kcore.coordinator import Engine
from kcore.log import PartitionKey
from kcore.protocol.records import CONSUMER_OFFSETS, decode_key, decode_value
from kcore.runtime.partitioner import partition_for
from kcore.spark.arrow import from_batch
from kcore.spark.export import ExportSource, export
from kcore.spark.folder_frames import folder_state
from kcore.spark.frames import LogFacts, replay_batches
from kcore.spark.jobs.rebuild import rebuild as rebuild_job
from kcore.spark.rebuild import END, rebuild
from kcore.spark.sources import FolderSource
from kcore_ext.batch import BatchBuilder
from kcore_ext.offsets import CommitKey, OffsetAndMetadata

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
    """A data folder with the log."""
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
    """The same as an export."""
    out = folder.parent / "events"
    with FolderSource(folder) as source:
        export(source, out, wanted={CONSUMER_OFFSETS}.__contains__)
    return out


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session on two cores, warm."""
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
    """CPU seconds that this process and all below it have used: the machine is shared, and wall time says little."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue  # it has ended
        fields = text.rpartition(")")[2].split()
        pid = int(text.split(" ", 1)[0])
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))  # its own, and that of children it waited for
    found, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        found += ticks.get(pid, 0)
        todo += children.get(pid, [])
    return found / os.sysconf("SC_CLK_TCK")


def test_end_to_end(benchmark: Benchmark, spark: Any, events: Path, tmp_path: Path) -> None:
    """An export becomes tables in Parquet, on two cores: Spark's start is not counted, its jobs are."""
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
    """The same without the tables' files: Spark's jobs read, replay and count the rows."""
    cpu_s: list[float] = []

    def run() -> int:
        before_s = tree_cpu_s()
        count = folder_state(spark, events).where("`table` = 'offsets'").count()
        cpu_s.append(round(tree_cpu_s() - before_s, 2))
        return count

    found = benchmark.pedantic(run, rounds=2, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info.update(events=GROUPS * GROUP_OFFSETS * ROUNDS, cpu_s=min(cpu_s))  # type: ignore[attr-defined]
    assert found == GROUPS * GROUP_OFFSETS


# ---- the split, on one core and without Spark


@pytest.fixture(scope="module")
def batches(events: Path) -> list[Any]:
    """What a task gets: Arrow batches of at most `EVENTS` rows of some partitions, a million at most."""
    found, rows = [], 0
    source = ExportSource(events)
    for part in source.parts():
        for batch in source.batches(part):
            found.append(batch)
            rows += batch.num_rows
        if rows >= 1_000_000:
            break
    return found


def count_rows(batches: list[Any]) -> int:
    return sum(batch.num_rows for batch in batches)


def test_split_passing_rows(benchmark: Benchmark, batches: list[Any]) -> None:
    """Arrow to Python rows, and nothing else."""
    benchmark.extra_info["events"] = count_rows(batches)  # type: ignore[attr-defined]
    assert benchmark(lambda: sum(1 for batch in batches for _ in from_batch(batch))) == count_rows(batches)


def test_split_decode_and_replay(benchmark: Benchmark, batches: list[Any]) -> None:
    """Python rows to state."""
    rows = [row for batch in batches for row in from_batch(batch)]

    def run() -> int:
        by_place = groupby(rows, key=attrgetter("topic", "partition"))
        return sum(rebuild(*place, of_place).state.records for place, of_place in by_place)

    benchmark.extra_info["events"] = len(rows)  # type: ignore[attr-defined]
    assert benchmark(run) == len(rows)


def test_split_all_of_a_task(benchmark: Benchmark, batches: list[Any]) -> None:
    """Arrow to tables, as a task does it."""
    benchmark.extra_info["events"] = count_rows(batches)  # type: ignore[attr-defined]
    assert benchmark(lambda: sum(b.num_rows for b in replay_batches(batches, {}, END, LogFacts())))


# ---- beside it


def test_the_engine_recovers_the_same(benchmark: Benchmark, folder: Path) -> None:
    """The engine opens the folder: what a restart of the server takes, on one core."""
    found: list[int] = []

    def run() -> None:
        engine = open_node(folder)
        found.append(sum(shard.machine.offsets.offset_count for shard in engine.groups))
        engine.log.close()

    benchmark.pedantic(run, rounds=2, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info["events"] = GROUPS * GROUP_OFFSETS * ROUNDS  # type: ignore[attr-defined]
    assert set(found) == {GROUPS * GROUP_OFFSETS}


def test_pandas_last_of_each_key(benchmark: Benchmark, events: Path) -> None:
    """The last record of each key by pandas, decoded afterwards. It knows no transactions, nor groups that end."""

    def run() -> int:
        files = sorted((events / f"topic={CONSUMER_OFFSETS}").glob("*/*.parquet"))
        frame = pd.concat([pd.read_parquet(path, columns=["key", "value", "partition", "offset"]) for path in files])
        last = frame.sort_values(["partition", "offset"]).drop_duplicates("key", keep="last")
        last = last[last["value"].notna()]
        keys = [decode_key(CONSUMER_OFFSETS, key) for key in last["key"]]
        values = [decode_value(key, value) for key, value in zip(keys, last["value"], strict=True)]
        return len(pd.DataFrame([(k.group, k.topic, k.partition, v.offset) for k, v in zip(keys, values, strict=True)]))

    found = benchmark.pedantic(run, rounds=2, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info["events"] = GROUPS * GROUP_OFFSETS * ROUNDS  # type: ignore[attr-defined]
    assert found == GROUPS * GROUP_OFFSETS


def test_pandas_replays(benchmark: Benchmark, events: Path) -> None:
    """Every record decoded and put into a dictionary: what replaying comes to when one writes it oneself."""

    def run() -> int:
        state: dict[tuple[str, str, int], Any] = {}
        for path in sorted((events / f"topic={CONSUMER_OFFSETS}").glob("*/*.parquet")):
            frame = pd.read_parquet(path, columns=["key", "value"])
            for data, said in zip(frame["key"], frame["value"], strict=True):
                key: Any = decode_key(CONSUMER_OFFSETS, data)
                state[key.group, key.topic, key.partition] = None if said is None else decode_value(key, said)
        return len(state)

    found = benchmark.pedantic(run, rounds=1, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info["events"] = GROUPS * GROUP_OFFSETS * ROUNDS  # type: ignore[attr-defined]
    assert found == GROUPS * GROUP_OFFSETS


PEAK = """
import re, sys
from kcore.spark.export import ExportSource
from kcore.spark.folder_frames import folder_state
from kcore.spark.frames import LogFacts, replay_batches
from kcore.spark.rebuild import END
source = ExportSource(sys.argv[1])
def peak_kb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak_kb()
part = max(source.parts(), key=lambda part: part.end)
for _ in replay_batches(source.batches(part), {}, END, LogFacts()):
    pass
print(part.end, before, peak_kb())
"""


def test_peak_memory(benchmark: Benchmark, events: Path) -> None:
    """What the task of the largest partition holds at most, beside what it holds before it begins."""
    command = [sys.executable, "-c", PEAK, str(events)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}

    def run() -> list[int]:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert not done.returncode, done.stderr
        return [int(word) for word in done.stdout.split()]

    rows, before_kb, peak_kb = benchmark.pedantic(run, rounds=1, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info.update(events=rows, before_mb=before_kb >> 10, peak_mb=peak_kb >> 10)  # type: ignore[attr-defined]
    assert peak_kb > before_kb
